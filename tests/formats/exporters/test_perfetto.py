"""Perfetto traces, read back with Perfetto's own messages: every span, time, figure and line as stored."""

import gzip
import struct

import numpy as np
import pyarrow as pa
import pytest

from jouletrace.errors import BadInputError
from jouletrace.formats import exporters
from jouletrace.formats.exporters import perfetto
from jouletrace.formats.exporters import protobuf as pb
from jouletrace.formats.exporters.timeline.counters import steps
from jouletrace.formats.exporters.timeline.tracks import sub_tracks
from jouletrace.run import Run, tables
from jouletrace.sensor.power_record import integrate
from make_runs import GPU, ODD, START, all_runs, profile_run, random_table, simulated_run
from pace import worked
from perfetto_reader import read
from timeline_runs import NASTY, OTHER, SCRIPT, random_run, span, spans, timeline_run

RUNS = {**all_runs(), "timeline": timeline_run(), "random": random_run(400, 3)}
BOARD = f"NVIDIA H100 80GB HBM3 ({GPU})"


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return read(exporters.export(timeline_run(), "perfetto", tmp_path_factory.mktemp("perfetto") / "trace"))


def edges(run):
    found = [(row["name"], row["kind"], row["start_ns"], row["end_ns"]) for row in run.spans.to_pylist()]
    if len(run.waveform):  # its iteration, which these Runs don't keep in full
        names = {row["id"]: row["name"] for row in run.units.to_pylist()}
        found.append(
            ("iteration", "iteration", run.waveform["start_ns"][0].as_py(), run.waveform["end_ns"][-1].as_py())
        )
        found += [(names[row["unit"]], "kernel", row["start_ns"], row["end_ns"]) for row in run.activity.to_pylist()]
    return sorted(found)


def only(trace, name):
    (found,) = [s for s in trace.slices if s.name == name]
    return found


@pytest.mark.parametrize("name", RUNS)
def test_every_span_is_there_once_with_its_times_exact(tmp_path, name):
    found = read(exporters.export(RUNS[name], "perfetto", tmp_path / "trace"))
    assert sorted((s.name, s.category, s.start_ns, s.end_ns) for s in found.slices) == edges(RUNS[name])


@pytest.mark.parametrize("seed", range(5))
def test_tables_full_of_nonsense_give_a_valid_trace(tmp_path, seed):
    run = Run(**{name: tables.from_rows(random_table(name, 60, seed), name) for name in tables.TABLES})
    assert len(read(exporters.export(run, "perfetto", tmp_path / "trace")).slices) == 60


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_batches_that_cut_through_open_spans_change_nothing(tmp_path, monkeypatch, batch):
    run = random_run(300, batch)
    whole = read(exporters.export(run, "perfetto", tmp_path / "whole"))
    monkeypatch.setattr("jouletrace.formats.exporters.timeline.slices._BATCH", batch)
    monkeypatch.setattr("jouletrace.formats.exporters.perfetto._BATCH", batch)
    assert read(exporters.export(run, "perfetto", tmp_path / "cut")).slices == whole.slices
    assert max(s.depth for s in whole.slices) >= 2


def test_tables_in_pieces_with_words_of_their_own_give_the_same_trace(tmp_path):
    run = timeline_run()
    whole = exporters.export(run, "perfetto", tmp_path / "whole")
    for name in ("spans", "samples", "counters", "results"):
        rows = run.table(name).to_pylist()
        parts = [tables.from_rows(rows[i : i + 5], name) for i in range(0, len(rows), 5)]
        setattr(run, name, pa.concat_tables(parts))
    assert exporters.export(run, "perfetto", tmp_path / "parts").read_bytes() == whole.read_bytes()


def test_a_slice_holds_its_children_and_kernels_hold_none(trace):
    depth = {(s.name, s.start_ns - START): s.depth for s in trace.slices}
    assert (depth["aten::addmm", 0], depth["aten::mm", 0], depth["aten::empty", 900]) == (0, 1, 1)
    assert {s.depth for s in trace.slices if s.category in ("kernel", "memcpy")} == {0}


def test_tracks_are_named_by_device_kind_and_lane(trace):
    where = {(s.name, trace.process(s.track), trace.name(s.track)) for s in trace.slices}
    assert ("softmax", BOARD, "Kernels, stream 7") in where
    assert (NASTY, BOARD, "Kernels, stream 7 (2)") in where
    assert ("gemm", BOARD.replace(GPU, OTHER), "Kernels, stream 7") in where
    assert (ODD, "Host", "Operators, thread 1 (2)") in where
    assert (SCRIPT, "Host", "Ranges") in where


def test_tracks_come_in_the_order_of_their_ranks(trace):
    ranked = [track for track in trace.tracks.values() if track.HasField("sibling_order_rank")]
    names = [track.name for track in sorted(ranked, key=lambda track: track.sibling_order_rank)]
    assert names.index("Power") < names.index("Iterations, latency") < names.index("Kernels, stream 7")
    assert names.index("Kernels, stream 7") < names.index("Kernels, stream 13")
    explicit = [track.child_ordering for track in trace.tracks.values() if track.HasField("process")]
    assert set(explicit) == {3}


def test_a_kernel_says_its_energy_launch_and_counters(trace):
    args = next(s for s in trace.slices if s.name == "gemm" and s.start_ns == START + 1_001).args
    assert args["energy_j"] == (
        "total 0.25 [0.245, 0.255]; removal, n 12; split, capped | active 0.2 [0.194, 0.206]; removal, n 12"
    )
    assert args["unit"] == "aten::addmm in encoder.layer.0.mlp"
    assert (args["grid"], args["block"], args["registers"]) == ("96,8,1", "256,1,1; 16,49152 B shared", 168)
    assert (args["Memory Throughput (%)"], args["Memory Throughput (B/s)"]) == (41.5, 1.2e12)
    assert only(trace, "Memcpy HtoD").args == {"bytes": 4096}


def test_an_energy_that_no_one_can_state_says_why(trace):
    assert only(trace, "softmax").args["energy_j"] == "total none: too_short; removal"


def test_lines_have_units_and_stored_stamps(trace):
    units = {trace.name(uuid): trace.tracks[uuid].counter for uuid in trace.counters}
    assert (units["Power"].unit_name, units["Energy so far"].unit_name, units["Memory"].unit_name) == ("W", "J", "%")
    assert (units["Temperature"].unit_name, units["SM clock"].unit_name) == ("°C", "MHz")
    assert units["Memory used"].unit == units["Memory used"].UNIT_SIZE_BYTES
    assert trace.line("Power") == [(START + i * 20_000_000, 100.0 + 10 * i) for i in range(10)]
    assert trace.line("Memory") == [(START + 1_001, 41.5), (START + 2_003, 10.0), (START + 2_500, 0.0)]


def test_energy_so_far_is_the_integral_of_power(trace):
    stamps, joules = zip(*trace.line("Energy so far"), strict=True)
    at, watts = timeline_run().series(GPU, "power_w")
    np.testing.assert_allclose(joules, integrate(at, watts, [at[0]] * len(stamps), stamps))


def test_flows_lead_from_a_launch_to_its_kernels(trace):
    source = {flow: s.start_ns - START for s in trace.slices for flow in s.flows}
    target = {flow: s.start_ns - START for s in trace.slices for flow in s.ending_flows}
    assert {(source[flow], target[flow]) for flow in target} == {(100, 1_001), (120, 1_500), (200, 2_003), (200, 2_400)}
    assert source.keys() == target.keys()


def test_warnings_are_on_the_timeline(trace):
    (note,) = [instant for instant in trace.instants if instant.name == "clock_stepped"]
    assert note.args == {"message": f"{NASTY} (host)"}


def test_spans_with_half_a_time_are_drawn_without_a_length_and_say_so(tmp_path):
    rows = [span(0, "range", "open", 0, 0), span(1, "range", "backwards", 50, 10), span(2, "range", "nowhere", 0, 0)]
    rows[0]["end_ns"] = rows[2]["start_ns"] = None
    found = read(exporters.export(Run(spans=tables.from_rows(rows, "spans")), "perfetto", tmp_path / "trace"))
    assert {s.name: (s.end_ns - s.start_ns, s.args["flaw"]) for s in found.slices} == {
        "open": (0, "its end is unknown"),
        "backwards": (0, "it ends before it starts"),
    }
    assert [note.args["message"] for note in found.instants] == ["1 spans without a start"]


def test_a_simulated_gpu_is_called_simulated(tmp_path):
    found = read(exporters.export(simulated_run(), "perfetto", tmp_path / "trace"))
    assert found.slices
    assert all(found.process(s.track).startswith("SIMULATED ") for s in found.slices)
    assert "SIMULATED H100 80GB (sim:h100-80)" in {found.name(uuid) for uuid in found.tracks}


def test_a_run_without_spans_is_all_counters(tmp_path):
    run = profile_run()
    run.spans = tables.empty("spans")
    found = read(exporters.export(run, "perfetto", tmp_path / "trace"))
    assert found.slices == []
    assert len(found.line("Power")) == 600


def test_a_name_that_ends_in_gz_is_compressed(tmp_path):
    plain = exporters.export(timeline_run(), "perfetto", tmp_path / "trace")
    packed = exporters.export(timeline_run(), "perfetto", tmp_path / "trace.gz")
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


def test_what_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(perfetto, "notes", fail)
    with pytest.raises(BadInputError, match=r"cannot write .*: No space left on device"):
        exporters.export(timeline_run(), "perfetto", tmp_path / "trace")
    assert list(tmp_path.iterdir()) == []


def test_times_before_the_epoch_are_refused_in_one_line(tmp_path):
    rows = [{**span(0, "range", "early", 0, 0), "start_ns": -5, "end_ns": 5}]
    with pytest.raises(BadInputError, match="before 1970"):
        exporters.export(Run(spans=tables.from_rows(rows, "spans")), "perfetto", tmp_path / "trace")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_a_kernel_with_all_its_args_takes_at_most_70_bytes(tmp_path):
    n, template = 20_000, spans()[0]
    template["correlation"] = None
    columns = {key: [value] * n for key, value in template.items()}
    columns |= {"id": range(1000, 1000 + n), "unit": [2 + i % 2 for i in range(n)]}
    columns |= {
        "start_ns": [START + 5_000 * i for i in range(n)],
        "end_ns": [START + 5_000 * i + 4_000 for i in range(n)],
    }
    run = timeline_run()
    run.spans = tables.conform(tables.from_rows([], "spans").from_pydict(columns), "spans")
    run.counters = tables.empty("counters")
    empty = timeline_run()
    empty.spans = tables.empty("spans")
    whole, rest = (exporters.export(r, "perfetto", tmp_path / str(i)) for i, r in enumerate((run, empty)))
    assert (whole.stat().st_size - rest.stat().st_size) / n <= 70
    assert len(read(whole).slices) == n


@pytest.mark.parametrize("nest", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_two_spans_of_a_sub_track_are_nested_or_apart(seed, nest):
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 100, 60)
    end = start + rng.integers(0, 40, 60)
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    number = sub_tracks(start, end, nest=nest)
    for i in range(60):
        for j in range(i + 1, 60):
            apart = end[i] <= start[j]
            inside = nest and end[j] <= end[i]
            assert number[i] != number[j] or apart or inside


def test_a_sub_track_is_used_again_when_it_is_free():
    start = np.array([0, 5, 10, 15, 20])
    assert sub_tracks(start, start + 8, nest=False).tolist() == [0, 1, 0, 1, 0]


def test_spans_that_all_overlap_do_not_take_for_ever():
    start = np.arange(100_000)
    with worked() as work:  # of 5e9 pairs
        number = sub_tracks(start, start + 100_000, nest=True)
    assert work.loops < 150
    assert len(set(number.tolist())) == 100_000


def test_a_line_holds_the_value_of_the_last_to_start_and_returns_to_zero():
    start, end, value = np.array([0, 10, 30, 40, 60]), np.array([30, 20, 40, 40, 70]), np.array([1.0, 2, 3, 9, 3])
    at, values = steps(start, end, value)
    assert list(zip(at.tolist(), values.tolist(), strict=True)) == [
        (0, 1.0),
        (10, 2.0),
        (20, 1.0),
        (30, 3.0),
        (40, 0.0),
        (60, 3.0),
        (70, 0.0),
    ]


@pytest.mark.parametrize(
    ("number", "coded"),
    [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02"), (-1, b"\xff" * 9 + b"\x01")],
)
def test_numbers_are_coded_as_the_wire_format_says(number, coded):
    assert pb.varint(number) == coded


def test_fields_are_coded_as_the_wire_format_says():
    # The examples of protobuf.dev/programming-guides/encoding.
    assert pb.integer(1, 150) == b"\x08\x96\x01"
    assert pb.text(2, "testing") == b"\x12\x07testing"
    assert pb.message(3, pb.integer(1, 150)) == b"\x1a\x03\x08\x96\x01"
    assert pb.double(1, 25.4) == b"\x09" + struct.pack("<d", 25.4)
