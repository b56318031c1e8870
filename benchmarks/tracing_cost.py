"""What tracing costs the host of a launch-bound program, by the kinds of records, by turns in one process.

    PYTHONPATH=src python benchmarks/tracing_cost.py vit resnet

A vision transformer at batch 1, eager, and ResNet-50 in training (amp). Each turn of 0.3 s with records follows one in
which CUPTI isn't attached (``cuptiFinalize``: what CUPTI has replaced in the driver stays replaced while records are
merely disabled). Ratios are of neighbouring turns. CPU time is that of the launching thread and of all others.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import torch
import torchvision

from jouletrace.stats.interval import mean_estimate
from jouletrace.tracing.cupti import Cupti, CuptiTracer
from jouletrace.tracing.decode import KERNEL, MEMCPY, MEMSET

TURN_S = 0.3
ROUNDS = 8
SYNC = 38
"""CUPTI_ACTIVITY_KIND_SYNCHRONIZATION."""
STREAM_SYNC, EVENT_SYNC, DEVICE_SYNC = 131, 137, 165
"""CUPTI_RUNTIME_TRACE_CBID_cuda*Synchronize_v3020."""

SETS: dict[str, tuple[int, ...]] = {
    "nothing": (),
    "kernels": (KERNEL,),
    "kernels, copies": (KERNEL, MEMCPY),
    "kernels, sets": (KERNEL, MEMSET),
    "kernels, copies, sets": (KERNEL, MEMCPY, MEMSET),
    "kernels, waits": (KERNEL, SYNC),
    "kernels, copies, sets, waits": (KERNEL, MEMCPY, MEMSET, SYNC),
    "kernels, copies, sets, calls that wait": (KERNEL, MEMCPY, MEMSET, -STREAM_SYNC, -EVENT_SYNC, -DEVICE_SYNC),
}
"""Kinds of records; negative: calls of the runtime."""

PAUSED = "the last ones, paused"
"""The last set, disabled again while CUPTI stays attached, as between the traced parts of a long program."""


def vit() -> Callable[[], None]:
    """ViT-B, batch 1."""
    model = torchvision.models.vit_b_16().cuda().half().eval()
    image = torch.randn(1, 3, 224, 224, device="cuda").half()

    @torch.no_grad()
    def step() -> None:
        model(image)

    return step


def resnet() -> Callable[[], None]:
    """ResNet-50, training at batch 64."""
    model = torchvision.models.resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scaler = torch.amp.GradScaler()
    images, labels = torch.randn(64, 3, 224, 224, device="cuda"), torch.randint(1000, (64,), device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def turn(step: Callable[[], None]) -> np.ndarray:
    """Milliseconds per iteration: elapsed, of this thread's CPU time, of other threads'."""
    torch.cuda.synchronize()
    own, whole = resource.getrusage(resource.RUSAGE_THREAD), time.process_time()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < TURN_S:
        step()
        count += 1
    torch.cuda.synchronize()
    elapsed, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_THREAD)
    cpu = after.ru_utime + after.ru_stime - own.ru_utime - own.ru_stime
    return 1e3 * np.array([elapsed, cpu, time.process_time() - whole - cpu]) / count


class Attached:
    """CUPTI from ``with`` to its end, with these kinds of records."""

    def __init__(self, cupti: Cupti, kinds: tuple[int, ...]) -> None:
        self._call, self._kinds = cupti.call, kinds
        self._tracer = CuptiTracer((), cupti=cupti)

    def set(self, on: int) -> None:
        """Enable or disable the records."""
        for kind in self._kinds:
            if kind < 0:
                self._call("cuptiActivityEnableRuntimeApi", -kind, on)
            else:
                self._call("cuptiActivityEnable" if on else "cuptiActivityDisable", kind)

    def __enter__(self) -> Attached:
        self._tracer.start()
        self.set(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.set(0)
        self._tracer.stop()
        torch.cuda.synchronize()
        self._call("cuptiFinalize")


def measure(step: Callable[[], None]) -> None:
    """Print the table of one program."""
    for _ in range(30):
        step()
    found, rng, cupti = defaultdict(list), np.random.default_rng(0), Cupti()
    for _ in range(ROUNDS):
        for name in rng.permutation([*SETS, PAUSED]).tolist():
            plain = turn(step)
            with Attached(cupti, SETS.get(name, list(SETS.values())[-1])) as attached:
                if name == PAUSED:
                    step()
                    attached.set(0)
                found[name].append((plain, turn(step)))
    for name in [*SETS, PAUSED]:
        turns = np.array(found[name])
        ratio = mean_estimate(np.log(turns[:, 1, 0] / turns[:, 0, 0]))
        percent = [100 * np.expm1(value) for value in (ratio.value, ratio.low, ratio.high)]
        plain, traced = np.median(turns, axis=0)
        ends = " ".join(f"{a:7.3f} -> {b:7.3f}" for a, b in zip(plain, traced, strict=True))
        print(f"  {name:40s} {percent[0]:+6.1f} %  [{percent[1]:+.1f}, {percent[2]:+.1f}]   {ends}", flush=True)


def main() -> None:
    """Measure the programs that are named."""
    for name in sys.argv[1:] or ["vit"]:
        print(f"{name}: time per iteration; ms elapsed, of CPU time, of other threads' CPU time", flush=True)
        measure({"vit": vit, "resnet": resnet}[name]())


if __name__ == "__main__":
    main()
