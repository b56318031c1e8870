"""A program that waits for its data loader."""

import time

import torch
from common import loop, seconds
from torch import nn


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 10_000_000

    def __getitem__(self, i):
        time.sleep(0.0005)
        return torch.randn(3, 64, 64)


loader = iter(torch.utils.data.DataLoader(Slow(), batch_size=64, num_workers=2))
model = nn.Sequential(*[nn.Conv2d(3 if i == 0 else 256, 256, 3, padding=1) for i in range(6)]).cuda().half()


def step():
    model(next(loader).cuda().half())


loop(step, torch.cuda.synchronize, seconds())
