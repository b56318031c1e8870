"""The picture of a timeline: whole XML whatever the Run holds, the right iteration, power where it belongs."""

from xml.etree import ElementTree

import numpy as np
import pytest

from jouletrace.errors import BadInputError
from jouletrace.formats import exporters
from jouletrace.formats.exporters.picture import LEFT, RIGHT, WIDTH, Axis, clipped, nice, scaled
from jouletrace.formats.exporters.svg import draw
from jouletrace.formats.exporters.timeline.stretch import stretch_of
from jouletrace.formats.exporters.timeline.tracks import spans_of
from jouletrace.formats.importers import import_files
from jouletrace.formats.importers.columns import block
from jouletrace.run import Run, load, tables
from make_runs import GPU, START, all_runs, random_table
from places import DATA
from timeline_runs import NASTY, random_run, span, timeline_run

RUNS = {**all_runs(), "timeline": timeline_run(), "random": random_run(400, 3)}
SVG = "{http://www.w3.org/2000/svg}"


def read(picture):
    return ElementTree.fromstring(picture)


def texts(root):
    return [text.text for text in root.iter(f"{SVG}text")]


def with_spans(rows, counters=()):
    run = Run(devices=timeline_run().devices)
    run.spans = tables.from_rows(rows, "spans")
    run.counters = tables.from_rows(list(counters), "counters")
    return run


@pytest.mark.parametrize("name", RUNS)
def test_any_run_gives_whole_xml_or_says_that_there_is_nothing(name):
    picture = draw(RUNS[name])
    if picture is None:
        assert len(RUNS[name].samples) == 0
    else:
        assert read(picture).tag == f"{SVG}svg"
        assert "nan" not in picture


@pytest.mark.parametrize("seed", range(4))
def test_tables_full_of_nonsense_give_whole_xml(seed):
    run = Run()
    for k, name in enumerate(("spans", "samples", "counters", "units")):
        setattr(run, name, tables.from_rows(random_table(name, 60, 10 * seed + k), name))
    picture = draw(run)
    assert picture is None or read(picture).tag == f"{SVG}svg"


def test_names_of_kernels_stay_text():
    run = with_spans([span(1, "kernel", NASTY, 0, 10, device=GPU, lane="7")])
    picture = draw(run)
    assert "</script>" not in picture
    assert any("</script>" in text for text in texts(read(picture)))


def test_a_run_without_times_is_one_line_and_leaves_no_file(tmp_path):
    with pytest.raises(BadInputError, match="nothing to draw"):
        exporters.export(Run(), "svg", tmp_path / "a.svg")
    assert list(tmp_path.iterdir()) == []


def test_the_first_iteration_with_counters_is_shown():
    rows = []
    for k in range(3):
        rows.append(span(10 * k, "iteration", "step", 1000 * k, 1000 * k + 900))
        rows.append(span(10 * k + 1, "kernel", "gemm", 1000 * k + 100, 1000 * k + 200, device=GPU, lane="7"))
    plain = with_spans(rows)
    counted = with_spans(rows, [{"span": 11, "metric": "Memory Throughput", "value": 5.0, "value_unit": "%"}])
    assert stretch_of(plain, spans_of(plain)).what == "iteration 1 of 3"
    found = stretch_of(counted, spans_of(counted))
    assert (found.what, found.start_ns, found.end_ns) == ("iteration 2 of 3", START + 1000, START + 1900)
    assert counted.spans["id"].to_numpy()[found.kernels].tolist() == [11]


def test_without_iterations_all_kernels_are_shown():
    run = with_spans([span(k, "kernel", "gemm", 100 * k, 100 * k + 50, device=GPU, lane="7") for k in range(4)])
    found = stretch_of(run, spans_of(run))
    assert (found.what, found.end_ns - found.start_ns, len(found.kernels)) == ("all kernels", 350, 4)


def test_kernels_lie_where_their_times_say():
    run = with_spans([span(k, "kernel", "gemm", 100 * k, 100 * k + 50, device=GPU, lane="7") for k in range(4)])
    boxes = [box for box in read(draw(run)).iter(f"{SVG}rect") if box.get("height") == "20"]
    scale = (WIDTH - LEFT - RIGHT) / 350
    assert [float(box.get("x")) for box in boxes] == pytest.approx([LEFT + 100 * k * scale for k in range(4)], abs=0.01)
    assert float(boxes[0].get("width")) == pytest.approx(50 * scale, abs=0.01)


def test_a_reading_of_power_lies_over_the_time_that_it_covers():
    live = load(DATA / "ncu_h100_live.zip")
    channel = live.channel("GPU-0", "power_w")
    live.channels = [channel]
    live.spans = tables.empty("spans")
    times = START + np.arange(8) * 20_000_000
    rows = [
        {"time_ns": int(t), "device": "GPU-0", "channel": "power_w", "value": 400.0 if k == 4 else 100.0}
        for k, t in enumerate(times)
    ]
    live.samples = tables.from_rows(rows, "samples")
    channel.delay_s = 0.016
    line = next(one for one in read(draw(live)).iter(f"{SVG}polyline"))
    points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    high = sorted({x for x, y in points if y == min(y for _, y in points)})
    axis = Axis(int(times[0]) - 26_000_000, int(times[-1]))
    assert high == pytest.approx([axis.x(int(times[4]) - 26_000_000), axis.x(int(times[4]) - 6_000_000)], abs=0.2)


def test_a_recorded_iteration_shows_kernels_counters_and_power():
    run = import_files([DATA / "ncu_h100_live.zip", DATA / "ncu_h100_raw.csv.gz"])
    picture = draw(run)
    said = " ".join(texts(read(picture)))
    for words in ("deit-tiny, batch 1, fp16, eager", "NVIDIA H100", "6 kernels", "1980 MHz", "±5 %", "stream 7"):
        assert words in said
    for words in ("Power, W", "Compute, %", "Memory, %", "Achieved occupancy, %", "behind: theoretical occupancy"):
        assert words in said


def test_a_hundred_thousand_kernels_make_no_large_picture():
    n = 100_000
    rows = {"id": np.arange(n), "start_ns": START + np.arange(n) * 100, "end_ns": START + np.arange(n) * 100 + 60}
    run = with_spans([])
    run.spans = block("spans", n, kind="kernel", name="gemm", device=GPU, lane="7", **rows)
    assert len(draw(run)) < 300_000


def test_a_simulated_gpu_is_called_simulated():
    run = with_spans([span(1, "kernel", "gemm", 0, 10, device=GPU, lane="7")])
    run.devices[0].simulated = True
    assert any("SIMULATED" in text for text in texts(read(draw(run))))


@pytest.mark.parametrize(
    ("length", "text"), [(0, "0 ns"), (999, "999 ns"), (1500, "1.5 µs"), (3_572_259, "3.57 ms"), (2e9, "2 s")]
)
def test_lengths_are_in_the_unit_that_reads_best(length, text):
    assert scaled(length) == text


@pytest.mark.parametrize(
    ("most", "top"), [(0, 1), (float("nan"), 1), (0.7, 0.8), (14.9, 15), (100, 100), (133, 150), (910, 1000)]
)
def test_scales_end_at_round_numbers(most, top):
    assert nice(most) == pytest.approx(top)


def test_a_line_is_cut_with_the_value_that_holds_at_each_end():
    time, value = np.array([0, 10, 20]), np.array([1.0, 2.0, 3.0])
    assert [part.tolist() for part in clipped(time, value, 5, 15)] == [[5, 10, 15], [1.0, 2.0, 2.0]]
    assert [part.tolist() for part in clipped(time, value, 30, 40)] == [[30, 40], [3.0, 3.0]]
    assert [part.tolist() for part in clipped(time, value, -9, -5)] == [[], []]
