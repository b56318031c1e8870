"""Training on two GPUs, with equal work and then with 15 % more on rank 1, each between steps of the energy counters.

    jouletrace run torchrun --standalone --nproc-per-node 2 benchmarks/programs/two_ranks.py ddp|fsdp SECONDS OUT.json

Both ranges, ``equal`` and ``unequal``, have the same number of steps; the work of rank 0 is the same in both, so what
its counter says more in the second is what it lost by waiting. OUT.json gets, of each range and rank, seconds and
joules of the steps: the counter's, less idle power until the ranks have begun together and since they have ended.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from common import DEVICE, WARM_S, Counter, batch, wait
from torch import nn

SIZE, MORE, WIDTH = batch(40), batch(6), 1024
kind, seconds, out = sys.argv[1], float(sys.argv[2]), sys.argv[3]
local = int(os.environ["LOCAL_RANK"])
if DEVICE == "cuda":
    torch.cuda.set_device(local)
dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
rank, hosts = dist.get_rank(), dist.new_group(backend="gloo")
torch.manual_seed(rank)
layers = [nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, 0.0, batch_first=True) for _ in range(8)]
model = nn.Sequential(*layers).to(DEVICE, torch.bfloat16)
if kind == "ddp":
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local] if DEVICE == "cuda" else None)
else:
    from torch.distributed.fsdp import fully_shard

    for layer in (*model, model):
        fully_shard(layer)
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
counter = Counter(local)


def train(size, steps):
    """Seconds of some steps on random data."""
    x = torch.randn(size, 256, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    dist.barrier(hosts)
    begin = time.time_ns()
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        optimizer.step()
    wait()
    return (time.time_ns() - begin) / 1e9


def counted(size, steps, idle_w):
    """Steps, their seconds, and their joules by the counter, with idle power for the rest."""
    since, before = counter.stepped()
    took_s = train(size, steps)
    dist.barrier(hosts)
    until, after = counter.stepped()
    return {"steps": steps, "s": took_s, "j": after - before - idle_w * ((until - since) / 1e9 - took_s)}


train(SIZE, 3)
each_s = train(SIZE, 3) / 3
train(SIZE + MORE * rank, 3)
agreed = torch.tensor([each_s])
dist.broadcast(agreed, 0, group=hosts)
train(SIZE, max(1, round(WARM_S / agreed.item())))
dist.barrier(hosts)
idle_w = counter.idle_w()
result = {"rank": rank, "idle_w": idle_w}
for name, size in (("equal", SIZE), ("unequal", SIZE + MORE * rank)):
    with torch.profiler.record_function(name):
        result[name] = counted(size, max(1, round(seconds / agreed.item())), idle_w)
every = [None, None]
dist.all_gather_object(every, result, group=hosts)
if rank == 0:
    with open(out, "w") as file:
        json.dump(every, file)
dist.destroy_process_group()
