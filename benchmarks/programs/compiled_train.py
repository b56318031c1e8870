"""A transformer encoder trained under torch.compile."""

import torch
from common import loop, seconds
from torch import nn

layer = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0)
model = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(16, 256, 1024, device="cuda")


@torch.compile
def loss_of(x):
    with torch.autocast("cuda", torch.bfloat16):
        return (model(x) - x).pow(2).mean()


def step():
    optimizer.zero_grad()
    loss_of(x).backward()
    optimizer.step()


step()
loop(step, torch.cuda.synchronize, seconds())
