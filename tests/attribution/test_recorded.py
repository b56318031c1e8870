"""Recordings of real GPUs: what was measured in them when all of each was analysed, from its first seconds."""

from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

from energy_tables import Rows, energy_table
from gpu_recordings import load
from jouletrace.analysis import by_operator
from jouletrace.analysis.rules import doubt
from jouletrace.attribution import Kind, activity_of, trusted
from jouletrace.attribution import checks as judging
from jouletrace.attribution import lock as locking
from jouletrace.attribution.checks import attempts, checks
from jouletrace.attribution.fit import fit
from jouletrace.attribution.lock import EVIDENCE, Attempts, lock, rephased, search
from jouletrace.sensor import HOPPER_SENSOR, on_grid
from jouletrace.simulator import SamplingSensor
from scenarios import draw

pytestmark = pytest.mark.usefixtures("fits_once")  # analysis/test_as_before.py fits the same

BOARDS = {"h100": (1223.0, 1226.0), "h200": (1237.0, 1240.0), "h200b": (1232.0, 1236.0), "h200c": (1228.0, 1231.0)}
"""Sample rates between which to look on each GPU: a search from 1200 to 1260 Hz takes some seconds."""


def total(fit):
    """Energy of the whole recording by the fit, J: the sum of all rows."""
    rows = Rows(fit, lambda kind: kind.name)
    return rows.row(rows.names).energy


def by_kernel(kind):
    return f"{kind.operator} | {kind.name}" if kind.operator else kind.name


def operator_of(name):
    return name.split(" | ", maxsplit=1)[0] if " | " in name else ""


def narrow(name):
    return replace(HOPPER_SENSOR, rates_hz=BOARDS[name.rsplit("-", maxsplit=1)[-1]])


@cache
def judged(name):
    """The lock to trust, and its checks but that of the rate: the range is too narrow for evidence."""
    recorded = load(name)
    sensor = narrow(name)
    tried = []
    for found in attempts(recorded.activity, sensor, recorded.readings):
        asked = [check for check in checks(found, recorded.readings, 1, 0) if check.code != "sample_rate"]
        tried.append((found, asked))
        if all(check.passed for check in asked):
            return tried[-1]
    return tried[0]


def analysed(name):
    return judged(name)[0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "rate_hz", "residual_w"),
    [
        ("chain-shuffled-h100", 1224.3, 4.5),
        ("vit-h100", 1224.3, 3.0),
        ("vit-repeats-h200", 1238.6, 2.5),
        ("deit-b-64-repeats-h200", 1238.4, 4.0),
        ("pulses-h200", 1238.9, 2.6),
        ("jax-h200b", 1233.6, 4.5),
        ("minilm-repeats-h200c", 1229.6, 0.5),
    ],
)
def test_the_sensors_rate_is_measured_and_its_readings_are_explained(name, rate_hz, residual_w):
    found = analysed(name)
    assert found.search.rate_hz == pytest.approx(rate_hz, abs=0.4)
    assert found.fit.residual_rms_w < residual_w


@pytest.mark.thorough
def test_a_small_model_at_batch_1_determines_the_rate():
    """MiniLM draws 4 W above idle, and readings scatter by 1.2 W: the prior must not decide in their place."""
    recorded = load("minilm-repeats-h200c")
    found = search(replace(HOPPER_SENSOR, rates_hz=(1215.0, 1245.0)), recorded.activity, recorded.readings)
    assert found.rate_hz == pytest.approx(1229.6, abs=0.4)
    assert found.residual_w < 0.5
    assert found.evidence > EVIDENCE


@pytest.mark.thorough
def test_another_phase_is_tried_where_a_fit_has_a_local_minimum():
    recorded = load("vit-h100")
    first, again = list(islice(attempts(recorded.activity, narrow("vit-h100"), recorded.readings), 2))
    track = first.fit.observer.track
    wrong = replace(track, start_s=track.start_s + 0.5 / track.rate_hz)
    half = fit(recorded.activity, replace(first.fit.observer, track=wrong), recorded.readings, fit_response=True)
    assert half.residual_rms_w > 1.1 * first.fit.residual_rms_w
    assert rephased(replace(first, fit=half), recorded.readings).fit.residual_rms_w == pytest.approx(
        again.fit.residual_rms_w, rel=0.02
    )


@pytest.mark.thorough
def test_a_rate_that_passes_50_hz_off_is_passed_by_where_the_readout_aliases():
    """A GPU outside of the usual range: its rate less the readout's has evidence 24 there, and passes all checks."""
    _, recording, _ = draw(1002, "long_varied", 10.0, far())
    readings = on_grid(recording.rows[:, 0] * 1000, recording.rows[:, 1] / 1e3)
    kinds = [Kind(*of) for of in zip(recording.names, recording.operators, recording.modules, strict=True)]
    activity = activity_of(recording.start_ns, recording.end_ns, recording.kind, kinds, readings.origin_ns)
    near = replace(HOPPER_SENSOR, rates_hz=(1203.0, 1209.0))
    wide = replace(HOPPER_SENSOR, rates_hz=(1152.0, 1158.0))
    found, asked = trusted(activity, [near, wide], readings, 1, 0)
    assert found.search.rate_hz == pytest.approx(1155.6, abs=0.3)
    assert all(check.passed for check in asked if check.code != "sample_rate")


@pytest.mark.parametrize("why", ["length", "traced"])
def test_what_no_rate_can_mend_is_refused_at_the_first(why, monkeypatch):
    recorded = load("vit-h100")
    first = analysed("vit-h100")
    tried = []
    monkeypatch.setattr(judging, "attempts", lambda *of: (tried.append(of) or first for _ in range(4)))
    monkeypatch.setattr(judging, "SHORTEST_S", 1e3 if why == "length" else judging.SHORTEST_S)
    kernels, dropped = len(recorded.kind), len(recorded.kind) if why == "traced" else 0
    found, asked = trusted(recorded.activity, [HOPPER_SENSOR] * 2, recorded.readings, kernels, dropped)
    assert found is first
    assert next(check.code for check in asked if not check.passed) == why
    assert len(tried) == 1


def far():
    """The sensor of ``benchmarks/estimator/programs.py``'s group ``far_rate``, seed 1002."""
    rng = np.random.default_rng([1002, 102])
    rate = float(rng.uniform(*((1155.0, 1195.0), (1265.0, 1305.0))[int(rng.integers(2))]))
    return replace(SamplingSensor.draw(rng, 10.0), rate_hz=rate)


@pytest.mark.thorough
def test_the_rate_is_measured_among_all_that_gpus_have():
    recorded = load("vit-h100")
    found = search(HOPPER_SENSOR, recorded.activity, recorded.readings)
    assert found.rate_hz == pytest.approx(1224.3, abs=0.4)
    assert found.evidence > EVIDENCE


@pytest.mark.parametrize("name", ["chain-shuffled-h100", "vit-h100", "vit-repeats-h200", "jax-h200b"])
def test_a_real_recording_is_believed(name):
    _, asked = judged(name)
    assert all(check.passed for check in asked), doubt(asked)


@pytest.mark.thorough
def test_large_operators_draw_what_they_draw_when_they_are_looped_alone():
    """``chain.py`` on an H100: W alone, host pauses taken out (SAMPLER of the recording)."""
    alone = {"ffma_aligna4": 680, "scan_innermost": 555, "SoftMax": 690}
    found = analysed("chain-shuffled-h100")
    for row in energy_table(found.fit, by_kernel):
        for part, watts in alone.items():
            if part in row.names[0]:
                assert row.power.value == pytest.approx(watts, rel=0.07)


@pytest.mark.thorough
def test_rows_and_idle_make_the_mean_of_the_readings():
    for name in ("vit-h100", "vit-repeats-h200", "deit-b-64-repeats-h200"):
        found = analysed(name)
        table = energy_table(found.fit, by_operator, lambda label: label)
        span = found.fit.activity.finish_s - found.fit.activity.begin_s
        assert sum(row.seconds for row in table) == pytest.approx(span, rel=1e-6)
        whole = total(found.fit)
        assert whole.low <= whole.value <= whole.high
        assert whole.value / span == pytest.approx(found.fit.watts.mean(), rel=0.01)


def test_repetition_in_place_resolves_short_operators():
    table = energy_table(analysed("vit-repeats-h200").fit, by_operator)
    active = sum(row.energy.value for row in table[:-1] if row.energy.value)
    narrow = sum(row.energy.value for row in table[:-1] if not row.pooled and row.relative <= 0.1)
    assert narrow / active > 0.7


def test_kernels_in_a_fixed_order_that_cannot_be_distinguished_are_pooled():
    table = energy_table(analysed("vit-h100").fit, by_kernel, operator_of)
    assert any(row.pooled for row in table)
    assert all(row.relative <= 0.5 for row in table if row.energy.value is not None)


def test_the_rate_is_searched_where_kernels_run():
    """JAX imports and compiles for 3.4 s of these 16: readings of idle don't distinguish rates."""
    found = analysed("jax-h200b").search
    assert found.start_s > 4.0
    assert found.evidence > 60


@pytest.mark.thorough
def test_a_product_at_the_power_cap_has_a_row_though_few_kinds_run_in_fixed_order():
    """A response that is free to differ by more takes what its kernels leave, and all are one row."""
    found = analysed("jax-h200b")
    assert np.abs(found.fit.observer.change).sum() < 0.15
    largest, *others = energy_table(found.fit, by_kernel)
    assert largest.names[0].startswith("nvjet")
    assert not largest.pooled
    assert largest.relative < 0.06
    # the same by the last 11 s of 28 s, which this cut doesn't contain
    assert largest.power.value == pytest.approx(772, abs=largest.power.half_width)
    assert all(row.power.value < largest.power.value for row in others if row.power.value)


@pytest.mark.thorough
def test_a_timeline_of_another_time_is_not_locked():
    """The same kernels 5 s later than they ran: nothing of them is in the readings."""
    recorded = load("vit-repeats-h200")
    half = len(recorded.start_ns) // 2
    shift = 2_345_678_901
    moved = activity_of(
        recorded.start_ns[:half] + shift, recorded.end_ns[:half] + shift, recorded.kind[:half], recorded.kinds,
        recorded.readings.origin_ns,
    )  # fmt: skip
    found = lock(moved, replace(HOPPER_SENSOR, rates_hz=(1232.0, 1246.0)), recorded.readings)
    assert doubt(checks(found, recorded.readings, 1, 0))


@pytest.mark.thorough
def test_names_that_are_mixed_up_leave_more():
    recorded = load("chain-shuffled-h100")
    true = analysed("chain-shuffled-h100").fit.residual_rms_w
    mixed = np.random.default_rng(0).permutation(recorded.kind)
    wrong = activity_of(recorded.start_ns, recorded.end_ns, mixed, recorded.kinds, recorded.readings.origin_ns)
    sensor = replace(HOPPER_SENSOR, rates_hz=(1223.0, 1226.0))
    assert lock(wrong, sensor, recorded.readings).fit.residual_rms_w > 1.3 * true


@pytest.mark.thorough
def test_rows_hold_for_a_sensor_with_another_response_and_average():
    """Eight samples where sixteen are expected: with sixteen, nine in ten of its rows missed and all checks passed."""
    _, drawn, truth = draw(0, "foreign_response", seconds=10)
    readings = on_grid(drawn.rows[:, 0] * 1000, drawn.rows[:, 1] / 1e3)
    kinds = [Kind(name) for name in drawn.names]
    activity = activity_of(drawn.start_ns, drawn.end_ns, drawn.kind, kinds, readings.origin_ns)
    rates = (truth.sensor.rate_hz - 2, truth.sensor.rate_hz + 2)
    found = lock(activity, replace(HOPPER_SENSOR, rates_hz=rates), readings)
    assert found.fit.observer.sensor.averages == truth.sensor.averaging.samples == 8
    table = [row for row in energy_table(found.fit, by_kernel)[:-1] if row.energy.value is not None]
    true = [sum(truth.kind_j[drawn.names.index(name)] for name in row.names) for row in table]
    assert np.mean([row.energy.low <= j <= row.energy.high for row, j in zip(table, true, strict=True)]) >= 0.8


@pytest.mark.thorough
def test_a_search_of_a_wider_range_repeats_nothing(monkeypatch):
    recorded = load("vit-h100")
    asked, known = [], Attempts()
    compute = locking.designs

    def designs(sensor, seen, first, rates, offsets, places):
        asked.extend((id(seen), rate, len(offsets)) for rate in rates.tolist())
        return compute(sensor, seen, first, rates, offsets, places)

    monkeypatch.setattr(locking, "designs", designs)
    first, second = (
        lock(recorded.activity, replace(HOPPER_SENSOR, rates_hz=rates), recorded.readings, earlier=known)
        for rates in ((1221.0, 1227.0), (1215.0, 1230.0))
    )
    assert len({rate for _, rate, phases in asked if phases == locking.PHASES}) == 51
    assert second.fit is first.fit
    assert second.search.rate_hz == first.search.rate_hz
