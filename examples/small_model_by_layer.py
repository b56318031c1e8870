"""A small model, layer by layer.

python examples/small_model_by_layer.py                      # a GPU, if there is one
python examples/small_model_by_layer.py --device cpu
python examples/small_model_by_layer.py --device sim:h100    # a simulated board
"""

import torch
from options import parse
from torch import nn

import jouletrace as jt

arguments = parse(__doc__)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 1024))
inputs = torch.randn(arguments.batch or 4096, 1024)

profiler = jt.LayerProfiler(model, arguments.device, mode=arguments.mode)
profiler.profile(inputs, runs=arguments.runs, **arguments.times)

print(profiler.summary())
if arguments.output:
    print("written:", *profiler.to_csv(arguments.output))
