"""From a workload and a device to a step that is ready to run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from jouletrace import workloads
from jouletrace.devices.base import Device
from jouletrace.devices.cuda_order import cuda_index, show_alone
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.steps import make_step, make_variable_step
from jouletrace.steps.base import Step, VariableStep
from jouletrace.steps.modes import check_options
from jouletrace.workloads.base import Built, Workload, WorkloadOptions


@dataclass
class Prepared:
    """A built workload and the step that runs it.

    Attributes:
        built: The workload.
        step: Runs it on the device.
        real: Whether it computes real numbers (a simulated board computes none).
        make_variable: Makes a step for experiments on parts, where ``step`` isn't one.
    """

    built: Built
    step: Step
    real: bool = True
    make_variable: Callable[[], VariableStep] | None = None

    def variable_step(self) -> VariableStep:
        """The step whose parts experiments change: the step itself if it can, else one made for them."""
        if self.make_variable is not None:
            return self.make_variable()
        return cast(VariableStep, self.step)


def resolve(workload: str | Workload) -> Workload:
    """A workload by its name or path, or the workload itself.

    Raises:
        BadInputError: If there is none of that name; the nearest are offered.
    """
    return workloads.resolve(workload) if isinstance(workload, str) else workload


def check(device: Device, settings: ProfileSettings) -> None:
    """Refuse options that don't go with the device, before anything is measured.

    Raises:
        BadInputError: Names the option.
    """
    kind = "simulated" if device.info.simulated else device.info.kind
    check_options(kind, settings.mode, settings.l2, settings.dtype, where=device.spec)


def prepare(workload: Workload, device: Device, settings: ProfileSettings) -> Prepared:
    """Build the workload on the device and make its step; a context exists on a GPU from here on.

    Raises:
        BadInputError: If the options don't fit the workload.
        NotPossibleError: If something is missing here: a library, memory, a CUDA device.
    """
    options = WorkloadOptions(
        task=settings.task,
        batch=settings.batch,
        seq_len=settings.seq_len,
        dtype=settings.dtype,
        seed=settings.seed,
        input_sets=settings.input_sets,
        config=settings.config,
        optimizer=settings.optimizer,
        label_smoothing=settings.label_smoothing,
    )
    if device.info.simulated:
        from jouletrace.steps.simulated import simulate_workload

        built, simulated = simulate_workload(workload, options, device, settings.mode)
        return Prepared(built, simulated, real=False, make_variable=simulated.as_graph)
    torch_device = torch_device_of(device)
    built = workload.build(torch_device, options)
    if settings.detail == "model" or settings.mode == "eager":
        # What eager mode costs is launch and gaps; its kernels are those of a graph, whose parts can be changed.
        mode = "graph" if device.info.kind == "gpu" else "eager"
        step = make_step(built, torch_device, settings.mode, l2=settings.l2)
        return Prepared(built, step, make_variable=lambda: make_variable_step(built, torch_device, mode))
    variable = make_variable_step(built, torch_device, settings.mode)
    if "fallback" in variable.describe():  # whoever asks for a graph wants the figures of a graph
        raise BadInputError(f"{workload.name} {variable.describe()['fallback']['text']}")
    return Prepared(built, variable)


def torch_device_of(device: Device) -> str:
    """The name that torch gives a device: found by UUID, since CUDA and NVML count differently.

    Raises:
        NotPossibleError: If CUDA can't see the device.
    """
    if device.info.kind == "cpu":
        return "cpu"
    if device.info.kind == "mig" and not context_in_this_process():
        show_alone(device.info.id)
    index = cuda_index(device.info.id)
    if index is None:
        raise NotPossibleError(
            f"{device.info.name} ({device.info.id}) is not visible to CUDA here: check CUDA_VISIBLE_DEVICES"
        )
    return f"cuda:{index}"


def context_in_this_process() -> bool:
    """Whether this process has a CUDA context through torch already."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available() and torch.cuda.is_initialized())
