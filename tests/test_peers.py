"""The truths of ``benchmarks/peers_errors.py``: of a GPU of known power they are its energies."""

import sys

import numpy as np
import pytest

from places import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))
import peers_errors

S = 1_000_000_000


def section(edges_s, watts, until_s, seed=0, **more):
    """Steps of a counter that steps each 0.1 s, polled every 2 ms, on a GPU that draws a power from each edge on."""
    at = np.arange(0.05, until_s, 0.1)
    joules = np.interp(at, [*edges_s, until_s], np.append(0, np.cumsum(np.diff([*edges_s, until_s]) * watts)))
    middle = at + np.random.default_rng(seed).uniform(-0.001, 0.001, len(at))
    steps = (
        np.stack([middle * 1e6, np.full(len(at), 2000.0), (joules - joules[0]) * 1e3], 1).round().astype(int).tolist()
    )
    return {"steps": steps, **more}


def row(called_s, start_s, end_s, through_s, **more):
    return {"tool": "one", "at": [round(one * S) for one in (called_s, start_s, end_s, through_s)], **more}


def test_a_block_of_a_training_that_pauses_while_tools_begin_and_end():
    rests = [(2 + 0.14 * i + 0.1, 2 + 0.14 * (i + 1)) for i in range(12)]
    idle = [*rests, (5.0, 5.04), (6.04, 6.05), (7.0, 7.001), (12.0, 12.1)]
    edges, watts = [0.0], [400.0]
    for begin, end in idle:
        edges += [begin, end]
        watts += [120.0, 400.0]
    waits = {"from": 2 * S, "to": round(rests[-1][1] * S), "rest": [[round(a * S), round(b * S)] for a, b in rests]}
    rows = [row(5.0, 5.04, 6.04, 6.05), row(7.0, 7.001, 12.0, 12.1)]
    truths = peers_errors.of_training(section(edges, watts, 14.0, rows=rows, waits=waits))
    assert [true for true, _ in truths] == pytest.approx([400.0, 1999.6], rel=0.004)
    assert all(abs(true - exact) < 3 * sd for (true, sd), exact in zip(truths, (400.0, 1999.6), strict=True))


def test_a_burst_inside_lighter_work_is_what_cycles_with_it_take_more():
    edges, watts, groups, now = [0.0], [200.0], [], 1.0
    for count in (0, 20, 60, 60, 0, 20, 20, 60, 0):
        group = {"count": count, "from": round(now * S), "bursts": []}
        for _ in range(5):
            began, ended = now + 0.15, now + 0.15 + count / 1000
            group["bursts"].append([round(began * S), round(ended * S)])
            if count:
                edges += [began, ended]
                watts += [650.0, 200.0]
            now = ended + 0.15
        groups.append(group | {"to": round(now * S)})
    truths = peers_errors.of_cycles(section(edges, watts, now + 1, groups=groups))
    assert {count: round(true, 1) for count, (true, _) in truths.items()} == {
        20: pytest.approx(13.0, abs=0.3),
        60: pytest.approx(39.0, abs=0.3),
    }
    assert all(0 < sd < 0.3 for _, sd in truths.values())


def test_a_block_of_a_steady_load_is_its_power_times_its_length():
    ((true, sd),) = peers_errors.of_steady(section([0.0], [500.0], 5.0, rows=[row(1.0, 1.03, 2.03, 2.04)]))
    assert true == pytest.approx(500.0, abs=3 * sd)
    assert sd < 2.0


def test_steps_shown_late_are_put_on_their_grid():
    made = section([0.0, 2.0, 3.0], [100.0, 500.0, 100.0], 6.0)
    for number in (4, 21, 33, 34, 50):
        made["steps"][number][0] += 15_000
        made["steps"][number][1] = 25_000
    rows = [row(2.0, 2.01, 2.99, 3.0), row(3.5, 3.6, 4.6, 4.61)]
    steps = peers_errors.steps_of(made)
    assert (steps.time_ns + steps.before_ns) / 2e9 == pytest.approx(np.arange(0.05, 6.0, 0.1), abs=0.001)
    read_j = peers_errors.window_j(made, *(np.array([one["at"][which] for one in rows]) for which in (1, 2)))
    assert read_j == pytest.approx([480.0, 100.0], abs=1)


def test_less_power_after_a_burst_is_measured_from_cycles():
    edges, watts, groups, now = [0.0], [450.0], [], 1.0
    for count in (0, 59, 0, 59, 59):
        group = {"count": count, "from": round(now * S), "bursts": []}
        for _ in range(12):
            began, ended = now + 0.17, now + 0.26
            group["bursts"].append([round(began * S), round(ended * S)])
            if count:
                edges += [began, ended, ended + 0.2]
                watts += [850.0, 400.0, 450.0]
            now = ended + 0.233
        groups.append(group | {"to": round(now * S)})
    lowered, sd = peers_errors.lowered_j(section(edges, watts, now + 1, groups=groups), 59)
    assert lowered == pytest.approx(10.0, abs=0.2)
    assert 0 < sd < 0.2
