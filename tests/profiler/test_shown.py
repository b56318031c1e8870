"""Prints of Python: figures with units, by ``print``, at a prompt and in a notebook."""

from html import escape

import pytest

import jouletrace as jt
from jouletrace.run import Estimate
from make_runs import simulated_run

QUICK = {"device": "sim:h100", "max_time": 2, "latency_s": 0.1, "warmup": 2.6}


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (Estimate(86.1, 85.95, 86.25, 8, "windows", unit="J"), "86.10 ± 0.15 J"),
        (Estimate(0.0046, 0.0045, 0.0047, unit="s"), "4.60 ± 0.10 ms"),
        (Estimate(0.25, 0.238, 0.262, unit="%"), "25.0 ± 1.2 %"),
        (Estimate(1.003, 0.99, 1.016, unit="1"), "1.003 ± 0.013"),
        (Estimate(1.003, 0.99, 1.016), "1.003 ± 0.013"),
        (Estimate(2.0, unit="W"), "2.000 W"),
        (Estimate.null("no_power_sensor").in_unit("J"), "– (no power sensor here)"),
    ],
)
def test_an_estimate_with_its_unit(estimate, expected):
    assert str(estimate) == f"{estimate}" == expected
    assert repr(estimate) == f"Estimate({expected})"
    assert expected in estimate._repr_html_()


def test_hovering_shows_the_interval():
    shown = Estimate(86.1, 85.95, 86.25, 8, "windows", unit="J")._repr_html_()
    assert 'title="95 %: 85.95 to 86.25 J; n = 8; windows"' in shown


def test_the_unit_changes_no_comparison_and_no_file():
    plain, printed = Estimate(1.0, 0.9, 1.1, 3, "x"), Estimate(1.0, 0.9, 1.1, 3, "x", unit="J")
    assert plain == printed
    assert plain.to_dict() == printed.to_dict()
    assert "unit" not in plain.to_dict()
    assert printed.scaled(2.0).unit == ""  # power times seconds is no power


@pytest.mark.thorough
def test_a_run_and_its_figures():
    run = jt.profile("deit-tiny", **QUICK)
    assert str(run.result("energy_total_j")).endswith((" mJ", " J"))
    assert str(run.result("power_w")).endswith(" W")
    assert str(run.result("latency_s")).endswith("s")
    assert "SIMULATED" in str(run)
    assert len(repr(run).splitlines()) == 1
    assert f">{escape(str(run))}</pre>" in run._repr_html_()


def test_text_is_plain_where_the_environment_asks_for_colours(monkeypatch):
    run = simulated_run()
    plain = str(run)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as Jupyter's kernels set it
    assert str(run) == plain
    assert "\x1b" not in plain


@pytest.mark.thorough
def test_a_measured_block():
    with jt.measure("epoch", device="sim:h100?realtime=1&load=100:300") as block:
        pass
    text = str(block)
    assert text.startswith("SIMULATED epoch: ")
    assert "s; energy unknown: too short for this power sensor\ntrust: no, 1 of " in text
    assert repr(block) == f"Measurement({text.splitlines()[0]})"
    assert f">{text}</pre>" in block._repr_html_()


@pytest.mark.thorough
def test_a_profiler():
    profiler = jt.LayerProfiler("deit-tiny", device="sim:h100")
    assert str(profiler) == repr(profiler) == "LayerProfiler(deit-tiny, 0 runs)"
    profiler.profile(max_time=2, latency_s=0.1, warmup=2.6, detail_time=3)
    assert repr(profiler) == "LayerProfiler(deit-tiny, 1 run)"
    assert str(profiler) == str(profiler.summary())
    assert profiler._repr_html_().startswith("<pre ")
    assert "SIMULATED" in profiler._repr_html_()
    assert str(profiler.rows()[0][0].time).endswith("s")


def test_an_error_in_a_notebook_shows_the_lines_of_the_user_alone():
    def forward(x):
        raise ValueError("mine")

    with pytest.raises(jt.BadInputError) as found:
        jt.profile(forward, (1,), device="cpu", progress=False)
    lines = found.value._render_traceback_()
    code = [line.strip() for line in lines if not line.startswith("  File ")][:-1]
    assert [line for line in code if set(line) - set("^~")] == [
        'jt.profile(forward, (1,), device="cpu", progress=False)',
        'raise ValueError("mine")',
    ]
    assert lines[-1].startswith("BadInputError: ")
    assert "ValueError: mine" in lines[-1]
