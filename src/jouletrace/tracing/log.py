"""All kernels of a process for as long as it runs, and marks in the order of their launches.

CUPTI numbers launches. A mark launches a set of a few bytes on a stream of its own, so that its number lies between
those of the kernels launched before and after it, on whatever thread: what a kernel belongs to is known although it
runs later than it was launched. Records of API calls would say the same and take twice as long.
"""

from __future__ import annotations

import ctypes
import threading

import numpy as np
from numpy.typing import NDArray

from jouletrace.tracer.names import demangle
from jouletrace.tracer.process_trace import Ints, Launched
from jouletrace.tracing.cupti import CuptiTracer
from jouletrace.tracing.decode import KERNEL, MEMCPY, MEMSET, RUNTIME, decode

MARK_BYTES = 64
"""Most bytes of a mark. Its number modulo this, plus one, is its size: missing records are noticed."""

_COPIES = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
"""By ``copy_kind``: CUpti_ActivityMemcpyKind."""

_NON_BLOCKING, _RELAXED = 1, 2
"""CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_RELAXED."""


class KernelLog:
    """Traces this process from ``start`` to ``stop``; one per process.

    Attributes:
        dropped: Records that CUPTI dropped; known after ``stop``.
    """

    def __init__(self) -> None:
        self.dropped = self._decoded = 0
        self._tracer = CuptiTracer((KERNEL, MEMCPY, MEMSET), waits=True)
        self._syncs: list[Ints] = []
        self._parts: list[dict[str, Ints]] = []
        self._codes: dict[str, int] = {}
        self._of_pointer: dict[int, int] = {}
        self._marks: list[int] = []
        self._taking = threading.Lock()
        self._marker = _Marker()

    def start(self) -> None:
        """Begin, before the first CUDA call of the process or after it.

        Raises:
            NotPossibleError: Without permission, or while another profiler holds CUPTI.
        """
        self._tracer.start()

    def pause(self) -> None:
        """Trace nothing until ``resume``."""
        self._tracer.stop()
        self.take_in()

    def resume(self) -> None:
        """Trace again."""
        self._tracer.start(spare_buffers=1)

    def stop(self) -> None:
        """End. The caller has waited for the GPU."""
        self.pause()
        self.dropped = self._tracer.dropped

    def mark(self, meaning: int) -> bool:
        """Mark the place between the last launch and the next; False without a CUDA context."""
        with self._taking:
            marked = self._marker.set(1 + len(self._marks) % MARK_BYTES)
            if marked:
                self._marks.append(meaning)
            return marked

    def take_in(self) -> None:
        """Decode what CUPTI has handed over."""
        with self._taking:
            full = self._tracer.take()
            chunks = decode(full, self._tracer.cupti.layouts)
            for chunk in chunks.get(RUNTIME, []):
                self._syncs.append(np.stack([chunk["start"], chunk["end"]], axis=1).astype(np.int64))
            for kind, name_of in ((KERNEL, self._kernel_codes), (MEMCPY, self._copy_codes), (MEMSET, self._set_codes)):
                for chunk in chunks.get(kind, []):
                    self._decoded += len(chunk)
                    part = {k: chunk[k].astype(np.int64) for k in ("start", "end", "correlation", "device", "stream")}
                    part["bytes"] = chunk["bytes"].astype(np.int64) if kind == MEMSET else np.zeros(len(chunk), int)
                    self._parts.append({"name": name_of(chunk), **part})

    @property
    def kernels(self) -> int:
        """Records so far, about."""
        return self._decoded + self._tracer.filled_bytes // self._tracer.cupti.layouts[KERNEL].itemsize

    def launched(self) -> tuple[Launched, Ints, list[int]]:
        """All work but the marks, the launch number of each mark that was recorded, and the meanings of these."""
        columns = ("name", "start", "end", "correlation", "device", "stream", "bytes")
        whole = {k: np.concatenate([np.zeros(0, int), *(part[k] for part in self._parts)]) for k in columns}
        mine = whole["stream"] == -1
        memset = whole["name"] == self._codes.get("memset", -2)
        if self._marks and memset.any():
            mine = memset & np.isin(whole["stream"], self._mark_streams(whole, memset))
        order = np.argsort(whole["correlation"][mine], kind="stable")
        numbers, sizes = whole["correlation"][mine][order], whole["bytes"][mine][order]
        meanings = self._meanings(sizes)
        rest = np.flatnonzero(~mine)
        rest = rest[np.lexsort((whole["start"][rest], whole["correlation"][rest]))]
        found = [whole[k][rest] for k in ("name", "start", "end", "correlation", "device")]
        return Launched(tuple(self._codes), *found), numbers[: len(meanings)], meanings

    def syncs(self) -> Ints:
        """When the host waited for the GPU, ns, in order; shape (m, 2)."""
        found = np.concatenate([np.empty((0, 2), np.int64), *self._syncs])
        return found[np.argsort(found[:, 1], kind="stable")]

    def _mark_streams(self, whole: dict[str, Ints], memset: NDArray[np.bool_]) -> Ints:
        """The streams of marks: nothing else runs there, and all sets are small."""
        streams = np.unique(whole["stream"][memset])
        others = np.unique(whole["stream"][~memset])
        small = [s for s in streams if whole["bytes"][memset & (whole["stream"] == s)].max() <= MARK_BYTES]
        return np.setdiff1d(np.array(small, np.int64), others)

    def _meanings(self, sizes: Ints) -> list[int]:
        """The meaning of each recorded mark; sizes show which ones are missing."""
        found, at = [], 0
        for size in sizes.tolist():
            at += (size - 1 - at) % MARK_BYTES
            if at >= len(self._marks):
                break
            found.append(self._marks[at])
            at += 1
        return found

    def _code(self, name: str) -> int:
        return self._codes.setdefault(name, len(self._codes))

    def _kernel_codes(self, chunk: NDArray[np.void]) -> Ints:
        pointers, which = np.unique(chunk["name"], return_inverse=True)
        for pointer in pointers.tolist():
            if pointer not in self._of_pointer:
                name = demangle(ctypes.string_at(pointer)) if pointer else "kernel"
                self._of_pointer[pointer] = self._code(name)
        return np.array([self._of_pointer[p] for p in pointers.tolist()], np.int64)[which.reshape(-1)]

    def _copy_codes(self, chunk: NDArray[np.void]) -> Ints:
        kinds, which = np.unique(chunk["copy_kind"], return_inverse=True)
        names = [f"memcpy {_COPIES[k]}".strip() if k < len(_COPIES) else "memcpy" for k in kinds.tolist()]
        return np.array([self._code(name) for name in names], np.int64)[which.reshape(-1)]

    def _set_codes(self, chunk: NDArray[np.void]) -> Ints:
        return np.full(len(chunk), self._code("memset"), np.int64)


class _Marker:
    """Sets bytes on a stream of its own, in the context of the calling thread."""

    def __init__(self) -> None:
        self._driver: ctypes.CDLL | None = None
        self._places: dict[int, tuple[ctypes.c_uint64, ctypes.c_void_p] | None] = {}

    def set(self, size: int) -> bool:
        """Launch a set of ``size`` bytes; False if this thread has no context."""
        if self._driver is None:
            try:
                self._driver = ctypes.CDLL("libcuda.so.1")
            except OSError:
                return False
        context = ctypes.c_void_p()
        if self._driver.cuCtxGetCurrent(ctypes.byref(context)) or not context.value:
            return False
        if context.value not in self._places:
            self._places[context.value] = self._place()
        place = self._places[context.value]
        if place is None:
            return False
        memory, stream = place
        return not self._driver.cuMemsetD8Async(memory, ctypes.c_ubyte(0), ctypes.c_size_t(size), stream)

    def _place(self) -> tuple[ctypes.c_uint64, ctypes.c_void_p] | None:
        assert self._driver is not None
        memory, stream, mode = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_int(_RELAXED)
        # This thread may capture a graph, which an allocation would break.
        self._driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        try:
            if self._driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(MARK_BYTES)):
                return None
            if self._driver.cuStreamCreate(ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING)):
                return None
        finally:
            self._driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        return memory, stream
