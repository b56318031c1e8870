"""Builds a step that is ready to run from a workload and a device."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from jouletrace import workloads
from jouletrace.devices.base import Device
from jouletrace.errors import SIMULATE_GPU, BadInputError
from jouletrace.execution.steps.registry import check_options
from jouletrace.profiler.backends import backend_of, named
from jouletrace.profiler.backends.base import Prepared, Runtime, lacks_phases, no_phases
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.workloads import ObjectWorkload
from jouletrace.workloads.base import Workload
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.saved_models import ModelFile
from jouletrace.workloads.user import UserWorkload


def resolve(workload: str | Workload) -> Workload:
    """A workload by its name or path, or the workload itself.

    Raises:
        BadInputError: If there is none of that name; the nearest are named.
    """
    return workloads.resolve(workload) if isinstance(workload, str) else workload


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
        device_for = cast(Runtime, named(settings.backend)).device_for
        return replace(settings, device=device_for(settings.backend, settings.device))
    if settings.threads is not None or settings.streams > 1 or settings.hint is not None:
        return replace(settings, backend="torch")  # which reports that it has no such options
    return settings


def check_has_phases(workload: Workload, settings: ProfileSettings) -> None:
    """Refuse to list phases of a workload that is known to have none before it is built.

    Raises:
        BadInputError: With the workloads that have phases, and the detail to use for others.
    """
    if lacks_phases(settings) and not isinstance(workload, UserWorkload | ObjectWorkload):
        raise BadInputError(no_phases(workload))


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


def check_own_time(device: Device) -> None:
    """Refuse to run a load on a simulated GPU in real time.

    Raises:
        BadInputError: With the device. The recording process would open a separate GPU, on which nothing runs.
    """
    if device.info.simulated and not device.clock.virtual:
        raise BadInputError(f"{device.spec}: a load on a simulated GPU runs in virtual time; leave out realtime=1")


def load_libraries(workload: Workload, device: Device, settings: ProfileSettings) -> None:
    """Import slow libraries, which touches no GPU; missing libraries are reported later, when they are used."""
    backend_of(device, settings.backend).load_libraries(workload, device)


def prepare(workload: Workload, device: Device, settings: ProfileSettings) -> Prepared:
    """Build the workload on the device and its step; from here on a GPU has a context.

    Raises:
        BadInputError: If the options don't fit the workload.
        NotPossibleError: If a library, memory or a CUDA device is missing.
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
        data=settings.data,
        max_new_tokens=settings.max_new_tokens,
        random=settings.random,
    )
    return backend_of(device, settings.backend).prepare(workload, device, settings, options)
