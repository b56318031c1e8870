"""Builds a step that is ready to run from a workload and a device.

What runs a workload is a backend: a module of ``profiler.backends``, or of a wing. It offers

- ``load_libraries(workload, device)``, which imports slow libraries and touches no GPU; missing libraries are reported
  when they are used;
- ``prepare(workload, device, settings, options)``, which builds the workload and returns it as ``Prepared``; from then
  on a GPU has a context;
- for a runtime, ``device_for(backend, device)``: the device that "auto" stands for.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

from jouletrace.devices.base import Device
from jouletrace.errors import SIMULATE_GPU, BadInputError, NotPossibleError
from jouletrace.execution.excitation import Traceable
from jouletrace.execution.steps.base import Step
from jouletrace.execution.steps.registry import check_options
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import RunWarning
from jouletrace.wing import registered
from jouletrace.workloads import ObjectWorkload
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.saved_models import ModelFile
from jouletrace.workloads.user import UserWorkload

_HOMES = {
    "torch": "jouletrace.profiler.backends.torch",
    "simulated": "jouletrace.profiler.backends.simulated",
}
"""The module of each backend of the core, imported at first use."""


@dataclass
class Prepared:
    """A built workload and the step that runs it.

    Attributes:
        built: The workload.
        step: Runs it on the device.
        real: Whether it computes real numbers (a simulated GPU computes none).
        make_traceable: Prepares it for tracing; None if it can't be traced.
        make_first_token: Makes the step of an iteration that ends with the first token; None where none is generated.
        warnings: Warnings about its modules, and about its data where ``steps.check_outputs`` can't inspect them.
    """

    built: Built
    step: Step
    real: bool = True
    make_traceable: Callable[[], Traceable] | None = None
    make_first_token: Callable[[], Step] | None = None
    warnings: list[RunWarning] = field(default_factory=list)

    def traceable(self) -> Traceable:
        """The workload, ready for tracing.

        Raises:
            NotPossibleError: If it can't be traced.
        """
        if self.make_traceable is None:
            raise NotPossibleError(f"{self.built.facts.get('name', 'this workload')} can't be traced here")
        return self.make_traceable()


def for_workload(workload: Workload, settings: ProfileSettings) -> ProfileSettings:
    """The settings with the backend and device for this workload.

    Raises:
        BadInputError: If the options don't fit the runtime of a model file, or phases are requested of a workload
            that has none.
    """
    check_has_phases(workload, settings)
    if isinstance(workload, ModelFile) and settings.backend == "auto":
        settings = replace(settings, backend=workload.backend)
    if settings.backend not in ("auto", "torch"):
        device: str = _backend(settings.backend).device_for(settings.backend, settings.device)
        return replace(settings, device=device)
    if settings.threads is not None or settings.streams > 1 or settings.hint is not None:
        return replace(settings, backend="torch")  # which reports that it has no such options
    return settings


def check_has_phases(workload: Workload, settings: ProfileSettings, phases: set[str] | None = None) -> None:
    """Refuse to list phases of an inference that has only one.

    A user's call may have several (forces require a gradient), which is known once it is built: ``phases``.

    Raises:
        BadInputError: With the tasks that have phases, and the detail to use for others.
    """
    if settings.detail != "phase" or settings.task != "infer":
        return
    single = not isinstance(workload, UserWorkload | ObjectWorkload) if phases is None else len(phases) < 2
    if single and isinstance(workload, ModelFile):
        raise BadInputError(
            f"{workload.name}: --detail phase: a model file has no phases; use --detail kernel, which lists its nodes"
        )
    if single:
        raise BadInputError(
            f"{workload.name}: --detail phase: an inference has no phases; --task train (forward, backward, optimizer) "
            "and --task generate (prefill, decode) have phases; use --detail layer or kernel"
        )


def check(device: Device, settings: ProfileSettings) -> None:
    """Refuse options that don't fit the device, before anything is measured.

    Raises:
        BadInputError: With the option.
    """
    check_own_time(device)
    kind = "simulated" if device.info.simulated else device.info.kind
    try:
        check_options(kind, settings.mode, settings.dtype, settings.l2, where=device.spec)
    except BadInputError as error:
        if "no_gpu" not in device.info.details:
            raise
        raise BadInputError(f"{error}; {SIMULATE_GPU}; no GPU: {device.info.details['no_gpu']}") from None
    if settings.mode == "compile" and settings.detail != "model" and device.info.kind == "cpu":
        raise BadInputError(
            f"--detail {settings.detail} with --mode compile on {device.spec}: compiled code on a CPU has no operators"
        )


_LOW = {"bf16": ("avx512_bf16", "amx_bf16", "bf16"), "fp16": ("avx512_fp16", "amx_fp16", "fphp")}
"""Flags of CPUs that compute in a number format, by its name."""


def slow_cpu(device: Device, settings: ProfileSettings) -> list[str]:
    """Why a workload will be slow on a CPU: busy cores, a number format that it lacks; a line each."""
    if device.info.kind != "cpu":
        return []
    remarks, cores = [], os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > cores:
        remarks.append(f"busy: {load:.0f} programs want the {cores} cores here: times will be longer and scatter")
    dtype = "bf16" if settings.dtype == "amp" else settings.dtype or ""
    if dtype in _LOW and not has_flag(_LOW[dtype]):
        remarks.append(f"slow: this CPU has no instructions for {dtype}, and emulates them: --dtype fp32 is faster")
    return remarks


def has_flag(names: Collection[str], path: Path = Path("/proc/cpuinfo")) -> bool:
    """True if the CPU has one of these features, or if that can't be seen."""
    try:
        words = path.read_text().split()
    except OSError:
        return True
    return not words or any(name in words for name in names)


def check_own_time(device: Device) -> None:
    """Refuse to run a load on a simulated GPU in real time.

    Raises:
        BadInputError: With the device. The recording process would open a separate GPU, on which nothing runs.
    """
    if device.info.simulated and not device.clock.virtual:
        raise BadInputError(f"{device.spec}: a load on a simulated GPU runs in virtual time; leave out realtime=1")


def load_libraries(workload: Workload, device: Device, settings: ProfileSettings) -> None:
    """Import slow libraries, which touches no GPU; without looks for garbage, which take a sixth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        _backend_of(device, settings).load_libraries(workload, device)
    finally:
        if collects:
            gc.enable()


def prepare(workload: Workload, device: Device, settings: ProfileSettings) -> Prepared:
    """Build the workload on the device and its step; from here on a GPU has a context.

    Raises:
        BadInputError: If the options don't fit the workload.
        NotPossibleError: If a library, memory or a CUDA device is missing.
    """
    warnings = workload.warnings() if isinstance(workload, ObjectWorkload) and settings.task != "train" else []
    prepared: Prepared = _backend_of(device, settings).prepare(workload, device, settings, options_of(settings))
    prepared.warnings += warnings
    return prepared


def options_of(settings: ProfileSettings) -> WorkloadOptions:
    """How to build the workload of a profile."""
    names = {option.name for option in fields(WorkloadOptions)}
    return WorkloadOptions(**{name: value for name, value in asdict(settings).items() if name in names})


def _backend_of(device: Device, settings: ProfileSettings) -> ModuleType:
    if settings.backend in ("auto", "torch"):
        return _backend("simulated" if device.info.simulated else "torch")
    return _backend(settings.backend)


def _backend(name: str) -> ModuleType:
    """The backend of that name.

    Raises:
        BadInputError: If it is that of an engine, which runs no workloads.
    """
    homes = registered("backends", _HOMES)
    if name not in homes:
        raise BadInputError(f"--backend {name} times engines, only by jouletrace profile on the command line")
    return import_module(homes[name])
