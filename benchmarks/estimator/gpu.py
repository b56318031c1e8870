"""Records programs on a GPU for the judges of the estimator: readings, kernels' timelines, and what gives their truth.

    PYTHONPATH=src python benchmarks/estimator/gpu.py OUT [short long chain cap host]

Writes OUT/SECTION.npz (``gpu_files``), which ``gpu_recorded.py`` judges without a GPU. Of several sections each runs in
a process of its own, so that none takes another with it:

- *short* (240 s): trains of bursts of 20 and 50 ms of five programs, with long and with short pauses; those after long
  pauses are judged, and a line of the trains' energies over the time of pauses is their truth.
- *long* (270 s): bursts of 0.2, 1 and 3 s of these, in random order, after a second of idle and more.
- *chain* (55 s): eight large operators one after the other, then each looped alone.
- *cap* (80 s): four programs at the power limit, with idle around each.
- *host* (three processes, 50 s each): an encoder at batch 1, launched kernel by kernel; then blocks of it with sleeps
  between iterations, of the same length in a block.

Kernels are traced in the whole time, ``time.time_ns`` is the clock of all. Bursts begin and end with a
synchronisation, as ``jt.measure`` has it.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from gpu_files import Kernels, Recorded, write
from gpu_power import Sensors

HERE = Path(__file__).resolve().parent
PLAN_S = {"short": 240, "long": 270, "chain": 55, "cap": 80, "host-1": 50, "host-2": 50, "host-3": 50}
"""Seconds of each section, for orientation."""

SHORT_S, LONG = (0.02, 0.05), ((0.2, 10), (1.0, 6), (3.0, 4))
"""Lengths of short bursts; lengths and numbers of long ones."""

TRAINS = ((12, 0.30), (20, 0.06), (20, 0.06), (12, 0.30), (20, 0.06), (20, 0.06))
"""Bursts of each train, and least pauses before them in s, which are up to a fifth longer."""

JUDGED_S = 0.3
"""Pause from which on a burst is judged."""

SETTLE_S = 0.4
"""Idle between trains: the counter has all of the last one, and steps."""

BLOCKS, BLOCK_S, MOST_SLEEP_S = 24, 0.5, 0.008
"""Blocks of the host-bound loop, the length of one, and the longest sleep between iterations, spread evenly: they give
the work of an iteration to 1 % where a step of the counter is known to 5 ms."""

AHEAD = 3
"""Iterations that wait in a loop while one runs."""


def idle(seconds: float) -> None:
    """Wait for the GPU, then leave it alone."""
    import torch

    torch.cuda.synchronize()
    time.sleep(seconds)


def iterate(step: Callable[[], object], count: int) -> tuple[int, int]:
    """Start and end in ns of so many iterations, synchronised at both."""
    import torch

    torch.cuda.synchronize()
    start = time.time_ns()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return start, time.time_ns()


def loop(step: Callable[[], object], seconds: float) -> tuple[int, int, int]:
    """Start and end in ns and number of the iterations of so many seconds, of which some are launched ahead."""
    import torch

    torch.cuda.synchronize()
    start, count, waiting = time.time_ns(), 0, deque()
    while time.time_ns() < start + seconds * 1e9:
        step()
        count += 1
        waiting.append(torch.cuda.Event())
        waiting[-1].record()
        if len(waiting) > AHEAD:
            waiting.popleft().synchronize()
    torch.cuda.synchronize()
    return start, time.time_ns(), count


class Section:
    """A section while it is recorded; what is known of it is in ``found`` whenever it ends."""

    def __init__(self, name: str, found: Recorded) -> None:
        self.name, self.found = name, found

    def add(self, name: str, start_ns: int, end_ns: int, iterations: int, **more: object) -> None:
        """Keep a span of time."""
        row = {"name": name, "start_ns": start_ns, "end_ns": end_ns, "iterations": iterations}
        self.found.spans.append(row | more)

    @contextmanager
    def traced(self, name: str) -> Iterator[None]:
        """Trace the kernels of a block."""
        import torch

        from jouletrace.tracer.in_process import InProcess
        from jouletrace.tracer.launching import Duty
        from jouletrace.tracer.rows import KERNEL

        torch.cuda.synchronize()
        tracer = InProcess(operators=False, duty=Duty(first_kernels=sys.maxsize))
        if tracer.problem:
            self.trouble(f"{name}: {tracer.problem}")
        try:
            yield
        finally:
            torch.cuda.synchronize()
            for one in tracer.end():
                if one.pid != os.getpid():
                    continue
                work = one.work.take(np.argsort(one.work.start_ns, kind="stable"))
                used, shape = np.unique(work.extra * (work.kind == KERNEL), return_inverse=True)
                shapes = [list(work.shapes[one][:6]) for one in used.tolist()]
                columns = (work.start_ns, work.end_ns, work.name, work.stream, shape)
                self.found.kernels[name] = Kernels(*columns, names=list(work.names), shapes=shapes)
                for code, text in one.notes:
                    self.trouble(f"{name}: {code}: {text}")
            if tracer.problem:
                self.trouble(f"{name}: {tracer.problem}")

    def each(self, builders: dict, act: Callable[[str, Callable[[], object]], None]) -> None:
        """Build each program, warm it up and act on it, traced; one that fails takes no other with it."""
        import torch

        for name, build in builders.items():
            began = time.monotonic()
            try:
                step = build()
                loop(step, 0.5)
                print(f"   {name}: built in {time.monotonic() - began:.1f} s", flush=True)
                with self.traced(name):
                    act(name, step)
            except Exception:
                self.trouble(f"{name}: {traceback.format_exc()}")
            step = None
            gc.collect()
            torch.cuda.empty_cache()

    def trouble(self, text: str) -> None:
        """Print what went wrong, and keep it."""
        print(f"   ! {text}", flush=True)
        self.found.about.setdefault("trouble", []).append(text)


def iteration_s(step: Callable[[], object]) -> float:
    """Seconds of an iteration in a steady state."""
    loop(step, 0.7)
    _, _, count = loop(step, 0.2)
    start, end = iterate(step, count)
    return (end - start) / 1e9 / count


def short(section: Section) -> None:
    """Trains of bursts of 20 and 50 ms."""
    from gpu_programs import SHORT

    rng = np.random.default_rng(1)

    def act(name: str, step: Callable[[], object]) -> None:
        for wanted_s in SHORT_S:
            count = max(1, round(wanted_s / iteration_s(step)))
            for train, (bursts, pause_s) in enumerate(TRAINS):
                idle(SETTLE_S)
                for _ in range(bursts):
                    idle(pause_s * rng.uniform(1.0, 1.2))
                    more = {"wanted_s": wanted_s, "train": train, "judged": pause_s >= JUDGED_S}
                    section.add(name, *iterate(step, count), count, **more)
            idle(SETTLE_S)

    section.each(SHORT, act)


def long(section: Section) -> None:
    """Bursts of tenths of a second and of seconds."""
    from gpu_programs import SHORT

    rng = np.random.default_rng(2)

    def act(name: str, step: Callable[[], object]) -> None:
        each_s = iteration_s(step)
        idle(1.5)
        for wanted_s in rng.permutation(np.repeat([s for s, _ in LONG], [n for _, n in LONG])).tolist():
            count = max(1, round(wanted_s / each_s))
            section.add(name, *iterate(step, count), count, wanted_s=wanted_s, judged=True)
            idle(rng.uniform(1.0, 1.2))
        idle(0.5)

    section.each(SHORT, act)


def chain(section: Section) -> None:
    """Eight operators one after the other, then each alone."""
    import torch

    sys.path.append(str(HERE.parent / "programs"))
    from chain import make

    model, (inputs,) = make()
    with torch.inference_mode():
        loop(lambda: model(inputs), 1.0)
        with section.traced("chain"):
            idle(1.5)
            section.add("chain", *loop(lambda: model(inputs), 10.0), judged=True)
            idle(1.5)
        with section.traced("alone"):
            for name, operator in model.operators.items():
                loop(lambda operator=operator: operator(inputs), 0.7)
                section.add(name, *loop(lambda operator=operator: operator(inputs), 1.5), judged=False)
            idle(1.0)


def cap(section: Section) -> None:
    """Programs at the power limit, with idle before and after each."""
    from gpu_programs import LARGE

    def act(name: str, step: Callable[[], object]) -> None:
        idle(2.0)
        section.add(name, *loop(step, 8.0), judged=True)
        idle(2.0)

    section.each(LARGE, act)


def host(section: Section) -> None:
    """An encoder at batch 1: without pauses, then blocks with sleeps between iterations."""
    from gpu_programs import encoder_eager

    rng = np.random.default_rng([3, int(section.name[-1])])
    iterations: list[tuple[int, int]] = []

    def act(name: str, step: Callable[[], object]) -> None:
        loop(step, 1.0)
        idle(2.0)
        iterations.extend(iterate(step, 1) for _ in _until(10.0))
        section.add("loop", iterations[0][0], iterations[-1][1], len(iterations), judged=True)
        idle(2.0)
        for sleep_s in rng.permutation(np.linspace(0.0, MOST_SLEEP_S, BLOCKS)).tolist():
            first = len(iterations)
            for _ in _until(BLOCK_S):
                iterations.append(iterate(step, 1))
                time.sleep(sleep_s)
            start, end = iterations[first][0], iterations[-1][1]
            section.add("block", start, end, len(iterations) - first, sleep_s=sleep_s, judged=False)
            idle(0.25)
        idle(0.5)

    section.each({"host": lambda: encoder_eager(1)}, act)
    section.found.arrays["iterations"] = np.array(iterations, np.int64).reshape(-1, 2)


def _until(seconds: float) -> Iterator[None]:
    """Turns until so many seconds are over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


SECTIONS = {"short": short, "long": long, "chain": chain, "cap": cap}
SECTIONS |= {name: host for name in PLAN_S if name.startswith("host")}


def record(name: str, out: Path) -> None:
    """Record one section in this process; what it has is written whatever happens."""
    import pynvml as nvml
    import torch

    began = time.monotonic()
    torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    torch.manual_seed(0)
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
    limit_w = nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3
    about = {"gpu": torch.cuda.get_device_name(0), "driver": nvml.nvmlSystemGetDriverVersion(), "limit_w": limit_w}
    about |= {"uuid": uuid, "torch": torch.__version__, "section": name}
    section, readings = Section(name, Recorded(about)), out / f"{name}-readings.npz"
    try:
        with Sensors(uuid, readings):
            time.sleep(1.5)
            SECTIONS[name](section)
    except Exception:
        section.trouble(traceback.format_exc())
    try:
        with np.load(readings) as file:
            section.found.arrays |= {key: file[key] for key in file.files}
        readings.unlink()
    except OSError as error:
        section.trouble(f"no readings: {error}")
    write(section.found, out / f"{name}.npz")
    print(summary(section.found), flush=True)
    size = (out / f"{name}.npz").stat().st_size / 1e6
    print(f"== {name}: {time.monotonic() - began:.0f} s of {PLAN_S[name]} planned, {size:.1f} MB", flush=True)


def summary(found: Recorded) -> str:
    """A line for each kind of span, and for each tracing."""
    lines, groups = [], {}
    for span in found.spans:
        groups.setdefault((span["name"], span.get("wanted_s")), []).append(span)
    for (name, wanted_s), spans in groups.items():
        seconds = np.array([span["end_ns"] - span["start_ns"] for span in spans]) / 1e9
        asked = "" if wanted_s is None else f" of {wanted_s:g} s"
        iterations = spans[0]["iterations"]
        lines.append(
            f"   {name}{asked}: {len(spans)} spans, {iterations} iterations each, {np.median(seconds):.4f} s "
            f"({seconds.min():.4f} to {seconds.max():.4f})"
        )
    lines += [
        f"   {name}: {len(one.start_ns)} kernels of {len(one.names)} names" for name, one in found.kernels.items()
    ]
    lines += [f"   {name}: {len(values)} rows" for name, values in found.arrays.items()]
    return "\n".join(lines)


def main() -> None:
    out, asked = Path(sys.argv[1]), sys.argv[2:] or ["short", "long", "chain", "cap", "host"]
    names = [name for one in asked for name in PLAN_S if name == one or (one == "host" and name.startswith("host-"))]
    out.mkdir(parents=True, exist_ok=True)
    if len(names) == 1:
        record(names[0], out)
        return
    print("plan: " + ", ".join(f"{name} {PLAN_S[name]} s" for name in names), flush=True)
    for name in names:
        try:
            subprocess.run([sys.executable, __file__, str(out), name], check=False, timeout=60 + 1.5 * PLAN_S[name])
        except subprocess.TimeoutExpired as error:
            print(f"   ! {error}", flush=True)


if __name__ == "__main__":
    main()
