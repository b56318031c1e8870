"""The drawing of a calibration in the report: readings where they belong, the fit in figures, names as text."""

import re
from dataclasses import replace

import numpy as np
import pytest

from jouletrace.analysis.calibration import fit_channel
from jouletrace.report import html
from jouletrace.report.html.calibration import calibration, folded, step_w
from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables
from pages import Page

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


def test_readings_model_and_residuals_are_drawn_for_both_edges():
    ((name, drawing),) = calibration(calibration_run())[0].items()
    assert name == "calibration-0-power_w"
    traces = drawing["data"]
    assert [trace["name"] for trace in traces] == ["readings", "model", "reading − model"] * 2
    on, curve, residual, off = (traces[i] for i in (0, 1, 2, 3))
    assert len(on["x"]) == len(residual["x"]) > 100
    delay, share = np.array(on["x"]), np.array(on["y"])
    expected = -100 * np.expm1(-np.maximum(delay - 1e3 * LAG_S, 0) / (1e3 * RISE_S))
    assert share == pytest.approx(expected, abs=3)
    delay, share = np.array(off["x"]), np.array(off["y"])
    expected = 100 * np.exp(-np.maximum(delay - 1e3 * LAG_S, 0) / (1e3 * RISE_S))
    assert share == pytest.approx(expected, abs=3)
    assert curve["y"][0] == pytest.approx(0, abs=1e-6)
    assert curve["y"][-1] == pytest.approx(100, abs=0.2)
    assert np.abs(residual["y"]).max() < 10


def test_the_table_says_what_was_fitted_with_its_uncertainty():
    table = calibration(calibration_run())[1]
    cells = {h.name: cell.text for h, cell in zip(table.headings, table.rows[0], strict=True)}
    rise, error, unit = re.fullmatch(r"([\d.]+) ±\s([\d.]+)\s(\w+)", cells["rise"]).groups()
    assert unit == "ms"
    assert abs(float(rise) - 1e3 * RISE_S) < 4 * float(error) < 2
    assert all("±" in cells[name] for name in ("period", "window", "lag"))
    assert {"time error", "noise", "fluctuation under load", "explained", "flags"} <= set(cells)


def test_a_residual_moves_its_point_off_the_curve_by_as_much():
    run = calibration_run()
    fit = fit_channel(run, BOARD, "power_w")
    assert fit is not None
    assert step_w(fit) == pytest.approx(STEP_W, rel=0.01)
    off = replace(fit, power_w=fit.power_w + 40.0)
    for way, sign in ((0, 1), (1, -1)):
        moved = folded(off, way)[1] - folded(fit, way)[1]
        assert moved == pytest.approx(sign * 0.1, rel=0.02)


def test_the_page_draws_it_and_names_cannot_become_markup():
    run = calibration_run(name="<script>alert(1)</script>", simulated=True)
    run.workload["load"] = "</p><img src=x>"
    run.channels[0].source = "<b>bold</b>"
    run.devices[0].driver = "<i>"
    page = Page(html.render([run]))
    assert page.data()["plots"]["calibration-0-power_w"]["data"]
    assert page.data()["simulated"]
    assert not [tag for tag, attributes in page.tags if tag in ("img", "b", "i") and attributes.get("src") == "x"]
    assert "<b>bold</b>" in "".join(page.words)
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 3  # data, the library, ours


def test_a_channel_that_cannot_be_fitted_says_why():
    drawn, table = calibration(calibration_run(readings=30))
    assert not drawn
    assert any("not calibrated: calibration:" in note for note in table.notes)


def test_a_run_without_pulses_has_no_drawing():
    run = calibration_run()
    run.spans = tables.empty("spans")
    assert calibration(run) == ({}, None)
