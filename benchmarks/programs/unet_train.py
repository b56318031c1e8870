"""A diffusion U-Net in training, bf16 by autocast, with averaged weights: convolution, group norm, attention."""

import math

import torch
from common import DEVICE, batch, loop
from torch import nn
from torch.nn import functional

SIZE = batch(64)


class Residual(nn.Module):
    def __init__(self, before, after, time):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(16, before), nn.Conv2d(before, after, 3, padding=1)
        self.time, self.norm_2 = nn.Linear(time, after), nn.GroupNorm(16, after)
        self.conv_2 = nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x, time):
        h = self.conv(functional.silu(self.norm(x))) + self.time(functional.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv_2(functional.silu(self.norm_2(h)))


class Attention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(16, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        images, channels, height, width = x.shape
        heads = self.qkv(self.norm(x)).reshape(images, 3, 4, channels // 4, height * width)
        q, k, v = heads.transpose(-1, -2).unbind(1)
        attended = functional.scaled_dot_product_attention(q, k, v).transpose(-1, -2)
        return x + self.out(attended.reshape(images, channels, height, width))


class UNet(nn.Module):
    def __init__(self, c=128, time=512):
        super().__init__()
        self.time, self.c = nn.Sequential(nn.Linear(c, time), nn.SiLU(), nn.Linear(time, time)), c
        self.first, self.last = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 3, 3, padding=1)
        self.down_1, self.down_2, self.down_3 = (Residual(a * c, b * c, time) for a, b in ((1, 1), (1, 2), (2, 2)))
        self.attention, self.middle = Attention(2 * c), Residual(2 * c, 2 * c, time)
        self.up_3, self.up_2, self.up_1 = (Residual(a * c, b * c, time) for a, b in ((4, 2), (4, 1), (2, 1)))

    def forward(self, x, times):
        rates = torch.exp(-math.log(1e4) * torch.arange(self.c // 2, device=x.device) / (self.c // 2))
        time = self.time(torch.cat([(times[:, None] * rates).sin(), (times[:, None] * rates).cos()], 1))
        x_1 = self.down_1(self.first(x), time)
        x_2 = self.down_2(functional.avg_pool2d(x_1, 2), time)
        x_3 = self.attention(self.down_3(functional.avg_pool2d(x_2, 2), time))
        y = self.up_3(torch.cat([self.middle(x_3, time), x_3], 1), time)
        y = self.up_2(torch.cat([functional.interpolate(y, scale_factor=2), x_2], 1), time)
        y = self.up_1(torch.cat([functional.interpolate(y, scale_factor=2), x_1], 1), time)
        return self.last(y)


torch.manual_seed(0)
net = UNet().to(DEVICE)
average = [weights.detach().clone() for weights in net.parameters()]
optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
images = torch.randn(SIZE, 3, 64, 64)
images = images.pin_memory() if DEVICE == "cuda" else images


def step():
    x, times = images.to(DEVICE, non_blocking=True), torch.rand(SIZE, device=DEVICE) * 1000
    noise = torch.randn_like(x)
    with torch.autocast(DEVICE, torch.bfloat16):
        loss = functional.mse_loss(net(x + noise, times).float(), noise)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    with torch.no_grad():
        torch._foreach_lerp_(average, [weights.detach() for weights in net.parameters()], 0.001)


loop(step)
