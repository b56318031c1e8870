"""The drawing of a calibration: self-contained, escaped, and with the readings where they belong."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from jouletrace.analysis.calibration import fit_channel
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.report.calibration_plot import folded, step_w, write_plot
from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables

pytestmark = pytest.mark.thorough

BOARD = "SIM-1"
STEP_W, RISE_S, LAG_S = 400.0, 0.013, 0.003
START_NS = 1_767_225_600_000_000_000


def calibration_run(*, name: str = "board", simulated: bool = False, readings: int = 1500) -> Run:
    """A Run whose record is a step load through an exponential, read every 20 ms."""
    rng = np.random.default_rng(0)
    edges = 1.0 + np.cumsum(np.exp(rng.uniform(np.log(0.04), np.log(1.0), 60)))
    time = np.arange(readings) * 0.02 + np.abs(rng.normal(0, 1e-5, readings))
    power = np.full(readings, 120.0)
    for i, edge in enumerate(edges):
        since = np.maximum(time - edge - LAG_S, 0)
        power += (1 if i % 2 == 0 else -1) * STEP_W * -np.expm1(-since / RISE_S)
    power += rng.normal(0, 0.5, readings)
    samples = [
        {"time_ns": START_NS + round(1e9 * t), "device": BOARD, "channel": "power_w", "value": p}
        for t, p in zip(time, power, strict=True)
    ]
    spans = [
        {"id": i, "kind": "range", "name": "pulse", "device": BOARD, "lane": "load"}
        | {"start_ns": START_NS + round(1e9 * on), "end_ns": START_NS + round(1e9 * off)}
        for i, (on, off) in enumerate(edges.reshape(-1, 2))
    ]
    return Run(
        kind="calibrate",
        created_ns=START_NS,
        workload={"load": "copies"},
        devices=[DeviceInfo(BOARD, name, simulated=simulated, driver="580.1")],
        channels=[ChannelInfo(BOARD, "power_w", "W", "the record", period_s=0.02, gapless=True)],
        samples=tables.from_rows(samples, "samples"),
        spans=tables.from_rows(spans, "spans"),
    )


def figures(page: str) -> list[list[dict]]:
    """The traces of every drawing on the page."""
    decoder = json.JSONDecoder()
    return [
        decoder.raw_decode(page, start.end())[0] for start in re.finditer(r'Plotly\.newPlot\(\s*"power[^"]*",\s*', page)
    ]


def numbers(values: list[float] | dict) -> np.ndarray:
    """Plotly keeps lists of numbers as they are or packs them."""
    assert isinstance(values, list)
    return np.array(values)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plot") / "deep" / "fit.html"
    assert write_plot(calibration_run(), path) == path
    return path.read_text(encoding="utf-8")


def test_the_page_needs_nothing_from_elsewhere(page):
    assert "Plotly.newPlot" in page
    assert len(page) > 1_000_000
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", page)


def test_readings_model_and_residuals_are_drawn_for_both_edges(page):
    (traces,) = figures(page)
    assert [trace["name"] for trace in traces] == ["readings", "model", "reading − model"] * 2
    on, curve, residual, off = (traces[i] for i in (0, 1, 2, 3))
    assert len(on["x"]) == len(residual["x"]) > 100
    delay, share = numbers(on["x"]), numbers(on["y"])
    expected = -100 * np.expm1(-np.maximum(delay - 1e3 * LAG_S, 0) / (1e3 * RISE_S))
    assert share == pytest.approx(expected, abs=3)
    delay, share = numbers(off["x"]), numbers(off["y"])
    expected = 100 * np.exp(-np.maximum(delay - 1e3 * LAG_S, 0) / (1e3 * RISE_S))
    assert share == pytest.approx(expected, abs=3)
    assert numbers(curve["y"])[0] == pytest.approx(0, abs=1e-6)
    assert numbers(curve["y"])[-1] == pytest.approx(100, abs=0.2)
    assert np.abs(numbers(residual["y"])).max() < 10


def test_the_table_says_what_was_fitted_with_its_uncertainty(page):
    cells = dict(re.findall(r"<tr><td>([^<]+)</td><td>([^<]+)</td></tr>", page))
    rise, error, unit = re.fullmatch(r"([\d.]+) ±\s([\d.]+)\s(\w+)", cells["rise"]).groups()
    assert unit == "ms"
    assert abs(float(rise) - 1e3 * RISE_S) < 4 * float(error) < 2
    assert "±" in cells["period"]
    assert "±" in cells["window"]
    assert "±" in cells["lag"]
    assert {"time error", "noise", "fluctuation under load", "explained", "flags"} <= set(cells)


def test_a_residual_moves_its_point_off_the_curve_by_as_much():
    run = calibration_run()
    fit = fit_channel(run, BOARD, "power_w")
    assert fit is not None
    assert step_w(fit) == pytest.approx(STEP_W, rel=0.01)
    off = replace(fit, power_w=fit.power_w + 40.0)
    for way, sign in ((0, 1), (1, -1)):
        moved = folded(off, way).share - folded(fit, way).share
        assert moved == pytest.approx(sign * 0.1, rel=0.02)


@pytest.fixture(scope="module")
def odd_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a simulated board whose names are markup."""
    run = calibration_run(name="<script>alert(1)</script>", simulated=True)
    run.workload["load"] = "</p><img src=x>"
    run.channels[0].source = "<b>bold</b>"
    run.devices[0].driver = "<i>"
    return write_plot(run, tmp_path_factory.mktemp("odd") / "fit.html").read_text(encoding="utf-8")


def test_names_cannot_become_markup(odd_page):
    assert "<script>alert" not in odd_page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in odd_page
    assert "<img src=x>" not in odd_page
    assert "<b>bold</b>" not in odd_page
    assert "driver <i>" not in odd_page


def test_a_simulated_board_is_called_so(page, odd_page):
    for tag in ("<title>", "<h1>"):
        assert f"{tag}SIMULATED" in odd_page
        assert tag in page
    assert "SIMULATED" not in page


def test_a_channel_that_cannot_be_fitted_says_why(tmp_path):
    page = write_plot(calibration_run(readings=30), tmp_path / "fit.html").read_text(encoding="utf-8")
    assert "Not calibrated: calibration:" in page
    assert "<td>not calibrated</td>" in page
    assert figures(page) == []


def test_a_run_without_pulses_is_refused(tmp_path):
    run = calibration_run()
    run.spans = tables.empty("spans")
    with pytest.raises(BadInputError, match="no pulses"):
        write_plot(run, tmp_path / "fit.html")
    assert not (tmp_path / "fit.html").exists()


def test_without_plotly_the_line_to_install_it_is_printed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(NotPossibleError, match=r"pip install 'jouletrace\[report\]'"):
        write_plot(calibration_run(), tmp_path / "fit.html")


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match=r"cannot write .*file"):
        write_plot(calibration_run(readings=30), tmp_path / "file" / "fit.html")
