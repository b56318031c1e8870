"""Two benches compared, load by load, against simulated servers of known cost."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from commands import command
from compare_runs import stated
from jouletrace import compare
from jouletrace.analysis import analyse
from jouletrace.report.comparison_words import trusted, verdict
from jouletrace.run import Parts, save
from jouletrace.wings.serving.analysis.levels import OFFERED, Blocks
from scheduled_runs import Law, drawn, scheduled_level, scheduled_run

LAW = Law()
TOKEN = "energy_per_output_token_j"
NAMES = {0: "2/s", 1: "4/s"}


def bench(law=LAW, seed=1, noise_w=1.0, rates=(2, 4), offered=True):
    rng = np.random.default_rng(seed)
    levels = [scheduled_level(law, *drawn(rng, rate, 60, (50, 1500), (20, 200))) for rate in rates]
    names = {k: f"{rate}/s" for k, rate in enumerate(rates)}
    run, *_ = scheduled_run(law, levels, seed=seed, noise_w=noise_w, names=names, rates=rates if offered else ())
    run.steps = run.steps.slice(0, 0)
    for load in run.workload["serving"]["levels"]:
        load |= {"mean_input_tokens": 775.0, "mean_output_tokens": 110.0}
    return run


def benched(*of, **options):
    return analyse(bench(*of, **options))


def without_rates(run):
    """The same run before it is analysed, with no word of the rates that were offered."""
    other = deepcopy(run)
    for load in other.workload["serving"]["levels"]:
        load["rate_per_s"] = None
    return other


def compared(a, b, **options):
    return compare([(a, "A")], [(b, "B")], **options)


@pytest.fixture(scope="module")
def base():
    return benched()


def test_a_cheaper_step_is_better_at_each_load_that_both_have(base):
    other = benched(replace(LAW, step_j=2.9), noise_w=3.0)
    found = compared(base, other)
    exact = [Parts(benched(law, noise_w=0.01)) for law in (LAW, replace(LAW, step_j=2.9))]
    for name, unit in (("2/s", 1), ("4/s", 2)):
        row = found.row(TOKEN, name, "load")
        truth = exact[1][unit].get(TOKEN).value / exact[0][unit].get(TOKEN).value - 1
        assert row.verdict == "better"
        assert row.change.low < truth < row.change.high < 0
        assert row.change.half_width < 0.006  # both were sent the same requests
    assert verdict(found)[0].startswith("2/s: B took 1.")
    assert "less energy per output token in these runs: better" in verdict(found)[0]
    assert [one.code for one in trusted(found).failed] == ["one_run"]
    assert "scatter between runs is unknown" in stated(found)["method"]


def test_equal_servers_with_the_same_requests_are_equal(base):
    found = compared(base, benched(noise_w=3.0))
    assert all(found.row(TOKEN, name, "load").verdict == "no difference shown" for name in NAMES.values())


def test_the_chance_of_arrivals_is_that_of_its_scatter_between_seeds():
    runs = [Parts(benched(seed=seed, rates=(4,), offered=False)) for seed in range(20, 36)]
    values = [one[1].get(TOKEN).value for one in runs]
    stated = np.mean([one[1].get("energy_per_output_token_error_pct").value for one in runs]) / 100
    assert stated == pytest.approx(np.std(values, ddof=1) / np.mean(values), rel=0.5)


@pytest.mark.slow
def test_energy_at_the_offered_rate_is_nearly_free_of_the_chance_of_arrivals():
    drawn = [benched(seed=s, rates=(4,)) for s in range(100, 120)]
    runs = {True: [Parts(run) for run in drawn], False: [Parts(analyse(without_rates(run))) for run in drawn]}
    found = {offered: [one[1].get(TOKEN) for one in many if one[1].get(TOKEN).value] for offered, many in runs.items()}
    offered, raw = (np.array([one.value for one in found[which]]) for which in (True, False))
    half = np.array([one.half_width for one in found[True]])
    assert offered.mean() == pytest.approx(raw.mean(), rel=0.02)
    assert np.std(offered) < 0.25 * np.std(raw)
    assert half.mean() < 0.02 * offered.mean()
    assert np.mean(np.abs(offered - offered.mean()) < half) > 0.85


def test_other_requests_widen_the_interval_to_their_chance():
    base = benched(offered=False)
    same, other = (compared(base, benched(seed=seed, offered=False)) for seed in (1, 3))
    for name in NAMES.values():
        assert same.row(TOKEN, name, "load").change.half_width < 0.01
        assert 0.05 < other.row(TOKEN, name, "load").change.half_width < 1.0


def test_the_same_requests_are_compared_over_the_time_that_is_steady_in_both(monkeypatch):
    """A window that begins later has other arrivals: that is no difference of the servers."""
    import jouletrace.wings.serving.analysis.levels as levels
    import jouletrace.wings.serving.paired as loads

    real = levels.steady_window

    def late(one):
        start, *rest = real(one)
        return (start + 35.0, *rest)

    a = benched(offered=False)
    with monkeypatch.context() as patch:
        patch.setattr(levels, "steady_window", late)
        b = benched(noise_w=3.0, offered=False)
    sides = iter((real, late) * len(NAMES))  # A and B, load by load

    def steady(requests):
        window = next(sides)
        return window(requests)

    monkeypatch.setattr(loads, "steady_window", steady)
    found = compared(a, b)
    for k, name in NAMES.items():
        prices = [Parts(run)[k + 1].get(TOKEN).value for run in (a, b)]
        assert abs(prices[1] / prices[0] - 1) > 0.02  # each over its own window
        row = found.row(TOKEN, name, "load")
        assert row.verdict == "no difference shown"
        assert abs(row.change.value) < 0.002


def test_a_paired_error_holds_the_farther_reach_of_both_sides():
    each = np.random.default_rng(0).normal(0, 0.01, (2, 3, 10))
    near, far = (
        Blocks(1.0, (1.0, 1.0, 1.0), one, 7, reach, OFFERED) for one, reach in zip(each, (0, 0.3), strict=True)
    )
    assert near.error(0, far) == far.error(0, near) == pytest.approx(2 * near.error(0, replace(far, leverage=0.0)))


def test_loads_of_one_side_only_are_named(base):
    found = compared(base, benched(rates=(4, 6), seed=9))
    assert found.row(TOKEN, "4/s", "load")
    assert {"level": "load", "name": "2/s"} in stated(found)["unmatched"]["a"]
    assert {"level": "load", "name": "6/s"} in stated(found)["unmatched"]["b"]


def test_another_gpu_adds_the_gain_of_its_sensor(base):
    other = benched(replace(LAW, step_j=2.9), noise_w=3.0)
    other.devices = [replace(other.devices[0], id="GPU-other")]
    other.channels = [replace(one, device="GPU-other", gain_pct=5.0) for one in other.channels]
    rows = other.samples.to_pylist()
    from jouletrace.run import tables

    other.samples = tables.from_rows([{**row, "device": "GPU-other"} for row in rows], "samples")
    found = compared(base, analyse(other))
    row = found.row(TOKEN, "4/s", "load")
    assert found.gain >= 0.05
    assert row.verdict == "inconclusive"
    assert row.reason == "sensor_gain"


def test_a_check_of_a_load_fails_the_command(base, tmp_path, capsys):
    save(benched(replace(LAW, step_j=2.9), noise_w=3.0), tmp_path / "a")
    save(base, tmp_path / "b")
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--fail-if", "load:4/s:per_token>0.5%"]
    found = command(capsys, *words)
    assert found.code == 1
    assert all(len(line) <= 80 for line in found.out.splitlines())
    assert command(capsys, *words[:-1], "load:4/s:per_token>3%").code == 0
