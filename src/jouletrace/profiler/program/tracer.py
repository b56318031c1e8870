"""Traces this process during a recording, from its first CUDA call on: kernels, ranges, operators, waits for data."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

import numpy as np

from jouletrace.devices.cuda_order import cuda_uuids
from jouletrace.errors import NotPossibleError
from jouletrace.profiler.measure import synchronize
from jouletrace.profiler.program import wrapped
from jouletrace.profiler.program.duty import Cycle
from jouletrace.profiler.program.imports import AfterImport
from jouletrace.profiler.program.launch_marks import owners_of
from jouletrace.profiler.program.operators import OperatorSampler
from jouletrace.profiler.program.range_marks import RangeMarks
from jouletrace.profiler.program.wrapped import Wrapped
from jouletrace.profiler.record.annotations import Annotations
from jouletrace.profiler.record.ranks import this_rank
from jouletrace.tracer.launching import CUDA, FOLDER, Duty
from jouletrace.tracer.process_trace import ProcessTrace, Segment
from jouletrace.tracing.log import KernelLog

LOOK_S = 0.25
"""Time between looks at the program."""

MOST_LOADS = 1_000_000
"""Largest number of calls of a data loader whose times are kept."""

PATIENCE_S = 2.0
"""Longest wait for the GPU at the end: a collective whose peer has died never ends."""

_RANGES = ("torch.cuda.nvtx", "nvtx.nvtx")
"""Modules whose ranges are marked."""

_CUDA_USERS = ("cupy", "jax", "numba.cuda", "pycuda.driver", "tensorflow", "cuda.bindings.driver", "cuda.core")
"""Libraries that start CUDA themselves: tracing begins with their import. That of torch begins with its first call."""


class Tracer:
    """Traces this process.

    Args:
        name: What the process runs.
        operators: Whether operators and modules are sampled.
        duty: Which part is traced.
        time_ns: As in ``Marks``.
        annotations: Whether ranges of NVTX and ``record_function`` are marked.
        wait: Whether the caller waits until tracing has begun, where CUDA runs already.

    Attributes:
        problem: Why kernels are missing; "" if they aren't.
        notes: Codes and messages about what is missing.
        ran: Whether CUDA ran before.
        tracing: The one that traces this process; None if none does.
    """

    tracing: ClassVar[Tracer | None] = None

    def __init__(
        self,
        name: str,
        *,
        operators: bool = True,
        duty: Duty | None = None,
        time_ns: Callable[[], int] = time.time_ns,
        annotations: bool = True,
        wait: bool = True,
    ) -> None:
        self.name, self._pick_up = name, annotations
        self.problem, self.notes = "", list[tuple[str, str]]()
        self.loads: list[tuple[int, int]] = []
        self._owner, self._over = os.getpid(), False
        self._log: KernelLog | None = None  # before CUDA runs
        self._duty = duty or Duty()
        self._cycle = Cycle(self._duty, 0.0)
        self._segments = list[Segment]()
        self._segment_ns: int | None = None
        self._rank: int | None = None
        self._held = self._resumes = False  # whether torch's profiler holds CUPTI, and whether its end resumes tracing
        self._ending = threading.Event()
        self.marks = RangeMarks(self._mark, time_ns)
        self.sampler = OperatorSampler(self._mark) if operators else None
        self._annotations = Annotations(self.marks)
        self._state = threading.RLock()
        self._wrapped = Wrapped(self.begin, self._hold, self._release, self._waited)
        self._imports = AfterImport((*wrapped.MODULES, *_RANGES, *_CUDA_USERS), self._wrap).__enter__()
        self._wrap()
        self.ran = cuda_runs()
        if wait and self.ran:
            self.begin()
        self._thread = threading.Thread(target=self._keep_up, name="jouletrace-kernels", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Trace nothing in this fork."""
        self._over, self._state = True, threading.RLock()
        self._annotations.detach()

    def _mark(self, meaning: int) -> bool:
        """Mark the place between two launches; False where no mark is recorded, whose meaning others would get."""
        log = self._log
        return log is not None and not self._cycle.paused and os.getpid() == self._owner and log.mark(meaning)

    def begin(self) -> None:
        """Begin to trace, if it hasn't begun; called before CUDA starts."""
        with self._state:
            if self._over or self._log is not None or self.problem or os.getpid() != self._owner:
                return
            try:
                _check_free()
                log = KernelLog()
                log.start()
            except NotPossibleError as error:
                self.problem = str(error)
                return
            Tracer.tracing = self
            self._log, self._cycle = log, Cycle(self._duty, time.monotonic())
            self._segment_ns = time.time_ns()

    def _keep_up(self) -> None:
        mine = os.getpid()
        if cuda_runs():
            self.begin()
        while not self._ending.wait(LOOK_S) and os.getpid() == mine:
            self._wrap()
            self._rank = self._rank if self._rank is not None else _rank()
            log = self._log
            if log is None:
                if cuda_runs():
                    self.begin()
                continue
            if self.sampler is not None:
                self.sampler.look()
            try:
                self._follow_duty(log)
            except (NotPossibleError, ValueError) as error:
                self.problem = f"{error}; kernels after that are missing"
                return

    def _follow_duty(self, log: KernelLog) -> None:
        """Pause or resume if it is due."""
        if self._held or not self._cycle.due(time.monotonic(), log.kernels):
            return
        if self._cycle.paused:
            self._resume()
        else:
            self._cycle.count(log.kernels)
            self._pause()

    def _pause(self) -> None:
        with self._state:
            if self._log is None or self._cycle.paused:
                return
            self._end_segment()
            self._cycle.changed(time.monotonic(), paused=True)
            self._log.pause()

    def _resume(self) -> None:
        with self._state:
            if self._log is None or not self._cycle.paused or self._over:
                return
            self._log.resume()
            self._cycle.changed(time.monotonic(), paused=False)
            self._segment_ns = time.time_ns()

    def _end_segment(self) -> None:
        if self._segment_ns is not None:
            self._segments.append((self._segment_ns, time.time_ns()))
            self._segment_ns = None

    def _wrap(self) -> None:
        """Wrap what the program has imported since."""
        if self._over or os.getpid() != self._owner:
            return
        if self._pick_up:
            self._annotations.attach()
        self._wrapped.look()
        if any(name in sys.modules for name in _CUDA_USERS):
            self.begin()

    def _hold(self) -> None:
        """Leave CUPTI to torch's profiler, which the program starts."""
        if self._log is None or self._held:
            return
        self._held, self._resumes = True, not self._cycle.paused
        if self._resumes:
            with suppress(NotPossibleError, ValueError):
                self._pause()
        text = "torch's profiler, which the program uses, holds CUPTI meanwhile: kernels of that time are like those"
        self.notes.append(("profiler_inside", f"{text} before and after it"))

    def _release(self) -> None:
        if not self._held:
            return
        self._held = False
        try:
            if self._resumes:
                self._resume()
        except NotPossibleError as error:
            self.problem = f"{error}; kernels after torch's profiler are missing"

    def _waited(self, begin_ns: int, end_ns: int) -> None:
        if len(self.loads) < MOST_LOADS:
            self.loads.append((begin_ns, end_ns))

    def end(self) -> ProcessTrace | None:
        """End tracing; what ran, and None if nothing was traced."""
        with self._state:
            if self._over:
                return None
            self._over = True
        self._ending.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(10.0)
        self._imports.__exit__()
        self._annotations.detach()
        self._wrapped.undo()
        if self.sampler is not None:
            self.sampler.end()
        log = self._log
        if log is None:
            return None
        settle()
        if self._cycle.paused:  # what came last is like what was traced before it
            self._segment_ns = time.time_ns()
        self._end_segment()
        try:
            log.stop()
        except (NotPossibleError, ValueError) as error:
            self.problem = str(error)
        Tracer.tracing = None
        if log.dropped:
            self.notes.append(("records_dropped", f"the tracer dropped {log.dropped} records: kernels are missing"))
        work, number, meanings = log.launched()
        self._log = None
        labels = self.sampler.labels if self.sampler is not None else []
        unsampled = self.sampler.problem if self.sampler is not None and not labels else ""
        return ProcessTrace(
            pid=os.getpid(),
            name=self.name,
            rank=self._rank if self._rank is not None else _rank(),
            devices=cuda_uuids() or [],
            work=work,
            owners=owners_of(work, number, np.array(meanings, np.int64), labels, self.marks.paths),
            segments=self._segments,
            loads=self.loads,
            syncs=log.syncs(),
            notes=self.notes + ([("not_traced", f"kernels: {self.problem}")] if self.problem else []),
            unsampled=unsampled,
            dropped=log.dropped,
        )


def _check_free() -> None:
    """Raise if something else in this process has CUPTI, which would lose its records."""
    if Tracer.tracing is not None or {CUDA, FOLDER} <= os.environ.keys():
        raise NotPossibleError("this process is traced already, and its kernels are in that Run")
    inner = getattr(getattr(sys.modules.get("torch"), "_C", None), "_autograd", None)
    if inner is not None and inner._profiler_enabled():
        raise NotPossibleError("torch's profiler, which the program has started before, holds CUPTI")


def _rank() -> int | None:
    """The rank of this process by its launcher, or in torch's process group; None if it runs alone."""
    if (launched := this_rank()) is not None:
        return launched.rank
    torch = sys.modules.get("torch.distributed")
    with suppress(AttributeError, RuntimeError, ValueError):  # while it is imported or ends
        if torch is not None and torch.is_initialized() and torch.get_world_size() > 1:
            return int(torch.get_rank())
    return None


def settle() -> None:
    """Wait for the GPU, but not for ever."""

    def wait() -> None:
        with suppress(Exception):  # a fault of the program that shows now
            synchronize()

    waiting = threading.Thread(target=wait, name="jouletrace-settle", daemon=True)
    with suppress(RuntimeError):  # the interpreter shuts down
        waiting.start()
        waiting.join(PATIENCE_S)


def cuda_runs() -> bool:
    """Whether this process has started CUDA."""
    try:
        library = ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD)
    except OSError:
        return False
    return not library.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
