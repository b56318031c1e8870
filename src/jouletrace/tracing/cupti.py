"""Kernel records from ``libcupti`` by ctypes: buffers are kept raw and decoded afterwards.

Tracing slows the traced process, and leaves about one percent of slowdown after its end: trace last, or in a separate
process.
"""

from __future__ import annotations

import ctypes
import glob
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import NotPossibleError
from jouletrace.tracer.names import demangle
from jouletrace.tracing.decode import KERNEL, MEMCPY, MEMSET, Chunks, Layouts, column, decode, layouts_for

BUFFER_BYTES = 8 * 2**20

_ENABLE_CALL, _WAITING_CALLS = "cuptiActivityEnableRuntimeApi", (131, 137, 165)
"""Calls of CUDA's runtime in which the host waits for the GPU, by CUPTI's numbers (``cupti_runtime_cbid.h``):
cudaStreamSynchronize, cudaEventSynchronize, cudaDeviceSynchronize. Records of the kind SYNCHRONIZATION say more and
slow every launch: an eager program that the host limits takes 25 to 40 % longer with them, and 10 % with these
(docs/results/run-h100.md).
"""

_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)

_ERRORS = {
    15: "CUPTI is not initialised: check that a CUDA driver is installed",
    35: "no permission to trace: ask the administrator for NVreg_RestrictProfilingToAdminUsers=0, or run as root",
    36: "another profiler holds the GPU through an older interface: end it first",
    39: "another profiler holds CUPTI in this process: end it first",
    40: "no permission to trace in this virtual machine: the host must allow profiling",
    43: "kernels can't be traced on a MIG instance with this driver",
}


def find_library() -> Path | None:
    """The ``libcupti`` to use: the one loaded already, else the one installed with torch, else the system's."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        maps = ""
    if loaded := re.search(r"\S*/libcupti\.so[.\d]*", maps):
        return Path(loaded.group())
    places = [f"{folder}/nvidia/*/lib/libcupti.so.*" for folder in sys.path if folder]
    places += ["/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so.*", "/usr/local/cuda*/lib64/libcupti.so.*"]
    for pattern in places:
        if found := sorted(glob.glob(pattern)):
            return Path(found[-1])
    return None


class Cupti:
    """The required calls of the library, with every result checked.

    Raises:
        NotPossibleError: If the library is missing or older than CUDA 12.
    """

    def __init__(self, path: Path | None = None) -> None:
        path = path or find_library()
        if path is None:
            raise NotPossibleError("kernel tracing: libcupti is not installed; CUDA builds of torch include it")
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise NotPossibleError(f"kernel tracing: {path} can't be loaded: {error}") from None
        version = ctypes.c_uint32()
        self.call("cuptiGetVersion", ctypes.byref(version))
        found = layouts_for(version.value)
        if found is None:
            raise NotPossibleError(f"kernel tracing: {path} is version {version.value}; CUDA 12 or later is required")
        self.layouts: Layouts = found

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of the library.

        Raises:
            NotPossibleError: If it returns an error, with its meaning.
        """
        result = int(getattr(self._library, function)(*arguments))
        if result:
            text = ctypes.c_char_p()
            self._library.cuptiGetResultString(result, ctypes.byref(text))
            said = f": {text.value.decode()}" if text.value else f" with error {result}"
            raise NotPossibleError(f"kernel tracing: {_ERRORS.get(result) or f'{function} failed{said}'}")

    def has(self, function: str) -> bool:
        """Whether this version has a function."""
        return hasattr(self._library, function)

    def next_record(self, buffer: int, valid: int, record: ctypes.c_void_p) -> bool:
        """Advance ``record`` to the next record of a buffer by CUPTI's own iteration; False at the end."""
        return not self._library.cuptiActivityGetNextRecord(
            ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
        )


class CuptiTracer:
    """Records activity between ``start`` and ``stop``.

    Args:
        kinds: Record kinds to enable (``layouts``).
        waits: Whether calls in which the host waits for the GPU are recorded, as RUNTIME.
        cupti: The library; located by ``find_library`` if None.

    Attributes:
        dropped: Number of records that CUPTI dropped, known after ``stop``.
    """

    def __init__(
        self, kinds: tuple[int, ...] = (KERNEL, MEMCPY, MEMSET), *, waits: bool = False, cupti: Cupti | None = None
    ) -> None:
        self.cupti = cupti or Cupti()
        self.dropped = 0
        self._kinds = kinds
        self._calls = _WAITING_CALLS if waits and self.cupti.has(_ENABLE_CALL) else ()
        self._open: dict[int, Any] = {}
        self._free: list[Any] = []
        self._filled: list[tuple[Any, int]] = []
        # CUPTI may call these for as long as the process lives, so the ctypes callbacks must not be collected.
        self._requested = _REQUESTED(self._on_requested)
        self._completed = _COMPLETED(self._on_completed)
        _KEPT.append((self._requested, self._completed))

    def start(self, spare_buffers: int = 4) -> None:
        """Enable recording; ``spare_buffers`` of 8 MB are allocated beforehand.

        Raises:
            NotPossibleError: Without permission, or while another profiler holds CUPTI.
        """
        self._free = [_buffer() for _ in range(spare_buffers)]
        self.cupti.call("cuptiActivityRegisterCallbacks", self._requested, self._completed)
        self._enable(True)

    def _enable(self, on: bool) -> None:
        for kind in self._kinds:
            self.cupti.call("cuptiActivityEnable" if on else "cuptiActivityDisable", ctypes.c_int(kind))
        for call in self._calls:
            self.cupti.call(_ENABLE_CALL, ctypes.c_uint32(call), ctypes.c_uint8(on))

    def stop(self) -> None:
        """Disable recording, flush all buffers, and count dropped records."""
        self._enable(False)
        self.cupti.call("cuptiActivityFlushAll", ctypes.c_uint32(1))
        dropped = ctypes.c_size_t()
        self.cupti.call("cuptiActivityGetNumDroppedRecords", None, ctypes.c_uint32(0), ctypes.byref(dropped))
        self.dropped += dropped.value
        self._free = []  # this object lives as long as the process

    def buffers(self) -> list[NDArray[np.uint8]]:
        """The valid part of each buffer filled so far, without copying."""
        return [_bytes(*one) for one in self._filled if one[1]]

    @property
    def filled_bytes(self) -> int:
        """Bytes of records that CUPTI has handed over."""
        return sum(valid for _, valid in self._filled)

    def take(self) -> list[NDArray[np.uint8]]:
        """As ``buffers``, which are the caller's from then on."""
        filled, self._filled = self._filled, []
        return [_bytes(*one) for one in filled if one[1]]

    def records(self) -> Chunks:
        """All records by kind; see ``decode``."""
        return decode(self.buffers(), self.cupti.layouts)

    def names(self, pointers: Iterable[int]) -> dict[int, str]:
        """Demangled kernel names by pointer; pointers are valid only in this process."""
        return {pointer: demangle(ctypes.string_at(pointer)) if pointer else "" for pointer in pointers}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _on_requested(self, buffer: Any, size: Any, most: Any) -> None:
        raw = self._free.pop() if self._free else _buffer()
        address = ctypes.addressof(raw)
        self._open[address] = raw
        buffer[0], size[0], most[0] = address, BUFFER_BYTES, 0

    def _on_completed(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        self._filled.append((self._open.pop(buffer), valid))


CHECKED_RECORDS = 1000
"""Records checked per buffer: a wrong layout is wrong in all records, and a million CUPTI calls take 4 s."""

_KEPT: list[tuple[Callable[..., None], Callable[..., None]]] = []


def _buffer() -> Any:
    return (ctypes.c_uint8 * BUFFER_BYTES)()


def _bytes(raw: Any, valid: int) -> NDArray[np.uint8]:
    return np.frombuffer(raw, np.uint8, count=valid)


def check_layouts(tracer: CuptiTracer, before_ns: int, after_ns: int) -> list[str]:
    """Compare the layouts with records that a stopped tracer has just traced; returns the problems, if any.

    CUPTI's own iteration must locate the first records of each buffer at the offsets of the layouts, and all times,
    grids and sizes must be plausible. Unix times are before the first launch and after the last kernel's end.
    """
    for number, buffer in enumerate(tracer.buffers()):
        address, record = buffer.ctypes.data, ctypes.c_void_p()
        at = 0
        for _ in range(CHECKED_RECORDS):
            if not tracer.cupti.next_record(address, len(buffer), record):
                break
            offset = (record.value or 0) - address
            if offset != at:
                return [f"buffer {number}: a record lies at byte {offset}, not {at}"]
            kind = int(buffer[offset : offset + 4].view(np.uint32)[0])
            dtype = tracer.cupti.layouts.get(kind)
            if dtype is None:
                return [f"buffer {number}, byte {offset}: unknown kind {kind}"]
            at += dtype.itemsize
    kernels = tracer.records().get(KERNEL, [])
    if not sum(map(len, kernels)):
        return ["no kernel was recorded"]
    start, end, grid, block = (column(kernels, name) for name in ("start", "end", "grid", "block"))
    problems = []
    if not ((start < end) & (start > before_ns) & (end < after_ns)).all():
        problems.append("kernel times do not lie between the launches' host times")
    if (grid < 1).any() or (block < 1).any() or (block.prod(axis=1) > 1024).any():
        problems.append("grids or blocks of kernels are impossible")
    return problems
