"""Processes that share a GPU by turns, simulated slice by slice: each has the time in which its kernels ran."""

import numpy as np
import pytest

from jouletrace.profiler.program import gpus_of, rows_of
from jouletrace.profiler.program.timeline import recorded, warn_of_unseen
from jouletrace.run import DeviceInfo, Run, Units, tables
from jouletrace.tracer import Launched, ProcessTrace
from jouletrace.tracer.rows import COPY

SLICE_US, SWITCH_US, GAP_US, START_NS = 1500.0, 15.0, 1.5, 1_800_000_000_000_000_000


class Process:
    """Runs a step of kernels, then waits for its host, again and again."""

    def __init__(self, step_us, pause_us, seed):
        self.step_us, self.pause_us, self.rng = step_us, pause_us, np.random.default_rng(seed)
        self.ready_us, self.at, self.begun, self.left, self.own_us, self.rows = 0.0, 0, None, 0.0, 0.0, []

    def run(self, now, until):
        """Run kernels from ``now`` until it has none or its turn ends; returns when that was."""
        while self.ready_us <= now < until:
            if self.begun is None:
                self.begun, self.left = now, self.step_us[self.at] * self.rng.uniform(0.98, 1.02)
            ran = min(self.left, until - now)
            now, self.left, self.own_us = now + ran, self.left - ran, self.own_us + ran
            if self.left > 1e-9:
                return now
            self.rows.append((self.begun, now, self.at))
            self.begun, self.at, now = None, (self.at + 1) % len(self.step_us), now + GAP_US
            if self.at == 0:
                self.ready_us = now + self.pause_us
        return now


def by_turns(processes, lasts_us):
    """Let processes have the GPU by turns of a slice, or until they have nothing to run."""
    now = 0.0
    while now < lasts_us:
        for mine in processes:
            other = next(one for one in processes if one is not mine)
            if mine.ready_us <= now:
                # alone it goes on until the other wants to run
                now = mine.run(now, max(now + SLICE_US, other.ready_us))
                now += SWITCH_US if other.ready_us <= now else 0.0
        now = max(now, min(one.ready_us for one in processes))
    return processes


def traced(process, pid):
    start, end, name = (np.array(column) for column in zip(*process.rows, strict=True))
    names = tuple(f"kernel {pid} {one}" for one in range(len(process.step_us)))
    start, end = (START_NS + (1000 * one).astype(np.int64) for one in (start, end))
    work = Launched.from_columns(names, name, start, end, device=np.zeros(len(name), np.int64))
    last = [(int(start[0]), int(end[-1]))]
    return ProcessTrace(pid, "train.py", None, ["GPU-a"], work, last)


def said_of(processes, code):
    """Messages of warnings of a program's Run."""
    run = Run(kind="program", workload={"name": "train.py"}, devices=[DeviceInfo("GPU-a", "a")])
    recorded(run, *gpus_of([traced(process, pid) for pid, process in enumerate(processes, 1)], ["GPU-a"]))
    return [warning.message for warning in run.warnings if warning.code == code]


def seconds_of(processes, found=None):
    """Seconds of each process by its range, and seconds as the tracer states them."""
    found = found or [traced(process, pid) for pid, process in enumerate(processes, 1)]
    (gpu,), _ = gpus_of(found, ["GPU-a"])
    units = Units()
    rows, about, _ = rows_of(gpu.parts, units)
    inside = {row["id"]: row.get("module") for row in units.rows.values()}
    pids = [one.pid for one in found]
    sums = [sum(s for _, site, s, _ in about["seconds"] if inside[site] == f"train\u2024py ({pid})") for pid in pids]
    raw = [float((one.work.end_ns - one.work.start_ns).sum()) / 1e9 for one in found]
    return sums, raw, rows, units


LARGE, SMALL = (1150.0, 300.0, 570.0, 80.0, 30.0, 8.0), (42.0, 40.0, 20.0, 14.0, 44.0, 15.0, 15.0, 30.0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mine", "others", "within", "longer"),
    [
        ((LARGE, 500.0), (SMALL, 900.0), 0.02, 1.1),
        ((LARGE, 100.0), (SMALL, 1.0), 0.02, 1.1),
        ((LARGE, 100.0), (LARGE[::-1], 2000.0), 0.13, 1.7),  # kernels of both are as long as turns
        ((SMALL, 200.0), (SMALL[::-1], 300.0), 1e-3, 1.0),
    ],
    ids=["long and short kernels", "all the time", "long kernels", "shorter than a turn"],
)
def test_each_has_the_time_in_which_its_kernels_ran(mine, others, within, longer):
    processes = by_turns([Process(*mine, 1), Process(*others, 2)], 3e6)
    sums, raw, rows, _ = seconds_of(processes)
    true = [process.own_us / 1e6 for process in processes]
    assert sums == pytest.approx(true, rel=within)
    assert raw[0] >= longer * true[0] * (1 - 1e-6)  # as the tracer states it
    start, end = rows["start_ns"], rows["end_ns"]
    assert (np.maximum.accumulate(end)[:-1] <= start[1:]).all()


@pytest.mark.thorough
def test_launches_are_counted_once():
    processes = by_turns([Process(LARGE, 500.0, 1), Process(SMALL, 900.0, 2)], 1e6)
    *_, units = seconds_of(processes)
    counts = {row["name"]: row["count"] for row in units.rows.values() if row["level"] == "kernel"}
    for pid, process in enumerate(processes, 1):
        for kind in range(len(process.step_us)):
            assert counts[f"kernel {pid} {kind}"] == sum(row[2] == kind for row in process.rows)


def test_kernels_that_run_at_once_are_not_cut():
    """As under MPS: each takes as long as alone."""
    processes = [Process(LARGE, 100.0, 1), Process(SMALL, 50.0, 2)]
    for process in processes:
        process.run(0.0, 1e6)
        while process.ready_us < 1e6:
            process.run(process.ready_us, 1e6)
    sums, raw, *_ = seconds_of(processes)
    assert sums == pytest.approx(raw, rel=1e-6)
    (text,) = said_of(processes, "overlapped_processes")
    assert text.endswith("how they shared that energy isn't measured")
    assert said_of(by_turns([Process(LARGE, 100.0, 1), Process(SMALL, 50.0, 2)], 1e6), "overlapped_processes") == []


def test_a_third_process_is_away_while_two_others_have_the_gpu():
    ms = 1_000_000
    long = Process((30_000.0,), 0.0, 1)
    long.rows = [(30_500.0 * k, 30_500.0 * k + 30_000.0 - 12_000.0 * (k % 3 == 0), 0) for k in range(30)]
    one, other = Process((8_000.0,), 0.0, 2), Process((6_000.0,), 0.0, 3)
    for k in range(30):
        since = 30_500.0 * k
        one.rows.append((since + 1_000.0, since + 9_000.0, 0) if k % 3 else (since + 18_100.0, since + 26_100.0, 0))
        other.rows.append((since + 4_000.0, since + 15_000.0, 0) if k % 3 else (since + 26_200.0, since + 30_200.0, 0))
    found = [traced(process, pid) for pid, process in enumerate((long, one, other), 1)]
    (gpu,), _ = gpus_of(found, ["GPU-a"])
    within = [START_NS + 30_500_000 + at * ms for at in (2, 6, 8, 14)]
    for part, expected in zip(
        gpu.parts, ((True, True, True, True), (False, None, None, None), (None, None, None, False)), strict=True
    ):
        for time, away in zip(within, expected, strict=True):
            if away is not None:
                assert bool(((part.away[:, 0] <= time) & (time < part.away[:, 1])).any()) is away, (time, away)


def test_copies_run_beside_kernels_of_another_process():
    processes = by_turns([Process(LARGE, 100.0, 1), Process(SMALL, 900.0, 2)], 1e6)
    found = [traced(process, pid) for pid, process in enumerate(processes, 1)]
    work = found[1].work
    work.kind[:] = COPY
    sums, raw, *_ = seconds_of(processes, found)
    assert sums == pytest.approx(raw, rel=1e-9)


@pytest.mark.thorough
def test_processes_of_which_one_was_not_traced_all_the_while_are_cut_where_both_were():
    processes = by_turns([Process(LARGE, 500.0, 1), Process(SMALL, 900.0, 2)], 3e6)
    found = [traced(process, pid) for pid, process in enumerate(processes, 1)]
    begin, end = found[1].segments[0]
    middle = (begin + end) // 2
    found[1].segments[:] = [(begin, middle), (end - 1, end)]
    keep = found[1].work.end_ns < middle
    found[1] = found[1].take(keep)
    sums, raw, *_ = seconds_of(processes, found)
    late = found[0].work.start_ns > middle
    assert raw[0] > sums[0] > raw[0] * 0.9
    lasts = (found[0].work.end_ns - found[0].work.start_ns)[late].sum() / 1e9
    assert sums[0] > lasts  # none of these is cut


@pytest.mark.parametrize(("before_pct", "named"), [(99.0, True), (3.0, False)])
def test_a_gpu_that_was_busy_before_the_first_kernel_has_others_that_cannot_be_seen(before_pct, named):
    """As in a container, where a driver lists no processes of the host."""
    run = Run(kind="program", devices=[DeviceInfo("GPU-a", "a")])
    stamps = START_NS + np.arange(-20, 20) * 100_000_000
    percent = np.where(stamps < START_NS, before_pct, 99.0)
    rows = [
        {"time_ns": int(at), "device": "GPU-a", "channel": "utilization_gpu_pct", "value": float(value)}
        for at, value in zip(stamps, percent, strict=True)
    ]
    run.samples = tables.from_rows(rows, "samples")
    processes = by_turns([Process(LARGE, 100.0, 1), Process(SMALL, 50.0, 2)], 1e6)
    gpus, _ = gpus_of([traced(process, pid) for pid, process in enumerate(processes, 1)], ["GPU-a"])
    warn_of_unseen(run, gpus)
    assert [warning.message.split(" of the time")[0] for warning in run.warnings] == (
        ["the GPU was busy for 99 %"] if named else []
    )
    warn_of_unseen(run, gpus)
    assert len(run.warnings) == named  # once
