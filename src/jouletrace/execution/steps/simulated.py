"""Steps on a simulated GPU: kernels with known truth, made of the counted operators of a workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.execution.steps.base import Cycles, Interval
from jouletrace.execution.steps.registry import check_options
from jouletrace.execution.steps.trial import name_of
from jouletrace.simulator.boards import Schedule, SimKernel, SimulatedGpu
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.environment import require_torch
from jouletrace.workloads.options import WorkloadOptions

if TYPE_CHECKING:
    from jouletrace.execution.steps.operators import Operator  # imports torch


class SimulatedStep:
    """Iterations of kernels on a simulated GPU.

    Args:
        device: The GPU; it holds a context from now on.
        kernels: The kernels of one iteration, in order.
        launch: "graph", or "eager" where the host launches each operator.

    Raises:
        BadInputError: If the iteration has no kernel, or ``launch`` is unknown.
    """

    mode = "simulated"

    def __init__(self, device: SimulatedGpu, kernels: Sequence[SimKernel], launch: str = "graph") -> None:
        if not kernels:
            raise BadInputError("a simulated step needs at least one kernel")
        check_options("simulated", launch)
        self._device = device
        self._launch = launch
        self._kernels = tuple(kernels)
        device.board.hold_context()

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule that runs on the GPU, for queries of its truth."""
        return self._device.board.schedule(self._kernels, self._launch == "eager")

    def replay(self, n: int) -> Interval:
        """Run ``n`` iterations back to back; see ``Step``."""
        return Interval(*self._device.board.run(self.schedule, n))

    def latencies(self, n: int) -> Floats:
        """Seconds of each of ``n`` iterations, shape (n,); see ``Step``."""
        return self._device.board.run_timed(self.schedule, n)

    def cycles(self) -> Cycles:
        """See ``CountsCycles``; the reading of one SM, since all SMs share one clock."""
        count, time_ns = self._device.board.cycles()
        return Cycles(np.array([0]), np.array([count]), np.array([time_ns]))

    def describe(self) -> dict[str, Any]:
        """Facts about its preparation."""
        return {"mode": self.mode, "launch": self._launch, "kernels": len(self._kernels)}

    def close(self) -> None:
        """Does nothing: the context stays until the device is closed, as on a real GPU."""

    def first(self, count: int) -> Self:
        """A step of the first ``count`` kernels."""
        return type(self)(self._device, self._kernels[:count], self._launch)

    def repeated(self, index: int, times: int) -> Self:
        """A step in which the kernel at ``index`` runs ``times`` times in place; its copies read cached data."""
        kernel = self._kernels[index]
        again = replace(kernel, time_s=kernel.time_s * kernel.repeat, host_calls=1)
        kernels = [*self._kernels[: index + 1], *[again] * (times - 1), *self._kernels[index + 1 :]]
        return type(self)(self._device, kernels, self._launch)


def simulate_workload(
    workload: Workload, options: WorkloadOptions, device: Device, mode: str
) -> tuple[Built, SimulatedStep]:
    """Count a workload without running it, and return it as a step on a simulated GPU.

    It is built with fake tensors, so its weights take no memory. Without a dtype, built-in
    models take fp16, as on CUDA.

    Raises:
        BadInputError: If the options don't fit, the mode is unknown, or the device isn't simulated.
        NotPossibleError: If its operators can't be counted without values, the GPU has too little
            memory, or torch is missing.
    """
    require_torch()
    from jouletrace.execution.steps.counting import count_workload

    if not isinstance(device, SimulatedGpu):
        raise BadInputError(f"{device.info.name} isn't a simulated GPU")
    check_options("simulated", mode)
    options = replace(_with_usual_dtype(workload, options), own_loop="static" if mode == "graph" else "dynamic")
    built, operators = count_workload(workload, options)
    if not operators:
        raise BadInputError(f"{workload.name}: it calls no operator that a GPU would run")
    needed, there = built.facts["least_memory_bytes"], device.info.memory_bytes
    if there is not None and needed > there:
        raise NotPossibleError(
            f"{name_of(built)}: out of memory: it needs at least {needed / 2**30:.4g} GiB, and "
            f"{device.info.name} has {there / 2**30:.4g} GiB; try a smaller --batch"
        )
    built.facts["device"] = device.info.name
    built.facts["counted"] = {
        "operators": len(operators),
        "flops": sum(operator.flops for operator in operators),
        "bytes_moved": sum(operator.bytes_moved for operator in operators),
    }
    return built, SimulatedStep(device, kernels_of(device, operators, built.facts.get("dtype") == "tf32"), mode)


def _with_usual_dtype(workload: Workload, options: WorkloadOptions) -> WorkloadOptions:
    """The options with the default number format of a GPU."""
    from jouletrace.workloads.user import ObjectWorkload, UserWorkload

    if options.dtype is not None or isinstance(workload, UserWorkload | ObjectWorkload):
        return options
    usual = "bf16" if options.task == "train" else "fp16"
    return replace(options, dtype=getattr(workload, "own_dtype", None) or usual)


def kernels_of(device: SimulatedGpu, operators: Sequence[Operator], tf32: bool = False) -> list[SimKernel]:
    """A kernel for each operator, by the GPU's roofline; with ``tf32``, single-precision products are computed in TF32.

    Raises:
        BadInputError: If the GPU has no pipes for a dtype.
    """
    roofline = device.board.roofline
    # an operator that is listed several times is one object, as in pieces that are captured together
    made: dict[int, SimKernel] = {}
    for operator in operators:
        if id(operator) not in made:
            dtype = "tf32" if tf32 and operator.flops and operator.dtype == "fp32" else operator.dtype
            made[id(operator)] = roofline.kernel(
                f"{operator.op.partition('.')[2]}_{dtype}",
                operator.flops,
                operator.bytes_moved,
                dtype,
                op=operator.op,
                shapes=operator.shapes,
                module=operator.module,
                call=operator.call,
                host_calls=operator.host_calls,
                backward=operator.backward,
            )
    return [made[id(operator)] for operator in operators]
