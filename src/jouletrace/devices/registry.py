"""Opens devices by the user's names: ``auto``, ``cuda:N``, a UUID, ``cpu``, ``sim:NAME``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module

from jouletrace import higher
from jouletrace.devices.base import Device, Vendor, named
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run import DeviceInfo
from jouletrace.wing import wings

VENDORS = [
    "jouletrace.devices.nvml.vendor",
    "jouletrace.devices.rapl",
    "jouletrace.devices.host",
]
"""Modules whose ``VENDOR`` opens devices, loaded in turn until one recognises a name; also the order of lists. Those of
wings follow, then those above this package: a wing may open some of the names that these would."""


_SIMULATED = re.compile(r"sim:|(?i:\w+-SIM-)")
"""How names of simulated GPUs begin, and ids of what is on one."""


def open_device(spec: str) -> Device:
    """Open one device by its name.

    It is "auto" (the first GPU that CUDA shows, else the CPU), "cuda:N", the UUID of a GPU or MIG instance or an
    unambiguous beginning of it, "cpu", or "sim:NAME".

    Raises:
        BadInputError: If the device doesn't exist; the message lists the existing ones.
        NotPossibleError: If the driver or nvidia-ml-py is missing.
    """
    name = spec.strip()
    if name == "auto":
        return _open_auto()
    for vendor in _vendors():
        if vendor.names.fullmatch(name):
            return vendor.open(name)
    if name in ("all", "visible"):
        raise BadInputError(f"{name} may mean several devices, but one is required here: {_forms()}")
    raise BadInputError(f"unknown device {spec!r}: it may be {_forms()}; here are {named(list_devices())}")


def open_devices(specs: Sequence[str], *, real_time: bool = False) -> list[Device]:
    """Open several devices, each once even if it is named several times.

    With ``real_time`` simulated GPUs run in real time unless their name says otherwise: something else that takes
    time is recorded.

    Besides the names of ``open_device``, "all" means every whole GPU and "visible" every GPU or MIG instance that CUDA
    shows to this process; both mean the CPU on a machine without a GPU.

    Raises:
        BadInputError, NotPossibleError: As ``open_device``; those opened before are closed again.
    """
    names = [name for spec in specs for name in _expanded(spec.strip())]
    if real_time:
        names = [in_real_time(name) for name in names]
    opened: dict[str, Device] = {}
    try:
        for name in names:
            device = open_device(name)
            if (other := opened.get(device.info.id)) is not None:
                device.close()
                if device.info.simulated and device.spec != other.spec:
                    raise BadInputError(f"{other.spec} and {name} are one simulated GPU: &seed=1 makes it another")
            else:
                opened[device.info.id] = device
    except BaseException:
        for device in opened.values():
            device.close()
        raise
    if not opened:
        raise BadInputError(f"no device is named: it may be all, visible, {_forms()}")
    return list(opened.values())


def is_simulated(spec: str) -> bool:
    """True if a name is that of a simulated GPU or of something on one."""
    return _SIMULATED.match(spec) is not None


def in_real_time(spec: str) -> str:
    """The name of the same simulated GPU in real time, unless it chooses its time itself; other names as they are."""
    if not is_simulated(spec) or "realtime=" in spec:
        return spec
    return f"{spec}{'&' if '?' in spec else '?'}realtime=1"


def one_or_several(function: str, device: object, label: object = None) -> list[str]:
    """The names given as ``device`` of a Python function, also as a ``torch.device``; "visible" if it is None.

    Raises:
        BadInputError: If something else than names is given, or one as the ``label``, which comes first.
        NotPossibleError: If no device is named.
    """
    if device is None and isinstance(label, str) and label.startswith(("sim:", "cuda:")):
        raise BadInputError(f"{function}: {label!r} is the label here: write device={label!r}")
    if device is None:
        return ["visible"]
    several = list(device) if isinstance(device, Sequence) and not isinstance(device, str) else [device]
    names = [name for given in several if (name := _name(given)) is not None]
    if len(names) < len(several):
        raise BadInputError(f"{function}: device={device!r}: must be a name, or a list of names")
    if not names:
        raise NotPossibleError(f"{function}: no device was named")
    return names


def only_one(device: object) -> str:
    """The name given as ``device`` of a Python function that takes one, also as a ``torch.device``.

    Raises:
        BadInputError: If something else is given.
    """
    name = _name(device)
    if name is None:
        raise BadInputError(f"device={device!r}: must be a name, such as 'cuda:0' or 'cpu', or a torch.device")
    return name


def _name(device: object) -> str | None:
    """The name that is given, or that of a ``torch.device``; None for all else."""
    kind = getattr(sys.modules.get("torch"), "device", str)  # without torch there are none
    return str(device) if isinstance(device, (str, kind)) else None


def list_devices() -> list[DeviceInfo]:
    """All devices: GPUs in NVML's order, each followed by its MIG instances, then the CPU."""
    return [info for vendor in _vendors() for info in vendor.listed()]


def _vendors() -> Iterator[Vendor]:
    return (import_module(name).VENDOR for name in (*VENDORS, *_of_wings(), *higher.VENDORS))


def _of_wings() -> list[str]:
    return [module for wing in wings().values() for module in wing.devices]


def _forms() -> str:
    return ", ".join(["auto", *filter(None, (vendor.form for vendor in _vendors()))])


def _expanded(spec: str) -> list[str]:
    if spec == "all":
        return [info.id for info in list_devices() if info.kind == "gpu"] or ["auto"]
    return (_visible()[0] or ["auto"]) if spec == "visible" else [spec]


def _visible() -> tuple[list[str], str]:
    """Names of the GPUs that this process may use, and why those of some vendors are missing."""
    names: list[str] = []
    reasons: list[str] = []
    for module in (*VENDORS, *_of_wings()):  # those above have no hardware
        try:
            names += import_module(module).VENDOR.visible()
        except NotPossibleError as error:
            reasons.append(str(error))
    return names, "; ".join(reasons)


def _open_auto() -> Device:
    names, reason = _visible()
    device = open_device(names[0] if names else "cpu")
    if not names:
        device.info.details["no_gpu"] = reason
    return device
