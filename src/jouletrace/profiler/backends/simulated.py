"""Workloads on a simulated GPU: shapes and times, no numbers."""

from __future__ import annotations

from typing import cast

from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError
from jouletrace.execution.simulated import SimulatedTraceable
from jouletrace.execution.steps.simulated import simulate_generation, simulate_workload
from jouletrace.profiler.backends.torch import load_libraries
from jouletrace.profiler.prepare import Prepared, check_has_phases
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.simulator.boards import SimulatedGpu
from jouletrace.workloads.base import Workload
from jouletrace.workloads.options import WorkloadOptions

__all__ = ["load_libraries", "prepare"]


def prepare(workload: Workload, device: Device, settings: ProfileSettings, options: WorkloadOptions) -> Prepared:
    """See ``profiler.prepare``.

    Raises:
        BadInputError: If images are to be loaded, or the options don't fit the workload.
    """
    board = cast(SimulatedGpu, device)
    if settings.task == "generate":
        built, whole, pieces, phases = simulate_generation(workload, options, device, settings.mode)
        return Prepared(
            built,
            whole,
            real=False,
            make_traceable=lambda: SimulatedTraceable(whole, board, phases),
            make_generation=lambda: pieces,
        )
    if settings.data is not None:
        raise BadInputError(f"--data: {device.spec} is simulated and computes only with shapes: images can't be loaded")
    built, step = simulate_workload(workload, options, device, settings.mode)
    program = SimulatedTraceable(step, board)
    check_has_phases(workload, settings, {call.phase for call in program.listing().calls})
    return Prepared(built, step, real=False, make_traceable=lambda: program)
