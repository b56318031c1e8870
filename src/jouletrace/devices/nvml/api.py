"""NVML behind one call: this module loads the library and translates all of its errors.

A call returns a value, raises ``Unavailable`` (this GPU, driver or user doesn't offer that
reading; the rest still works) or raises ``NotPossibleError`` (the GPU or the driver is gone).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jouletrace.errors import NotPossibleError

NOT_FOUND = 6
"""NVML_ERROR_NOT_FOUND: no such object; from ``nvmlDeviceGetSamples``, nothing new."""

# NVML's return codes are part of its ABI; an old pynvml lacks names for newer ones.
_ABSENT: dict[int, str] = {
    2: "not known to this driver (invalid argument)",
    3: "not supported by this GPU",
    4: "not permitted: needs root, or a driver that lets users read it",
    NOT_FOUND: "not found",
    10: "the driver timed out",
    13: "the driver is too old for it (function not found)",
    21: "no data",
    25: "driver and nvidia-ml-py disagree on a version",
    26: "deprecated by the driver",
    27: "not ready",
}
_GONE: dict[int, str] = {
    1: "NVML is not initialised",
    9: "the NVIDIA driver is not loaded",
    12: "the NVIDIA driver is not installed (libnvidia-ml.so.1 not found)",
    15: "the GPU is lost: it has fallen off the bus or is otherwise out of reach",
    16: "the GPU needs a reset before it can be used again",
    18: "driver and NVML library are of different versions: reboot after a driver update",
}

_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of ``nvmlValue_t``, in the order of ``nvmlValueType_t``."""


class Unavailable(Exception):
    """A reading that isn't available; the text states why.

    Attributes:
        code: NVML's return code if the call itself failed.
    """

    code: int | None = None


class NothingNew(Unavailable):
    """No sample is newer than the requested stamp."""


class Nvml:
    """The NVML library, initialised.

    Args:
        library: A substitute for the ``pynvml`` module; None for the real one.

    Raises:
        NotPossibleError: If nvidia-ml-py or the driver is missing.
    """

    def __init__(self, library: Any = None) -> None:
        self._lib = library if library is not None else _library()
        self.unreachable: list[str] = []
        try:
            self.call("nvmlInit")
        except Unavailable as error:
            raise NotPossibleError(f"no NVIDIA GPU can be read: {error}") from None
        self._open = True

    def call(self, function: str, *args: Any) -> Any:
        """Call a function of pynvml by name.

        Raises:
            Unavailable: If the reading isn't available here.
            NotPossibleError: If the GPU or the driver is gone.
        """
        entry = getattr(self._lib, function, None)
        if entry is None:
            raise Unavailable(f"nvidia-ml-py is too old for it (no {function})")
        try:
            return entry(*args)
        except self._lib.NVMLError as error:
            raise _translated(function, int(error.value), str(error)) from None

    def get(self, function: str, *args: Any) -> Any:
        """Like ``call``, but None where the reading isn't available."""
        try:
            return self.call(function, *args)
        except Unavailable:
            return None

    def field(self, handle: Any, field: int, scope: int = 0) -> float:
        """One value of ``nvmlDeviceGetFieldValues``, in NVML's unit.

        Raises:
            Unavailable, NotPossibleError: As ``call``.
        """
        answer = self.call("nvmlDeviceGetFieldValues", handle, [(field, scope)])[0]
        if answer.nvmlReturn != 0:
            raise _translated(f"field {field}", int(answer.nvmlReturn), "")
        return _value(answer.valueType, answer.value)

    def samples(self, handle: Any, kind: int, after_us: int) -> list[tuple[int, float]]:
        """``nvmlDeviceGetSamples``: (stamp in µs since the epoch, value in NVML's unit), by stamp.

        Raises:
            NothingNew: If no sample is newer than ``after_us``.
            Unavailable, NotPossibleError: As ``call``.
        """
        value_type, raw = self.call("nvmlDeviceGetSamples", handle, kind, after_us)
        # Only samples that are really newer: an unwritten slot has a stamp of 1970.
        return sorted((s.timeStamp, _value(value_type, s.sampleValue)) for s in raw if s.timeStamp > after_us)

    def constant(self, name: str) -> Any:
        """A constant of pynvml, or None if this version doesn't have it."""
        return getattr(self._lib, name, None)

    def handles(self) -> Iterable[Any]:
        """The handles of all GPUs that can be opened, in NVML's order (by PCI bus).

        A lost GPU must not hide the others; ``unreachable`` receives the reason why it is left out.
        """
        self.unreachable.clear()
        for index in range(int(self.get("nvmlDeviceGetCount") or 0)):
            try:
                yield self.call("nvmlDeviceGetHandleByIndex", index)
            except (Unavailable, NotPossibleError) as error:
                self.unreachable.append(f"GPU {index}: {error}")

    def close(self) -> None:
        """Release the library. Safe to call twice."""
        if self._open:
            self._open = False
            self.get("nvmlShutdown")


def text(value: Any) -> str | None:
    """A string of NVML, which old bindings return as bytes; None stays None."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _library() -> Any:
    try:
        import pynvml
    except ImportError:
        raise NotPossibleError(
            "no NVIDIA GPU can be read: the Python package nvidia-ml-py is missing (pip install nvidia-ml-py)"
        ) from None
    return pynvml


def _translated(function: str, code: int, message: str) -> Exception:
    if code in _GONE:
        return NotPossibleError(f"{_GONE[code]} ({function}, NVML error {code})")
    if code == NOT_FOUND and function == "nvmlDeviceGetSamples":
        return NothingNew("no sample is newer")
    absent = Unavailable(_ABSENT.get(code, f"NVML error {code} {message}".rstrip()))
    absent.code = code
    return absent


def _value(kind: int, value: Any) -> float:
    members: Sequence[str] = _VALUE_MEMBERS
    if not 0 <= kind < len(members):
        raise Unavailable(f"the driver answered in a value type that is unknown here ({kind})")
    return float(getattr(value, members[kind]))
