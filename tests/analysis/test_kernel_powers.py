"""Powers of kinds and pools of them, from energies and covariances that are given."""

from types import SimpleNamespace

import numpy as np
import pytest

from energy_tables import IDLE, Rows
from jouletrace.analysis import by_operator, pools
from jouletrace.attribution import Energies as Joint
from jouletrace.attribution import Kind, activity_of
from jouletrace.attribution import ProgramEnergies as Energies

US = 1000


def given(kernels, kinds, power_w, sd_w, *, bound_w=None, shared=0.36):
    """Rows of kernels (start, end, kind), in us: independent powers of kinds with these errors, idle last.

    Of the variance of kernels ``shared`` is the sensor's; ``bound_w`` are errors if those of readings were independent.
    """
    start, end, kind = (np.array(column) for column in zip(*kernels, strict=True))
    activity = activity_of(start * US, end * US, kind, kinds, 0)
    seconds = activity.seconds[:-1] @ activity.shares
    own_s = np.append(seconds, activity.seconds[-1])
    sd = np.array(sd_w) * own_s
    energy = np.array(power_w) * own_s
    joint = np.diag(np.append(0.0, sd[:-1] ** 2))
    joint[0, 0], joint[0, 1:], joint[1:, 0] = (sd**2).sum(), sd[:-1] ** 2, sd[:-1] ** 2
    mean = np.append(energy.sum(), energy[:-1])[None]
    bound = sd[:-1] if bound_w is None else np.array(bound_w)[:-1] * seconds
    rows = Energies(
        Joint(np.ones(1), mean, joint[None]),
        seconds,
        np.diag((300.0 * seconds) ** 2),
        np.diag(bound**2),
        shared * np.diag(sd[:-1] ** 2),
    )
    return SimpleNamespace(activity=activity, idle_w=(100.0, 1.0), readings=range(77), alike=False), rows


def rows_of(made, group=by_operator):
    return Rows.given(*made, group)


A, B, C, D = Kind("a", "op"), Kind("b", "op"), Kind("c", "other"), Kind("d", "other")
KERNELS = [(0, 40, 0), (50, 60, 1), (70, 100, 2)]


@pytest.fixture
def simple():
    """40 us at 500 W, 10 us at 300 W, 30 us at 700 W, and 20 us of idle at 100 W; errors of 1, 2, 3 and 4 W."""
    return given(KERNELS, (A, B, C), [500.0, 300.0, 700.0, 100.0], [1.0, 2.0, 3.0, 4.0])


def test_a_row_is_the_power_of_its_kinds_times_their_time(simple):
    rows = rows_of(simple)
    assert rows.names == ["op", "other", IDLE]
    assert rows.seconds == pytest.approx([50e-6, 30e-6, 20e-6])
    row = rows.row(["op"])
    assert row.seconds == pytest.approx(50e-6)
    assert row.energy.value == pytest.approx(40e-6 * 500 + 10e-6 * 300)
    assert row.energy.half_width == pytest.approx(1.96 * np.hypot(40e-6 * 1, 10e-6 * 2), rel=1e-4)
    assert row.energy.n == 77
    assert row.energy.flags == ()
    whole = rows.row(["op", "other", IDLE])
    assert whole.seconds == pytest.approx(100e-6)
    assert whole.energy.value == pytest.approx(40e-6 * 500 + 10e-6 * 300 + 30e-6 * 700 + 20e-6 * 100)


def test_a_mixture_takes_rows_by_their_amounts(simple):
    mixed = rows_of(simple).mixture(np.array([0.5, 2.0, 0.0]))
    assert mixed.seconds == pytest.approx(85e-6)
    assert mixed.energy.value == pytest.approx(0.5 * 23e-3 + 2 * 21e-3)
    assert mixed.energy.half_width == pytest.approx(1.96 * np.linalg.norm([20e-6 * 1, 5e-6 * 2, 60e-6 * 3]), rel=1e-4)


def test_sources_of_an_uncertainty_add_up_to_it(simple):
    rows = rows_of(simple)
    found = rows.row(["op"]).energy.budget
    whole = np.hypot(40e-6 * 1, 10e-6 * 2)
    assert found == {
        "noise of the readings": pytest.approx(0.8 * whole),
        "response of the sensor": pytest.approx(0.6 * whole),
    }


def test_kernels_at_the_same_time_share_the_power():
    made = given([(0, 40, 0), (20, 60, 2), (80, 100, 1)], (A, B, C), [600.0, 300.0, 800.0, 100.0], [1.0] * 4)
    assert made[0].activity.members == ((0,), (1,), (2,), (0, 2))
    rows = rows_of(made)
    op, other = rows.row(["op"]), rows.row(["other"])
    assert op.seconds == pytest.approx(20e-6 + 10e-6 + 20e-6)
    assert op.energy.value == pytest.approx(30e-6 * 600 + 20e-6 * 300)
    assert op.energy.flags == other.energy.flags == ("overlapped",)
    assert other.energy.value == pytest.approx(30e-6 * 800)
    assert sum(rows.seconds) == pytest.approx(100e-6)


def test_repeats_are_in_no_row():
    made = given(KERNELS, (A, Kind("a", "op", repeat=True), C), [500.0, 300.0, 700.0, 100.0], [1.0, 2.0, 3.0, 4.0])
    rows = rows_of(made)
    assert rows.names == ["op", "other", IDLE]
    assert rows.row(["op"]).energy.value == pytest.approx(40e-6 * 500)


def test_a_row_without_time_has_no_share_that_overlaps(simple):
    rows = rows_of(simple)
    nothing = rows.row([])
    assert (nothing.seconds, nothing.energy.value, nothing.energy.flags) == (0.0, 0.0, ())
    assert not rows.resolved([])


@pytest.mark.parametrize(("bound", "determined"), [(149.0, True), (151.0, False)])
def test_readings_determine_what_they_narrow_to_half(bound, determined):
    """Of a prior of 300 W; the interval itself is narrow."""
    made = given(KERNELS, (A, B, C), [500.0, 300.0, 700.0, 100.0], [1.0] * 4, bound_w=[bound] * 4)
    rows = rows_of(made)
    assert rows.resolved(["other"]) == determined
    assert rows.resolved([IDLE])  # idle, which may be known beforehand


@pytest.mark.parametrize(("sd", "determined"), [(178.0, True), (179.0, False)])
def test_figures_need_an_interval_of_at_most_half_of_the_value(sd, determined):
    made = given(KERNELS, (A, B, C), [500.0, 300.0, 700.0, 100.0], [1.0, 1.0, sd, 1.0], bound_w=[1.0] * 4)
    assert rows_of(made).resolved(["other"]) == determined


def pooled(sd_w, lengths=(40, 30, 20), **more):
    """Pools of kernels a, b, c and so on of these lengths in us, at 500, 400, 300 W with these errors."""
    begin = np.concatenate([[0], np.cumsum(np.array(lengths) + 10)[:-1]])
    kernels = [(at, at + length, k) for k, (at, length) in enumerate(zip(begin, lengths, strict=True))]
    count = len(lengths)
    watts = [500.0, 400.0, 300.0, 300.0][:count]
    made = given(kernels, (A, B, C, D)[:count], [*watts, 100.0], [*sd_w, 1.0], bound_w=[1.0] * (count + 1))
    rows = rows_of(made, lambda kind: kind.name)
    return pools(rows.powers, rows.kernels, **more)


def test_rows_that_are_resolved_stand_alone_largest_energy_first():
    assert pooled([1.0, 1.0, 1.0], lengths=(20, 35, 40)) == [("b",), ("c",), ("a",)]  # 14, 12 and 10 mJ
    assert pooled([1.0, 1.0, 1.0]) == [("a",), ("b",), ("c",)]


def test_what_is_not_resolved_joins_the_shortest_row_with_which_it_is():
    """20 us at 300 ± 240 W have no figures; with 30 or 40 us beside them they have."""
    assert pooled([1.0, 1.0, 120.0]) == [("a",), ("b", "c")]
    assert pooled([1.0, 1.0, 120.0], lengths=(30, 40, 20)) == [("a", "c"), ("b",)]


def test_else_it_joins_the_row_with_which_the_sum_is_known_best():
    """20 us at 300 ± 800 W: with a or b less than half is known, with both 37 ± 16 mJ."""
    assert pooled([1.0, 1.0, 400.0], lengths=(30, 40, 20)) == [("a", "b", "c")]
    assert pooled([1.0, 1.0, 600.0], lengths=(30, 40, 20)) == []


@pytest.mark.parametrize(("length", "found"), [(40.1, [("a",), ("b",)]), (39.9, [("a",), ("b", "c")])])
def test_what_takes_less_than_a_hundredth_of_the_time_is_in_no_row(length, found):
    assert pooled([1.0, 1.0, 400.0], lengths=(59, length, 1)) == found


def test_rows_of_an_operator_are_pooled_before_others():
    """Apart neither a nor b has figures (± 56 and 70 %), together they have (± 44 %)."""
    assert pooled([140.0, 140.0, 1.0], near=lambda name: "op" if name in "ab" else "") == [("a", "b"), ("c",)]


def test_each_operator_is_a_row_of_its_own():
    found = pooled([140.0, 140.0, 100.0, 100.0], (40, 30, 20, 20), near=lambda name: "op" if name in "ab" else "other")
    assert found == [("a", "b"), ("c", "d")]


def test_what_is_not_resolved_joins_a_row_of_its_own_operator_though_another_is_shorter():
    assert pooled([1.0, 1.0, 120.0], near=lambda name: "op" if name in "ac" else "") == [("a", "c"), ("b",)]
