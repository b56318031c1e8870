"""A residual network under DistributedDataParallel, by torchrun; the rank that is named does a tenth more work.

torchrun --standalone --nproc-per-node 2 benchmarks/programs/ddp_train.py [SECONDS] [SLOW_RANK]
"""

import os
import sys
import time

import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
length = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
slow = int(sys.argv[2]) if len(sys.argv) > 2 else -1
model = DistributedDataParallel(torchvision.models.resnet101().cuda(), device_ids=[local])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
size = 70 if rank == slow else 64
images, labels = torch.randn(size, 3, 224, 224, device="cuda"), torch.randint(1000, (size,), device="cuda")
ends = torch.zeros(1, device="cuda")
begin, steps = time.perf_counter(), 0
while not ends.item():
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    steps += 20
    ends.fill_(time.perf_counter() - begin > length)
    dist.broadcast(ends, 0)
if rank == 0:
    print(f"RATE {steps / (time.perf_counter() - begin):.3f} iterations/s", flush=True)
dist.destroy_process_group()
