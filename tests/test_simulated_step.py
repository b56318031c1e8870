"""Steps on simulated boards: variants, and how the naive way of leaving one out fails."""

import numpy as np
import pytest

from jouletrace.devices.simulated import SimKernel, open_simulated
from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.steps.base import DETACHED, CountsCycles
from jouletrace.steps.simulated import SimulatedStep
from jouletrace.steps.units import Unit


def block(i):
    """Kernels of one block of a small model: the residual sum is in place."""
    base = 4 * i
    before = (base - 1,) if i else ()
    return [
        SimKernel("norm", 20e-6, 350.0, op="norm", module=f"{i}.norm", clocked=0.2, core=0.4, sources=before),
        SimKernel("gemm", 90e-6, 950.0, op="mm", shapes="f16[4]", module=f"{i}.up", clocked=0.9, sources=(base,)),
        SimKernel("gemm", 80e-6, 900.0, op="mm", shapes="f16[4]", module=f"{i}.down", clocked=0.9, sources=(base + 1,)),
        SimKernel(
            "add", 15e-6, 330.0, op="add_", module=f"{i}", clocked=0.2, core=0.4, repeat=0.7,
            sources=(base + 2, *before), in_place=True,
        ),
    ]  # fmt: skip


KERNELS = [kernel for i in range(4) for kernel in block(i)]


def step(spec="sim:h100?noise=0", kernels=KERNELS, **keys):
    return SimulatedStep(open_simulated(spec), kernels, **keys)


def energy(which, n=4000, skip=500):
    """True energy and time of an iteration, after the board has settled."""
    truth = which._device.truth
    which.replay(skip)
    interval = which.replay(n)
    return truth.caused_energy_j(interval.start_ns, interval.end_ns) / n, interval.seconds / n


def saving(one, other):
    """Energy and time that ``other`` saves of ``one``, between two references on a warm board."""
    before, changed, after = energy(one), energy(other), energy(one)
    return (before[0] + after[0]) / 2 - changed[0], (before[1] + after[1]) / 2 - changed[1]


def warm(one):
    one.replay(40000)
    return one


def test_units_are_operator_shapes_and_module_with_their_count():
    units = step(kernels=[*KERNELS, KERNELS[1]]).units()
    assert len(units) == 16
    assert units[1] == Unit("mm", "f16[4]", "0.up", 2)
    assert sum(unit.count for unit in units) == 17


def test_replay_and_latencies_agree():
    one = step()
    one.replay(2000)
    interval = one.replay(2000)
    each = one.latencies(2000)
    assert each.shape == (2000,)
    assert each.mean() == pytest.approx(interval.seconds / 2000, rel=0.01)
    assert one.mode == "simulated"
    assert one.describe() == {"mode": "simulated", "launch": "graph", "kernels": 16}


def test_a_step_holds_a_context_until_the_device_is_closed():
    gpu = open_simulated("sim:h100")
    assert not gpu.board.context_held
    one = SimulatedStep(gpu, KERNELS)
    assert gpu.board.context_held
    one.close()
    assert gpu.board.context_held
    gpu.close()
    assert not gpu.board.context_held


@pytest.mark.parametrize("multiplicity", [DETACHED, 0, 1, 2, 5])
def test_a_variant_launches_its_unit_so_often_and_all_others_once(multiplicity):
    one = step()
    unit = one.units()[1]
    variant = one.variant({unit: multiplicity})
    variant.check()
    launched = [kernel.module for kernel in variant.schedule.kernels]
    assert launched.count("0.up") == abs(multiplicity)
    assert len(launched) == 15 + abs(multiplicity)
    assert len(one.schedule.kernels) == 16


def test_a_variant_can_be_varied_further():
    one = step()
    a, b = one.units()[1], one.units()[5]
    both = one.variant({a: 0, b: 3})
    both.check()
    assert len(both.schedule.kernels) == 14 + 3
    assert [kernel.name for kernel in one.variant({a: 0}).variant({b: 3}).schedule.kernels] == [
        kernel.name for kernel in both.schedule.kernels
    ]
    assert both.changes == {a: 0, b: 3}


def test_check_finds_a_variant_with_other_kernels():
    one = step()
    variant = one.variant({one.units()[1]: 0})
    variant._changes = {}
    with pytest.raises(JouletraceError, match="15 other kernels"):
        variant.check()


def test_unknown_units_and_negative_multiplicities_are_refused():
    one = step()
    with pytest.raises(BadInputError, match="no unit conv"):
        one.variant({Unit("conv", "", "x"): 0})
    with pytest.raises(BadInputError, match=r"0 or more, or -1 \(detached\)"):
        one.variant({one.units()[0]: -2})
    with pytest.raises(BadInputError, match="at least one kernel"):
        step(kernels=[])
    with pytest.raises(BadInputError, match="--mode compile"):
        step(launch="compile")


def test_removal_by_a_fresh_capture_recovers_the_operator_without_a_cap():
    one = warm(step("sim:h100?noise=0&cap=off"))
    gap = one._device.truth.parameters().kernel_gap_s
    for place in (0, 1, 3):
        # what reads its output finds it cold without it: so with it, for nobody, is what that is held against
        alone, without = (one.variant({one.units()[place]: times}) for times in (DETACHED, 0))
        saved_j, saved_s = saving(alone, without)
        truth = one._device.truth.steady(one.schedule)
        assert saved_s == pytest.approx(truth.kernel_s[place] + gap, rel=1e-3)
        assert saved_j == pytest.approx(truth.kernel_j[place] + gap * truth.gap_j / truth.gap_s, rel=0.03)


def test_a_repetition_is_cheaper_by_what_the_cache_holds():
    one = step("sim:h100?noise=0&cap=off")
    cold, cached = one.units()[1], one.units()[3]
    gap = one._device.truth.parameters().kernel_gap_s
    assert -saving(one, one.variant({cold: 2}))[1] == pytest.approx(90e-6 + gap, rel=1e-3)
    assert -saving(one, one.variant({cached: 2}))[1] == pytest.approx(0.7 * 15e-6 + gap, rel=1e-3)


def test_under_the_cap_removing_work_speeds_up_the_rest():
    one = warm(step())
    _, saved_s = saving(one, one.variant({one.units()[1]: 0}))
    in_context = one._device.truth.steady(one.schedule).kernel_s[1]
    assert saved_s > 1.02 * in_context


@pytest.mark.thorough
def test_a_naive_leave_one_out_under_the_cap_visibly_fails():
    one = warm(step("sim:h100"))
    reference, _ = energy(one, n=20000)
    fresh = sum(saving(one, one.variant({unit: 0}))[0] for unit in one.units()) / reference
    naive = 0.0
    for unit in one.units():
        one.toggle(unit, False)
        naive += (reference - energy(one)[0]) / reference
        one.toggle(unit, True)
    assert abs(naive - 1) > 0.10
    assert abs(fresh - 1) < 0.05


def test_toggling_slows_the_graph_for_good():
    one = step("sim:h100?noise=0&cap=off")
    _, before_s = energy(one)
    one.toggle(one.units()[0], False)
    one.toggle(one.units()[0], True)
    _, after_s = energy(one)
    assert after_s == pytest.approx(1.05 * before_s, rel=0.01)
    _, fresh_s = energy(one.variant({one.units()[0]: 1}))
    assert fresh_s == pytest.approx(before_s, rel=1e-4)


def test_a_disabled_kernel_leaves_garbage_to_those_that_read_it_and_an_in_place_one_old_values():
    one = step("sim:h100?noise=0&cap=off")
    reference = [kernel.active_w for kernel in one.schedule.kernels]
    one.toggle(one.units()[1], False)
    behind = [kernel.active_w for kernel in one.schedule.kernels]
    assert behind[0] == reference[0]
    assert all(a < 0.7 * b for a, b in zip(behind[1:], reference[2:], strict=True))
    one.toggle(one.units()[1], True)
    one.toggle(one.units()[3], False)
    after_in_place = [kernel.active_w for kernel in one.schedule.kernels]
    assert after_in_place == reference[:3] + reference[4:]


def test_pacing_keeps_every_variant_below_the_cap():
    one = step("sim:h100?noise=0")
    truth = one._device.truth
    assert truth.steady(one.schedule).clock_mhz < 1950
    paced = one.paced(600e-6)
    paced.check()
    assert truth.steady(paced.schedule).clock_mhz == pytest.approx(1980)
    assert paced.describe()["spin_s"] == 600e-6
    assert len(paced.variant({paced.units()[0]: 0}).schedule.kernels) == 16


def test_a_pause_in_pieces_takes_as_long_and_keeps_the_kernels_in_order():
    one = step("sim:h100?noise=0")
    whole, split = one.paced(600e-6), one.paced(600e-6, pieces=3)
    split.check()
    assert sum(kernel.time_s for kernel in split.schedule.kernels) == pytest.approx(
        sum(kernel.time_s for kernel in whole.schedule.kernels)
    )
    names = [kernel.name for kernel in split.schedule.kernels]
    assert names.count("spin") == 3
    assert names[-1] == "spin"
    assert "spin" in names[3:8]
    split.variant({split.units()[0]: 0}).check()
    eager = SimulatedStep(open_simulated("sim:h100?noise=0"), one._kernels, launch="eager").paced(600e-6, pieces=3)
    assert [kernel.name for kernel in eager.schedule.kernels].count("spin") == 1


def test_the_host_makes_an_eager_step_of_small_kernels_longer():
    small = [SimKernel("k", 4e-6, 200.0, host_calls=3) for _ in range(20)]
    gpu = open_simulated("sim:h100?noise=0")
    graph, eager = SimulatedStep(gpu, small), SimulatedStep(gpu, small, launch="eager")
    host = gpu.truth.parameters().host_launch_s
    assert np.median(eager.latencies(200)) == pytest.approx(60 * host, rel=0.02)
    assert np.median(graph.latencies(200)) < 0.3 * 60 * host


def test_removing_every_unit_leaves_the_launch():
    one = step(kernels=KERNELS[:1])
    nothing = one.empty()
    nothing.check()
    assert nothing.replay(100).seconds / 100 == pytest.approx(one._device.truth.parameters().launch_gap_s, rel=0.01)


def clock(one, n):
    """Mean clock in MHz of so many iterations by the cycle counter."""
    before = one.cycles()
    one.replay(n)
    return one.cycles().mean_mhz(before)


def test_cycles_tell_the_clock_of_what_ran_between_two_readings_and_take_no_time():
    one = step("sim:h100?cap=off")
    assert isinstance(one, CountsCycles)
    now = one._device.clock.time_ns()
    assert one.cycles().mean_mhz(one.cycles()) is None
    assert one._device.clock.time_ns() == now
    assert clock(one, 2000) == pytest.approx(1980, rel=1e-8)
    capped = step("sim:h100")
    capped.replay(4000)
    assert clock(capped, 2000) < 1950


def test_cycles_tell_the_states_of_a_board_apart_while_the_driver_tells_one_clock():
    one = step("sim:h100?cap=off&states=4&seed=1")
    told, counted = one._device.truth.clock_mhz, []
    for _ in range(60):
        begin = one._device.clock.time_ns()
        counted.append(clock(one, 500))
        assert told(begin, one._device.clock.time_ns()) == pytest.approx(1980, rel=1e-9)
    in_state = [np.abs(np.array(counted) / mhz - 1) < 1e-4 for mhz in (1980, 1980 * 1.0067)]
    assert all(0.2 < np.mean(inside) < 0.8 for inside in in_state)
    assert np.mean(in_state[0] | in_state[1]) > 0.8
