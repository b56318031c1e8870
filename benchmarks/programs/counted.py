"""Programs whose loop lies between two steps of the energy counter, the truth of what `run` states of it.

    jouletrace run benchmarks/programs/counted.py transformer 10 OUT.json

Programs: ``transformer`` (trains four layers, waits for its host), ``resnet`` (trains ResNet-18, busy), ``product``
(one bf16 product, again and again), ``copy`` (a copy of 1 GiB each 5 ms). The loop is the range ``loop``; OUT.json gets
its seconds, joules by the counter and steps, and with a fourth argument idle power beside it.
"""

import json
import sys
import time

import pynvml
import torch

WARM_S, IDLE_S = 1.5, 1.0


def transformer():
    layers = [torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0) for _ in range(4)]
    net = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)
    optimizer, x = torch.optim.AdamW(net.parameters(), 1e-4), torch.randn(16, 256, 1024).to("cuda", torch.bfloat16)

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


def run_for(step, seconds):
    """Run steps for some seconds; returns how many."""
    since, count = time.perf_counter(), 0
    while time.perf_counter() - since < seconds:
        step()
        count += 1
        if count % 4 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return count


def main(kind, seconds, out, idle=None):
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)

    def stepped():
        before = now = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
        while now == before:
            now = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
        return time.perf_counter(), now / 1e3

    step = {"transformer": transformer, "resnet": resnet, "product": product, "copy": copy}[kind]()
    run_for(step, WARM_S)
    found = {"kind": kind}
    if idle:
        time.sleep(0.5)
        (since, before), _, (until, after) = stepped(), time.sleep(IDLE_S), stepped()
        found["idle_w"] = (after - before) / (until - since)
        run_for(step, WARM_S / 2)
    since, before = stepped()
    with torch.profiler.record_function("loop"):
        found["steps"] = run_for(step, float(seconds))
    until, after = stepped()
    with open(out, "w") as file:
        json.dump(found | {"s": until - since, "j": after - before}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
