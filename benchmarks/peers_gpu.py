"""jouletrace beside other tools on one GPU, one tool after the other, in random order by a fixed seed.

    PYTHONPATH=src python benchmarks/peers_gpu.py OUT.json                   # eight minutes on an H200
    PYTHONPATH=src python benchmarks/peers_gpu.py OUT.json bursts inside --quick
    python benchmarks/peers_errors.py OUT.json                               # the tables again

Sections, each within its share of the time (``LIMIT_S``), after which it begins no further row:

- *first*: seconds until a tool's first block may begin, imports included, in a process of its own.
- *steady*: blocks inside a load of another process that goes on.
- *training*: blocks of steps within a training loop; the GPU is idle at both edges, as after ``loss.item()``.
- *bursts*: ViT-B after pauses.
- *inside*: bursts inside a lighter load; cycles of the same without a tool, with and without bursts, give the truth.
- *overhead*: seconds per iteration with and without each tool, by turns; of a small encoder also ``jouletrace run``.
- *kernels*: operators of a chain beside each looped alone.

The truth is the GPU's energy counter, which a process of its own polls: its steps are in OUT.json beside what the tools
said, and ``peers_errors.py`` makes errors of them. What fails is in OUT.json as ``error``, and the rest goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import slowdown
from canary import captured, replay_s
from counter import poll
from peers_tools import GPU, TOOLS, end_recorders, lines_of

HERE = Path(__file__).parent
LIMIT_S = {"first": 35, "steady": 55, "training": 55, "bursts": 120, "inside": 48, "overhead": 72, "kernels": 115}
HANG_S = 20
"""How long after its limit a section is broken off."""

PLAIN = "nothing"
APPROX, SAMPLES = "zeus, approx", "NVML samples"
STEP_S = 0.15
"""Of ``APPROX`` only blocks below this are measured: in longer ones the counter steps, and it is the same as zeus."""

LONG = [tool for tool in TOOLS if tool not in (APPROX, SAMPLES)]
"""Tools of sections whose blocks are long; the others are for bursts."""

STEADY_S = TRAINING_S = {1.0: 3, 5.0: 1}
BURSTS_S = {0.05: 3, 0.2: 2, 1.0: 2, 3.0: 1}
INSIDE_S = {0.02: 4, 0.05: 4, 0.1: 4}
"""Seconds of blocks, and in how many rounds: a round has each of its lengths once for each tool."""

PAUSE_S, BETWEEN_S = 1.2, 0.4
LIGHT_S, CYCLES, GROUPS = 0.3, 5, 3
TURN_S, ROUNDS = 0.25, 6
ALONE_S, WARM_S, REPLAYED_S, ZEUS_S = 1.2, 0.5, 2.0, 3.0

Row = dict[str, Any]


class Watch:
    """Time that a section has."""

    def __init__(self, limit_s: float) -> None:
        self._until = time.perf_counter() + limit_s

    def left_s(self) -> float:
        return self._until - time.perf_counter()


def load() -> None:
    """Keep the GPU at one power until stdin closes."""
    import torch

    graph, said = captured(torch, product(torch)), False
    chunk = max(1, int(0.02 / replay_s(torch, graph, 50)))
    waiting: list[Any] = []
    until = time.perf_counter() + WARM_S
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(chunk):
            graph.replay()
        waiting.append(torch.cuda.Event())
        waiting[-1].record()
        if len(waiting) > 2:
            waiting.pop(0).synchronize()
        if not said and time.perf_counter() > until:
            said = print("loaded", flush=True) is None


@contextmanager
def beside(*words: str) -> Iterator[int]:
    """A process of this script by its id, from its first line on until its stdin closes."""
    process = subprocess.Popen([sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if not process.stdout.readline():
            raise RuntimeError(f"{words[0]}: it ended with {process.wait()}")
        yield process.pid
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


class Counter:
    """The GPU's energy counter within ``with``: ``steps`` are its own, as µs, µs of uncertainty, mJ since the first."""

    def __enter__(self) -> Counter:
        import torch

        self.steps: list[list[int]] = []
        self._stack = contextlib.ExitStack()
        self._target = Path(self._stack.enter_context(tempfile.TemporaryDirectory())) / "counter.npz"
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
        self._poller = self._stack.enter_context(contextlib.ExitStack())
        self.pid = self._poller.enter_context(beside("poll", str(self._target), uuid))
        time.sleep(0.3)
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0.3)
        self._poller.close()
        reads = np.load(self._target)["reads"]
        at = np.flatnonzero(np.diff(reads[:, 1])) + 1
        middles = (reads[:, 0] + reads[:, 2]) // 2
        found = np.stack([middles[at], middles[at] - middles[at - 1], reads[at, 1] - reads[at[0], 1]], 1)
        found[:, :2] //= 1000
        self.steps = found.tolist()
        self._stack.close()


# the loads, of random data


def vit(torch: Any, batch: int = 64) -> Callable[[], Any]:
    """A step of ViT-B in fp16, eager."""
    import torchvision

    net = torchvision.models.vit_b_16().cuda().half().eval()
    images = torch.randn(batch, 3, 224, 224, device="cuda").half()
    return torch.inference_mode()(lambda: net(images))


def training(torch: Any, batch: int = 256) -> Callable[[], Any]:
    """A training step of ResNet-18 with autocast."""
    import torchvision

    net = torchvision.models.resnet18().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    images, labels = torch.randn(batch, 3, 224, 224, device="cuda"), torch.randint(1000, (batch,), device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()

    return step


def encoder(torch: Any) -> Callable[[], Any]:
    """A small encoder at batch 1 in eager mode: bound by the launches of its kernels."""
    layers = [torch.nn.TransformerEncoderLayer(384, 6, 1536, 0.0, batch_first=True) for _ in range(12)]
    net, tokens = torch.nn.Sequential(*layers).cuda().half(), torch.randn(1, 197, 384, device="cuda").half()
    return torch.no_grad()(lambda: net(tokens))


def product(torch: Any, size: int = 8192) -> Callable[[], Any]:
    """A large product in fp16."""
    a, b = (torch.randn(size, size, device="cuda").half() for _ in range(2))
    return lambda: a @ b


def light(torch: Any, size: int = 1 << 22) -> Callable[[], Any]:
    """Elementwise products within the L2, which draw less."""
    a, b = (torch.randn(size, device="cuda") for _ in range(2))

    def step() -> None:
        for _ in range(200):
            torch.mul(a, 1.5, out=b)

    return step


def again(step: Callable[[], Any], count: int) -> None:
    for _ in range(count):
        step()


def step_seconds(torch: Any, step: Callable[[], Any], count: int) -> float:
    """Mean time of a step, s, from an idle GPU to its end."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    again(step, count)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / count


# a row: what a tool says of a block, and when that was


def row_of(tool: str, length_s: float, work: Callable[[], Any], at_once: bool = True) -> Row:
    """A block of work: times in ns when the tool was called, the work began and ended, and the tool was through.

    The GPU is idle at all four, but for ``APPROX``, which reads the power before it synchronises, while the GPU works:
    the end of its work is the GPU's. ``tell`` makes a figure of what the tool says; at once, or later in a loop.
    """
    import torch

    torch.cuda.synchronize()
    row: Row = {"tool": tool, "length_s": length_s}
    try:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if tool == APPROX else []
        called = time.time_ns()
        with TOOLS[tool]() as block:
            start = time.time_ns()
            for mark in marks[:1]:
                mark.record()
            work()
            for mark in marks[1:]:
                mark.record()
            if not marks:
                torch.cuda.synchronize()
            end, spent_s = time.time_ns(), time.process_time()
        if marks:
            end = start + round(marks[0].elapsed_time(marks[1]) * 1e6)
        row |= {"at": [called, start, end, time.time_ns()], "block": block}
        if at_once:
            tell(row)
            row["figure_s"] = round((time.time_ns() - end) / 1e9, 4)
            row["figure_cpu_s"] = round(time.process_time() - spent_s, 4)
    except Exception as error:
        row["error"] = said(error)
    return row


def tell(row: Row) -> None:
    """Replace the block by its joules, with both ends of the interval where it has one, and the seconds it states."""
    block = row.pop("block", None)
    if block is None:
        return
    try:
        joules = block.joules() if callable(block.joules) else block.joules
        three = [joules.value, joules.low, joules.high] if hasattr(joules, "low") else [joules]
        row["joules"] = [None if one is None or one != one else round(float(one), 4) for one in three]
        row["stated_s"] = round(float(block.seconds), 5)
    except Exception as error:
        row["error"] = said(error)


def said(error: BaseException) -> str:
    """Return the type and text of an error, in one line."""
    return f"{type(error).__name__}: {error}"[:300]


def start_recorder() -> None:
    """Start the process of ``jt.measure`` before a loop, in which it lives on."""
    tell(row_of("jouletrace", 0.0, lambda: None))


def orders(tools: list[str], lengths: dict[float, int], watch: Watch, seed: int) -> Iterator[tuple[str, float]]:
    """Tools and lengths of blocks, a round after the other, each in random order, until the time is over."""
    random = np.random.default_rng(seed)
    for number in range(max(lengths.values())):
        cells = [(tool, one) for one, rounds in lengths.items() if number < rounds for tool in tools]
        for place in random.permutation(len(cells)).tolist():
            tool, length_s = cells[place]
            if watch.left_s() < length_s + 1:
                return
            if tool != APPROX or length_s < STEP_S:
                yield tool, length_s


# the sections


def first(torch: Any, watch: Watch) -> Row:
    """Seconds from the call of each tool until its block may begin, each in a process of its own that has torch alone.

    They load torch at the same time and begin one after the other. Then each tool is warmed up in this process.
    """
    command, rows = [sys.executable, __file__, "begin"], []
    processes = {
        tool: subprocess.Popen([*command, tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for tool in TOOLS
    }
    try:
        for process in processes.values():
            process.stdout.readline()
        for tool, process in processes.items():
            try:
                answer, _ = process.communicate("begin\n", 10)
                rows += json.loads(answer.splitlines()[-1])
            except Exception as error:
                rows.append({"tool": tool, "error": said(error)})
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    step = encoder(torch)
    again(step, 20)
    for tool in TOOLS:
        tell(row_of(tool, 0.0, lambda: again(step, 20), at_once=False))
    return {"rows": rows}


def begin(tool: str) -> None:
    """Two rows of a tool in a process that has loaded torch, once stdin has a line."""
    import torch

    torch.zeros(1, device="cuda")
    print("loaded", flush=True)
    sys.stdin.readline()
    rows = [row_of(tool, 0.0, lambda: time.sleep(0.05)) for _ in range(2)]
    print(json.dumps(rows), flush=True)


def steady(torch: Any, watch: Watch) -> Row:
    """Blocks inside the load of another process, with the CPU time that a tool's threads and processes take."""
    import psutil

    rows, random = [], np.random.default_rng(1)

    def spent_s(others: tuple[int, ...]) -> float:
        spent = time.process_time() - time.thread_time()
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # one that has ended
                times = process.cpu_times()
                spent += 0 if process.pid in others else times.user + times.system
        return spent

    with Counter() as counter, beside("load") as loading:
        others = (counter.pid, loading)
        for tool, length_s in orders(LONG, STEADY_S, watch, 1):
            time.sleep(0.1 + 0.1 * random.random())
            spent: list[float] = []

            def wait(length_s: float = length_s, spent: list[float] = spent) -> None:
                spent.append(spent_s(others))
                time.sleep(length_s)
                spent.append(spent_s(others))

            row = row_of(tool, length_s, wait)
            rows.append(row | {"cpu_s": round(spent[-1] - spent[0], 4) if len(spent) == 2 else None})
            end_recorders()
    return {"rows": rows, "steps": counter.steps}


def training_loop(torch: Any, watch: Watch) -> Row:
    """Blocks of steps of a training that goes on between them; figures are read after the loop, as users do.

    ``waits`` are steps with idle pauses of 40 ms in between, from ``from`` to ``to``: they give the power that the GPU
    draws while a tool begins or ends.
    """
    step, rows, random = training(torch), [], np.random.default_rng(2)
    again(step, 10)
    step_s = step_seconds(torch, step, 20)
    start_recorder()
    with Counter() as counter:
        again(step, round(1.0 / step_s))
        torch.cuda.synchronize()
        waits: Row = {"from": time.time_ns(), "rest": []}
        for _ in range(12):
            again(step, max(1, round(0.1 / step_s)))
            torch.cuda.synchronize()
            idle = time.time_ns()
            time.sleep(0.04)
            waits["rest"].append([idle, time.time_ns()])
        waits["to"] = time.time_ns()
        for tool, length_s in orders(LONG, TRAINING_S, watch, 2):
            again(step, round(BETWEEN_S * (1 + 0.25 * random.random()) / step_s))
            count = max(1, round(length_s / step_s))
            rows.append(
                row_of(tool, length_s, lambda count=count: again(step, count), at_once=False) | {"steps": count}
            )
        again(step, round(BETWEEN_S / step_s))
        torch.cuda.synchronize()
    for row in rows:
        tell(row)
    end_recorders()
    return {"rows": rows, "steps": counter.steps, "waits": waits, "step_s": step_s}


def bursts(torch: Any, watch: Watch) -> Row:
    """Blocks of ViT-B after pauses; the figure is read at once."""
    step, rows = vit(torch), []
    for _ in range(2):
        again(step, 50)
        step_s = step_seconds(torch, step, 50)
    start_recorder()
    with Counter() as counter:
        time.sleep(1.5)
        for tool, length_s in orders(list(TOOLS), BURSTS_S, watch, 3):
            time.sleep(PAUSE_S)
            count = max(1, round(length_s / step_s))
            rows.append(row_of(tool, length_s, lambda count=count: again(step, count)))
        time.sleep(1.5)
    end_recorders()
    return {"rows": rows, "steps": counter.steps, "step_s": step_s}


def inside(torch: Any, watch: Watch) -> Row:
    """Bursts of a large product inside a lighter load, first without a tool in groups of equal cycles, then with.

    ``groups`` have when they began and ended, the replays of each burst, and when each began and ended. Cycles differ
    in the number of replays alone: none, or those of one length.
    """
    heavy, lighter = captured(torch, product(torch)), captured(torch, light(torch))
    for graph in (lighter, heavy):
        replay_s(torch, graph, 100)
    heavy_s, half = replay_s(torch, heavy, 100), round(LIGHT_S / 2 / replay_s(torch, lighter, 100))
    counts = {length_s: max(1, round(length_s / heavy_s)) for length_s in INSIDE_S}
    rows, groups, random = [], [], np.random.default_rng(4)
    start_recorder()
    with Counter() as counter:
        again(lighter.replay, 4 * half)
        for _ in range(GROUPS):
            for count in random.permutation([0, *counts.values()]).tolist():
                group: Row = {"count": count, "from": time.time_ns(), "bursts": []}
                for _ in range(CYCLES):
                    again(lighter.replay, half)
                    torch.cuda.synchronize()
                    began = time.time_ns()
                    again(heavy.replay, count)
                    torch.cuda.synchronize()
                    group["bursts"].append([began, time.time_ns()])
                    again(lighter.replay, half)
                groups.append(group | {"to": time.time_ns()})
        for tool, length_s in orders([tool for tool in TOOLS if tool != "codecarbon"], INSIDE_S, watch, 4):
            again(lighter.replay, half)
            count = counts[length_s]
            row = row_of(tool, length_s, lambda count=count: again(heavy.replay, count), at_once=False)
            rows.append(row | {"count": count})
            again(lighter.replay, half)
        torch.cuda.synchronize()
    for row in rows:
        tell(row)
    end_recorders()
    return {"rows": rows, "groups": groups, "steps": counter.steps}


def overhead(torch: Any, watch: Watch) -> Row:
    """Seconds per iteration by work, tool and round; those of ``jouletrace run`` by turns of processes."""
    rows: list[Row] = []
    graph = captured(torch, vit(torch))

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    works = {"launches": encoder(torch), "busy": replay}

    def turn(work: str, tool: str, number: int) -> None:
        try:
            with (
                nullcontext()
                if tool == PLAIN
                else torch.profiler.profile()
                if tool == "torch.profiler"
                else TOOLS[tool]()
            ):
                for length_s in (TURN_S / 3, TURN_S):  # the first is for the clocks, which a tool's start let rise
                    torch.cuda.synchronize()
                    began, count = time.perf_counter(), 0
                    while time.perf_counter() - began < length_s:
                        works[work]()
                        count += 1
                    torch.cuda.synchronize()
                    took_s = (time.perf_counter() - began) / count
            rows.append({"work": work, "tool": tool, "round": number, "s": took_s})
        except Exception as error:
            rows.append({"work": work, "tool": tool, "error": said(error)})
        end_recorders()

    for call in works.values():
        again(call, 30)
    tools = [PLAIN, PLAIN, *LONG]
    for number in range(ROUNDS):
        for work in works:
            for place in np.random.default_rng(number).permutation(len(tools)).tolist():
                if watch.left_s() > 40:
                    turn(work, tools[place], number)
    for number in range(min(3, ROUNDS)):  # after all others, since CUPTI stays loaded
        for work in works:
            for tool in (PLAIN, "torch.profiler"):
                turn(work, tool, 100 + number)
    slowdown.ROUNDS, slowdown.TURN_S, slowdown.LOADED_S = min(4, ROUNDS), 0.6, 40
    slowdown.ENDED_S = 1  # of `jouletrace run` the turns alone count: it is ended before its analysis
    try:
        encoder_rows = slowdown.measure("encoder")
    except Exception as error:
        encoder_rows = said(error)
    return {"rows": rows, "run": {"encoder": encoder_rows}}


def busy(torch: Any, graph: Any, seconds: float) -> Row:
    """Replay a graph so that one is always waiting; begin and end in ns, and replays in between."""
    chunk = max(1, int(0.02 / replay_s(torch, graph, 10)))
    waiting, marks, until = [], [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        again(graph.replay, chunk)
        waiting.append(torch.cuda.Event())
        waiting[-1].record()
        if len(waiting) > 2:
            waiting.pop(0).synchronize()
            marks.append(time.time_ns())
    torch.cuda.synchronize()
    return {"at": [marks[0], marks[-1]], "count": chunk * (len(marks) - 1)}


class Power:
    """``nvmlDeviceGetPowerUsage``, the mean of the last second, polled at 1 kHz within ``with``, as Magneton does."""

    def __enter__(self) -> Power:
        import pynvml

        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(GPU)
        self._ending, self.reads = threading.Event(), []

        def read() -> None:
            while not self._ending.wait(0.001):
                milliwatts = pynvml.nvmlDeviceGetPowerUsage(gpu)
                self.reads.append((time.time_ns(), milliwatts / 1e3))

        self._thread = threading.Thread(target=read)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def watts(self, start_ns: int, end_ns: int) -> float:
        """Mean between two times."""
        return float(np.mean([watts for at, watts in self.reads if start_ns <= at <= end_ns]))


def kernels(torch: Any, watch: Watch) -> Row:
    """Operators of ``programs/chain.py``: each alone by the counter, and what tools say of each in the chain.

    ``alone``: replays from one time to another, without a pause. ``said``: joules of an execution by way and operator;
    ``took_s``: how long a way took, its process included.
    """
    sys.path.insert(0, str(HERE / "programs"))
    from chain import make

    model, (inputs,) = make()
    operators = {name: torch.no_grad()(lambda call=call: call(inputs)) for name, call in model.operators.items()}
    found: Row = {"alone": {}, "said": {}, "took_s": {}}

    def way(name: str, call: Callable[[], Any]) -> None:
        began = time.perf_counter()
        try:
            found["said"][name] = call()
        except Exception as error:
            found["said"][name] = {"error": said(error)}
        found["took_s"][name] = round(time.perf_counter() - began, 2)

    with Counter() as counter:
        for name, call in operators.items():
            graph = captured(torch, call)
            busy(torch, graph, WARM_S)
            found["alone"][name] = busy(torch, graph, ALONE_S) | {"clock_mhz": clock_mhz()}
        way("in the chain", lambda: in_chain(torch, operators, found))
        way("Magneton's way, replayed", lambda: replayed(torch, operators, found))
        way("zeus.profile", lambda: zeus_profile(operators))
    found["steps"] = counter.steps
    way("jouletrace", lambda: jouletrace_table(watch, found))
    return found


def in_chain(torch: Any, operators: dict[str, Any], found: Row) -> dict[str, float]:
    """Device seconds of each operator in the chain by torch's profiler, and in ``found`` what is needed to make joules.

    ``chain``: begin, end and iterations of the chain before the profiler, for the counter's energy of an iteration,
    and the polled power, once it had held for more than a second.
    """

    def chain() -> None:
        for name, call in operators.items():
            with torch.profiler.record_function(name):
                call()

    def run_for(seconds: float) -> tuple[int, int, int]:
        began, count = time.time_ns(), 0
        while time.time_ns() < began + seconds * 1e9:
            again(chain, 4)
            torch.cuda.synchronize()
            count += 4
        return began, time.time_ns(), count

    run_for(max(1.2, WARM_S) if REPLAYED_S > 1 else WARM_S)
    with Power() as power:
        began, ended, count = run_for(REPLAYED_S)
    found["chain"] = {"at": [began, ended], "count": count, "watts": power.watts(began, ended)}
    with torch.profiler.profile():
        again(chain, 3)
    with torch.profiler.profile() as profiler:
        again(chain, 20)
        torch.cuda.synchronize()
    seconds: dict[str, float] = {}
    for event in profiler.events():
        if event.name in operators and event.device_type == torch.autograd.DeviceType.CPU:
            # Its own has the range, too.
            own_us = sum(child.device_time_total for child in event.cpu_children) or event.device_time_total
            seconds[event.name] = seconds.get(event.name, 0.0) + own_us / 20e6
    return seconds


def replayed(torch: Any, operators: dict[str, Any], found: Row) -> dict[str, float]:
    """Joules by Magneton's way: replays for 2 s each, one operator after the other; polled power × time.

    In ``found`` also by the power of each one's last 0.9 s: before, this GPU's mean of a second has what was before.
    """
    joules, late = {}, {}
    with Power() as power:
        for name, call in operators.items():
            graph = captured(torch, call)
            one_s = replay_s(torch, graph, 100)
            count, began = max(1, int(REPLAYED_S / one_s)), time.time_ns()
            again(graph.replay, count)
            torch.cuda.synchronize()
            ended = time.time_ns()
            one_s = (ended - began) / 1e9 / count
            joules[name] = power.watts(began, ended) * one_s
            late[name] = power.watts(max(began, ended - 900_000_000), ended) * one_s
    found["said"]["Magneton's way, last 0.9 s of 2 s"] = late
    return joules


def zeus_profile(operators: dict[str, Any]) -> dict[str, float]:
    """Joules by ``zeus.profile.measure``, without a pause to cool, as the truth has none: its calibration warms up."""
    from zeus.monitor import ZeusMonitor
    from zeus.profile import measure

    monitor = ZeusMonitor(gpu_indices=[0])
    return {
        name: measure(call, monitor, measurement_duration=ZEUS_S, cooldown_duration=0.0).energy_per_iter
        for name, call in operators.items()
    }


def jouletrace_table(watch: Watch, found: Row) -> list[Row]:
    """Rows of operators of ``jouletrace profile``, in a process of its own, with its defaults."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["profile", f"{HERE / 'programs' / 'chain.py'}:make", "--detail", "kernel", *JOULETRACE]
        words += ["--json", "-o", f"{folder}/run.zip"]
        command = [sys.executable, "-m", "jouletrace", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=max(30, watch.left_s() + HANG_S - 2)
        )
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-250:])
    document = json.loads(done.stdout)
    found["trust"] = document.get("trust", document.get("warnings"))
    rows = [row for row in document["parts"].get("code", []) if row["path"][-1]["kind"] in ("op", "shapes")]
    return [{name: row[name] for name in ("path", "time_s", "energy_j", "count") if name in row} for row in rows]


JOULETRACE: list[str] = []
"""Options of ``jouletrace profile``; none but for a quick look."""


def clock_mhz() -> int:
    import pynvml

    pynvml.nvmlInit()
    return int(pynvml.nvmlDeviceGetClockInfo(pynvml.nvmlDeviceGetHandleByIndex(GPU), pynvml.NVML_CLOCK_SM))


SECTIONS: dict[str, Callable[[Any, Watch], Row]] = {
    "first": first,
    "steady": steady,
    "training": training_loop,
    "bursts": bursts,
    "inside": inside,
    "overhead": overhead,
    "kernels": kernels,
}


def machine(torch: Any) -> Row:
    """Return the GPU, its driver and the versions of the tools."""
    import pynvml

    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(GPU)
    versions = {}
    for name in ("torch", "zeus", "codecarbon", "nvidia-ml-py", "jouletrace"):
        with contextlib.suppress(Exception):
            versions[name] = version(name)
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpu": pynvml.nvmlDeviceGetName(gpu),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "limit_w": pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
        "lines": {tool: lines_of(tool) for tool in TOOLS},
    }


def shorten() -> None:
    """Make each section take seconds: every line runs, and nothing is measured well."""
    settings = globals()
    for name, rounds in (
        ("STEADY_S", {0.5: 1}),
        ("TRAINING_S", {0.5: 1}),
        ("BURSTS_S", {0.05: 1}),
        ("INSIDE_S", {0.05: 1}),
    ):
        settings[name] = rounds
    settings |= {
        "ROUNDS": 1,
        "GROUPS": 2,
        "CYCLES": 2,
        "ALONE_S": 0.4,
        "WARM_S": 0.1,
        "REPLAYED_S": 0.3,
        "ZEUS_S": 0.3,
    }
    JOULETRACE.extend(["--detail-time", "3", "--max-time", "1", "--warmup", "1"])


def broken_off(*_: object) -> None:
    raise TimeoutError("the section hung")


def main() -> None:
    """Measure the sections, save after each, and print the tables."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("output", type=Path)
    options.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; all if none is named")
    options.add_argument("--quick", action="store_true", help="run everything for seconds, which measures nothing well")
    chosen = options.parse_args()
    os.environ["JOULETRACE_CACHE"] = tempfile.mkdtemp()  # no calibration of an earlier day
    import torch

    if chosen.quick:
        shorten()
    measured: Row = {"machine": machine(torch), "took_s": {}}
    signal.signal(signal.SIGALRM, broken_off)
    for name in ["first", *(one for one in chosen.sections or SECTIONS if one != "first")]:  # it warms the tools up
        began, limit_s = time.perf_counter(), LIMIT_S[name]
        signal.setitimer(signal.ITIMER_REAL, limit_s + HANG_S, 5)  # again, where what ends waits, too
        faulthandler.dump_traceback_later(limit_s + 2 * HANG_S, exit=True)  # where a call never comes back
        try:
            measured[name] = SECTIONS[name](torch, Watch(limit_s))
        except Exception as error:
            measured[name] = {"error": said(error)}
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        measured["took_s"][name] = round(time.perf_counter() - began, 1)
        print(f"[{name}: {measured['took_s'][name]} s] {measured[name].get('error', '')}", flush=True)
        chosen.output.write_text(json.dumps(measured, separators=(",", ":")))
    import peers_errors

    print(peers_errors.tables(measured))


if __name__ == "__main__":
    if sys.argv[1:2] == ["poll"]:
        poll(*sys.argv[2:4])
    elif sys.argv[1:2] == ["load"]:
        load()
    elif sys.argv[1:2] == ["begin"]:
        begin(sys.argv[2])
    else:
        main()
