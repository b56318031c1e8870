"""A small encoder at batch 1, in eager mode: bound by the launches of its kernels."""

import torch
from common import loop
from torch import nn

torch.manual_seed(0)
layers = [nn.TransformerEncoderLayer(384, 6, 1536, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(12)]
model = nn.Sequential(*layers).cuda().half().train()  # in training mode, so that no fused path replaces the layers
tokens = torch.randn(1, 197, 384, device="cuda", dtype=torch.half)


@torch.no_grad()
def step():
    model(tokens)


loop(step, torch.cuda.synchronize)
