"""A stored division of energy: sums of rows with their covariance, on disk and back."""

import numpy as np
import pytest

from jouletrace.errors import BadInputError
from jouletrace.known_secrets import MASK
from jouletrace.run import divisions_of, load, save, tables
from jouletrace.run.division import VARIATION, Division, Powers
from jouletrace.run.paths import PathStep
from make_runs import GPU, profile_run

ROOT = np.array([[5.0, 0.0, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
"""Two kinds known to 5 W each, of which 3 W are one error, and idle known to 1 W."""


NOT_NEGATIVE = ("own", "overlapped", "most_w", "prior_w", "varies_w", "scatter_w", "coverage")
"""Columns of powers; a regression may find a power below zero, which then is not resolved."""


def powers(**changes):
    facts = {
        "watts": np.array([500.0, 300.0, 100.0]),
        "own": np.ones(3),
        "overlapped": np.zeros(3),
        "most_w": np.full(3, 800.0),
        "prior_w": np.full(3, 300.0),
        "tracing_w": np.zeros(3),
        "varies_w": np.zeros(3),
        "scatter_w": np.zeros(3),
        "readings": 77,
        "coverage": 2.0,
        "root": ROOT,
        "causes": {"noise": 0.36 * np.eye(3), "drift": np.eye(3)},
        "gained": 0.05 * np.eye(3),
    }
    return Powers(**facts | changes)


def divided(*rows):
    """Units, kinds and seconds as a table."""
    names = "unit", "kind", "seconds"
    return tables.from_rows([dict(zip(names, row, strict=True)) for row in rows], "divided")


def division(count=12, **changes):
    """Equal layers of 10 ms each, whose kernels are all of one kind; then another kernel, and idle."""
    paths = [(PathStep("module", "layer"), PathStep("module", str(i)), PathStep("op", "mm")) for i in range(count)]
    paths += [(PathStep("op", "add"),), (PathStep("idle", "idle"),)]
    table = divided(*count * [(1, 0, 0.01)], (2, 1, 0.02), (3, 2, 0.03))
    return Division("gpu", powers(**changes), "not_resolved", table, paths)


def by(kind, found):
    return found.grouped([tuple(step for step in path if step.kind == kind)] for path in found.path)


def test_equal_layers_are_known_as_badly_together_as_each():
    """Errors of one power add up: in quadrature one would say 0.35 J."""
    found = division()
    layers = by("module", found)
    each = [found.energy(seconds) for path, seconds in layers.items() if path]
    together = found.energy(sum(seconds for path, seconds in layers.items() if path))
    assert len(each) == 12
    assert together.value == pytest.approx(12 * 5.0)
    assert [one.half_width for one in each] == pytest.approx([2 * 0.05] * 12)
    assert together.half_width == pytest.approx(12 * 2 * 0.05)


def test_rows_of_any_grouping_add_up_to_the_whole():
    found = division()
    whole = found.energy(found.grouped([[None]] * len(found.table))[None])
    assert whole.value == pytest.approx(0.12 * 500 + 0.02 * 300 + 0.03 * 100)
    assert whole.half_width == pytest.approx(2 * np.linalg.norm(np.array([0.12, 0.02, 0.03]) @ ROOT))
    for kind in ("module", "op", "idle"):
        groups = by(kind, found)
        assert sum(found.energy(one).value for one in groups.values()) == pytest.approx(whole.value)
        assert sum(groups.values()) == pytest.approx(np.array([0.12, 0.02, 0.03, 0.0]))


def test_the_budget_of_a_sum_makes_its_interval_by_cause():
    energy = division(tracing_w=np.array([3.0, 2.0, 0.0])).energy(np.array([0.1, 0.0, 0.0, 0.0]))
    assert energy.budget == {"noise": pytest.approx(0.3), "drift": pytest.approx(0.4), "tracing": pytest.approx(0.3)}
    assert energy.half_width == pytest.approx(np.hypot(2 * 0.5, 1.959964 * 0.3))


def test_a_cause_that_adds_nothing_is_no_term_of_a_budget():
    """Its share may be smaller than that of the cause before it, by rounding."""
    causes = {"noise": 0.36 * np.eye(3), "drift": 0.3 * np.eye(3), "samples": np.eye(3)}
    energy = division(causes=causes).energy(np.array([0.1, 0.0, 0.0, 0.0]))
    assert energy.budget == {"noise": pytest.approx(0.3), "samples": pytest.approx(0.4)}
    assert energy.half_width == pytest.approx(2 * 0.5)


def test_what_tracing_changes_is_one_error_of_all_kernels_and_none_of_idle():
    scaled = Division("gpu", powers().scaled(0.9, 0.02), "", divided())
    both, idle = scaled.energy(np.array([0.1, 0.1, 0.0, 0.0])), scaled.energy(np.array([0.0, 0.0, 0.1, 0.0]))
    assert both.value == pytest.approx(0.9 * 80)
    assert both.budget["tracing"] == pytest.approx(80 * 0.02 / 1.959964)
    assert (idle.value, "tracing" in idle.budget) == (pytest.approx(10.0), False)


def test_some_kernels_of_a_kind_may_draw_another_power_than_all():
    """Together by one error, and each by itself; all of a kind draw the power that was measured."""
    rows = divided((1, 0, 0.1), (1, 0, 0.3), (2, 1, 0.1), (3, 2, 0.2))
    uneven = powers(varies_w=np.array([20.0, 10.0, 0.0]), scatter_w=np.array([3.0, 2.0, 0.0]))
    found, even = Division("gpu", uneven, "", rows), Division("gpu", powers(), "", rows)
    some, every = np.array([0.1, 0.05, 0.1, 0.0]), np.array([0.4, 0.1, 0.2, 0.0])
    together, each = 0.1 * 0.75 * 20 + 0.05 * 0.5 * 10, np.sqrt(0.1 * 0.75 * 9 + 0.05 * 0.5 * 4)
    assert found.energy(some).budget[VARIATION] == pytest.approx(np.hypot(together, each))
    half = found.energy(some).half_width
    assert half == pytest.approx(np.hypot(even.energy(some).half_width, 1.959964 * np.hypot(together, each)))
    assert found.energy(every) == even.energy(every)


def test_a_scaled_division_has_scaled_energies_of_the_same_relative_errors():
    """Of a step, or of a mean of several runs: the kernels are the same share of all of their kind."""
    rows = divided((1, 0, 0.1), (1, 0, 0.3), (2, 1, 0.1), (3, 2, 0.2))
    whole = Division("gpu", powers(varies_w=np.full(3, 20.0), scatter_w=np.full(3, 3.0)), "", rows)
    step, some, every = whole.scaled(0.01), np.array([0.1, 0.05, 0.1, 0.0]), np.array([0.4, 0.1, 0.2, 0.0])
    of_step, of_whole = step.energy(0.01 * some), whole.energy(some)
    assert of_step.value == pytest.approx(0.01 * of_whole.value)
    assert of_step.half_width == pytest.approx(0.01 * of_whole.half_width)
    assert of_step.budget == pytest.approx({cause: 0.01 * sd_j for cause, sd_j in of_whole.budget.items()})
    assert VARIATION not in step.energy(0.01 * every).budget
    assert Division("gpu", None, "no_power", rows).scaled(0.01).energy(every).reason == "no_power"


def test_powers_of_an_older_version_say_nothing_of_some_kernels_of_a_kind(tmp_path):
    run = profile_run(kernels=4)
    run.powers = run.powers.drop_columns(["varies_w", "scatter_w"])
    run.powers = tables.conform(run.powers, "powers")
    (found,) = divisions_of(load(save(run, tmp_path / "run.zip")))
    assert VARIATION not in found.energy(np.array([0.1, 0.0, 0.0, 0.0])).budget


@pytest.mark.parametrize(
    ("changes", "seconds", "reason"),
    [
        ({}, [0.1, 0.0, 0.0, 0.002], "no power"),
        ({}, [0.1, 0.0, 0.0, 0.0009], None),
        ({"gained": -np.eye(3)}, [0.1, 0.0, 0.0, 0.0], "not_resolved"),
        ({"gained": -np.eye(3)}, [0.0, 0.0, 0.1, 0.0], None),
        ({"root": 26 * ROOT}, [0.1, 0.0, 0.0, 0.0], "not_resolved"),
        ({"most_w": np.full(3, 400.0)}, [0.1, 0.0, 0.0, 0.0], "not_resolved"),
        ({"watts": np.array([-1.0, 300.0, 100.0])}, [0.1, 0.0, 0.0, 0.0], "not_resolved"),
        ({}, [0.0, 0.0, 0.0, 0.0], "not_resolved"),
    ],
    ids=["unknown power", "little of it", "prior alone", "idle by its prior", "wide", "impossible", "negative", "none"],
)
def test_what_the_readings_do_not_resolve_is_null_with_a_reason(changes, seconds, reason):
    found = Division("gpu", powers(**changes), "no power", divided())
    energy = found.energy(np.array(seconds))
    assert energy.reason == reason
    assert found.energy(np.array(seconds), remainder=True).value is not None, "what is left has that of known powers"
    only_unknown = [0.0, 0.0, 0.0, 0.1]
    assert found.energy(np.array(only_unknown), remainder=True).reason == "no power"


def test_a_division_without_powers_says_why():
    found = Division("gpu", None, "not_attributed", divided((1, None, 0.1)))
    (seconds,) = found.grouped([["all"]]).values()
    assert found.energy(seconds).reason == "not_attributed"


def test_a_saved_division_is_the_same_and_its_shares_to_a_ten_thousandth(tmp_path):
    run = profile_run(kernels=4)
    (before,) = divisions_of(run)
    again = load(save(run, tmp_path / "run.zip"))
    (after,) = divisions_of(again)
    assert (after.device, after.table, after.path) == (GPU, before.table, before.path)
    assert len(after.table) == 4
    for kinds in ([1, 0, 0, 0], [0.2, 0.7, 0, 0], [0.5, 0.5, 0.1, 0]):
        one, other = (found.energy(np.array(kinds, float)) for found in (before, after))
        assert other == one
        assert other.budget == pytest.approx(one.budget, abs=2e-4 * one.half_width)


def test_names_of_what_ran_are_masked_as_those_of_units(tmp_path, monkeypatch):
    run = profile_run(kernels=2)
    secret = "hunter2hunter2"
    names = [f"{row['module']}.{secret}" if row["op"] else row["module"] for row in run.units.to_pylist()]
    run.units = tables.changed(run.units, "module", names)
    monkeypatch.setenv("MY_PASSWORD", secret)
    (found,) = divisions_of(load(save(run, tmp_path / "run")))
    texts = [step.name for path in found.path for step in path]
    assert not any(secret in text for text in texts)
    assert any(MASK in text for text in texts)


@pytest.mark.parametrize("secret", ["noise of the readings", "gained"])
def test_a_password_that_is_the_name_of_a_cause_closes_no_run(tmp_path, monkeypatch, secret):
    monkeypatch.setenv("MY_PASSWORD", secret)
    (before,) = divisions_of(run := profile_run(kernels=2))
    (after,) = divisions_of(load(save(run, tmp_path / "run")))
    assert list(after.powers.causes) == list(before.powers.causes)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        ("divided", {"unit": 77}, "it has a unit 77, which is not there"),
        ("divided", {"kind": 3}, "it has a kind 3, which is not there"),
        ("divided", {"kind": -1}, "divided.parquet is damaged: row 0: kind is below zero"),
        ("divided", {"seconds": -1.0}, "divided.parquet is damaged: row 0: seconds is below zero"),
        ("divided", {"device": "other"}, "it has a device other, which is not there"),
        ("divided", {"site": 77}, "divided.parquet is damaged: row 0: it has a site 77, which is not there"),
        ("divided", {"seconds": 0.04}, "row 0: with others of unit 2 it takes 0.04 s, which in results.parquet takes"),
        ("divided", {"seconds": 0.0}, "row 0: with others of unit 2 it takes 0 s, which in results.parquet takes"),
        ("powers", {"device": "other"}, "row 0: divided.parquet has no row of its device other"),
        ("errors", {"device": "other"}, "row 0: divided.parquet has no row of its device other"),
        *(("powers", {name: -1.0}, f"powers.parquet is damaged: row 0: {name} is below zero") for name in NOT_NEGATIVE),
        ("powers", {"own": float("nan")}, "powers.parquet is damaged: row 0: own is below zero, or no number"),
        ("powers", {"coverage": float("nan")}, "row 0: coverage is below zero, or no number"),
        ("powers", {"coverage": 2.5}, "one kind has a coverage of 2.5, another of 2.0: it is one of all"),
        ("powers", {"readings": 5}, "one kind has a readings of 5, another of 77"),
        ("powers", {"kind": 5}, "its powers are not of kinds 0, 1, 2 and so on"),
        ("powers", {"watts": float("nan")}, "a power or an error is no number"),
        ("powers", {"watts": 1.7e308}, "a power or an error is no number, or beyond any of a GPU"),
        ("powers", {"coverage": None}, "powers.parquet is damaged: row 0: it has no coverage"),
        ("errors", {"matrix": "gained"}, "its errors have 7 values of 'gained', not those of 3 kinds"),
        ("errors", {"value": float("inf")}, "a power or an error is no number"),
    ],
)
def test_a_damaged_or_contradictory_division_is_refused_in_one_line(tmp_path, table, change, said):
    run = profile_run(kernels=2)
    folder = save(run, tmp_path / "run")
    first, *rest = run.table(table).to_pylist()
    setattr(run, table, tables.from_rows([first | change, *rest], table))
    with pytest.raises(BadInputError, match=said.replace(".", r"\.")) as refused:
        save(run, tmp_path / "never")
    assert "\n" not in str(refused.value)
    tables.write(run.table(table), table, folder / f"{table}.parquet")
    with pytest.raises(BadInputError, match=said.replace(".", r"\.")):
        load(folder)


@pytest.mark.thorough
def test_powers_of_absurdly_many_kinds_are_refused_at_once(tmp_path):
    """Their covariance would take terabytes."""
    run = profile_run(kernels=2)
    folder = save(run, tmp_path / "run")
    first = run.powers.to_pylist()[0]
    many = tables.from_rows([first | {"kind": i} for i in range(100_000)], "powers")
    tables.write(many, "powers", folder / "powers.parquet")
    with pytest.raises(
        BadInputError, match="its errors have 6 values of 'noise of the readings', not those of 100000 kinds"
    ):
        load(folder)
    run.errors = tables.from_rows([{"device": GPU, "matrix": str(i), "value": 1.0} for i in range(100_000)], "errors")
    with pytest.raises(BadInputError, match="errors are of 100000 matrices"):
        save(run, tmp_path / "never")


def test_powers_whose_errors_are_gone_are_refused(tmp_path):
    folder = save(profile_run(kernels=2), tmp_path / "run")
    tables.write(tables.empty("errors"), "errors", folder / "errors.parquet")
    with pytest.raises(BadInputError, match="errors are of 0 matrices"):
        load(folder)


def test_powers_that_are_gone_are_what_is_refused(tmp_path):
    folder = save(profile_run(kernels=2), tmp_path / "run")
    tables.write(tables.empty("powers"), "powers", folder / "powers.parquet")
    with pytest.raises(BadInputError, match=r"powers\.parquet is missing, or has no row of GPU-"):
        load(folder)


def test_a_power_below_zero_is_stored_and_has_no_energy(tmp_path):
    run = profile_run(kernels=2)
    first, *rest = run.powers.to_pylist()
    run.powers = tables.from_rows([first | {"watts": -40.0}, *rest], "powers")
    (found,) = divisions_of(load(save(run, tmp_path / "run")))
    assert found.energy(np.array([0.1, 0.0, 0.0, 0.0])).reason == "not_resolved"
