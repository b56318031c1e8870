"""ResNet-50, training at batch 64, amp, with NVTX ranges as many programs have them."""

import torch
import torchvision
from common import loop
from torch.cuda import nvtx

model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
scaler = torch.amp.GradScaler()
images, labels = torch.randn(64, 3, 224, 224, device="cuda"), torch.randint(1000, (64,), device="cuda")


def step():
    optimizer.zero_grad()
    nvtx.range_push("forward")
    with torch.autocast("cuda"):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    nvtx.range_pop()
    nvtx.range_push("backward")
    scaler.scale(loss).backward()
    nvtx.range_pop()
    nvtx.range_push("optimizer")
    scaler.step(optimizer)
    scaler.update()
    nvtx.range_pop()


loop(step, torch.cuda.synchronize)
