"""Telling whose each traced kernel is, by the capture's launches."""

from pathlib import Path

import numpy as np
import pytest

from jouletrace.profiler.detail.kernels import join
from jouletrace.profiler.detail.traced import span_rows
from jouletrace.run import tables
from jouletrace.steps.base import Launch
from jouletrace.steps.units import Unit
from jouletrace.tracing.decode import decode
from jouletrace.tracing.layouts import layouts_for
from jouletrace.tracing.trace import Trace, from_cupti

GEMM = Unit("aten.addmm", "f16[8,8]", "fc")
COPY = Unit("aten.copy_", "f16[8]", "")
LAUNCHES = [
    Launch(GEMM, "kernel", "gemm", (4, 1, 1), (128, 1, 1)),
    Launch(GEMM, "kernel", "reduce", (2, 1, 1), (64, 1, 1)),
    Launch(COPY, "memcpy", ""),
    Launch(None, "kernel", "spin", (1, 1, 1), (1, 1, 1)),
]
NAMES = ("gemm", "reduce", "memcpy", "spin")


def traced(iterations, *, order=(0, 1, 2, 3), grid=None, drop=None, node=True, extra=0):
    """A trace of ``LAUNCHES``, ``order`` being the order in which they start."""
    which = np.tile(order, iterations)
    n = len(which)
    start = 1_000_000 + 10_000 * np.arange(n)
    grids = np.array([(4, 1, 1), (2, 1, 1), (0, 0, 0), (1, 1, 1)] if grid is None else grid)
    blocks = np.array([(128, 1, 1), (64, 1, 1), (0, 0, 0), (1, 1, 1)])
    columns = {
        "name": which,
        "kind": np.array([0, 0, 1, 0])[which],
        "start_ns": start,
        "end_ns": start + 5000,
        "grid": grids[which],
        "block": blocks[which],
        "graph_node": which + 100 if node else np.zeros(n),
    }
    keep = np.array([i for i in range(n) if i != drop], dtype=int)
    columns = {name: np.asarray(rows)[keep] for name, rows in columns.items()}
    if extra:
        outside = {name: np.zeros((extra, *rows.shape[1:]), rows.dtype) for name, rows in columns.items()}
        columns = {name: np.concatenate([outside[name], rows]) for name, rows in columns.items()}
    return Trace.of(NAMES, "cupti", **columns)


def test_entries_are_joined_in_the_order_of_the_capture_and_settling_iterations_left_out():
    found = join(traced(5), LAUNCHES, 3)
    assert found.problem is None
    assert len(found.trace) == 12
    assert found.unit == [GEMM, GEMM, COPY, None] * 3
    assert found.iteration.tolist() == sorted([0, 1, 2] * 4)
    assert found.trace.start_ns[0] == 1_000_000 + 8 * 10_000


def test_parallel_branches_are_joined_by_their_graph_nodes():
    found = join(traced(3, order=(1, 0, 3, 2)), LAUNCHES, 2)
    assert found.problem is None
    assert [found.trace.names[i] for i in found.trace.name[:4]] == list(NAMES)


def test_what_runs_outside_the_graph_is_left_out():
    found = join(traced(3, extra=2), LAUNCHES, 2)
    assert found.problem is None
    assert len(found.trace) == 8


def test_a_missing_record_is_said_and_nothing_is_joined():
    found = join(traced(3, drop=5), LAUNCHES, 2)
    assert "11 were recorded, and an iteration launches 4" in found.problem
    assert set(found.unit) == {None}
    assert len(found.trace) == 11


def fill_trace(name):
    return Trace.of((name, "gemm"), "cupti", name=[0, 1] * 2, start_ns=[10, 20, 30, 40], end_ns=[15, 25, 35, 45])


def test_a_fill_that_the_driver_runs_as_a_kernel_is_joined():
    launches = [Launch(COPY, "memset", ""), Launch(GEMM, "kernel", "gemm")]
    found = join(fill_trace("memset32"), launches, 2)
    assert found.problem is None
    assert found.unit == [COPY, GEMM] * 2


def test_another_kernel_in_the_place_of_a_fill_is_not_joined():
    launches = [Launch(COPY, "memset", ""), Launch(GEMM, "kernel", "gemm")]
    assert join(fill_trace("reduce"), launches, 2).problem == "entry 0 ran as kernel reduce, and was captured as memset"


@pytest.mark.parametrize("node", [True, False])
def test_another_launch_configuration_is_not_taken_for_the_same_kernel(node):
    found = join(traced(3, grid=[(5, 1, 1), (2, 1, 1), (0, 0, 0), (1, 1, 1)], node=node), LAUNCHES, 2)
    assert "entry 0 ran as kernel gemm, and was captured as kernel gemm" in found.problem
    assert set(found.unit) == {None}


def test_mangled_names_of_the_capture_are_those_of_the_trace_in_plain():
    launches = [Launch(GEMM, "kernel", "_Z4gemmIfEvPT_", (4, 1, 1), (128, 1, 1))]
    trace = Trace.of(
        ("void gemm<float>(float*)",),
        "cupti",
        start_ns=[10, 30],
        end_ns=[20, 40],
        grid=[(4, 1, 1)] * 2,
        block=[(128, 1, 1)] * 2,
    )
    assert join(trace, launches, 2).problem is None


def test_a_step_without_a_graph_lists_kernels_that_are_nobodys():
    found = join(traced(2), [], 2)
    assert "no graph" in found.problem
    assert len(found.trace) == 8


def test_recorded_buffers_become_spans_with_names_and_configurations():
    recorded = np.load(Path(__file__).parent / "data" / "cupti_13_0_h100.npz")
    layouts = layouts_for(int(recorded["version"]))
    names = {int(pointer): f"kernel {i}" for i, pointer in enumerate(recorded["pointers"])}
    trace = from_cupti(decode([recorded["kernels"], recorded["mixed"]], layouts), names)
    assert len(trace) >= 400
    assert (np.diff(trace.start_ns) >= 0).all()
    assert (trace.end_ns > trace.start_ns).all()
    kernels = trace.take(np.flatnonzero(trace.kind == 0))
    assert (kernels.grid >= 1).all()
    assert (kernels.registers > 0).all()
    rows = span_rows(trace, [7] * len(trace), [1] * len(trace), 100, "GPU-x")
    table = tables.from_rows(rows, "spans")
    assert table["id"].to_pylist() == list(range(100, 100 + len(trace)))
    assert set(table["kind"].to_pylist()) <= {"kernel", "memcpy"}
    total = int((table["end_ns"].to_numpy() - table["start_ns"].to_numpy()).sum())
    assert total == int((trace.end_ns - trace.start_ns).sum())


def test_no_records_are_an_empty_trace():
    assert len(from_cupti({}, {})) == 0
