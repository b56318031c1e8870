"""Energies of simulated power: every joule has one owner, and each effect does what it is for."""

from dataclasses import replace

import numpy as np
import pytest

from simulated_power import CLOCK_EXPONENT, Board, play
from simulated_programs import draw_kinds, from_timeline, lay_out, overlapping, varied_order

BEGIN = 1_790_000_000_000_000_000


def scene_of(*kernels, powers=(524.0, 324.0), idle_w=124.0):
    """A scene of (start in µs, length in µs, kind)."""
    start, length, kind = np.array(kernels).T
    names = [f"k{i}" for i in range(len(powers))]
    return from_timeline(BEGIN + start * 1_000, length * 1_000, kind, names, powers, idle_w)


def ideal(**changes):
    return replace(Board.ideal(2), **changes)


def run(scene, board, seed=0):
    return play(np.random.default_rng(seed), scene, board)


@pytest.mark.thorough
def test_ideal_kernels_draw_their_power():
    _, power, drawn = run(scene_of((0, 1_000, 0), (1_500, 2_500, 1)), ideal())
    assert drawn.kernel_j == pytest.approx([0.524, 0.81], rel=1e-9)
    assert drawn.idle_j == pytest.approx(124 * (0.8005), rel=1e-9)
    assert drawn.idle_s == pytest.approx(0.8005)
    assert power.joules[-1] == pytest.approx(0.524 + 0.81 + drawn.idle_j, rel=1e-12)


def test_kernels_at_once_share_equally_and_draw_less_than_the_sum():
    scene = scene_of((0, 1_000, 0), (600, 1_000, 1))
    _, _power, drawn = run(scene, ideal(overlap=0.9))
    both = 124 + 0.9 * (400 + 200)
    assert drawn.kernel_j == pytest.approx([0.6e-3 * 524 + 0.2e-3 * both, 0.6e-3 * 324 + 0.2e-3 * both], rel=1e-9)
    _, _, clipped = run(scene, ideal(overlap=0.9, ceiling_w=500.0))
    assert clipped.kernel_j.sum() - drawn.kernel_j.sum() == pytest.approx(0.4e-3 * (500 - 540), rel=1e-9)


def test_head_and_tail_differ_from_the_middle():
    two = np.ones(2)
    board = ideal(head=1.4 * two, head_ns=30e3 * two, tail=0.5 * two, tail_ns=60e3 * two)
    _, power, drawn = run(scene_of((0, 1_000, 0)), board)
    assert drawn.kernel_j[0] == pytest.approx(0.124 + 0.4 * (0.91 + 1.4 * 0.03 + 0.75 * 0.03 + 0.5 * 0.03), rel=1e-9)
    since = 400e6 + np.array([15e3, 500e3, 955e3, 985e3])
    assert power.mean_w(since - 1e3, since + 1e3) == pytest.approx([684, 524, 424, 324])


def test_a_slower_clock_takes_longer_and_draws_less():
    scene = scene_of(*[(1_000 * i, 500, 0) for i in range(1_000)])
    ran, _power, drawn = run(scene, ideal(regimes=((0.0, 1.0), (0.9, 0.8))))
    lasted = ran.end_ns - ran.start_ns
    assert lasted[0] == 500_000
    assert lasted[-1] == pytest.approx(500_000 / 0.8, abs=2)
    assert ran.start_ns[-1] - ran.end_ns[-2] == pytest.approx(500_000, abs=2)
    assert drawn.kernel_j[-1] / lasted[-1] * 1e9 == pytest.approx(124 + 400 * 0.8**CLOCK_EXPONENT)


def test_the_cap_segments_kernels_and_swings():
    scene = scene_of(*[(1_000 * i, 990, 0) for i in range(20_000)], powers=(900.0, 900.0))
    ran, power, _ = run(scene, ideal(limit_w=600.0))
    assert np.mean(ran.end_ns - ran.start_ns) > 1.1 * 990_000
    each_ms = np.arange(1.0e9, power.length_ns - 1.0e9, 1e6)
    watts = power.mean_w(each_ms, each_ms + 1e6)
    assert watts.mean() == pytest.approx(600, rel=0.03)
    assert watts.std() == pytest.approx(40, rel=0.3)
    lagged = np.corrcoef(watts[:-60], watts[60:])[0, 1]
    assert 0.15 < lagged < 0.6
    since_load = 400e6 + np.array([0, 20e6, 40e6, 120e6])
    early = power.mean_w(since_load, since_load + 15e6)
    assert early[:3] == pytest.approx(np.full(3, 124 + 776 * 0.99), rel=0.01)  # the governor acts late
    assert early[3] < 720


def test_other_processes_are_accounted_apart():
    scene = scene_of((0, 1_000, 0), (200_000, 1_000, 0))
    _, alone, quiet = run(scene, ideal())
    _, shared, drawn = run(scene, ideal(foreign=((0.45, 0.55, 80.0),)))
    assert drawn.foreign_j == pytest.approx(8.0, rel=0.02)
    assert shared.joules[-1] - alone.joules[-1] == pytest.approx(drawn.foreign_j, rel=1e-9)
    assert np.array_equal(drawn.kernel_j, quiet.kernel_j)


@pytest.mark.parametrize("capped", [np.inf, 400.0])
@pytest.mark.parametrize("streams", [1, 2])
def test_every_joule_has_one_owner(streams, capped):
    rng = np.random.default_rng(3)
    kinds = draw_kinds(rng, 6, 5e3, 1e6)
    plain = lay_out(varied_order(rng, 1.0, kinds), 1.0)
    scene = overlapping(rng, 1.0, kinds) if streams == 2 else plain
    board = replace(Board.draw(rng, 6, 1.0), limit_w=capped, foreign=((0.5, 0.7, 60.0),))
    ran, power, drawn = play(rng, scene, board)
    assert drawn.kernel_j.sum() + drawn.idle_j + drawn.foreign_j == pytest.approx(power.joules[-1], rel=1e-9)
    assert drawn.kernel_j.min() > 0
    assert len(ran) == len(scene)
    assert np.all(ran.end_ns >= ran.start_ns)
