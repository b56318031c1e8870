"""Where the host limits, a profile states work and host apart; simulated hosts have the truth."""

import sys

import numpy as np
import pytest

from covering import fewest
from jouletrace import report
from jouletrace.analysis import analyse, budgets
from jouletrace.campaign import merge
from jouletrace.recording import SCATTER
from jouletrace.report import to_json_object
from jouletrace.run import tables
from jouletrace.stats import student
from late_hosts import late_host, stepped
from places import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import measurands

WORK_J, IDLE_W = 0.8, 120.0


def verdict(run):
    """The verdict of a Run in one line."""
    return " ".join(report.render([run], width=80).split())


def later(run, by_ns):
    """The same Run at another time."""
    columns = {"samples": ["time_ns"], "spans": ["start_ns", "end_ns"], "windows": ["start_ns", "end_ns"]}
    for name, some in columns.items():
        table = run.table(name)
        for column in some:
            table = tables.changed(table, column, (table[column].to_numpy() + by_ns).tolist())
        setattr(run, name, table)
    return run


@pytest.fixture(scope="module")
def late():
    return late_host(scatter=None)[0]


def test_a_late_host_leaves_work_certain(late):
    work, idle, total = (late.result(f"{name}") for name in ("energy_work_j", "power_idle_at_work_w", "energy_total_j"))
    assert work.low < WORK_J < work.high
    assert work.half_width < 0.02 < 0.1 * total.half_width / total.value + 0.02
    assert idle.low < IDLE_W < idle.high
    assert work.value + idle.value * late.result("iteration_time_s").value == pytest.approx(total.value, rel=0.01)


def test_the_headline_separates_work_and_host(late):
    text = verdict(late)
    assert " mJ of work + 120.3 ± 1.4 W × 13.02 ms of this host (10 to 15) = " in text
    assert " J per iteration here (± " in text
    other = to_json_object(late)["model"]["other"]
    assert other["energy_work_j"]["value"] == late.result("energy_work_j").value
    assert other["power_idle_at_work_w"]["value"] == late.result("power_idle_at_work_w").value
    (found,) = (one for one in budgets(late) if one.metric == "energy_work_j")
    offset = next(term for term in found.terms if term.source.startswith("offset"))
    assert offset.u == 0.0, "idle power has the same"


def test_work_of_a_single_profile_holds_the_stored_scatter(late):
    plain, found = late.result("energy_work_j"), late_host()[0].result("energy_work_j")
    term = student(0.975, SCATTER["runs"] - 1) * SCATTER["sd_pct"] / 100 * plain.value
    assert found.half_width == pytest.approx(np.hypot(plain.half_width, term), rel=0.01)


@pytest.mark.thorough
@pytest.mark.parametrize("excess_w", [-3.0, 3.0])
def test_idle_power_that_is_watts_higher_between_iterations_is_in_the_intervals(excess_w):
    """Both of work and of what is above idle power, which was seen in a pause."""
    run = late_host(scatter=None, excess_w=excess_w)[0]
    work, active = (run.result(name) for name in ("energy_work_j", "energy_active_over_context_idle_j"))
    assert work.low < WORK_J < work.high
    assert active.low < WORK_J < active.high
    assert active.half_width < 0.1 * WORK_J


@pytest.mark.thorough
def test_a_steady_host_has_no_work_of_its_own():
    run = stepped(np.arange(5.0, 9.1, 0.5), [400, 420, 390, 410, 430, 405, 415, 395])
    assert run.result("energy_work_j").reason == "not_measured"
    assert "of this host" not in verdict(run)


@pytest.mark.thorough
def test_work_of_several_processes_is_their_mean(late):
    both = analyse(merge([late_host(scatter=None)[0], later(late_host(scatter=None)[0], 10**12)]))
    one, found = late.result("energy_work_j"), both.result("energy_work_j")
    assert found.method == "runs"
    assert found.value == pytest.approx(one.value, rel=1e-3)
    assert found.half_width >= 0.9 * one.half_width, "what a sensor hides is hidden in both"
    assert "of work + 120.3 ± 1.9 W" in verdict(both)


@pytest.mark.thorough
def test_work_is_withdrawn_where_idle_time_does_not_explain_longer_windows():
    """A window draws more the longer it is: by 40 W beyond idle power in the time that the host is late."""
    edges = 5.0 + np.append(0.0, np.cumsum(0.5 + np.random.default_rng(0).uniform(0.0, 0.3, 8)))
    run = stepped(edges, 160.0 + 20.0 / np.diff(edges))
    assert run.result("energy_work_j").reason == "idle_apart"
    assert "of this host" not in verdict(run)


@pytest.mark.thorough
def test_without_idle_time_there_is_no_work():
    run = late_host()[0]
    run.spans = run.spans.filter([row["name"] == "energy" for row in run.spans.to_pylist()])
    assert analyse(run).result("energy_work_j").reason == "idle_unseen"
    assert "of this host" not in verdict(run)


@pytest.mark.slow
def test_intervals_hold_the_work_of_simulated_late_hosts():
    """Of 30 other GPUs all hold; a healthy check in a hundred withdraws one."""
    each = [measurands.of_late_host("h100", seed)["late host, work"] for seed in range(200, 210)]
    found = [(work, truth) for work, truth in each if work.value is not None]
    assert len(found) >= len(each) - 1
    assert sum(work.low <= truth <= work.high for work, truth in found) >= fewest(len(found))
    assert np.median([work.half_width / truth for work, truth in found]) < 0.03
