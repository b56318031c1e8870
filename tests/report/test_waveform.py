"""The picture of the power inside an iteration: whole XML, bins and kernels where they belong, names as text."""

import json
from xml.etree import ElementTree

import pytest

from jouletrace.errors import BadInputError
from jouletrace.formats import exporters
from jouletrace.report import html, picture
from jouletrace.report.waveform import COLOURS
from jouletrace.run import Run, tables
from make_runs import GPU, START, odd_run, profile_run, simulated_run
from timeline_runs import NASTY, SCRIPT

SVG = "{http://www.w3.org/2000/svg}"
TRACK = "Power inside an iteration"
STEPS = [(i, 400.0 + 50 * i if i != 2 else 0.0) for i in range(8)] + [(8, 0.0)]
"""Bins of 50 us and their power; of the third nothing is known, and after the last there is none."""


def slices(run, path):
    events = json.loads(exporters.export(run, "chrome", path).read_text())["traceEvents"]
    return [event for event in events if event["ph"] == "X"]


def texts(root):
    return [text.text for text in root.iter(f"{SVG}text")]


def named(name, operators=1):
    """A Run whose every kernel and module has this name."""
    run = profile_run(kernels=2, name=name)
    kernels = [
        {"id": 10 + i, "parent": 5, "level": "kernel", "name": name, "op": name, "shapes": str(i), "module": name}
        for i in range(operators)
    ]
    run.units = tables.from_rows([*run.units.to_pylist(), *kernels], "units")
    rows = [{**row, "unit": 10 + i % operators} for i, row in enumerate(run.activity.to_pylist())]
    run.activity = tables.from_rows(rows, "activity")
    return run


def test_title_axes_and_legend_say_what_is_drawn():
    root = ElementTree.fromstring(picture(profile_run(kernels=2))[0])
    said = texts(root)
    assert (
        said[0] == "deit-base · NVIDIA H100 80GB HBM3 · 4.652 ±\N{NO-BREAK SPACE}0.021\N{NO-BREAK SPACE}J per iteration"
    )
    assert "means over 0.05 ms with 95 % intervals" in said[1]
    assert "1000 W" in said
    assert "0.4 ms" in said
    assert "encoder.layer.0: 1.744 ±\N{NO-BREAK SPACE}0.018\N{NO-BREAK SPACE}J" in said


def test_a_model_is_named_in_full_where_there_is_room_and_cut_where_there_is_none():
    name, width = "sentence-transformers/MiniLM", 1200
    whole, cut = (
        texts(ElementTree.fromstring(picture(profile_run(kernels=2, name=times * name), width=width)[0]))[0]
        for times in (1, 5)
    )
    assert whole.startswith(f"{name} · ")
    assert "4.652" in cut
    assert len(cut) * 10 < width  # a bold letter of 17 px is about 10 px wide


def test_a_bin_of_which_nothing_is_known_is_a_hole():
    root = ElementTree.fromstring(picture(profile_run(kernels=2))[0])
    line = next(path for path in root.iter(f"{SVG}path") if path.get("class") == "stroke")
    first, second = line.get("d").removeprefix("M").split("M")
    xs = [[float(point.split()[0]) for point in piece.split("L")] for piece in (first, second)]
    assert len(xs[0]) == 4
    assert xs[1][0] - xs[0][-1] == pytest.approx(xs[0][-1] / 2 - xs[0][0] / 2, abs=0.02)
    assert "empty where power isn't known" in picture(profile_run(kernels=2))[1]


def test_kernels_lie_where_their_times_say_and_are_named():
    boxes = [box for box in ElementTree.fromstring(picture(profile_run(kernels=2))[0]).iter(f"{SVG}rect") if len(box)]
    assert len(boxes) == 20
    starts = [float(box.get("x")) for box in boxes]
    width = (starts[-1] - starts[0]) / 19
    assert starts == pytest.approx([starts[0] + i * width for i in range(20)], abs=0.02)
    assert float(boxes[0].get("width")) == pytest.approx(0.45 * width, abs=0.02)
    assert boxes[0][0].text.startswith("encoder.layer.0\n")


def test_kernels_that_overlap_lie_below_each_other():
    run = profile_run(kernels=2)
    rows = [{**row, "end_ns": row["start_ns"] + 45_000} for row in run.activity.to_pylist()]
    run.activity = tables.from_rows(rows, "activity")
    boxes = [box for box in ElementTree.fromstring(picture(run)[0]).iter(f"{SVG}rect") if len(box)]
    assert {box.get("y") for box in boxes} == {"0", "20"}


def test_the_operators_that_take_most_have_colours_and_a_line_of_the_legend():
    root = ElementTree.fromstring(picture(named("gemm", operators=12))[0])
    assert sum(text.startswith("gemm, gemm: ") for text in texts(root)) == len(COLOURS) == 8
    assert any(text.startswith("4 others: ") for text in texts(root))


@pytest.mark.parametrize("name", [NASTY, SCRIPT, "<b>&\"'\ufffe\uffff", "x" * 5000, ""])
def test_names_from_outside_stay_text(tmp_path, name):
    run = named(name)
    run.devices[0].name = name or "?"
    drawn = picture(run)[0]
    assert "<script" not in drawn
    assert "<b>" not in drawn
    ElementTree.fromstring(drawn)
    page = html.write([run], tmp_path / "page.html").read_text()
    figure = page[page.index('<figure class="waveform">') :]
    figure = figure[: figure.index("</figure>")]
    assert ElementTree.fromstring(figure[figure.index("<svg") : figure.index("</svg>") + 6]).tag == f"{SVG}svg"
    assert not any(tag in figure for tag in ("<script", "<b>", "</script"))


def test_a_page_of_several_runs_refers_to_the_parts_of_each(tmp_path):
    page = html.write([profile_run(kernels=2), odd_run()], tmp_path / "page.html").read_text()
    for name in ("waveform0", "waveform1"):
        assert page.count(f'id="{name}"') == page.count(f'href="#{name}"') == 1


@pytest.mark.parametrize("watts", [float("inf"), float("nan"), 1e308, -1e308, -50.0, 0.0])
def test_any_power_gives_whole_xml(watts):
    run = profile_run(kernels=2)
    rows = [{**row, "power_w": watts, "low_w": watts, "high_w": watts} for row in run.waveform.to_pylist()]
    run.waveform = tables.from_rows(rows, "waveform")
    drawn = picture(run)[0]
    ElementTree.fromstring(drawn)
    assert not any(word in drawn for word in ("nan", "inf "))


def test_simulated_gpus_are_called_so():
    run = simulated_run()
    run.waveform = profile_run(kernels=2).waveform
    assert "SIMULATED" in texts(ElementTree.fromstring(picture(run)[0]))[0]


def test_a_run_without_one_shows_nothing_new(tmp_path):
    run = profile_run()
    assert picture(run) is None
    assert '<figure class="waveform">' not in html.write([run], tmp_path / "page.html").read_text()
    without = Run(spans=run.spans, samples=run.samples, devices=run.devices)
    assert len(slices(without, tmp_path / "without.json")) == len(run.spans)
    for kind, advice in (("program", "--format collapsed"), ("profile", "profile with --detail kernel")):
        run.kind = kind
        with pytest.raises(BadInputError, match=f"no power within an iteration: {advice}"):
            exporters.export(run, "svg", tmp_path / "a.svg")
    assert TRACK not in exporters.export(run, "chrome", tmp_path / "a.json").read_text()


def test_the_exported_picture_is_the_waveform(tmp_path):
    run = profile_run(kernels=2)
    assert exporters.export(run, "svg", tmp_path / "a.svg").read_text() == picture(run)[0]


def test_chrome_has_its_line_above_its_kernels(tmp_path):
    trace = json.loads(exporters.export(profile_run(kernels=2), "chrome", tmp_path / "a.json").read_text())
    events, base = trace["traceEvents"], trace["baseTimeNanoseconds"]
    line = [event for event in events if event["ph"] == "C" and event["name"] == f"{TRACK} (W)"]
    at = [(round((base - START + event["ts"] * 1000) / 50_000), *event["args"].values()) for event in line]
    assert at == STEPS
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert [round(base - START + event["ts"] * 1000) for event in kernels] == [20_000 * i for i in range(20)]
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert {names[event["pid"], event["tid"]] for event in kernels} == {"Kernels, waveform"}
    assert {event["pid"] for event in kernels} == {event["pid"] for event in line}


def test_kernels_that_the_run_keeps_in_full_are_not_there_twice(tmp_path):
    run = profile_run(kernels=2)
    kept = {"id": 7000, "kind": "kernel", "name": "gemm", "device": GPU, "start_ns": START, "end_ns": START + 9000}
    run.spans = tables.from_rows([*run.spans.to_pylist(), kept], "spans")
    assert len(slices(run, tmp_path / "a.json")) == len(run.spans)
