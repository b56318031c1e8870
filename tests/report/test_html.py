"""The HTML report without a browser: what is in the file, that it is whole, and that names stay text."""

import base64
import gzip
import hashlib
import re

import numpy as np
import pyarrow as pa
import pytest

import jouletrace as jt
from commands import command
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.report import html
from jouletrace.report.html import assets, tables
from jouletrace.report.html.assets import Packer
from jouletrace.report.html.timeline import timeline
from jouletrace.run import Estimate, Parts, Run
from jouletrace.run import tables as run_tables
from make_runs import GPU, START, gpu, monitor_run, power_channel, profile_run, result
from pages import EVIL, Page
from places import REPOSITORY
from timeline_runs import NASTY, SCRIPT, timeline_run


def page(*runs: Run) -> Page:
    return Page(html.render(runs))


def unpacked(packed: str, place: dict) -> np.ndarray:
    """A column as base.js makes it."""
    data = gzip.decompress(base64.b64decode(packed))
    planes = np.frombuffer(data, np.uint8)[place["at"] : place["at"] + place["n"] * place["bytes"]]
    planes = planes.reshape(place["bytes"], place["n"])
    if place.get("real"):
        return np.ascontiguousarray(planes.T).view("<f4").ravel()
    values = sum(planes[k].astype(np.int64) << (8 * k) for k in range(place["bytes"]))
    return np.cumsum(values) if place.get("sum") else values


def spans_run(n: int, names: list[str], *, length: int = 20_000) -> Run:
    """Kernels one after the other on one stream."""
    start = START + np.arange(n) * (length + 1000)
    code = np.arange(n) % len(names)
    columns = {
        "id": pa.array(np.arange(n)),
        "kind": pa.array(["kernel"] * n).dictionary_encode(),
        "name": pa.DictionaryArray.from_arrays(pa.array(code, pa.int32()), pa.array(names)),
        "device": pa.array([GPU] * n).dictionary_encode(),
        "lane": pa.array(["7"] * n).dictionary_encode(),
        "start_ns": pa.array(start),
        "end_ns": pa.array(start + length),
    }
    return Run(kind="import", devices=[gpu()], spans=run_tables.conform(pa.table(columns), "spans"))


def test_the_headline_says_what_on_what_how_much_and_how_sure():
    text = page(profile_run(kernels=3)).text
    assert "deit-base" in text
    assert "NVIDIA H100 80GB HBM3" in text
    assert re.search(r"4\.652\s+J\s+± 0\.021 \(0\.45\s%\)", text)
    assert "gain error is not in them" in text


def test_nothing_in_the_page_comes_from_elsewhere():
    found = page(profile_run(kernels=2))
    loading = [a for _, a in found.tags if "src" in a or (a.get("href") or "#")[0] != "#"]
    assert loading == []
    assert not re.search(r"@import|url\(", assets.text("style.css"))


def test_only_the_scripts_of_the_report_may_run():
    text = html.render([profile_run()])
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1].replace("&#39;", "'")
    own = [text for attributes, text in Page(text).scripts if not attributes]
    assert len(own) == 1
    library = next(text for attributes, text in Page(text).scripts if attributes.get("id") == "library")
    for code in (own[0].encode(), gzip.decompress(base64.b64decode(library))):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(code).digest()).decode()}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'unsafe-inline'" not in policy


def test_names_from_outside_stay_text():
    run = profile_run(kernels=2, name=EVIL)
    run.units = run_tables.from_rows(
        [{**row, "name": EVIL, "module": EVIL if row["module"] else None} for row in run.units.to_pylist()], "units"
    )
    run.warn("odd", EVIL, EVIL)
    run.command, run.environment = EVIL, {EVIL: EVIL}
    found = page(run, timeline_run())
    assert not [attributes for tag, attributes in found.tags if tag == "img" or "onerror" in attributes]
    assert len([tag for tag, _ in found.tags if tag == "script"]) == 4  # two of data, the library, ours
    assert EVIL in "".join(found.words)
    names = found.data(1)["timeline"]["names"]
    assert SCRIPT in names
    assert NASTY not in names  # its control characters are spelt out
    assert any(name.startswith("a\\x00b\\x1b[31m</script>") for name in names)


@pytest.mark.thorough
def test_a_simulated_gpu_is_marked_everywhere():
    run = profile_run(kernels=2)
    run.devices[0].simulated = True
    text = html.render([run])
    assert "<title>SIMULATED: " in text
    assert 'class="banner"' in text
    assert Page(text).data()["simulated"] is True
    together = Page(html.render([run, profile_run()]))
    assert together.data(0)["simulated"] is True
    assert together.data(1)["simulated"] is False
    assert "some of these are simulated GPUs" in together.text
    assert "SIMULATED" not in page(profile_run(kernels=2)).text


def test_an_interrupted_run_says_so_before_its_figures():
    run = profile_run()
    run.warn("interrupted", "the run ended early (KeyboardInterrupt)")
    run.complete = False
    said = "INCOMPLETE: the run ended early (KeyboardInterrupt)"
    page = html.render([run])
    assert page.count(said) == 1
    assert page.index(said) < page.index('class="cards"')
    both = html.render([profile_run(name="other"), run])
    assert both.count("ended early (KeyboardInterrupt)") == 2, "of both together, and with its own figures"
    assert "INCOMPLETE" not in html.render([profile_run()])


def test_a_missing_figure_is_a_dash_with_its_reason():
    run = profile_run()
    rows = [row for row in run.results.to_pylist() if row["metric"] != "energy_total_j"]
    rows.append(result(0, "energy_total_j", Estimate.null("no_power_sensor")))
    run.results = run_tables.from_rows(rows, "results")
    text = page(run).text
    assert re.search(r"Energy, total\s+–\s+no power sensor here", text)


def test_table_cells_carry_si_values_and_their_intervals():
    found = page(profile_run(kernels=3))
    cells = [attributes for tag, attributes in found.tags if tag == "td" and "data-l" in attributes]
    energies = [cell for cell in cells if float(cell["data-v"]) > 1.0]
    assert energies
    for cell in energies:
        assert float(cell["data-l"]) < float(cell["data-v"]) < float(cell["data-h"])
    bars = [attributes["style"] for tag, attributes in found.tags if tag == "span" and attributes.get("class") == "bar"]
    for style in bars:
        start, end, value = (float(re.search(rf"--{key}:([-\d.]+)%", style)[1]) for key in "abm")
        assert 0 <= start <= value <= end <= 100


def test_negative_figures_are_drawn_left_of_zero():
    run = profile_run(kernels=2)
    rows = run.results.to_pylist()
    for row in rows:
        if row["unit"] == 2 and row["metric"] == "energy_total_j":
            row |= {"value": -1.0, "low": -2.0, "high": 0.5}
    run.results = run_tables.from_rows(rows, "results")
    table = next(table for table in tables.of_parts(run, Parts(run)) if table.id == "kernel")
    bars = [cell.bar for row in table.rows for cell in row if cell.bar and cell.value == -1.0]
    start, end, value, zero = bars[0]
    assert start == 0 < value < zero < end


def test_of_many_parts_the_costliest_are_listed_and_the_rest_is_counted(monkeypatch):
    monkeypatch.setattr(tables, "MOST_ROWS", 4)
    run = profile_run(kernels=6)
    table = next(table for table in tables.of_parts(run, Parts(run)) if table.id == "kernel")
    names = [row[0] for row in table.rows]
    assert names[4:] == ["2 more, together", "gaps", "in no part"]
    assert any(note.startswith("3 more rows") for note in table.notes)
    place = next(n for n, heading in enumerate(table.columns) if heading.key == "energy_total_j")
    shown = [row[place].value for row in table.rows[:4]]
    assert shown == sorted(shown, reverse=True)


def test_layers_are_folded_as_a_terminal_folds_them():
    run = jt.load(REPOSITORY / "src" / "jouletrace" / "bundled" / "deit-b-64-layers-h200.zip")
    table = next(table for table in tables.of_parts(run, Parts(run)) if table.id == "layer")
    labels = [row[0].replace("\u00a0", " ") for row in table.rows]
    assert labels[:6] == [
        "deit",
        "  embeddings",
        "    (own operators)",
        "    patch_embeddings",
        "      projection",
        "  layers.* ×12",
    ]
    assert len(labels) == 22


def test_packed_columns_come_back_exactly():
    packer = Packer()
    rng = np.random.default_rng(1)
    columns = {
        "whole": rng.integers(0, 2**53, 1000),
        "small": rng.integers(0, 3, 1000),
        "rising": np.sort(rng.integers(0, 10**15, 1000)),
        "none": np.zeros(0, dtype=np.int64),
    }
    places = {name: packer.rising(v) if name == "rising" else packer.whole(v) for name, v in columns.items()}
    watts = rng.normal(500, 50, 77)
    real = packer.real(watts)
    text = packer.text()
    for name, values in columns.items():
        assert np.array_equal(unpacked(text, places[name]), values), name
    assert places["small"]["bytes"] == 1
    assert unpacked(text, real) == pytest.approx(watts, rel=1e-6)


def test_the_timeline_holds_every_span_to_the_nanosecond():
    run = timeline_run()
    drawn = timeline(run, Parts(run))
    origin = int(drawn["origin_ns"])
    found = set()
    for lane in drawn["lanes"]:
        start, length, name = (unpacked(drawn["data"], lane[key]) for key in ("start", "length", "name"))
        found |= {
            (lane["kind"], drawn["names"][n], s + origin, s + origin + d)
            for s, d, n in zip(start, length, name, strict=True)
        }
    gemm = [(k, n, s, e) for k, n, s, e in found if n == "gemm"]
    assert ("kernel", "gemm", START + 1001, START + 2003) in gemm
    assert len(found) >= len({(r["kind"], r["name"], r["start_ns"]) for r in run.spans.to_pylist()}) - 1


def test_spans_within_others_lie_on_rows_below():
    run = timeline_run()
    drawn = timeline(run, Parts(run))
    lane = next(lane for lane in drawn["lanes"] if lane["kind"] == "op")
    assert lane["rows"] > 1
    start, length, row = (unpacked(drawn["data"], lane[key]) for key in ("start", "length", "row"))
    for level in range(lane["rows"]):
        on = np.flatnonzero(row == level)
        assert np.all(start[on][1:] >= (start + length)[on][:-1])


def test_many_readings_keep_their_least_and_most(monkeypatch):
    from jouletrace.report.html import timeline as module

    monkeypatch.setattr(module, "MOST_READINGS", 200)
    n = 5000
    values = np.full(n, 300.0)
    values[1234], values[4321] = 912.0, 61.0
    rows = [
        {"time_ns": START + i * 20_000_000, "device": GPU, "channel": "power_w", "value": values[i]} for i in range(n)
    ]
    run = Run(
        kind="monitor", devices=[gpu()], channels=[power_channel()], samples=run_tables.from_rows(rows, "samples")
    )
    drawn = timeline(run, Parts(run))
    line = drawn["lines"][0]
    kept = unpacked(drawn["data"], line["v"])
    assert len(kept) <= 210
    assert {912.0, 61.0} <= set(kept.tolist())
    assert "5000 readings" in drawn["notes"][0]


def test_too_many_spans_are_put_together_and_that_is_reported(monkeypatch):
    from jouletrace.report.html import timeline as module

    monkeypatch.setattr(module, "MOST_SPANS", 1000)
    run = spans_run(5500, ["a", "b"])
    drawn = timeline(run, Parts(run))
    lane = drawn["lanes"][0]
    assert lane["n"] == 917
    assert "5500 spans" in drawn["notes"][0]
    last = unpacked(drawn["data"], lane["start"])[-1] + unpacked(drawn["data"], lane["length"])[-1]
    assert last == drawn["length_ns"]


@pytest.mark.thorough
def test_a_hundred_thousand_kernels_fit_into_six_megabytes():
    rng = np.random.default_rng(0)
    run = spans_run(100_000, [f"void kernel_{k}<float, {k}>(int)" for k in range(300)])
    jitter = rng.integers(0, 900, 100_000)
    moved = run.spans.set_column(
        run.spans.schema.get_field_index("end_ns"), "end_ns", pa.array(run.spans["end_ns"].to_numpy() - jitter)
    )
    run.spans = run_tables.conform(moved, "spans")
    size = len(html.render([run]).encode())
    assert size < 6_000_000
    text = Page(html.render([run])).text
    assert "100000" in text


def test_kernels_of_a_trace_are_counted_by_name_and_device():
    found = page(timeline_run_without_units())
    assert "Kernels by name" in found.text
    labels = [row[1] for row in found.data()["plots"]["time"]["nodes"]]
    assert labels.count("gemm") == 2  # one a device, though both GPUs have one name
    names = {row["name"] for row in timeline_run().spans.to_pylist() if row["kind"] in ("kernel", "memcpy")}
    assert f"Names {len(names)} " in found.text


def timeline_run_without_units() -> Run:
    run = timeline_run()
    run.units, run.results = run_tables.empty("units"), run_tables.empty("results")
    run.kind = "import"
    return run


@pytest.mark.thorough
def test_every_kind_of_run_can_be_reported():
    for run in (profile_run(), profile_run(kernels=2), monitor_run(), timeline_run(), Run(), spans_run(3, ["k"])):
        assert "How to cite" in page(run).text


def test_several_runs_stand_side_by_side():
    found = page(profile_run(batch=1, scale=0.1), profile_run(batch=64))
    assert [attributes["id"] for _, attributes in found.tags if attributes.get("role") == "tab"] == [
        "tab-run0",
        "tab-run1",
    ]
    assert "2 runs" in found.text
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_same_run_gives_the_same_file():
    assert html.render([profile_run(kernels=2)]) == html.render([profile_run(kernels=2)])


def test_no_run_and_no_place_are_one_clear_line(tmp_path):
    with pytest.raises(BadInputError, match="no Run to report on"):
        html.render([])
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="cannot write"):
        html.write([profile_run()], tmp_path / "file" / "report.html")


def test_without_plotly_the_pip_line_is_given(monkeypatch):
    monkeypatch.setattr(assets, "files", lambda package: (_ for _ in ()).throw(ModuleNotFoundError(package)))
    assets.plotly.cache_clear()
    with pytest.raises(NotPossibleError, match=r"pip install 'jouletrace\[report\]'"):
        html.render([profile_run()])
    monkeypatch.undo()
    assets.plotly.cache_clear()


@pytest.mark.thorough
def test_the_command_writes_the_file_and_refuses_what_is_no_run(tmp_path, capsys):
    run = profile_run(kernels=2)
    run.save(str(tmp_path / "run.zip"))
    done = command(capsys, "report", str(tmp_path / "run.zip"), "-o", str(tmp_path / "r.html"), "--no-open")
    assert done.code == 0, done.err
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    run = jt.load(tmp_path / "run.zip")
    assert run.report(tmp_path / "p.html") == tmp_path / "p.html"
    assert (tmp_path / "p.html").read_bytes() == (tmp_path / "r.html").read_bytes()
    with pytest.raises(BadInputError, match="write a price per kWh"):
        run.report(tmp_path / "p.html", price="cheap")
    with pytest.raises(BadInputError, match=r"run\.zip"):
        run.report(tmp_path / "run.zip")
    missing = command(capsys, "report", str(tmp_path / "no"), "-o", str(tmp_path / "n.html"))
    assert missing.code == 2
    assert len(missing.err.splitlines()) == 1
    assert not (tmp_path / "n.html").exists()


def test_a_page_whose_charts_need_no_plotly_is_without_it(monkeypatch):
    run = spans_run(200, ["a", "b"])
    assert 'id="library"' not in html.render([run]), "1.3 MB for nothing"
    assert "plotly.js" not in html.render([run])
    assert len(html.render([run])) < 300_000
    full = html.render([profile_run(kernels=3)])
    assert 'id="library"' in full
    assert len(full) > 1_000_000
    monkeypatch.setattr(assets, "plotly", lambda: pytest.fail("it isn't needed"))
    html.render([run])
