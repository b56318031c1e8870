"""Workloads in torch, on a GPU or the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, cast

from jouletrace.devices.base import Device
from jouletrace.devices.cuda_order import cuda_index, show_alone
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.execution.excitation import Traceable
from jouletrace.execution.steps import make_step
from jouletrace.execution.steps.base import Step
from jouletrace.execution.steps.trial import user_code
from jouletrace.profiler.prepare import Prepared, check_has_phases
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.without_pandas import runs_ours_alone
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.saved_models import LocalFolder
from jouletrace.workloads.transformers_models import BuiltInModel

if TYPE_CHECKING:
    from jouletrace.execution.steps.cuda import CudaStep


def load_libraries(workload: Workload, device: Device) -> None:
    """Import torch, and transformers for its models."""
    if device.info.kind == "mig":
        return  # the instance must be selected before torch enumerates devices
    with suppress(Exception, SystemExit):  # named when it is built
        import torch  # noqa: F401

        if isinstance(workload, BuiltInModel | LocalFolder):
            with _absent("sklearn", *(("scipy",) if runs_ours_alone() else ())):
                import transformers  # noqa: F401

                if isinstance(workload, BuiltInModel):
                    workload.model_class()


@contextmanager
def _absent(*libraries: str) -> Iterator[None]:
    """Lets libraries look as if they weren't installed, but for those that are imported already.

    Transformers imports scikit-learn, in 1.4 s, for one criterion of assisted generation, and ``scipy.optimize``, in
    0.4 s, for losses of detectors, which then are missing for as long as the process lives.
    """
    hidden = [library for library in libraries if library not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden, cast("ModuleType", None)))
    try:
        yield
    finally:
        for library in hidden:
            del sys.modules[library]


def prepare(workload: Workload, device: Device, settings: ProfileSettings, options: WorkloadOptions) -> Prepared:
    """See ``profiler.prepare``."""
    torch_device = torch_device_of(device)
    # Transformers' loop reads a stop flag from the device after each token, which a graph can't do.
    built = workload.build(torch_device, replace(options, own_loop="static" if settings.mode == "graph" else None))
    if settings.task == "generate" and built.generation is None:
        raise BadInputError(f"--task generate: {workload.name} is not a generative model")
    step = make_step(built, torch_device, settings.mode, l2=settings.l2)
    if settings.detail != "model" and settings.mode != "compile":
        _check_parts(workload, settings, built, torch_device)
    prepared = Prepared(built, step, make_traceable=lambda: _traceable(built, step, torch_device))
    if settings.task == "generate" and built.generation is not None:
        first = replace(built, call=built.generation(1))
        prepared.make_first_token = lambda: make_step(first, torch_device, settings.mode)
    return prepared


def _check_parts(workload: Workload, settings: ProfileSettings, built: Built, torch_device: str) -> None:
    """Refuse a workload without parts before the whole is measured."""
    import torch

    from jouletrace.execution.operator_marks import listing

    with user_code(built), listing(built.module, torch.device(torch_device)) as seen:
        built.call(0)
    if not seen:
        asked = f"{workload.name}: --detail {settings.detail}"
        raise BadInputError(f"{asked}: it calls no operator of torch on {torch_device}; use --detail model")
    check_has_phases(workload, settings, {operator.phase for operator in seen})


def _traceable(built: Built, step: Step, torch_device: str) -> Traceable:
    """A workload on a real device, ready to be traced."""
    import torch

    if torch_device == "cpu":
        from jouletrace.execution.torch_programs import CpuTraceable

        return CpuTraceable(built)
    from jouletrace.execution.torch_programs import GpuTraceable

    return GpuTraceable(built, cast("CudaStep", step), torch.device(torch_device))


def torch_device_of(device: Device) -> str:
    """The torch name of a device, determined by UUID, since CUDA and NVML number devices differently.

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
    """True if torch has created a CUDA context in this process."""
    is_initialized = getattr(sys.modules.get("torch.cuda"), "is_initialized", None)  # it may be being imported
    return is_initialized is not None and bool(is_initialized())
