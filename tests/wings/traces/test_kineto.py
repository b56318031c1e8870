"""Kineto traces: exact times, all dialects, joins that hold, and what is left of damaged files."""

import gzip
import json
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest

import import_timelines as make
from commands import command
from damaged import read_damaged
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions
from jouletrace.formats.importers.joins import AMBIGUOUS, NONE, enclosing, match_launch
from jouletrace.run import load, save
from jouletrace.wings.traces import kineto
from jouletrace.wings.traces.kineto.json import _Text
from places import DATA, SAMPLES

TRACES = sorted(p for folder in ("hta", "kineto", "tracelens") for p in (SAMPLES / folder).rglob("*.json*"))


def read(path):
    return kineto.read(path, ImportOptions())


def rows(run, kind=None):
    return [row for row in run.spans.to_pylist() if kind in (None, row["kind"])]


def trace(tmp_path, events, **options):
    return read(make.write(tmp_path / "t.json", make.native(events, **options)))


def codes(run):
    return {warning.code: warning.message for warning in run.warnings}


def test_a_trace_becomes_spans_with_exact_times(tmp_path):
    run = read(make.kineto(tmp_path / "t.json", steps=2))
    assert Counter(row["kind"] for row in rows(run)) == {
        "iteration": 2, "op": 6, "launch": 6, "kernel": 4, "memcpy": 2, "range": 2,
    }  # fmt: skip
    kernel = rows(run, "kernel")[0]
    assert kernel["name"] == make.GEMM
    assert kernel["start_ns"] == make.BASE_NS + 200_001
    assert kernel["end_ns"] == make.BASE_NS + 350_003
    assert (kernel["device"], kernel["lane"], kernel["correlation"]) == ("imported:0", "stream 7", 61 - 10)
    assert [kernel[f"grid_{axis}"] for axis in "xyz"] == [8, 1, 1]
    assert [kernel[f"block_{axis}"] for axis in "xyz"] == [128, 1, 1]
    assert kernel["registers"] == 32
    assert rows(run, "memcpy")[0]["bytes"] == 4096
    assert run.devices[0].name == "NVIDIA H100 80GB HBM3"
    assert run.versions["cuda_driver"] == "12090"
    assert run.created_ns == make.BASE_NS
    assert not run.warnings


def test_a_rank_that_is_no_number_is_kept_as_stated(tmp_path):
    path = make.kineto(tmp_path / "t.json")
    whole = json.loads(path.read_text())
    whole["distributedInfo"] = {"backend": "nccl", "rank": "zero", "world_size": 2}
    run = load(save(read(make.write(path, json.dumps(whole))), tmp_path / "run"))
    stated = {name: run.workload.get(name) for name in ("backend", "rank", "rank_stated", "world_size")}
    assert stated == {"backend": "nccl", "rank": None, "rank_stated": "zero", "world_size": 2}


def test_kernels_find_the_operator_that_launched_them(tmp_path):
    run = read(make.kineto(tmp_path / "t.json"))
    by_id = {row["id"]: row for row in rows(run)}
    assert [by_id[row["parent"]]["name"] for row in rows(run, "kernel")[:2]] == ["aten::mm", "aten::relu"]
    assert by_id[rows(run, "memcpy")[0]["parent"]]["name"] == "aten::copy_"
    assert {by_id[row["parent"]]["kind"] for row in rows(run, "op")} == {"iteration"}
    joins = run.settings["imported"][0]["joins"]
    assert joins == {
        "device_spans": 6, "with_launch": 6, "with_parent": 6,
        "ambiguous_launch": 0, "refused_external_ids": 0, "before_launch": 0,
    }  # fmt: skip


@pytest.mark.parametrize("how", ["compact", "keys in another order", "gzip", "bare list", "with a byte order mark"])
def test_the_same_events_written_otherwise_make_the_same_spans(tmp_path, how):
    usual = read(make.kineto(tmp_path / "usual.json", steps=3))
    events = make.kineto_events(3)
    text = make.native(events)
    path = tmp_path / "other.json"
    if how == "gzip":
        path = tmp_path / "other.json.gz"
    elif how == "with a byte order mark":
        text = "\ufeff" + text
    elif how == "compact":
        text = json.dumps({"baseTimeNanoseconds": make.BASE_NS, "traceEvents": events})
    elif how == "bare list":
        for one in events:
            one["ts"] = int(one["ts"] * 1000) / 1000
        text = json.dumps(events)
    else:
        text = json.dumps(
            {"traceEvents": [dict(reversed(one.items())) for one in events], "baseTimeNanoseconds": make.BASE_NS}
        )
    other = read(make.write(path, text))
    shift = make.BASE_NS if how == "bare list" else 0
    for mine, theirs in zip(rows(usual), rows(other), strict=True):
        assert {**mine, "start_ns": mine["start_ns"] - shift, "end_ns": mine["end_ns"] - shift} == theirs


@pytest.mark.parametrize(("ts", "dur", "start", "end"), [
    ("1621401187224533.123", "0.001", 1621401187224533123, 1621401187224533124),
    ("1621401187224533.001", "2.5", 1621401187224533001, 1621401187224535501),
    ("1621401187224533", "20", 1621401187224533000, 1621401187224553000),
    ("1.621401187224533e15", "1e1", 1621401187224533000, 1621401187224543000),
    ('"1621401187224533.007"', "3.000", 1621401187224533007, 1621401187224536007),
])  # fmt: skip
def test_times_without_a_base_are_read_as_decimal_text(tmp_path, ts, dur, start, end):
    text = '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, '
    run = read(make.write(tmp_path / "t.json", text + f'"ts": {ts}, "dur": {dur}, "args": {{}}}}]}}'))
    assert (rows(run)[0]["start_ns"], rows(run)[0]["end_ns"]) == (start, end)
    assert run.settings["imported"][0]["clock"] == "unix"


def test_times_since_the_start_of_the_machine_are_relative(tmp_path):
    run = trace(tmp_path, make.kineto_events(1), base=None)
    assert run.settings["imported"][0]["clock"] == "relative"


def test_the_oldest_dialect_is_read(tmp_path):
    old = {"Operator": "op", "Runtime": "launch", "Kernel": "kernel", "Memcpy": "memcpy"}
    events = []
    for one in make.kineto_events(1):
        cat = {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel", "gpu_memcpy": "Memcpy"}
        if one.get("cat") in cat:
            args = {("external id" if key == "External id" else key): value for key, value in one["args"].items()}
            tid = "stream 7" if one["cat"] in ("kernel", "gpu_memcpy") else str(one["tid"])
            events.append({**one, "cat": cat[one["cat"]], "tid": tid, "ts": int(one["ts"]) + 1621401187224533,
                           "dur": int(one["dur"]), "args": args})  # fmt: skip
    run = trace(tmp_path, events, base=None)
    assert {row["kind"] for row in rows(run)} == set(old.values())
    assert {row["lane"] for row in rows(run, "kernel")} == {"stream 7"}
    assert run.settings["imported"][0]["joins"]["with_parent"] == 3


def test_an_id_of_an_operator_elsewhere_is_refused_and_counted(tmp_path):
    events = [
        make.event("cpu_op", "aten::far", 5000, 10, **{"External id": 1}),
        make.call("cudaLaunchKernel", 20, 5, 1),
        make.event("kernel", make.GEMM, 40, 5, 0, 7, **make.kernel_args(51, 1)),
    ]
    run = trace(tmp_path, events)
    assert rows(run, "kernel")[0]["parent"] is None
    assert run.settings["imported"][0]["joins"]["refused_external_ids"] == 1


def test_an_id_of_an_operator_of_another_thread_around_the_launch_is_taken(tmp_path):
    events = [
        make.event("cpu_op", "aten::near", 10, 100, tid=8, **{"External id": 1}),
        make.call("cudaLaunchKernel", 20, 5, 1),
        make.event("kernel", make.GEMM, 40, 5, 0, 7, **make.kernel_args(51, 1)),
    ]
    run = trace(tmp_path, events)
    assert rows(run, "kernel")[0]["parent"] == rows(run, "op")[0]["id"]


def test_kernels_without_a_launch_are_kept_without_a_parent(tmp_path):
    events = [
        make.event("cpu_op", "aten::mm", 10, 1000, **{"External id": 1}),
        make.event("kernel", make.GEMM, 40, 5, 0, 7, **make.kernel_args(51, 1)),
    ]
    run = trace(tmp_path, events)
    assert len(rows(run, "kernel")) == 1
    assert rows(run, "kernel")[0]["parent"] is None
    assert run.settings["imported"][0]["joins"]["with_launch"] == 0


@pytest.mark.parametrize(("second", "joined"), [((22, 2), 1), ((500, 2), 0)])
def test_two_launches_of_one_id_count_only_if_one_is_inside_the_other(tmp_path, second, joined):
    events = [
        make.call("cudaLaunchKernel", 20, 5, 1),
        make.call("cuLaunchKernel", *second, 1),
        make.event("kernel", make.GEMM, 40, 5, 0, 7, **make.kernel_args(51, 1)),
    ]
    joins = trace(tmp_path, events).settings["imported"][0]["joins"]
    assert (joins["with_launch"], joins["ambiguous_launch"]) == (joined, 1 - joined)


def test_a_kernel_before_its_launch_is_counted(tmp_path):
    events = [
        make.call("cudaLaunchKernel", 20, 5, 1),
        make.event("kernel", make.GEMM, 19, 5, 0, 7, **make.kernel_args(51, 1)),
    ]
    assert trace(tmp_path, events).settings["imported"][0]["joins"]["before_launch"] == 1


def test_quotes_and_control_characters_in_names_are_mended(tmp_path):
    events = make.kineto_events(1)
    text = make.native(events).replace("aten::relu", 'say "hi", \x01 you').replace("aten::mm", "a\nb")
    run = read(make.write(tmp_path / "t.json", text))
    names = {row["name"] for row in rows(run, "op")}
    assert names == {'say "hi", \x01 you', "a\nb", "aten::copy_"}
    assert not run.warnings


def test_names_keep_their_letters_and_backslashes(tmp_path):
    events = make.kineto_events(1)
    events[2]["name"], events[7]["name"] = "größe 漢字", 'C:\\temp\\"x"'
    text = make.native(events).replace("gr\\u00f6\\u00dfe \\u6f22\\u5b57", "größe 漢字")
    run = read(make.write(tmp_path / "t.json", text))
    assert {row["name"] for row in rows(run, "op")} == {"größe 漢字", 'C:\\temp\\"x"', "aten::copy_"}


def test_arguments_that_hold_an_object_or_a_brace_in_a_text_dont_mislead(tmp_path):
    events = make.kineto_events(1)
    events[2]["args"] = {"External id": 1, "nested": {"a": 1}, "x": "} }, {"}
    events[7]["args"] = {"Call stack": "f() { g() } }", "External id": 2}
    run = trace(tmp_path, events)
    assert len(rows(run, "op")) == 3
    assert not run.warnings


def test_a_truncated_file_is_imported_up_to_its_end(tmp_path):
    text = make.native(make.kineto_events(20))
    run = read(make.write(tmp_path / "t.json", text[: len(text) // 2]))
    assert 40 < len(rows(run)) < 140
    assert "line" in codes(run)["cut_off"]


def test_an_unreadable_event_is_counted_with_its_line_and_the_rest_is_kept(tmp_path):
    text = make.native(make.kineto_events(20))
    lines = text.split("\n")
    broken = next(k for k, line in enumerate(lines) if "aten::relu" in line)
    lines[broken] = lines[broken].replace('"ph": "X"', '"ph": X')
    run = read(make.write(tmp_path / "t.json", "\n".join(lines)))
    assert len(rows(run)) == 20 * 11 - 1
    assert codes(run)["unreadable_events"] == f"1 event isn't JSON, at line {broken}"


def test_events_with_impossible_times_are_counted(tmp_path):
    events = make.kineto_events(1)
    events[2]["dur"], events[3]["ts"], events[7]["dur"] = -1, None, "soon"
    run = trace(tmp_path, events)
    assert codes(run)["bad_times"].startswith("2 ")
    assert codes(run)["without_times"].startswith("1 ")
    assert len(rows(run)) == 11 - 3


@pytest.mark.thorough
def test_large_events_are_all_read(tmp_path):
    events = [make.event("cpu_op", f"op {k}", 10.0 * k, 1.5, note="x" * 1000) for k in range(5000)]
    assert len(rows(trace(tmp_path, events))) == 5000


@pytest.mark.thorough
def test_the_end_of_a_damaged_gzip_is_lost_and_said_so(tmp_path):
    packed = gzip.compress(make.native(make.kineto_events(3000)).encode())
    run = read(make.write(tmp_path / "t.json", packed[: len(packed) // 2]))
    assert len(rows(run)) > 100
    assert {"damaged_gzip", "cut_off"} <= set(codes(run))


@pytest.mark.parametrize(
    "text", ["{}", '{"traceEvents": []}', '{"traceEvents": [', '{"traceEvents": "no"}', "[1, 2]", "{" * 5000]
)
def test_a_file_without_events_is_one_line(tmp_path, text):
    with pytest.raises(BadInputError, match=r"t\.json: no event"):
        read(make.write(tmp_path / "t.json", text))


def brute_force(lane, start, end, container):
    found = []
    order = sorted(range(len(start)), key=lambda i: (lane[i], start[i], -end[i], i))
    for place, i in enumerate(order):
        around = [j for j in order[:place] if container[j] and lane[j] == lane[i] and end[j] >= end[i]]
        found.append((i, around[-1] if around else NONE))
    return [j for _, j in sorted(found)]


@pytest.mark.parametrize("seed", range(20))
def test_the_enclosing_span_is_the_one_that_a_search_finds(seed):
    draw = np.random.default_rng(seed)
    n = int(draw.integers(1, 60))
    lane, start = draw.integers(0, 3, n), draw.integers(0, 40, n)
    end, container = start + draw.integers(0, 20, n), draw.random(n) < 0.7
    assert enclosing(lane, start, end, container).tolist() == brute_force(lane, start, end, container)


def test_launches_of_one_id_are_distinguished_by_where_they_lie():
    keys, start, end = (np.array(x) for x in ([5, 5, 6, 6, -1], [10, 12, 20, 30, 0], [20, 14, 25, 35, 9]))
    found = match_launch(np.array([5, 6, 7, -1]), keys, start, end)
    assert found.tolist() == [0, AMBIGUOUS, NONE, NONE]


@pytest.mark.parametrize("how", ["native", "compact", "reversed keys"])
def test_one_unusual_event_changes_nothing_of_the_others(tmp_path, how):
    events = make.kineto_events(30)
    odd = [*events, {**events[1], "name": "odd", "ts": "12.5"}]  # a text for a time: not for the fast way
    both = []
    for some in (events, odd):
        some = [dict(reversed(one.items())) for one in some] if how == "reversed keys" else some  # noqa: PLW2901
        whole = {"baseTimeNanoseconds": make.BASE_NS, "traceEvents": some}
        both.append(read(make.write(tmp_path / "t.json", make.native(some) if how == "native" else json.dumps(whole))))
    facts = [
        {(row["kind"], row["name"], row["start_ns"], row["end_ns"], row["correlation"]) for row in rows(run)}
        for run in both
    ]
    assert len(facts[1] - facts[0]) == 1
    assert facts[0] < facts[1]
    assert both[1].warnings == []


def test_a_sound_trace_takes_the_fast_way(tmp_path, monkeypatch):
    slow = Counter()
    monkeypatch.setattr(_Text, "_take", lambda self, text, at, offset=0: slow.update(["slow"]) or text.index("]", at))
    for how in (make.native(make.kineto_events(50)), json.dumps(make.kineto_events(50))):
        assert len(read(make.write(tmp_path / "t.json", how)).spans) == 550
    assert not slow


@pytest.mark.parametrize("us", ["8796093022207.999", "4503599627370.497", "8796093022208.001", "0.0005"])
def test_fractions_are_exact_however_late(tmp_path, us):
    times = [us, *(f"{int(Decimal(us)) + 1000 * k}.001" for k in range(1, 4))]
    text = make.native([make.event("cpu_op", "aten::mm", f"<{time}>", 1.5) for time in times])
    text = text.replace('"<', "").replace('>"', "")
    starts = [row["start_ns"] - make.BASE_NS for row in rows(read(make.write(tmp_path / "t.json", text)))]
    assert starts == [int((Decimal(time) * 1000).to_integral_value()) for time in times]


def test_an_event_whose_arguments_are_damaged_keeps_its_times(tmp_path):
    text = make.native(make.kineto_events(2)).replace('"External id": 11', '"External id": 1 1')
    run = read(make.write(tmp_path / "t.json", text))
    assert len(run.spans) == 22
    assert codes(run)["unreadable_args"].startswith("3 events have arguments that aren't JSON")


@pytest.mark.thorough
def test_mutated_traces_end_in_one_line_or_a_partial_import(tmp_path):
    traces = [make.native(make.kineto_events(4)), json.dumps(make.kineto_events(4))]
    found = read_damaged(kineto, [text.encode() for text in traces], tmp_path / "t.json", 200)
    assert found["read"] > 100


def independent_count(path):
    """Kernels of a trace by another way: the standard parser, decimals, dictionaries."""
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    whole = json.loads(raw, strict=False, parse_float=str)
    calls = Counter()
    for one in whole["traceEvents"]:
        cat = str(one.get("cat", "")).lower()
        if one.get("ph") == "X" and (cat.endswith("runtime") or cat == "cuda_driver"):
            calls[one["args"].get("correlation")] += 1
    kernels = [e for e in whole["traceEvents"] if e.get("ph") == "X" and str(e.get("cat")).lower() == "kernel"]
    ns = sum(int(Decimal(one["dur"]) * 1000) for one in kernels)
    joined = sum(calls[one["args"].get("correlation")] == 1 for one in kernels)
    spans = sum(one.get("ph") == "X" for one in whole["traceEvents"])
    return spans, len(kernels), ns, Counter(one["name"] for one in kernels), joined


@pytest.mark.samples
@pytest.mark.skipif(not TRACES, reason="no sample files here")
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_real_traces_agree_with_an_independent_count(path):
    spans, count, ns, names, joined = independent_count(path)
    columns = ("kind", "name", "start_ns", "end_ns", "correlation")
    found = list(zip(*read(path).spans.select(columns).to_pydict().values(), strict=True))
    kernels = [row[1:] for row in found if row[0] == "kernel" and not row[1].startswith("mtia")]
    if "mtia" not in path.name:
        assert len(kernels) == count
        assert sum(end - start for _, start, end, _ in kernels) == ns
        assert Counter(name for name, *_ in kernels) == names
        launches = {row[-1] for row in found if row[0] == "launch"}
        assert sum(correlation in launches for *_, correlation in kernels) == joined
    assert len(found) == spans


@pytest.mark.parametrize(("moved", "stated"), [(0, True), (100_000_000, True), (100_000_000, False), (3, True)])
def test_an_annotation_without_a_device_makes_no_gpu(tmp_path, moved, stated):
    """As in traces that were merged: process ids are moved apart, and no longer the numbers of devices."""
    args = make.kernel_args(51, 1)
    events = [make.event("kernel", make.GEMM, 40, 5, 0, 7, **args)]
    events.append(make.event("gpu_user_annotation", "step", 30, 30, moved, 7))
    if not stated:  # kernels of that process say which device it is
        events.append(make.event("kernel", make.RELU, 50, 5, moved, 7, **(args | {"correlation": 52})))
    run = trace(tmp_path, events)
    assert [device.id for device in run.devices] == ["imported:0"]
    annotation = next(row for row in rows(run) if row["name"] == "step")
    assert annotation["device"] == ("imported:0" if not moved or not stated else None)
    assert annotation["kind"] == "range"
    assert annotation["parent"] is None


def test_kernels_that_state_no_device_are_on_the_one_of_their_process(tmp_path):
    events = []
    for device in (0, 1):
        args = {key: value for key, value in make.kernel_args(51 + device, 1).items() if key != "device"}
        events.append(make.event("kernel", make.GEMM, 40, 5, device, 7, **args))
    assert [device.id for device in trace(tmp_path, events).devices] == ["imported:0", "imported:1"]


def test_the_phantom_of_a_merged_trace_is_gone(workspace, capsys):
    assert command(capsys, "import", str(DATA / "faults" / "S1_phantom_device.json"), "-o", "run").out
    shown = command(capsys, "show", "run", "-v").out
    assert "100000003" not in shown
    assert "NVIDIA A100" in shown
