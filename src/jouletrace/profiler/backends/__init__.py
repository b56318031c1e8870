"""Backends that run a workload: torch on a device, a simulated GPU, a runtime of the addons; one module each."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError
from jouletrace.profiler.backends.base import Backend

_HOMES = {
    "torch": "jouletrace.profiler.backends.torch",
    "simulated": "jouletrace.profiler.backends.simulated",
    "onnxruntime": "jouletrace.addons.runtimes.backend",
    "openvino": "jouletrace.addons.runtimes.backend",
}
"""The module of each backend, which implements ``Backend`` and is imported at first use."""


def backend_of(device: Device, name: str) -> Backend:
    """The backend for a device.

    Args:
        device: An opened device.
        name: ``--backend``: one of ``settings.RUN_BY``.

    Raises:
        BadInputError: As ``named``.
    """
    if name in ("auto", "torch"):
        return named("simulated" if device.info.simulated else "torch")
    return named(name)


def named(name: str) -> Backend:
    """The backend of that name, one of ``_HOMES``.

    Raises:
        BadInputError: If it runs no workloads: trtexec.
    """
    if name not in _HOMES:
        raise BadInputError(f"--backend {name} times engines, only by jouletrace profile on the command line")
    return cast(Backend, import_module(_HOMES[name]))
