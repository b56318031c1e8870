"""A recurrent network of cells that the program calls itself, one step of time after the other."""

import torch
from loop import loop

torch.manual_seed(2)


class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.first = torch.nn.Embedding(500, 128), torch.nn.LSTM(128, 256, batch_first=True)
        self.cell, self.norm, self.head = torch.nn.GRUCell(256, 256), torch.nn.LayerNorm(256), torch.nn.Linear(256, 500)

    def forward(self, words):
        states, _ = self.first(self.embed(words))
        hidden = torch.zeros(words.shape[0], 256, device="cuda")
        for k in range(0, words.shape[1], 8):
            hidden = self.norm(self.cell(states[:, k], hidden))
        return self.head(hidden)


model = Reader().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)


def step():
    words = torch.randint(500, (32, 64), device="cuda")
    loss = torch.nn.functional.cross_entropy(model(words), words[:, -1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


loop(step, torch.cuda.synchronize)
