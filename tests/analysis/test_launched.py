"""Launches of kernels, in timelines made here: which annotations are iterations, and which operators are near."""

import numpy as np
import pytest

from jouletrace.analysis.imported_recording import LaunchedWork, steps_of, take_for_samples
from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables

US = 1000


class Timeline:
    """Spans as they are added; a kernel runs long after its launch, and takes 10 us."""

    def __init__(self):
        self.rows = []

    def add(self, kind, name, start_us, end_us, parent=None, device=None, **columns):
        self.rows.append(
            {
                "id": len(self.rows) + 5,  # ids are no places
                "parent": parent,
                "kind": kind,
                "name": name,
                "device": device,
                "start_ns": round(start_us * US),
                "end_ns": round(end_us * US),
                **columns,
            }
        )
        return self.rows[-1]["id"]

    def kernel(self, parent, at_us, name="k", length_us=10, **columns):
        return self.add("kernel", name, 10_000 + at_us, 10_000 + at_us + length_us, parent, "GPU", **columns)

    def work(self):
        run = Run(kind="import")
        run.spans = tables.from_rows(self.rows, "spans")
        return LaunchedWork.from_run(run, "GPU")


def loop(name, each=3, steps=4, kind="range", around=None):
    """Some steps, each with an operator for each of its kernels."""
    made = Timeline()
    outer = made.add("range", around, 0, 10_000) if around else None
    for step in range(steps):
        mark = made.add(kind, name.format(step), 100 * step, 100 * step + 90, outer)
        for k in range(each):
            op = made.add("op", f"op{k}", 100 * step + 10 * k, 100 * step + 10 * k + 9, mark)
            made.kernel(op, 100 * step + 15 * k)
    return made


@pytest.mark.parametrize(
    ("name", "kind", "called"),
    [
        ("ProfilerStep#{}", "iteration", "ProfilerStep"),
        ("step {}", "range", "step"),
        ("iteration_{}", "range", "iteration"),
        ("batch", "range", "batch"),
        ("forward and all", "range", "forward and all"),
    ],
)
def test_annotations_of_one_name_are_iterations(name, kind, called):
    steps = steps_of(loop(name, kind=kind).work())
    assert (steps.name, steps.count) == (called, 4)
    assert steps.of.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_what_is_around_all_is_none():
    assert steps_of(loop("step {}", around="training").work()).count == 4
    assert steps_of(loop("step {}", steps=1, around="training").work()).count == 0


def test_the_outermost_of_others_is_taken():
    made = loop("part {}", steps=4)
    inner = [row for row in made.rows if row["kind"] == "range"]
    for row in inner[:2]:
        row["parent"] = 100
    for row in inner[2:]:
        row["parent"] = 101
    made.rows += [
        {**inner[0], "id": 100, "parent": None, "name": "half 1", "start_ns": 0, "end_ns": 199 * US},
        {**inner[0], "id": 101, "parent": None, "name": "half 2", "start_ns": 200 * US, "end_ns": 399 * US},
    ]
    assert (steps_of(made.work()).name, steps_of(made.work()).count) == ("half", 2)


def test_parts_of_a_step_are_no_iterations():
    """Forward launches most of the time, and leaving out backward would lose the rest."""
    made = Timeline()
    for step in range(4):
        for name, kernels in (("forward", 7), ("backward", 3)):
            mark = made.add("range", name, 100 * step + (50 if name == "backward" else 0), 100 * step + 49, None)
            for k in range(kernels):
                made.kernel(mark, 200 * step + 15 * k + (110 if name == "backward" else 0))
    assert steps_of(made.work()).count == 0


def test_frames_of_python_are_no_iterations():
    assert steps_of(loop("train.py(31): step").work()).count == 0
    assert steps_of(loop("nn.Module: Batch_0").work()).count == 0


def test_ranges_that_overlap_are_no_iterations():
    made = loop("step {}")
    for row in made.rows:
        if row["kind"] == "range":
            row["end_ns"] += 50 * US
    assert steps_of(made.work()).count == 0


def test_the_nearest_operator_counts_and_its_first_kernel_gives_the_shape():
    made = Timeline()
    outer = made.add("op", "linear", 0, 50)
    inner = made.add("op", "addmm", 10, 40, outer)
    grids = {"grid_x": 8, "grid_y": 4, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
    made.kernel(inner, 0, "gemm", **grids)
    made.kernel(inner, 20, "reduce", **grids | {"grid_x": 2})
    made.kernel(None, 40, "loose", **grids | {"grid_x": 3, "grid_y": 1})
    made.kernel(outer, 60, "without")
    work = made.work()
    names = [work.spans.texts["name"][code] if code >= 0 else None for code in work.op_name]
    assert names == ["addmm", "addmm", None, "linear"]
    assert [work.shapes[code] for code in work.shape] == ["<<<8x4, 128>>>", "<<<8x4, 128>>>", "<<<3, 128>>>", ""]


JOINED = {"joins": {"device_spans": 0}}
"""Facts of a file whose kernels are joined with their launches."""


def imported(facts, kind, name="GPU", late_ns=0):
    """A timeline of one span beside a record each 20 ms, every fifth stamp late by so much."""
    run = Run(kind="import", settings={"imported": [{"clock": "unix", **facts}]}, devices=[DeviceInfo("GPU", name)])
    made = Timeline()
    made.add(kind, "x", 0, 10, device="GPU")
    run.spans = tables.from_rows(made.rows, "spans")
    times = np.arange(100) * 20_000_200
    times[::5] += late_ns
    rows = [{"time_ns": int(t), "device": "GPU", "channel": "power_w", "value": 100.0 + t % 3} for t in times]
    run.samples = tables.from_rows(rows, "samples")
    run.channels = [ChannelInfo("GPU", "power_w", "W", "column power_w", period_s=0.02)]
    take_for_samples(run)
    return run


@pytest.mark.parametrize(
    ("facts", "kind", "said"),
    [(JOINED, "op", True), ({}, "range", False), (JOINED, "kernel", False), ({}, "launch", True)],
)
def test_only_a_trace_without_kernels_is_reported_to_lack_them(facts, kind, said):
    run = imported(facts, kind)
    assert any("the timeline has none" in warning.message for warning in run.warnings) is said
    assert bool(run.channels[0].gapless) is (kind == "kernel")


@pytest.mark.parametrize(
    ("name", "late_ns", "sensor"),
    [
        ("GPU", 3_000_000, "hopper"),
        ("NVIDIA H100 80GB HBM3", 0, "hopper"),
        ("Tesla V100-SXM2-16GB", 3_000_000, ""),
        ("meter", 0, ""),
    ],
)
@pytest.mark.parametrize("facts", [JOINED, {}])
def test_the_drivers_record_is_known_by_its_stamps_beside_ranges_alone(facts, name, late_ns, sensor):
    (channel,) = imported(facts, "range", name, late_ns).channels
    assert (channel.sensor, bool(channel.gapless)) == (sensor, bool(sensor))
