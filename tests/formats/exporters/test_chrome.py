"""Chrome traces: valid whatever the Run holds, exact to the nanosecond, with energy where it went."""

import gzip
import json
import math
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from check_trace import problems, read
from jouletrace.errors import BadInputError
from jouletrace.formats import exporters
from jouletrace.run import Run, tables
from jouletrace.sensor import integrate
from make_runs import GPU, ODD, START, all_runs, profile_run, random_table, simulated_run
from places import SUPPORT
from timeline_runs import NASTY, OTHER, SCRIPT, random_run, span, spans, timeline_run

RUNS = {**all_runs(), "timeline": timeline_run(), "random": random_run(400, 3)}


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    return read(exporters.export(timeline_run(), "chrome", tmp_path_factory.mktemp("chrome") / "trace.json"))


def of_phase(document, phase):
    return [event for event in document["traceEvents"] if event["ph"] == phase]


def named(document, name, phase="X"):
    return [event for event in of_phase(document, phase) if event["name"] == name]


def ns(document, micros):
    exact = document["baseTimeNanoseconds"] + Decimal(micros) * 1000
    assert exact == int(exact)
    return int(exact)


def tracks(document):
    """Name of each process, and of each thread with its process."""
    names = {}
    for event in of_phase(document, "M"):
        if event["name"] in ("process_name", "thread_name"):
            names[event["pid"], event.get("tid")] = event["args"]["name"]
    return names


def line(document, name):
    return [(ns(document, e["ts"]), float(e["args"][name])) for e in named(document, name, "C")]


@pytest.mark.parametrize("name", RUNS)
def test_any_run_gives_a_valid_trace(tmp_path, name):
    document = read(exporters.export(RUNS[name], "chrome", tmp_path / "trace.json"))
    assert problems(document) == []
    inside = 1 + len(RUNS[name].activity) if len(RUNS[name].waveform) else 0
    assert len(of_phase(document, "X")) == len(RUNS[name].spans) + inside


@pytest.mark.parametrize("seed", range(5))
def test_tables_full_of_nonsense_give_a_valid_trace(tmp_path, seed):
    run = Run(**{name: tables.from_rows(random_table(name, 60, seed), name) for name in tables.TABLES})
    document = read(exporters.export(run, "chrome", tmp_path / "trace.json"))
    assert problems(document) == []
    assert len(of_phase(document, "X")) == 60


def test_every_span_is_there_once_with_its_times_exact(document):
    found = [(e["name"], e["cat"], ns(document, e["ts"]), int(e["dur"] * 1000)) for e in of_phase(document, "X")]
    stored = [(s["name"], s["kind"], s["start_ns"], s["end_ns"] - s["start_ns"]) for s in spans()]
    assert sorted(found) == sorted(stored)
    assert document["baseTimeNanoseconds"] == START - 20


def test_tracks_are_named_by_device_kind_and_lane(document):
    names = tracks(document)
    where = {(e["name"], names[e["pid"], None], names[e["pid"], e["tid"]]) for e in of_phase(document, "X")}
    board, other = f"NVIDIA H100 80GB HBM3 ({GPU})", f"NVIDIA H100 80GB HBM3 ({OTHER})"
    assert ("softmax", board, "Kernels, stream 7") in where
    assert (NASTY, board, "Kernels, stream 7 (2)") in where
    assert ("Memcpy HtoD", board, "Kernels, stream 7") in where
    assert ("gemm", board, "Kernels, stream 13") in where
    assert ("gemm", other, "Kernels, stream 7") in where
    assert ("aten::mm", "Host", "Operators, thread 1") in where
    assert (ODD, "Host", "Operators, thread 1 (2)") in where
    assert ("of a newer version", "Host", "Novelty") in where
    assert (SCRIPT, "Host", "Ranges") in where
    assert ("energy", board, "Phases, profile") in where


def test_kinds_of_their_own_come_after_the_known_ones(tmp_path):
    rows = [span(i, kind, kind, i, i + 1) for i, kind in enumerate(("group", "kernel", "op", "novelty"))]
    document = read(exporters.export(Run(spans=tables.from_rows(rows, "spans")), "chrome", tmp_path / "trace.json"))
    named = [event["args"]["name"] for event in of_phase(document, "M") if event["name"] == "thread_name"]
    assert named == ["Operators", "Kernels", "Group", "Novelty"]


def test_spans_of_which_only_times_are_known_are_drawn(tmp_path):
    rows = [{"id": 1, "start_ns": START, "end_ns": START + 1}]
    document = read(exporters.export(Run(spans=tables.from_rows(rows, "spans")), "chrome", tmp_path / "trace.json"))
    (drawn,) = of_phase(document, "X")
    assert (drawn["name"], drawn["cat"], drawn["args"]) == ("(no name)", "other", {})


def test_readings_of_no_device_are_the_hosts(tmp_path):
    rows = [{"time_ns": START + i, "channel": "temperature_c", "value": 40.0 + i} for i in (1, 0)]
    run = Run(samples=tables.from_rows(rows, "samples"))
    document = read(exporters.export(run, "chrome", tmp_path / "trace.json"))
    assert tracks(document) == {(1, None): "Host"}
    assert line(document, "Temperature (°C)") == [(START, 40.0), (START + 1, 41.0)]


def test_counters_that_are_not_numbers_are_null(tmp_path):
    run = Run(spans=tables.from_rows([span(1, "kernel", "gemm", 0, 1)], "spans"))
    row = {"span": 1, "metric": "sm__cycles", "value": math.nan}
    run.counters = tables.from_rows([row, row], "counters")
    document = read(exporters.export(run, "chrome", tmp_path / "trace.json"))
    assert named(document, "gemm")[0]["args"] == {"sm__cycles": None, "sm__cycles, 2": None}


def test_tracks_come_in_the_order_of_their_ranks(document):
    ranks = [event for event in of_phase(document, "M") if event["name"] == "thread_sort_index"]
    names = tracks(document)
    ordered = [names[e["pid"], e["tid"]] for e in sorted(ranks, key=lambda event: event["args"]["sort_index"])]
    assert len({event["args"]["sort_index"] for event in ranks}) == len(ranks)
    assert ordered.index("Iterations, latency") < ordered.index("Kernels, stream 7")
    assert ordered.index("Kernels, stream 7") < ordered.index("Kernels, stream 13")


@pytest.mark.parametrize("seed", range(20))
def test_kernels_of_a_track_ran_one_after_another(tmp_path, seed):
    document = read(exporters.export(random_run(200, seed), "chrome", tmp_path / "trace.json"))
    assert problems(document) == []
    ended = {}
    for event in of_phase(document, "X"):
        if event["cat"] == "kernel":
            assert event["ts"] >= ended.get(event["tid"], 0)
            ended[event["tid"]] = event["ts"] + event["dur"]


def test_a_sub_track_is_used_again_when_it_is_free(tmp_path):
    rows = [span(i, "kernel", str(i), 5 * i, 5 * i + 8) for i in range(5)]
    document = read(exporters.export(Run(spans=tables.from_rows(rows, "spans")), "chrome", tmp_path / "trace.json"))
    names = tracks(document)
    where = {event["name"]: names[event["pid"], event["tid"]] for event in of_phase(document, "X")}
    assert where == {str(i): "Kernels (2)" if i % 2 else "Kernels" for i in range(5)}


@pytest.mark.thorough
def test_spans_of_several_batches_are_in_order_with_their_args(tmp_path):
    n = 40_000
    columns = {"id": np.arange(n), "unit": np.arange(n) % 3, "bytes": np.arange(n) % 7}
    columns |= {"kind": ["kernel"] * n, "name": [f"kernel {i % 5}" for i in range(n)]}
    columns |= {"start_ns": START + 10 * np.arange(n), "end_ns": START + 10 * np.arange(n) + 9}
    path = exporters.export(Run(spans=tables.conform(pa.table(columns), "spans")), "chrome", tmp_path / "trace.json")
    events = [event for event in json.loads(path.read_bytes())["traceEvents"] if event["ph"] == "X"]
    found = [(event["name"], round(1000 * event["ts"]), event["args"]) for event in events]
    assert found == [(f"kernel {i % 5}", 10 * i, {"bytes": i % 7, "unit": str(i % 3)}) for i in range(n)]


def test_tables_in_pieces_with_words_of_their_own_give_the_same_trace(tmp_path):
    run = timeline_run()
    whole = exporters.export(run, "chrome", tmp_path / "whole.json")
    for name in ("spans", "samples", "counters", "results"):
        rows = run.table(name).to_pylist()
        parts = [tables.from_rows(rows[i : i + 5], name) for i in range(0, len(rows), 5)]
        setattr(run, name, pa.concat_tables(parts))
    assert exporters.export(run, "chrome", tmp_path / "parts.json").read_bytes() == whole.read_bytes()


def test_a_kernel_says_its_energy_launch_and_counters(document):
    first = named(document, "gemm")[0]
    args = first["args"]
    figure = {"value": Decimal("0.25"), "low": Decimal("0.245"), "high": Decimal("0.255"), "n": 12, "method": "removal"}
    assert args["energy_total_j"] == {**figure, "reason": None, "flags": ["split", "capped"]}
    assert args["energy_active_j"]["value"] == Decimal("0.2")
    assert args["unit"] == "aten::addmm in encoder.layer.0.mlp"
    assert (args["grid"], args["block"], args["registers"]) == ([96, 8, 1], [256, 1, 1], 168)
    assert args["shared_bytes"] == [16, 49_152]
    assert args["Memory Throughput (%)"] == Decimal("41.5")
    assert args["Memory Throughput (B/s)"] == Decimal("1.2e12")
    assert (args["Duration (s)"], args["B: Duration (s)"]) == (1, 2)
    assert "Memory Throughput (%)" not in named(document, "gemm")[1]["args"]
    assert named(document, "Memcpy HtoD")[0]["args"] == {"bytes": 4096}


def test_an_energy_that_no_one_can_state_says_why(document):
    figure = named(document, "softmax")[0]["args"]["energy_total_j"]
    assert (figure["value"], figure["reason"]) == (None, "too_short")


def test_counters_hold_while_their_kernel_runs(document):
    assert line(document, "Memory (%)") == [
        (START + 1_001, 41.5),
        (START + 2_003, 10.0),
        (START + 2_500, 0.0),
    ]
    assert line(document, "Compute (%)") == [(START + 1_001, 80.0), (START + 2_003, 0.0)]
    assert line(document, "Theoretical occupancy (%)")[0] == (START + 1_001, 50.0)
    # A kernel on another stream starts while the first runs, and outlives it.
    assert line(document, "Achieved occupancy (%)") == [
        (START + 1_001, 43.75),
        (START + 1_500, 25.0),
        (START + 2_500, 0.0),
    ]


def test_a_line_holds_the_value_of_the_last_to_start_and_returns_to_zero(tmp_path):
    edges = [(0, 30, 1.0), (10, 20, 2.0), (30, 40, 3.0), (40, 40, 9.0), (60, 70, 3.0)]
    rows = [span(i, "kernel", "gemm", start, end) for i, (start, end, _) in enumerate(edges)]
    counted = {"metric": "Memory Throughput", "value_unit": "%"}
    counters = [{**counted, "span": i, "value": value} for i, (_, _, value) in enumerate(edges)]
    run = Run(spans=tables.from_rows(rows, "spans"), counters=tables.from_rows(counters, "counters"))
    document = read(exporters.export(run, "chrome", tmp_path / "trace.json"))
    values = [(0, 1.0), (10, 2.0), (20, 1.0), (30, 3.0), (40, 0.0), (60, 3.0), (70, 0.0)]
    assert line(document, "Memory (%)") == [(START + at, value) for at, value in values]


def test_readings_keep_their_stamps_and_units(document):
    assert line(document, "Power (W)") == [(START + i * 20_000_000, 100.0 + 10 * i) for i in range(10)]
    assert line(document, "Temperature (°C)") == [(START + 5, 45.0), (START + 50, 46.0)]
    assert line(document, "SM clock (MHz)") == [(START + 7, 1980.0)]
    assert line(document, "Memory used (B)") == [(START + 7, 2.0**33)]
    assert line(document, "novel_w (W)") == [(START + 7, 1.5)]
    assert document["otherData"]["leftOut"] == {"readings that are not numbers": 1}


def test_energy_so_far_is_the_integral_of_power(document):
    stamps, joules = zip(*line(document, "Energy so far (J)"), strict=True)
    at, watts = timeline_run().series(GPU, "power_w")
    assert joules[0] == 0
    np.testing.assert_allclose(joules, integrate(at, watts, [at[0]] * len(stamps), stamps))


def test_energy_across_a_hole_says_so(tmp_path):
    run = timeline_run()
    run.samples = tables.conform(run.samples.filter(np.arange(len(run.samples)) % 10 != 5).slice(0, 9), "samples")
    rows = [row for row in run.samples.to_pylist() if not START < row["time_ns"] < START + 100_000_000]
    run.samples = tables.from_rows(rows, "samples")
    document = read(exporters.export(run, "chrome", tmp_path / "trace.json"))
    assert line(document, "Energy so far (bridging 1 holes of the record) (J)")


def test_arrows_lead_from_a_launch_to_its_kernels(document):
    ends = {(e["id"], e["ph"]): ns(document, e["ts"]) - START for e in document["traceEvents"] if e["ph"] in "sf"}
    arrows = {(ends[id, "s"], at) for (id, phase), at in ends.items() if phase == "f"}
    # Two launches share a correlation, and are distinguished by device; a graph launch starts two kernels.
    assert arrows == {(100, 1_001), (120, 1_500), (200, 2_003), (200, 2_400)}


def test_an_arrow_that_could_come_from_two_launches_is_not_drawn(tmp_path):
    rows = [span(i, "launch", "cudaLaunchKernel", i, i + 1, correlation=5) for i in range(2)]
    rows.append(span(2, "kernel", "gemm", 10, 20, correlation=5))
    document = read(exporters.export(Run(spans=tables.from_rows(rows, "spans")), "chrome", tmp_path / "trace.json"))
    assert not of_phase(document, "s")
    assert document["otherData"]["leftOut"] == {"arrows from launches that can't be distinguished": 1}


def test_a_launch_after_its_kernel_is_no_launch_of_it(tmp_path):
    rows = [span(0, "launch", "cudaLaunchKernel", 50, 60, correlation=5)]
    rows.append(span(1, "kernel", "gemm", 10, 20, correlation=5))
    document = read(exporters.export(Run(spans=tables.from_rows(rows, "spans")), "chrome", tmp_path / "trace.json"))
    assert not of_phase(document, "s")


def test_names_can_end_no_script_and_no_string(tmp_path):
    path = exporters.export(timeline_run(), "chrome", tmp_path / "trace.json")
    text = path.read_bytes()
    assert b"</script" not in text.lower()
    assert all(32 <= byte < 127 or byte == 10 for byte in text)
    assert {NASTY, SCRIPT, ODD} <= {event["name"] for event in json.loads(text)["traceEvents"]}


def test_warnings_are_on_the_timeline(document):
    (note,) = [event for event in of_phase(document, "i") if event["name"] == "clock_stepped"]
    assert note["args"]["message"] == f"{NASTY} (host)"


def test_spans_with_half_a_time_are_drawn_without_a_length_and_say_so(tmp_path):
    rows = [span(0, "range", "open", 0, 0), span(1, "range", "backwards", 50, 10), span(2, "range", "nowhere", 0, 0)]
    rows[0]["end_ns"] = rows[2]["start_ns"] = None
    document = read(exporters.export(Run(spans=tables.from_rows(rows, "spans")), "chrome", tmp_path / "trace.json"))
    assert problems(document) == []
    assert {e["name"]: (e["dur"], e["args"]["flaw"]) for e in of_phase(document, "X")} == {
        "open": (0, "its end is unknown"),
        "backwards": (0, "it ends before it starts"),
    }
    assert document["otherData"]["leftOut"] == {"spans without a start": 1}


def test_times_that_no_number_can_hold_are_refused_and_those_before_1970_are_not(tmp_path):
    early, late = (span(i, "range", str(i), 0, 0) for i in range(2))
    early |= {"start_ns": -(2**62), "end_ns": 1 - 2**62}
    path = exporters.export(Run(spans=tables.from_rows([early], "spans")), "chrome", tmp_path / "early.json")
    assert read(path)["baseTimeNanoseconds"] == -(2**62)
    late |= {"start_ns": 2**62, "end_ns": 2**62 + 1}
    with pytest.raises(BadInputError, match="292 years apart"):
        exporters.export(Run(spans=tables.from_rows([early, late], "spans")), "chrome", tmp_path / "trace.json")


def test_a_simulated_gpu_is_called_simulated(tmp_path):
    document = read(exporters.export(simulated_run(), "chrome", tmp_path / "trace.json"))
    assert "SIMULATED H100 80GB (sim:h100-80)" in tracks(document).values()
    assert document["otherData"]["simulated"] is True
    real = read(exporters.export(profile_run(), "chrome", tmp_path / "real.json"))
    assert not any("SIMULATED" in name for name in tracks(real).values())


def test_a_run_without_spans_is_all_counters(tmp_path):
    run = profile_run()
    run.spans = tables.empty("spans")
    document = read(exporters.export(run, "chrome", tmp_path / "trace.json"))
    assert {event["ph"] for event in document["traceEvents"]} == {"M", "C"}
    assert len(line(document, "Power (W)")) == 600


def test_a_name_that_ends_in_gz_is_compressed_the_same_each_time(tmp_path):
    first, second = (exporters.export(timeline_run(), "chrome", tmp_path / f"{i}.json.gz") for i in range(2))
    assert first.read_bytes() == second.read_bytes()
    assert problems(read(first)) == []
    assert (
        gzip.decompress(first.read_bytes()) == exporters.export(timeline_run(), "chrome", tmp_path / "a").read_bytes()
    )


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_what_fails_half_way_leaves_nothing(tmp_path, small_files, name):
    with pytest.raises(BadInputError, match=r"cannot write .*: File too large"):
        exporters.export(timeline_run(), "chrome", tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_the_check_script_finds_what_is_wrong(tmp_path):
    document = json.loads(exporters.export(timeline_run(), "chrome", tmp_path / "trace.json").read_text())
    slices = [event for event in document["traceEvents"] if event["name"] == "aten::mm"]
    slices[0]["dur"] = 1.1  # into the operator that comes next
    (tmp_path / "broken.json").write_text(json.dumps(document))
    script = SUPPORT / "check_trace.py"
    whole, broken = (
        subprocess.run([sys.executable, script, tmp_path / name], capture_output=True, text=True, check=False)
        for name in ("trace.json", "broken.json")
    )
    assert (whole.returncode, whole.stdout) == (0, "nothing wrong\n")
    assert broken.returncode == 1
    assert "aten::view at 1.02 reaches out" in broken.stdout
