"""ResNet-50, training at batch 64, fp32 products by tensor cores (tf32) off: the GPU is never waiting for the host."""

import torch
import torchvision
from common import loop, seconds

model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
images, labels = torch.randn(64, 3, 224, 224, device="cuda"), torch.randint(1000, (64,), device="cuda")


def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


loop(step, torch.cuda.synchronize, seconds())
