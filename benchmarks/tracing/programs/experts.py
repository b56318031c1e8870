"""A mixture of experts whose routing the host reads, in training, with checkpoints."""

import torch
from loop import loop
from torch.utils.checkpoint import checkpoint

torch.manual_seed(3)


class Experts(torch.nn.Module):
    def __init__(self, size=256, count=4):
        super().__init__()
        self.norm, self.route = torch.nn.LayerNorm(size), torch.nn.Linear(size, count)
        self.experts = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(size, 4 * size), torch.nn.GELU(), torch.nn.Linear(4 * size, size))
            for _ in range(count)
        )

    def forward(self, x):
        flat = self.norm(x).flatten(0, 1)
        weight, chosen = self.route(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for k, expert in enumerate(self.experts):
            where = (chosen == k).nonzero()[:, 0]
            if where.numel():
                out = out.index_add(0, where, expert(flat[where]) * weight[where, None])
        return x + out.view_as(x)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = torch.nn.Embedding(800, 256), torch.nn.ModuleList(Experts() for _ in range(4))
        self.head = torch.nn.Linear(256, 800)

    def forward(self, words):
        x = self.embed(words)
        for k, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=False) if k % 2 else layer(x)
        return self.head(x)


model = Model().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)


def step():
    words = torch.randint(800, (16, 64), device="cuda")
    loss = torch.nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


loop(step, torch.cuda.synchronize)
