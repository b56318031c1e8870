"""A vision transformer at batch 1: the host can hardly keep up."""

import torch
import torchvision
from common import loop, seconds

model = torchvision.models.vit_b_16().cuda().half().eval()
image = torch.randn(1, 3, 224, 224, device="cuda").half()


@torch.no_grad()
def step():
    model(image)


loop(step, torch.cuda.synchronize, seconds())
