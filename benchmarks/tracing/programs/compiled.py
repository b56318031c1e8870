"""A compiled model in training."""

import torch
from loop import loop

torch.manual_seed(6)
layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
model = torch.compile(torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda())
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)


def step():
    loss = model(torch.randn(8, 128, 256, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


loop(step, torch.cuda.synchronize)
