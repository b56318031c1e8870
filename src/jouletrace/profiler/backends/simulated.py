"""Workloads on a simulated GPU: shapes and times, no numbers."""

from __future__ import annotations

from typing import cast

from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError
from jouletrace.execution.simulated import SimulatedTraceable
from jouletrace.execution.steps.module_names import phases_of
from jouletrace.execution.steps.simulated import simulate_workload
from jouletrace.profiler.backends.torch import load_libraries
from jouletrace.profiler.prepare import Prepared, check_has_phases
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.simulator.boards import SimulatedGpu
from jouletrace.workloads.base import DECODE, Workload
from jouletrace.workloads.options import WorkloadOptions

__all__ = ["load_libraries", "prepare"]


def prepare(workload: Workload, device: Device, settings: ProfileSettings, options: WorkloadOptions) -> Prepared:
    """See ``profiler.prepare``.

    Raises:
        BadInputError: If images are to be loaded, or the options don't fit the workload.
    """
    board = cast(SimulatedGpu, device)
    if settings.data is not None:
        raise BadInputError(f"--data: {device.spec} is simulated and computes only with shapes: images can't be loaded")
    built, step = simulate_workload(workload, options, device, settings.mode)
    program = SimulatedTraceable(step, board, phases_of(built))
    phases = [call.phase for call in program.listing().calls]
    check_has_phases(workload, settings, set(phases))
    prepared = Prepared(built, step, real=False, make_traceable=lambda: program)
    if built.generation is not None:
        first = phases.index(DECODE) if DECODE in phases else len(phases)
        prepared.make_first_token = lambda: step.first(first)
    return prepared
