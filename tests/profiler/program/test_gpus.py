"""Kernels on each GPU of a program with several, and how long ranks waited for one another."""

import dataclasses

import numpy as np
import pytest

from jouletrace.profiler.program import gpus_of, rows_of, steps_of, waits_of
from jouletrace.profiler.program.timeline import (
    COMMUNICATION,
    COMPUTE,
    OTHER_KERNELS,
    OTHER_RANGES,
    recorded,
    recording_facts,
    unrecorded,
)
from jouletrace.run import DeviceInfo, Run, Units
from jouletrace.run.recording_names import WAITING, waiting_part
from jouletrace.tracer import Launched, ProcessTrace

SUM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"
US = 1000


def traced(rank, kernels, *, pid=0, device=0, uuids=("GPU-a", "GPU-b"), segments=((0, 10**9),)):
    """A process that ran kernels (name, start us, end us)."""
    names = tuple(dict.fromkeys(name for name, _, _ in kernels))
    name = np.array([names.index(name) for name, _, _ in kernels], np.int64)
    start, end = (np.array([row[i] * US for row in kernels], np.int64) for i in (1, 2))
    work = Launched.from_columns(names, name, start, end, device=np.full(len(kernels), device))
    return ProcessTrace(pid or 100 + (rank or 0), "train.py", rank, list(uuids), work, list(segments))


def rank(number, *, late=0, count=4):
    """Products of 100 us, each with a sum after it that ends once both ranks have come, ``late`` us later."""
    rows = []
    for step in range(count):
        since = 1000 * step
        rows += [("gemm", since, since + 100 + late), (SUM, since + 100 + late, since + 400)]
    return traced(number, rows, device=number)


def stepping(labels, calls, *, number=0, graphs=1):
    """A process whose kernels of 1 us are of these modules, and which called modules so often."""
    made = traced(number, [("gemm", at, at + 1) for at in range(len(labels))], device=number)
    known = list(dict.fromkeys(["", *labels]))
    label = np.array([known.index(one) for one in labels])
    columns = {"label": label, "module": label, "correlation": 1 + np.arange(len(labels)) // graphs}
    work = dataclasses.replace(made.work, labels=[("", one) for one in known], sampled=label >= 0, **columns)
    return dataclasses.replace(made, work=work, calls=calls)


def steps_in(*found):
    gpus, _ = gpus_of(found, ["GPU-a", "GPU-b"])
    return steps_of([part for gpu in gpus for part in gpu.parts])


MOST = ["Net.layer", "Net", "Net.layer", "", "Loss"]


def test_steps_are_calls_of_the_module_in_which_most_of_the_time_lies():
    assert steps_in(stepping(MOST, {"Net": 7, "Loss": 9})) == {"module": "Net", "calls": 7}
    both = (stepping(MOST, {"Net": 7}, number=number) for number in (0, 1))
    assert steps_in(*both) == {"module": "Net", "calls": 7}


@pytest.mark.parametrize(
    "found",
    [
        [stepping([*MOST, "Loss"], {"Net": 7, "Loss": 7})],
        [stepping(["", "", "Net"], {"Net": 7})],
        [stepping(MOST, {"Loss": 7})],
        [stepping(MOST, {"Net": 7}), stepping(MOST, {"Net": 8}, number=1)],
        [stepping(30 * ["Net"], {"Net": 3}, graphs=5)],
    ],
    ids=["half", "outside", "not called", "ranks differ", "graph"],
)
def test_a_program_without_one_such_module_has_no_steps(found):
    assert steps_in(*found) is None


def test_a_module_that_launches_graphs_itself_has_steps():
    assert steps_in(stepping(30 * ["Net"], {"Net": 6}, graphs=5)) == {"module": "Net", "calls": 6}


def test_ranks_wait_for_the_last_one():
    found = [rank(0), rank(1, late=50)]
    waits = waits_of(found)
    assert waits.wait_ns[0].tolist() == 4 * [0, 50 * US]
    assert waits.wait_ns[1].tolist() == 8 * [0]
    assert waits.last == {0: 0, 1: 4}
    assert (waits.matched, waits.collectives) == (4, 4)


def test_collectives_of_different_number_are_not_matched():
    waits = waits_of([rank(0), rank(1, late=50, count=3)])
    assert (waits.matched, waits.collectives) == (0, 4)
    assert not any(wait.any() for wait in waits.wait_ns)


def test_a_process_of_the_program_without_collectives_matches_none():
    waits = waits_of([rank(0), rank(1, late=50), traced(2, [("gemm", 0, 10)])])
    assert (waits.matched, waits.collectives) == (4, 4)
    assert waits.last == {0: 0, 1: 4}


def test_a_kernel_that_runs_for_longer_than_a_block_is_analysed():
    one = traced(None, [("k", 0, 100), ("spin", 200, 40_000_000)], segments=((0, 41 * 10**9),))
    _, about, _ = rows_of(gpus_of([one], ["GPU-a"])[0][0].parts, Units())
    assert about["end_ns"] - about["start_ns"] > 39 * 10**9


def test_collectives_that_cannot_belong_together_are_not_matched():
    first = traced(0, [(SUM, 0, 100), (SUM, 1000, 1100)])
    second = traced(1, [(SUM, 5000, 5100), (SUM, 6000, 6100)], device=1)
    assert waits_of([first, second]).matched == 0


def test_the_wait_of_a_collective_is_a_phase_and_times_add_up():
    gpus, _ = gpus_of([rank(1, late=50), rank(0)], ["GPU-a", "GPU-b"])
    assert [(gpu.id, gpu.rank) for gpu in gpus] == [("GPU-a", 0), ("GPU-b", 1)]
    activity, about, _ = rows_of(gpus[0].parts, units := Units())
    phase = {row["id"]: row["phase"] for row in units.table().to_pylist()}
    seconds = {}
    for unit, _, s, _ in about["seconds"]:
        seconds[phase[unit]] = seconds.get(phase[unit], 0.0) + s
    assert seconds == pytest.approx({COMPUTE: 400e-6, WAITING: 200e-6, COMMUNICATION: 1000e-6})
    assert {row["name"]: row["count"] for row in units.table().to_pylist() if row["level"] == "kernel"} == {
        "gemm": 4,
        SUM: 4,
        waiting_part(SUM): 4,
    }
    length = activity["end_ns"] - activity["start_ns"]
    assert length.sum() == 1600 * US
    assert (np.diff(activity["start_ns"]) >= 0).all()


def test_a_wait_beside_other_kernels_is_communication():
    beside = [("gemm", 120, 160), ("gemm", 180, 250)]
    first = traced(0, [(SUM, 100, 400), *beside])
    second = traced(1, [(SUM, 220, 400)], device=1)
    gpus, waits = gpus_of([first, second], ["GPU-a", "GPU-b"])
    assert waits.wait_ns[0].tolist() == [120 * US, 0, 0]
    _, about, _ = rows_of(gpus[0].parts, units := Units())
    names = {row["id"]: row["name"] for row in units.table().to_pylist()}
    seconds = {names[unit]: s for unit, _, s, _ in about["seconds"]}
    assert seconds == pytest.approx({"gemm": 110e-6, SUM: 260e-6, waiting_part(SUM): 40e-6})


def test_processes_on_one_gpu_are_one_part_each_and_unnamed_gpus_are_as_cuda_numbers_them():
    both = [traced(None, [("a", 0, 9)], pid=5), traced(None, [("b", 20, 29)], pid=6, uuids=())]
    gpus, _ = gpus_of(both, ["GPU-a", "GPU-b"])
    assert unrecorded(both, ["GPU-a", "GPU-b"]) == []
    assert [gpu.id for gpu in gpus] == ["GPU-a"]
    assert [part.prefix for part in gpus[0].parts] == [("train.py (5)",), ("train.py (6)",)]


def test_kernels_of_a_gpu_that_is_not_recorded_are_left_out_and_it_is_named():
    found = [rank(0), rank(1)]
    gpus, _ = gpus_of(found, ["GPU-a"])
    assert [gpu.id for gpu in gpus] == ["GPU-a"]
    assert gpus[0].busy_s == pytest.approx(1600e-6)
    assert unrecorded(found, ["GPU-a"]) == ["GPU-b"]


def test_gpus_of_one_rank_have_names_of_their_own():
    both = dataclasses.replace(rank(0), rank=0)
    moved = dataclasses.replace(both, work=dataclasses.replace(both.work, device=np.arange(8) % 2))
    gpus, waits = gpus_of([moved], ["GPU-a", "GPU-b"])
    run = Run(
        kind="program", workload={"name": "train.py"}, devices=[DeviceInfo("GPU-a", "a"), DeviceInfo("GPU-b", "b")]
    )
    recorded(run, gpus, waits)
    assert [one["name"] for one in run.workload["recordings"]] == ["rank-0-gpu-0", "rank-0-gpu-1"]


def test_a_process_is_handed_over_whole(tmp_path):
    one = rank(1, late=50)
    one.notes.append(("code", "text"))
    one.loads.append((1, 2))
    edges = np.arange(len(one.work))
    labels, paths = [("", ""), ("mm", "fc")], [(), ("epoch",)]
    columns = {"label": edges % 2, "sampled": edges > 2, "thread": edges, "path": edges % 2}
    one = dataclasses.replace(one, work=dataclasses.replace(one.work, labels=labels, paths=paths, **columns))
    one.save(tmp_path / "1.npz")
    back = ProcessTrace.load(tmp_path / "1.npz")
    for name in ("name", "start_ns", "end_ns", "correlation", "device", "label", "module", "sampled", "thread", "path"):
        assert np.array_equal(getattr(back.work, name), getattr(one.work, name))
    assert (back.work.names, back.rank, back.devices) == (one.work.names, one.rank, one.devices)
    assert (back.segments, back.loads, back.notes) == (one.segments, one.loads, one.notes)
    assert (back.work.labels, back.work.paths) == (labels, paths)


def test_idle_time_has_the_cause_that_the_host_shows():
    one = traced(None, [("k", 0, 100), ("k", 110, 200), ("k", 300, 400), ("k", 700, 800), ("k", 1000, 1100)])
    one.loads.append((450 * US, 650 * US))
    one = dataclasses.replace(one, syncs=np.array([[150 * US, 203 * US], [900 * US, 901 * US]]))
    gpus, _ = gpus_of([one], ["GPU-a"])
    activity, *_ = rows_of(gpus[0].parts, Units())
    shares = recording_facts(gpus[0], activity["start_ns"], activity["end_ns"])["idle_by"]
    idle = 10 + 100 + 300 + 200
    assert shares == pytest.approx(
        {
            "between launches": 10 / idle,
            "data loading": 200 / idle,
            "synchronisation": (100 + 200) / idle,
            "host": 100 / idle,
        }
    )


@pytest.mark.parametrize(("early_us", "cause"), [(4, "synchronisation"), (6, "host")])
def test_a_wait_ends_with_the_last_kernel_as_far_as_the_clocks_agree(early_us, cause):
    """The host's clock and the GPU's agree to 5 us: a wait that ends that much before its kernel waited for it."""
    one = traced(None, [("k", 0, 100), ("k", 300, 400)])
    one = dataclasses.replace(one, syncs=np.array([[50 * US, (100 - early_us) * US]]))
    gpus, waits = gpus_of([one], ["GPU-a"])
    run = Run(kind="program", workload={"name": "train.py"}, devices=[DeviceInfo("GPU-a", "a")])
    recorded(run, gpus, waits)
    (about,) = run.workload["recordings"]
    assert {name: share for name, share in about["idle_by"].items() if share} == {cause: 1.0}


def test_the_part_of_a_long_program_that_is_analysed_begins_and_ends_with_its_own_kernels():
    """A lull of 40 s, then a busy half minute: power is read over the half minute, where the kernels are."""
    second = 1_000_000
    lull = [("setup", k * second, k * second + 1000) for k in range(40)]
    busy = [("gemm", k * second + 1000, k * second + 900_000) for k in range(40, 70)]
    one = traced(None, [*lull, *busy], segments=((0, 80 * 10**9),))
    gpus, waits = gpus_of([one], ["GPU-a"])
    run = Run(kind="program", workload={"name": "train.py"}, devices=[DeviceInfo("GPU-a", "a")])
    _, activity = recorded(run, gpus, waits)
    (about,) = run.workload["recordings"]
    assert (about["first_ns"], about["kernels"]) == (0, 70)
    assert (about["start_ns"], about["end_ns"]) == (40 * 10**9 + 1000 * US, 69 * 10**9 + 900_000 * US)
    assert len(activity) == 30


def test_kernels_beside_a_pause_in_the_trace_stand_for_it():
    second = 1_000_000
    kernels = [("k", t * second, t * second + 1) for t in (1, 18, 26, 59)]
    one = traced(None, kernels, segments=((0, 20 * 10**9), (25 * 10**9, 60 * 10**9)))
    assert one.weights().tolist() == [1.0, 1.5, 1.5, 1.0]  # 5 s that aren't traced, for 5 s on each side


def test_a_process_without_kernels_has_no_gpu():
    gpus, waits = gpus_of([traced(0, []), rank(1)], ["GPU-a", "GPU-b"])
    assert [gpu.id for gpu in gpus] == ["GPU-b"]
    assert [len(wait) for wait in waits.wait_ns] == [0, 8]


def test_a_kernel_without_an_operator_is_a_row_of_its_module():
    one = traced(None, [("own", 0, 10), ("own", 20, 30), ("gemm", 40, 50)])
    edges = np.arange(3)
    labels = [("", ""), ("", "rope"), ("", "attn"), ("mm", "fc")]
    columns = {"label": edges + 1, "module": np.array([1, 2, 0]), "sampled": edges == 2}
    one = dataclasses.replace(one, work=dataclasses.replace(one.work, labels=labels, **columns))
    _, about, _ = rows_of(gpus_of([one], ["GPU-a"])[0][0].parts, units := Units())
    found = {(row["name"], row["op"], row["module"]) for row in units.table().to_pylist() if row["level"] == "kernel"}
    assert found == {("own", None, "rope"), ("own", None, "attn"), ("gemm", "mm", "fc")}
    assert about["unmatched"] == pytest.approx(2 / 3)


def in_steps(names, count=300):
    """Kernels, each in a range of its own: the later the longer."""
    one = traced(None, [(names(step), 1000 * step, 1000 * step + step + 1) for step in range(count)])
    paths, steps = [(), *((f"step {step}",) for step in range(count))], np.arange(count)
    work = dataclasses.replace(one.work, paths=paths, path=steps + 1)
    return gpus_of([dataclasses.replace(one, work=work)], ["GPU-a"])


@pytest.mark.parametrize("kinds", [2, 300])
def test_ranges_and_kernels_beyond_a_number_share_a_row_and_keep_their_time(kinds):
    _, about, pooled = rows_of(
        in_steps(lambda step: f"kernel {step % kinds}")[0][0].parts, units := Units(), most_places=100
    )
    sites = {row["module"]: row["count"] for row in units.table().to_pylist() if row["level"] == "site"}
    kernels = [row["name"] for row in units.table().to_pylist() if row["level"] == "kernel"]
    assert len(sites) == 51
    assert {f"step {step}" for step in range(250, 300)} < sites.keys()
    assert sites[OTHER_RANGES] == (125 if kinds == 2 else 250)
    assert len(kernels) == (2 if kinds == 2 else 51)
    assert (OTHER_KERNELS in kernels) == (kinds == 300)
    assert pooled == (248 if kinds == 2 else 249)
    assert sum(seconds for *_, seconds, _ in about["seconds"]) == pytest.approx(300 * 301 / 2 * 1e-6)
    assert sum(count for *_, count in about["seconds"]) == 300


def test_a_warning_states_that_ranges_share_a_row(monkeypatch):
    monkeypatch.setattr("jouletrace.profiler.program.timeline.MOST_PLACES", 100)
    run = Run(kind="program", workload={"name": "train.py"}, devices=[DeviceInfo("GPU-a", "a")])
    recorded(run, *in_steps(lambda step: "k"))
    ((code, message),) = [(one.code, one.message) for one in run.warnings]
    assert (code, message.split(",")[0]) == ("too_many_names", "249 kernels in ranges")


def test_few_ranges_and_kernels_are_all_distinguished():
    *_, pooled = rows_of(in_steps(lambda step: "k")[0][0].parts, units := Units(), most_places=300)
    assert pooled == 0
    assert not {OTHER_RANGES, OTHER_KERNELS} & {row["name"] for row in units.table().to_pylist()}


def test_devices_that_a_process_does_not_name_are_as_cuda_numbers_them():
    named = traced(None, [("k", 0, 10)], device=1, uuids=("", "GPU-b"))
    unnamed = traced(None, [("k", 0, 10)], device=0, uuids=("", "GPU-b"), pid=2)
    assert [gpu.id for gpu in gpus_of([named, unnamed], ["GPU-a", "GPU-b"])[0]] == ["GPU-a", "GPU-b"]
