"""Times of kernels that can't be: they are in no figure, the others' figures stay, and a warning states how many."""

import json
import random
import sqlite3

import pytest

import import_timelines as make
from commands import command
from jouletrace.analysis import analyse
from jouletrace.formats.importers import read_files
from jouletrace.run import load
from places import DATA
from shown import trust_of
from thinned import thinned

SECOND_US = 1e6
FAULTS = DATA / "faults"


def program(rng, n=30):
    """Name, stream, launch, start and duration in whole µs of kernels of different names, in the order of launch."""
    kernels, free, at = [], {7: 0, 13: 0}, 2_000_000
    for k in range(n):
        stream = rng.choice(list(free))
        at += rng.randint(5, 40)
        start = max(at + rng.randint(3, 30), free[stream])
        length = rng.randint(1, 60)
        free[stream] = start + length
        kernels.append([f"kernel_{k}", stream, at, start, length])
    return kernels


def kineto(path, kernels, *, base=make.BASE_NS):
    events = []
    for k, (name, stream, launched, start, length) in enumerate(kernels, start=1):
        events.append(make.event("cuda_runtime", "cudaLaunchKernel", launched, 4, correlation=k))
        args = make.kernel_args(k, -1, stream=stream)
        events.append(make.event("kernel", name, start, length, 0, stream, **args))
    for event in events:
        event["ts"] += 0 if base is not None or not event["ts"] else make.BASE_NS // 1000
    return make.write(path, make.native(events, base=base))


def nsys(path, kernels, *, base=make.BASE_NS):
    make.nsys(path, launches=0)
    data = sqlite3.connect(path)
    for table in ("MEMCPY", "MEMSET"):
        data.execute(f"DELETE FROM CUPTI_ACTIVITY_KIND_{table}")
    if base is None:
        data.execute("DELETE FROM TARGET_INFO_SESSION_START_TIME")
    for k, (name, stream, launched, start, length) in enumerate(kernels, start=1):
        data.execute("INSERT INTO StringIds VALUES (?, ?)", (100 + k, name))
        call = (1000 * launched, 1000 * launched + 4000, make.PID_A + 5, k, 5)
        data.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", call)
        row = (1000 * start, 1000 * (start + length), 0, 1, stream, k, make.PID_A, 100 + k, 100 + k, 32)
        row += (8, 1, 1, 128, 1, 1, 16, 0, None)
        data.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 19)})", row)
    data.commit()
    data.close()
    return path


def nvprof(path, kernels):
    rows = ['"Start","Duration","Grid X","Device","Context","Stream","Name","Correlation_ID"', "us,us,,,,,,"]
    for k, (name, stream, _, start, length) in enumerate(kernels, start=1):
        rows.append(f'{start},{length},8,"Tesla V100 (0)","1","{stream}","{name}",{k}')
    return make.write(path, "\n".join(rows) + "\n")


def times(run):
    """Time in µs of each kernel, None where it has none; and the reason of each that has none."""
    rows = {row["name"]: row["id"] for row in run.units.to_pylist() if row["level"] == "kernel"}
    found = {name: run.result("time_s", id) for name, id in rows.items()}
    return {name: None if one.value is None else round(1e6 * one.value, 6) for name, one in found.items()}


def warnings(run):
    return {warning.code: warning.message for warning in run.warnings}


def read(path):
    return analyse(read_files([path]))


def corrupt(rng, kernels, how):
    """Spoil one kernel; returns its name."""
    last = {stream: max(k for k, one in enumerate(kernels) if one[1] == stream) for stream in (7, 13)}
    chosen = rng.choice([one for k, one in enumerate(kernels) if k != last[one[1]]])
    if how == "zero":
        chosen[3:] = [0, 0]
    elif how == "long":
        chosen[4] = round(1.6 * SECOND_US)
    elif how == "too long":
        chosen[4] = round(1e5 * SECOND_US)
    elif how == "decades":
        chosen[3] += round(8e8 * SECOND_US)
    elif how == "decades before":
        chosen[3] -= round(8e8 * SECOND_US)
    elif how == "early":
        chosen[3] = chosen[2] - rng.randint(2000, 10**6)
    return chosen[0]


_WAYS = ("zero", "long", "too long", "decades", "early", "decades before")
_FORMS = [("kineto", how) for how in _WAYS] + [("kineto in Unix time", how) for how in _WAYS]
_FORMS += [(form, how) for form in ("nsys", "nsys from 0") for how in _WAYS[:5]]  # which drops times before its start
_FORMS += [("nvprof", how) for how in _WAYS[:4]]  # which states no launches


@pytest.mark.thorough
@pytest.mark.parametrize("seed", thinned(range(6), 2))
@pytest.mark.parametrize(("form", "how"), _FORMS)
def test_one_kernel_at_an_impossible_time_moves_no_other(tmp_path, form, how, seed):
    rng = random.Random(f"{form} {how} {seed}")
    kernels = program(rng)
    expected = {name: length for name, _, _, _, length in kernels}
    spoilt = corrupt(rng, kernels, how)
    write = {"kineto": kineto, "nsys": nsys, "nvprof": nvprof}[form.split()[0]]
    path = write(tmp_path / "a.sqlite", kernels, **({"base": None} if form.endswith(("time", "0")) else {}))
    run = read(path)
    assert times(run) == {**expected, spoilt: None}
    assert warnings(run)["impossible_times"].startswith("1 of 30 kernels")
    assert spoilt in warnings(run)["impossible_times"]
    assert trust_of(run)["level"] != "yes"
    id = next(row["id"] for row in run.units.to_pylist() if row["name"] == spoilt)
    assert run.result("time_s", id).reason == "impossible_times"
    assert run.result("time_s").value < 0.01


@pytest.mark.parametrize("write", [kineto, nsys, nvprof])
@pytest.mark.parametrize("seed", range(4))
def test_healthy_kernels_are_all_counted(tmp_path, write, seed):
    kernels = program(random.Random(seed))
    run = read(write(tmp_path / "a.sqlite", kernels))
    assert times(run) == {name: length for name, _, _, _, length in kernels}
    assert not {"impossible_times", "before_launch"} & warnings(run).keys()


def test_kernels_of_one_launch_run_side_by_side_and_the_next_one_begins_early(tmp_path):
    """As in a CUDA graph, and with programmatic dependent launch; stamps are whole microseconds."""
    kernels = [("branch", 0, 500), ("leaf", 10, 20), ("twig", 40, 0)]
    events = [make.event("cuda_runtime", "cudaGraphLaunch", 0, 5, correlation=1)]
    events += [make.event("kernel", name, 100 + at, dur, 0, 7, **make.kernel_args(1, -1)) for name, at, dur in kernels]
    for k, (name, at, dur) in enumerate([("early", 590, 100), ("rounded", 689, 1), ("next", 690, 30)], start=2):
        events.append(make.event("cuda_runtime", "cudaLaunchKernel", 10 * k, 5, correlation=k))
        events.append(make.event("kernel", name, at, dur, 0, 7, **make.kernel_args(k, -1)))
    run = read(make.write(tmp_path / "t.json", make.native(events)))
    assert times(run) == {"branch": 500, "leaf": 20, "twig": 0, "early": 100, "rounded": 1, "next": 30}
    assert not {"impossible_times", "before_launch"} & warnings(run).keys()


@pytest.mark.parametrize("form", ["kineto", "nsys", "nvprof"])
def test_streams_of_two_processes_or_contexts_with_one_number_are_two(tmp_path, form):
    if form == "kineto":  # traces of two ranks as one: their process ids are moved apart
        events = [make.event("kernel", "long", 100, 500, 0, 7, **make.kernel_args(1, -1))]
        events.append(make.event("kernel", "short", 200, 10, 100_000_000, 7, **make.kernel_args(2, -1)))
        path = make.write(tmp_path / "t.json", make.native(events))
    elif form == "nsys":
        path = nsys(tmp_path / "a.sqlite", [["long", 7, 50, 100, 500], ["short", 7, 60, 200, 10]])
        with sqlite3.connect(path) as data:
            data.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET contextId = 2 WHERE correlationId = 2")
    else:
        path = nvprof(tmp_path / "a.txt", [["long", 7, 0, 100, 500], ["short", 7, 0, 200, 10]])
        path.write_text(path.read_text().replace('"1","7","short"', '"2","7","short"'))
    run = read(path)
    assert times(run) == {"long": 500, "short": 10}
    assert len(set(run.spans.filter(run.spans["device"].is_valid())["lane"].to_pylist())) == 2
    assert "impossible_times" not in warnings(run)


def test_clocks_that_differ_cost_no_kernel(tmp_path):
    kernels = program(random.Random(1))
    for one in kernels:
        one[3] -= 10_000
    run = read(kineto(tmp_path / "t.json", kernels))
    assert None not in times(run).values()
    assert "the clocks of host and GPU differ" in warnings(run)["before_launch"]
    assert trust_of(run)["level"] != "yes"


@pytest.mark.thorough
def test_part_of_a_name_is_flagged_and_its_energy_null(tmp_path):
    kernels = [["gemm", 7, 1000 + 100_000 * k, 1010 + 100_000 * k, 50_000] for k in range(40)]
    kernels[3][3:] = [0, 0]
    rows = ["time_ns,power_w", *(f"{make.BASE_NS + k * 10_000_000},{200 + k % 7}" for k in range(420))]
    path = make.write(tmp_path / "power.csv", "\n".join(rows) + "\n")
    run = analyse(read_files([kineto(tmp_path / "t.json", kernels), path]))
    unit = next(row for row in run.units.to_pylist() if row["name"] == "gemm")
    assert unit["count"] == 39
    assert run.result("time_s", unit["id"]).value == pytest.approx(39 * 0.05)
    assert "times_left_out" in run.result("time_s", unit["id"]).flags
    assert run.result("energy_total_j", unit["id"]).reason == "impossible_times"


@pytest.mark.parametrize(("name", "count", "us"), [("B1_kineto_ts0", 4, 200), ("C1_kineto_overflow", 7, 350)])
def test_faults_of_recorders_are_stated_on_the_command_line(workspace, capsys, name, count, us):
    printed = command(capsys, "import", str(FAULTS / f"{name}.json"), "-o", "run").out
    assert "trust: with care" in printed
    assert f"{8 - count} of 8 kernels and copies" in " ".join(printed.split())
    assert json.loads(command(capsys, "import", str(FAULTS / f"{name}.json"), "--json").out)["time_s"] < 0.001
    run = load("run")
    assert times(run) == {"gemm": us}
    assert [row["count"] for row in run.units.to_pylist() if row["name"] == "gemm"] == [count]
    assert "2021-03-08" in command(capsys, "show", "run", "-v").out


@pytest.mark.parametrize("write", [kineto, nsys, nvprof])
def test_kernels_that_are_there_twice_count_once(tmp_path, write):
    kernels = program(random.Random(2))
    path = write(tmp_path / "a.sqlite", kernels)
    if write is nsys:
        with sqlite3.connect(path) as data:
            table = "CUPTI_ACTIVITY_KIND_KERNEL"
            data.execute(f"INSERT INTO {table} SELECT * FROM {table}")
    elif write is nvprof:
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines, *lines[2:]]) + "\n")
    else:
        content = json.loads(path.read_text())
        content["traceEvents"] += [event for event in content["traceEvents"] if event.get("cat") == "kernel"]
        path.write_text(json.dumps(content))
    run = read(path)
    assert times(run) == {name: length for name, _, _, _, length in kernels}
    assert "30 there twice" in warnings(run)["impossible_times"]
    assert trust_of(run)["level"] != "yes"


def test_no_kernel_takes_no_time_where_stamps_are_of_nanoseconds(tmp_path):
    path = nsys(tmp_path / "a.sqlite", program(random.Random(3)))
    with sqlite3.connect(path) as data:
        data.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start + correlationId * 7, end = end + 900")
        data.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start WHERE correlationId = 4")
    run = read(path)
    assert [name for name, us in times(run).items() if us is None] == ["kernel_3"]
    assert "1 without a duration" in warnings(run)["impossible_times"]
