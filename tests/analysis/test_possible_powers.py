"""Powers of kernels that no GPU can draw: they are detected, aren't stated as rows, and their sums stay."""

from dataclasses import replace

import numpy as np
import pytest

import jouletrace as jt
from energy_tables import recorded_of
from jouletrace.analysis import analyse
from jouletrace.attribution import Kind, activity_of, check_powers, trusted
from jouletrace.report import render
from jouletrace.run import MODEL_UNIT, Parts, divisions_of, tables
from jouletrace.run.division import tables_of
from jouletrace.run.parts import DOUBTFUL
from jouletrace.sensor import HOPPER_SENSOR, on_grid
from jouletrace.simulator import SamplingSensor
from make_runs import GPU, profile_run
from places import REPOSITORY, SAMPLES
from scenarios import draw, simulate
from shown import fact_of, trust_of
from simulated_power import Board
from simulated_programs import draw_kinds, fixed_order, lay_out, with_pauses

PROGRAMS = SAMPLES / "h100" / "runs3"
CHECK = "powers of kernels"


def loader(limit_w=700.0, path="docs/results/runs/loader-run-h100.zip"):
    """A training program, recorded on an H100 of 700 W, as if its GPU had another limit; not analysed again."""
    run = jt.load(REPOSITORY / path)
    limits = {"min": 100.0, "default": limit_w, "max": limit_w}
    run.devices = [replace(run.devices[0], power_limit_w=limit_w, power_limits_w=limits)]
    return run


def marked(run):
    """Names of rows in doubt."""
    return {part.name for part in Parts(run).all() if DOUBTFUL in part.get("energy_total_j").flags}


def powers(run):
    """Power of each row of kernels or operators that has one, W."""
    rows = {unit["id"] for unit in run.units.to_pylist() if unit["level"] in ("op", "kernel")}
    results = [row for row in run.results.to_pylist() if row["metric"] == "power_w" and row["unit"] in rows]
    return [row["value"] for row in results if row["value"] is not None]


@pytest.mark.thorough
def test_powers_that_a_gpu_can_draw_pass_a_check_of_their_own():
    run = analyse(loader())
    assert run.result("powers_possible").value > 0.1
    assert not [warning for warning in run.warnings if warning.code == "powers_doubtful"]
    assert trust_of(run)["level"] == "yes"
    assert CHECK in fact_of(run, "Passed")


def test_rows_that_would_leave_their_interval_are_marked_and_not_the_run():
    """The least-squares powers of two kinds go together by - 0.9: at - 100 W for one the other is 180 W too high."""
    run = profile_run(kernels=2)
    root = np.linalg.cholesky([[2500.0, -4500.0, 0.0], [-4500.0, 10000.0, 0.0], [0.0, 0.0, 1.0]])
    division = divisions_of(run)[0]
    watts = np.array([-100.0, 480.0, 100.0])
    for name, table in tables_of(replace(division, powers=replace(division.powers, watts=watts, root=root))).items():
        setattr(run, name, table)
    assert divisions_of(run)[0].powers.moved() == pytest.approx([100.0, -180.0, 0.0])
    run.warn(DOUBTFUL, "powers of kernels are outside of 0 to 800 W: rows are marked", GPU)
    rows = run.results.to_pylist()
    for row in rows:
        if row["metric"] == "energy_total_j" and row["unit"] != MODEL_UNIT and row["value"]:
            wide = 0.9 if row["unit"] == 4 else 1.1
            half = wide * 180.0 * run.result("time_s", 4).value
            row |= {"low": row["value"] - half, "high": row["value"] + half}
    run.results = tables.from_rows(rows, "results")
    found = [part.id for part in Parts(run).all() if DOUBTFUL in part.get("energy_total_j").flags]
    assert found == [id for id in found if id in (3, 4)]
    assert 4 in found
    assert trust_of(run)["level"] == trust_of(profile_run(kernels=2))["level"]
    assert "[a] some kernels come out at powers that no GPU draws" in render([run], detail="kernel")
    run.warnings = [one for one in run.warnings if one.code != DOUBTFUL]
    assert not marked(run)


@pytest.mark.slow
def test_powers_that_no_gpu_can_draw_are_in_doubt_and_pooled_with_others():
    """Convolutions at 1023 W, for a GPU that may draw 1.6 times 500 W while a kernel runs."""
    sound, run = analyse(loader()), analyse(loader(500.0))
    assert max(powers(sound)) > 1.6 * 500.0
    assert run.result("powers_possible").value < 1e-3
    assert CHECK not in [one["check"] for one in trust_of(run)["failed"]], "the whole is as good as before"
    assert CHECK not in fact_of(run, "Passed")
    (warned,) = [one.message for one in run.warnings if one.code == DOUBTFUL]
    assert "0 to 800 W" in warned
    assert trust_of(run)["checks"] == trust_of(sound)["checks"] - 1
    assert marked(run)
    assert not marked(sound)
    assert max(powers(run)) <= 800.0
    assert any("together" in unit["name"] for unit in run.units.to_pylist())
    for metric in ("energy_total_j", "closure_kernels"):
        assert run.result(metric).value == pytest.approx(sound.result(metric).value, rel=1e-9)
    again = analyse(replace_limits(run, 700.0))
    assert not [warning for warning in again.warnings if warning.code == "powers_doubtful"]


def replace_limits(run, limit_w):
    run.devices = loader(limit_w).devices
    return run


def test_a_run_of_an_earlier_version_does_not_claim_the_check():
    assert CHECK not in fact_of(loader(path="tests/data/older/loader-run-h100.zip"), "Passed")


@pytest.mark.samples
@pytest.mark.slow
@pytest.mark.skipif(not PROGRAMS.is_dir(), reason="no recorded programs beside the repository")
@pytest.mark.parametrize("name", ["jax_train", "chain", "lora_accum", "mamba_infer", "moe", "whisper"])
def test_recorded_programs_have_powers_that_can_be(name):
    """In training with JAX kernels run in fixed order: without a prior from other programs one came out at 1510 W."""
    run = analyse(jt.load(PROGRAMS / f"{name}.zip"))
    assert run.result("powers_possible").value > 1e-2
    assert CHECK in fact_of(run, "Passed")
    assert all(0.0 <= watts <= 1.6 * 700.0 for watts in powers(run))


def many_kinds(seed, seconds=15.0):
    """A recording of 60 to 120 kinds of kernels of 5 to 150 us in fixed order, with pauses."""
    rng = np.random.default_rng([seed, 77])
    sensor = SamplingSensor.draw(rng, seconds)
    kinds = draw_kinds(rng, int(rng.integers(60, 120)), 5e3, 150e3)
    scene = lay_out(with_pauses(rng, fixed_order(rng, seconds, kinds)), seconds)
    return simulate(rng, scene, Board.draw(rng, len(kinds), seconds), sensor)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["eager", "overlap", "many kinds"])
def test_powers_of_simulated_programs_are_possible(group):
    """Of six recordings of each none may fail, where one in a thousand does (chance of one in all: 2 %)."""
    for seed in range(6):
        _, recording, truth = many_kinds(seed) if group == "many kinds" else draw(seed, group, seconds=10.0)
        rate = truth.sensor.rate_hz
        readings = on_grid(recording.rows[:, 0] * 1000, recording.rows[:, 1] / 1e3)
        kinds = [Kind(*of) for of in zip(recording.names, recording.operators, recording.modules, strict=True)]
        activity = activity_of(recording.start_ns, recording.end_ns, recording.kind, kinds, readings.origin_ns)
        sensor = replace(HOPPER_SENSOR, rates_hz=(rate - 1.5, rate + 1.5))
        found, _ = trusted(activity, [sensor], readings, len(recording.kind), 0)
        assert check_powers(recorded_of(found.fit).rows(), 1.6 * 700.0).passed
