"""A small model, kernel by kernel: on a CPU, operator by operator.

python examples/small_model_by_kernel.py [--device auto|cpu|sim:h100]
"""

import torch
from options import parse
from torch import nn

import jouletrace as jt

arguments = parse(__doc__)
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 128, 3), nn.ReLU())
inputs = torch.randn(arguments.batch or 64, 3, 224, 224)

profiler = jt.KernelProfiler(model, arguments.device, mode=arguments.mode)
profiler.profile(inputs, runs=arguments.runs, **arguments.times)

print(profiler.summary())
if arguments.output:
    print("written:", *profiler.to_csv(arguments.output))
