"""The cycle counter of a simulated GPU."""

import pytest

from jouletrace.simulator.boards import PRESETS, SimKernel, SimulatedGpu
from step_truth import clock_mhz

KERNELS = [SimKernel("a", 70e-6, 550.0), SimKernel("b", 30e-6, 350.0, clocked=0.3, core=0.5)]
HEAVY = [SimKernel("a", 60e-6, 950.0, clocked=0.9), SimKernel("b", 40e-6, 700.0, clocked=0.2, core=0.4)]


def counted(gpu, do):
    """Clock in MHz by the cycle counter while the GPU does something, and when it did."""
    cycles, start = gpu.board.cycles()
    do()
    after, end = gpu.board.cycles()
    return (after - cycles) / (end - start) * 1e3, start, end


@pytest.mark.parametrize("preset", PRESETS)
def test_an_ordinary_gpu_counts_the_clock_that_its_driver_reports(preset):
    gpu = SimulatedGpu(f"sim:{preset}?cap=off")
    idle, start, end = counted(gpu, lambda: gpu.board.wait(0.5))
    assert end - start == 500_000_000
    assert idle == pytest.approx(PRESETS[preset].clock_idle_mhz, rel=1e-8)
    busy, start, end = counted(gpu, lambda: gpu.board.run(KERNELS, 3333))
    assert busy == pytest.approx(PRESETS[preset].clock_max_mhz, rel=1e-8)
    waiting, *_ = counted(gpu, lambda: gpu.board.wait(0.1))
    assert waiting == pytest.approx(PRESETS[preset].clock_max_mhz, rel=1e-8)


def test_under_a_cap_it_counts_what_the_governor_sets_from_tick_to_tick():
    gpu = SimulatedGpu("sim:h100?seed=3")
    clock, start, end = counted(gpu, lambda: gpu.board.run(HEAVY, 20000))
    assert clock == pytest.approx(clock_mhz(gpu, start, end), rel=1e-8)
    assert clock < 1900


def test_a_counter_in_real_time_counts_the_time_that_passes():
    gpu = SimulatedGpu("sim:h100?realtime=1")
    clock, start, end = counted(gpu, lambda: gpu.board.wait(0.05))
    assert end - start >= 50_000_000
    assert clock == pytest.approx(345, rel=1e-6)
