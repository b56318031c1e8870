"""ResNet-50, 300 training steps at batch 64 (fp32), with the energy of these by the GPU's own counter.

What the counter says alone and under ``jouletrace run`` is what tracing costs.
"""

import time

import pynvml
import torch
import torchvision

model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
images, labels = torch.randn(64, 3, 224, 224, device="cuda"), torch.randint(1000, (64,), device="cuda")
pynvml.nvmlInit()
board = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    torch.cuda.synchronize()


train(60)
begin, before = time.perf_counter(), pynvml.nvmlDeviceGetTotalEnergyConsumption(board)
train(300)
took, used = time.perf_counter() - begin, pynvml.nvmlDeviceGetTotalEnergyConsumption(board) - before
print(f"WORK {took:.3f} s {used / 1e3:.1f} J", flush=True)
