"""Operators repeated in place: copies show the power of kernels, and draw nearly what they draw."""

from dataclasses import replace

import numpy as np
import pytest

from energy_tables import Rows, energy_table
from jouletrace.analysis import by_operator
from jouletrace.attribution import Kind, activity_of
from jouletrace.attribution.lock import lock
from jouletrace.sensor import HOPPER_SENSOR, on_grid
from jouletrace.simulator import SamplingSensor
from scenarios import simulate
from simulated_power import Board
from simulated_programs import from_timeline

KINDS, LENGTH_NS, GAP_NS, SECONDS = 8, 20_000, 2_000, 20.0
APART = 0.03
"""How far the powers of copies are from those of their kernels, up or down: 4 % of what these draw above idle, the most
that was recorded."""


@pytest.fixture(scope="module")
def recorded():
    """Eight short kernels in fixed order, one of them repeated; copies are kinds of their own, and truth by kind."""
    rng = np.random.default_rng(11)
    drawn = rng.integers(0, KINDS, 14_000)
    kind = []
    for which in drawn:
        order = np.arange(KINDS)
        copies = np.full(int(rng.choice([14, 44])), KINDS + which)
        kind.append(np.insert(order, which + 1, copies))
    kind = np.concatenate(kind)
    start = 1_700_000_000_000_000_000 + np.cumsum(np.full(len(kind), LENGTH_NS + GAP_NS)) - LENGTH_NS
    keep = start < start[0] + SECONDS * 1e9
    start, kind = start[keep], kind[keep]
    own = rng.uniform(300, 800, KINDS)
    copied = own * (1 + APART * np.where(np.arange(KINDS) % 2, 1, -1))
    names = [f"k{i}" for i in range(KINDS)] + [f"k{i}#" for i in range(KINDS)]
    scene = from_timeline(start, np.full(len(start), LENGTH_NS), kind, names, np.append(own, copied))
    drawn_board = Board.draw(rng, len(names), SECONDS)
    twice = {name: np.tile(getattr(drawn_board, name)[:KINDS], 2) for name in ("head", "head_ns", "tail", "tail_ns")}
    board = replace(drawn_board, after=np.zeros((len(names), len(names))), **twice)  # copies differ by APART alone
    _, recording, truth = simulate(rng, scene, board, SamplingSensor.draw(rng, SECONDS))
    return recording, truth


def made(recording, truth):
    readings = on_grid(recording.rows[:, 0] * 1000, recording.rows[:, 1] / 1e3)
    kinds = [Kind(f"k{i}", f"k{i}") for i in range(KINDS)] + [Kind(f"k{i}", f"k{i}", repeat=True) for i in range(KINDS)]
    activity = activity_of(recording.start_ns, recording.end_ns, recording.kind, kinds, readings.origin_ns)
    near = (truth.sensor.rate_hz - 3, truth.sensor.rate_hz + 3)
    return lock(activity, replace(HOPPER_SENSOR, rates_hz=near), readings).fit


@pytest.fixture(scope="module")
def fitted(recorded):
    return made(*recorded)


def errors(fit, truth):
    """Of each operator's energy: error and half-width, relative to what its own kernels drew."""
    rows = Rows(fit, by_operator)
    found = [rows.row([name]).energy for name in rows.names[:KINDS]]
    true = np.array([truth.operator_j[f"k{i}"] for i in range(KINDS)])
    return np.array([e.value for e in found]) / true - 1, np.array([e.half_width for e in found]) / true


@pytest.mark.thorough
def test_energies_are_of_kernels_alone_and_hold_what_copies_differ_by(recorded, fitted):
    error, half = errors(fitted, recorded[1])
    assert (np.abs(error) <= half).sum() >= KINDS - 1
    assert half.max() < 0.2


@pytest.mark.thorough
def test_repeats_are_in_no_row(fitted):
    activity = fitted.activity
    own = sum(activity.seconds[k] for k, copied in enumerate(activity.repeated) if not copied)
    table = energy_table(fitted, by_operator)
    assert sum(row.seconds for row in table[:-1]) == pytest.approx(own, rel=1e-9)
    assert {name for row in table[:-1] for name in row.names} <= {f"k{i}" for i in range(KINDS)}
