"""Steps on simulated GPUs: variants, and how the naive way of leaving one out fails."""

import numpy as np
import pytest

from jouletrace.execution.steps import SimulatedStep
from jouletrace.execution.steps.base import CountsCycles
from jouletrace.simulator.boards import SimKernel, SimulatedGpu


def block(i):
    """Kernels of one block of a small model."""
    return [
        SimKernel("norm", 20e-6, 350.0, op="norm", module=f"{i}.norm", clocked=0.2, core=0.4),
        SimKernel("gemm", 90e-6, 950.0, op="mm", shapes="f16[4]", module=f"{i}.up", clocked=0.9),
        SimKernel("gemm", 80e-6, 900.0, op="mm", shapes="f16[4]", module=f"{i}.down", clocked=0.9),
        SimKernel(
            "add", 15e-6, 330.0, op="add_", module=f"{i}", clocked=0.2, core=0.4, repeat=0.7,
        ),
    ]  # fmt: skip


KERNELS = [kernel for i in range(4) for kernel in block(i)]


def step(spec="sim:h100?noise=0", kernels=KERNELS, **keys):
    return SimulatedStep(SimulatedGpu(spec), kernels, **keys)


def energy(which, n=4000, skip=500):
    """True energy and time of an iteration, after the GPU has settled."""
    truth = which._device.truth
    which.replay(skip)
    interval = which.replay(n)
    return truth.caused_energy_j(interval.start_ns, interval.end_ns) / n, interval.seconds / n


def saving(one, other):
    """Energy and time that ``other`` saves of ``one``, between two references on a warm GPU."""
    before, changed, after = energy(one), energy(other), energy(one)
    return (before[0] + after[0]) / 2 - changed[0], (before[1] + after[1]) / 2 - changed[1]


def warm(one):
    one.replay(40000)
    return one


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
    gpu = SimulatedGpu("sim:h100")
    assert not gpu.board.context_held
    one = SimulatedStep(gpu, KERNELS)
    assert gpu.board.context_held
    one.close()
    assert gpu.board.context_held
    gpu.close()
    assert not gpu.board.context_held


def test_the_host_makes_an_eager_step_of_small_kernels_longer():
    small = [SimKernel("k", 4e-6, 200.0, host_calls=3) for _ in range(20)]
    gpu = SimulatedGpu("sim:h100?noise=0")
    graph, eager = SimulatedStep(gpu, small), SimulatedStep(gpu, small, launch="eager")
    host = gpu.truth.parameters().host_launch_s
    assert np.median(eager.latencies(200)) == pytest.approx(60 * host, rel=0.02)
    assert np.median(graph.latencies(200)) < 0.3 * 60 * host


def clock(one, n):
    """Mean clock in MHz of so many iterations by the cycle counter."""
    before = one.cycles()
    one.replay(n)
    return one.cycles().mean_mhz(before)


def test_cycles_report_the_clock_of_what_ran_between_two_readings_and_take_no_time():
    one = step("sim:h100?cap=off")
    assert isinstance(one, CountsCycles)
    now = one._device.clock.time_ns()
    assert one.cycles().mean_mhz(one.cycles()) is None
    assert one._device.clock.time_ns() == now
    assert clock(one, 2000) == pytest.approx(1980, rel=1e-8)
    capped = step("sim:h100")
    capped.replay(4000)
    assert clock(capped, 2000) < 1950
