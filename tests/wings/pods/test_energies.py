"""Energies of pods against what a simulated GPU drew while they held it, by answers every two seconds."""

from itertools import groupby

import numpy as np
import pytest

from jouletrace import analysis
from jouletrace.profiler.monitoring.monitor import monitor
from jouletrace.run import tables
from jouletrace.simulator.boards import SimulatedGpu

EVERY_S = 2.0
NO_POD = "no pod known"
A, B, C = "default/a/main", "default/b/main", "team/c/main"


def answered(pods, start_ns, phase_s, until_s, silent=(0.0, 0.0)):
    """Spans by answers from ``phase_s`` on: one for those that held a GPU from the first answer that names them."""
    times = [at for at in np.arange(phase_s, until_s, EVERY_S) if not silent[0] <= at < silent[1]]
    named = [(at, {name for name, (begin, end) in pods if begin <= at < end} or {NO_POD}) for at in times]
    rows = []
    for names, some in groupby(named, key=lambda answer: answer[1]):
        edges = [start_ns + round(at * 1e9) for at, _ in some]
        name = " + ".join(sorted(names))
        span = {"id": None, "kind": "range", "name": name, "lane": "pods"}
        rows.append({**span, "start_ns": edges[0], "end_ns": edges[-1]})
    return rows


def monitored(pieces, pods, seed, **how):
    """A Run of a load of (seconds, watts) with spans of pods of (name, (from, to)), in s, and the truth of a time."""
    load = ",".join(f"{seconds:g}:{watts:g}" for seconds, watts in pieces)
    device = SimulatedGpu(f"sim:h100?seed={seed}&load={load}")
    start_ns, total_s = device.clock.time_ns(), sum(seconds for seconds, _ in pieces)
    run = monitor([device], duration_s=total_s)
    (phase,) = (row for row in run.spans.to_pylist() if row["kind"] == "phase")
    rows = answered(pods, start_ns, how.pop("phase_s", 0.7), total_s, **how)
    rows = [{**row, "device": device.info.id} for row in rows]
    run.spans = tables.concat([run.spans, tables.from_rows(rows, "spans")], "spans")
    run.workload["pods"] = {"every_s": EVERY_S}
    analysis.analyse(run)

    def truth(begin_s, end_s):
        edges = (start_ns + round(at * 1e9) for at in (begin_s, end_s))
        return device.truth.energy_j(*(min(max(at, phase["start_ns"]), phase["end_ns"]) for at in edges))

    return run, truth


def energies(run):
    return {
        row["name"]: run.result("energy_total_j", row["id"]) for row in run.units.to_pylist() if row["level"] == "range"
    }


def holds(energy, truth):
    return energy.low <= truth <= energy.high


@pytest.mark.thorough
def test_pods_that_follow_one_another_have_their_energies():
    within, widths = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        lasted = rng.uniform(8, 40, 3)
        pieces = [(5.0, 90.0), (lasted[0], 520.0), (4.0, 90.0), (lasted[1], 310.0), (lasted[2], 640.0), (6.0, 90.0)]
        edges = np.cumsum([seconds for seconds, _ in pieces])
        pods = [(A, (edges[0], edges[1])), (B, (edges[2], edges[3])), (C, (edges[3], edges[4]))]
        run, truth = monitored(pieces, pods, seed, phase_s=rng.uniform(0, EVERY_S))
        each, true = energies(run), {name: truth(*times) for name, times in pods}
        true[NO_POD] = truth(0, edges[-1]) - sum(true.values())
        assert set(each) == set(true)
        within += [holds(each[name], joules) for name, joules in true.items()]
        widths += [each[name].half_width / 600 for name, _ in pods]
        assert sum(energy.value for energy in each.values()) == pytest.approx(
            run.result("energy_total_j", 1).value, rel=1e-3
        )
    assert np.mean(within) >= 0.95
    assert max(widths) < 1.1 * EVERY_S  # half an interval between answers at either edge, and no more


@pytest.mark.thorough
def test_pods_on_one_gpu_have_its_energy_together_and_no_share():
    pieces, pods = [(40.0, 400.0)], [(A, (4.0, 30.0)), (B, (16.0, 36.0))]
    run, truth = monitored(pieces, pods, 3)
    each = energies(run)
    assert set(each) == {A, B, f"{A} + {B}", NO_POD}
    assert holds(each[A], truth(4, 16))
    assert holds(each[f"{A} + {B}"], truth(16, 30))
    assert holds(each[B], truth(30, 36))


@pytest.mark.thorough
def test_a_pod_that_is_there_before_and_after_a_silence_is_taken_to_be_there_in_it():
    run, truth = monitored([(60.0, 300.0)], [(A, (4.0, 52.0))], 4, silent=(15.0, 40.0))
    assert holds(energies(run)[A], truth(4, 52))
    assert energies(run)[A].half_width < 2 * 300 * EVERY_S


@pytest.mark.thorough
def test_a_change_in_a_silence_is_all_that_the_gpu_took_in_it_uncertain():
    run, truth = monitored(
        [(30.0, 300.0), (30.0, 500.0)], [(A, (0.0, 18.0)), (B, (18.0, 60.0))], 5, silent=(15.0, 40.0)
    )
    each = energies(run)
    for name, times in ((A, (0, 18)), (B, (18, 60))):
        assert holds(each[name], truth(*times))
        assert each[name].high - each[name].low > truth(15, 40)
        assert "pods_edges" in each[name].flags


@pytest.mark.thorough
def test_a_pod_that_one_answer_names_has_an_energy_that_may_be_small():
    run, truth = monitored([(20.0, 300.0)], [(A, (8.5, 9.5))], 6, phase_s=1.0)
    energy = energies(run)[A]
    assert holds(energy, truth(8.5, 9.5))
    assert energy.low < 100
    assert energy.value == pytest.approx(300 * EVERY_S, rel=0.05)


def test_a_run_in_which_the_kubelet_never_answered_has_no_pod():
    run, truth = monitored([(10.0, 300.0)], [], 7, silent=(0.0, 10.0))
    assert list(energies(run)) == [NO_POD]
    assert holds(energies(run)[NO_POD], truth(0, 10))
