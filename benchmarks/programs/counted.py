"""Programs whose loop lies between two steps of the energy counter, the truth of what `run` states of it.

    jouletrace run benchmarks/programs/counted.py transformer 10 OUT.json

Programs: ``transformer`` (trains four layers, waits for its host), ``resnet`` (trains ResNet-18, busy), ``product``
(one bf16 product, again and again), ``copy`` (a copy of 1 GiB each 5 ms). Arguments after the first: ``common.py``.
"""

import sys
import time

import torch
from common import DEVICE, batch, loop, wait


def transformer():
    layers = [torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0) for _ in range(4)]
    net = torch.nn.Sequential(*layers).to(DEVICE, torch.bfloat16)
    optimizer, x = torch.optim.AdamW(net.parameters(), 1e-4), torch.randn(batch(16), 256, 1024)
    x = x.to(DEVICE, torch.bfloat16)

    def step():
        optimizer.zero_grad()
        net(x).float().square().mean().backward()
        optimizer.step()

    return step


def resnet():
    from torchvision.models import resnet18

    net, x, y = resnet18().cuda(), torch.randn(64, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (64,)).cuda()
    optimizer, loss = torch.optim.SGD(net.parameters(), 1e-3), torch.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()

    return step


def product():
    a, b = (torch.randn(4096, 4096, device="cuda").bfloat16() for _ in range(2))

    def step():
        for _ in range(20):
            torch.mm(a, b)

    return step


def copy():
    a = torch.randn(1 << 28, device="cuda")
    b = torch.empty_like(a)

    def step():
        b.copy_(a)
        torch.cuda.synchronize()
        time.sleep(0.004)

    return step


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    program = {"transformer": transformer, "resnet": resnet, "product": product, "copy": copy}[sys.argv.pop(1)]
    loop(program(), wait)
