"""Traces this process from its first CUDA call to its end: kernels, ranges, operators, waits for data."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from jouletrace.devices.cuda_order import cuda_uuids
from jouletrace.errors import NotPossibleError
from jouletrace.profiler.measure import synchronize
from jouletrace.profiler.program.imports import AfterImport
from jouletrace.profiler.program.operators import OperatorSampler
from jouletrace.profiler.program.timeline import Marks
from jouletrace.profiler.program.traced import Segment, Traced
from jouletrace.profiler.record.annotations import Annotations
from jouletrace.profiler.record.ranges import Marks as RangesOfThreads
from jouletrace.profiler.record.ranges import Opened
from jouletrace.profiler.record.ranks import this_rank
from jouletrace.tracing.log import KernelLog

LOOK_S = 0.25
"""Time between looks at the program."""

FIRST_RANGE = 1 << 20
"""Meanings of marks from here on are ranges."""

MOST_LOADS = 1_000_000
"""Largest number of calls of a data loader whose times are kept."""

PATIENCE_S = 2.0
"""Longest wait for the GPU at the end: a collective whose peer has died never ends."""

_WRAPPED = ("torch.cuda", "torch.cuda.nvtx", "torch.autograd.profiler", "nvtx.nvtx", "torch.utils.data.dataloader")

_CUDA_USERS = ("cupy", "jax", "numba.cuda", "pycuda.driver", "tensorflow", "cuda.bindings.driver", "cuda.core")
"""Libraries that start CUDA themselves: tracing begins with their import. That of torch begins with its first call."""


@dataclass(frozen=True)
class Duty:
    """Which part of a program is traced: all of its beginning, and a part of every minute from then on.

    Attributes:
        first_s: Length of the beginning, s.
        first_kernels: Largest number of kernels of the beginning.
        traced_s, every_s: From then on, so many seconds in so many.
        most_kernels: Kernels after which ``every_s`` doubles, and after twice as many again: records stay in memory.
    """

    first_s: float = float("inf")
    first_kernels: int = 1_500_000
    traced_s: float = 5.0
    every_s: float = 60.0
    most_kernels: int = 4_000_000


class RangeMarks(RangesOfThreads):
    """Marks of ranges, which also mark the launches within them.

    Args:
        mark: Marks the place between two launches; False before CUDA runs, and while tracing pauses.
        time_ns: As in ``Marks``.
        keep: Whether the spans themselves are kept, for ``take``.
    """

    def __init__(
        self, mark: Callable[[int], bool], time_ns: Callable[[], int] = time.time_ns, keep: bool = False
    ) -> None:
        super().__init__(time_ns)
        self.paths: list[tuple[str, ...]] = []
        self._mark, self._keep = mark, keep
        self._index, self._unmarked, self._marking = dict[int, int](), list[int](), threading.RLock()

    def begin(self, name: str) -> Opened:
        """See ``Marks``."""
        opened = super().begin(name)
        with self._marking:
            number = self._index[opened.id] = len(self.paths)
            self.paths.append(opened.path)
            self._put(FIRST_RANGE + 2 * number)
        return opened

    def end(self, opened: Opened, sync: bool = False) -> None:
        """See ``Marks``."""
        with self._marking:
            number = self._index.pop(opened.id, None)
            if number is not None:
                self._close(number)
        super().end(opened, sync)
        if not self._keep:
            self.take()

    def _close(self, number: int) -> None:
        begun = FIRST_RANGE + 2 * number
        if begun not in self._unmarked:
            self._put(begun + 1)
            return
        self._unmarked.remove(begun)  # nothing was traced within it
        if number == len(self.paths) - 1:
            self.paths.pop()

    def _put(self, meaning: int) -> None:
        """Mark what is still unmarked, and this."""
        self._unmarked.append(meaning)
        while self._unmarked and self._mark(self._unmarked[0]):
            del self._unmarked[0]


@dataclass
class _Watch:
    """The state of tracing in one process.

    Attributes:
        log: None before CUDA runs.
        since, first: When it was last paused or resumed, and when it began; monotonic.
        kernels: Of those that are kept, up to the last change of the period.
        held, released: Whether torch's profiler holds CUPTI, and whether its end resumes tracing.
        begun: Whether the beginning, all of which is traced, is over.
        segments, segment_ns: Traced intervals, and the start of the present one.
        paused, every_s: Whether tracing is paused, and the present period.
    """

    log: KernelLog | None = None
    since: float = 0.0
    kernels: int = 0
    held: bool = False
    released: bool = False
    begun: bool = False
    first: float = 0.0
    segments: list[Segment] = field(default_factory=list)
    segment_ns: int | None = None
    paused: bool = False
    every_s: float = 0.0


class Tracer:
    """Traces this process, and a fork of it that starts CUDA itself.

    Args:
        name: What the process runs.
        operators: Whether operators and modules are sampled.
        duty: Which part is traced.
        begun: Called when tracing begins, with the process id.
        look: Called with this every ``LOOK_S``.
        time_ns: As in ``Marks``.
        keep: Whether ``marks`` keeps its spans.
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
        begun: Callable[[], None] = lambda: None,
        look: Callable[[Tracer], None] = lambda tracer: None,
        time_ns: Callable[[], int] = time.time_ns,
        keep: bool = False,
        annotations: bool = True,
        wait: bool = True,
    ) -> None:
        self.name, self._operators, self._duty = name, operators, duty or Duty()
        self._begun, self._look = begun, look
        self._time_ns, self._keep, self._pick_up = time_ns, keep, annotations
        self._state = threading.RLock()
        self._undo: list[Callable[[], None]] = []
        self._imports = AfterImport((*_WRAPPED, *_CUDA_USERS), self._wrap).__enter__()
        os.register_at_fork(after_in_child=partial(_call, weakref.WeakMethod(self._forked)))
        self._fresh()
        self._wrap()
        self.ran = cuda_runs()
        if wait and self.ran:
            self.begin()
        self._thread = self._started()

    def _fresh(self) -> None:
        """State of a process that has no kernels yet."""
        self.problem, self.notes = "", list[tuple[str, str]]()
        self.loads: list[tuple[int, int]] = []
        self._owner, self._over, self._forked_here = os.getpid(), False, False
        self._watch = _Watch()
        self._ending = threading.Event()
        self.marks = RangeMarks(self._mark, self._time_ns, self._keep)
        self.sampler = OperatorSampler(self._mark) if self._operators else None
        self._annotations = Annotations(self.marks)

    def _started(self) -> threading.Thread:
        thread = threading.Thread(target=self._keep_up, name="jouletrace-run", daemon=True)
        thread.start()
        return thread

    def _forked(self) -> None:
        """A fork traces itself if it may use CUDA, which it can't once its parent has."""
        if self._over:
            return
        had, annotations = self._watch.log is not None, self._annotations
        self._state = threading.RLock()
        annotations.detach()
        self._fresh()
        self._over, self._forked_here = had, True
        self._look = lambda tracer: None
        if not had:
            self._wrap()

    def leave(self) -> None:
        """Trace nothing in this fork, before the tracer's own handler of forks."""
        self._over, self._state = True, threading.RLock()
        self._annotations.detach()

    def _mark(self, meaning: int) -> bool:
        """Mark the place between two launches; False where no mark is recorded, whose meaning others would get."""
        log = self._watch.log
        return log is not None and not self._watch.paused and os.getpid() == self._owner and log.mark(meaning)

    def begin(self) -> None:
        """Begin to trace, if it hasn't begun; called before CUDA starts."""
        with self._state:
            if self._over or self._watch.log is not None or self.problem or os.getpid() != self._owner:
                return
            try:
                _check_free()
                log = KernelLog()
                log.start()
            except NotPossibleError as error:
                self.problem = str(error)
                return
            Tracer.tracing = self
            self._watch.log, self._watch.every_s = log, self._duty.every_s
            self._watch.since = self._watch.first = time.monotonic()
            self._watch.segment_ns = time.time_ns()
        self._begun()
        if self._forked_here:
            self._thread = self._started()

    def glance(self) -> tuple[float, dict[str, float]] | None:
        """As ``KernelLog.glance``; None while nothing is traced."""
        log = self._watch.log
        return log.glance() if log is not None and not self._watch.paused else None

    def _keep_up(self) -> None:
        mine = os.getpid()
        if cuda_runs():
            self.begin()
        while not self._ending.wait(LOOK_S) and os.getpid() == mine:
            self._wrap()
            self._look(self)
            log = self._watch.log
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
        watch, duty, now = self._watch, self._duty, time.monotonic()
        if watch.held:
            return
        took = now - watch.since
        if watch.paused:
            if took >= watch.every_s - duty.traced_s:
                self._resume()
        elif watch.begun and took >= duty.traced_s:
            if log.kernels - watch.kernels > duty.most_kernels:
                watch.kernels, watch.every_s = watch.kernels + duty.most_kernels, 2 * watch.every_s
            self._pause()
        elif not watch.begun and (now - watch.first >= duty.first_s or log.kernels >= duty.first_kernels):
            watch.begun = True
            self._pause()

    def _pause(self) -> None:
        with self._state:
            watch = self._watch
            if watch.log is None or watch.paused:
                return
            self._end_segment()
            watch.paused, watch.since = True, time.monotonic()
            watch.log.pause()

    def _resume(self) -> None:
        with self._state:
            watch = self._watch
            if watch.log is None or not watch.paused or self._over:
                return
            watch.log.resume()
            watch.paused, watch.since, watch.segment_ns = False, time.monotonic(), time.time_ns()

    def _end_segment(self) -> None:
        if self._watch.segment_ns is not None:
            self._watch.segments.append((self._watch.segment_ns, time.time_ns()))
            self._watch.segment_ns = None

    def _wrap(self) -> None:
        """Wrap what the program has imported since."""
        if self._over or os.getpid() != self._owner:
            return
        if self._pick_up:
            self._annotations.attach()
        self._wrap_cuda()
        self._wrap_profiler()
        self._wrap_loader()
        if any(name in sys.modules for name in _CUDA_USERS):
            self.begin()

    def _put(self, owner: Any, name: str, made: Callable[[Any], Any]) -> None:
        """Replace a function by ``made`` of it, once."""
        original = getattr(owner, name, None)
        if original is None or getattr(original, "_jouletrace", False):
            return
        new = made(original)
        new._jouletrace = True
        setattr(owner, name, new)
        self._undo.append(lambda: setattr(owner, name, original))

    def _wrap_cuda(self) -> None:
        """Begin before torch starts CUDA: all that does so calls this function."""

        def made(original: Any) -> Any:
            def init() -> Any:
                self.begin()
                return original()

            return init

        torch = sys.modules.get("torch")
        if torch is not None and "torch.cuda" in sys.modules and hasattr(torch, "_C"):
            self._put(torch._C, "_cuda_init", made)

    def _wrap_profiler(self) -> None:
        """Leave CUPTI to torch's profiler while the program uses it: it takes our records otherwise."""

        def preparing(original: Any) -> Any:
            def prepare(*args: Any, **options: Any) -> Any:
                self._hold()
                return original(*args, **options)

            return prepare

        def disabling(original: Any) -> Any:
            def disable(*args: Any, **options: Any) -> Any:
                try:
                    return original(*args, **options)
                finally:
                    self._release()

            return disable

        module = sys.modules.get("torch.autograd.profiler")
        if module is not None and hasattr(module, "_disable_profiler"):
            for name in ("_prepare_profiler", "_enable_profiler"):
                self._put(module, name, preparing)
            self._put(module, "_disable_profiler", disabling)

    def _hold(self) -> None:
        if self._watch.log is None or self._watch.held:
            return
        self._watch.held = True
        self._watch.released = not self._watch.paused
        if self._watch.released:
            with suppress(NotPossibleError, ValueError):
                self._pause()
        text = "torch's profiler, which the program uses, holds CUPTI meanwhile: kernels of that time are like those"
        self.notes.append(("profiler_inside", f"{text} before and after it"))

    def _release(self) -> None:
        if not self._watch.held:
            return
        self._watch.held = False
        try:
            if self._watch.released:
                self._resume()
        except NotPossibleError as error:
            self.problem = f"{error}; kernels after torch's profiler are missing"

    def _wrap_loader(self) -> None:
        """Time what the program waits for torch's data loader."""
        module = sys.modules.get("torch.utils.data.dataloader")
        if not hasattr(module, "_BaseDataLoaderIter"):
            return
        assert module is not None

        def made(original: Any) -> Any:
            def timed(it: Any) -> Any:
                begin = time.time_ns()
                try:
                    return original(it)
                finally:
                    if len(self.loads) < MOST_LOADS:
                        self.loads.append((begin, time.time_ns()))

            return timed

        self._put(module._BaseDataLoaderIter, "__next__", made)

    def end(self) -> Traced | None:
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
        for undo in reversed(self._undo):
            undo()
        if self.sampler is not None:
            self.sampler.end()
        log = self._watch.log
        if log is None:
            return None
        settle()
        if self._watch.paused:  # what came last is like what was traced before it
            self._watch.segment_ns = time.time_ns()
        self._end_segment()
        try:
            log.stop()
        except (NotPossibleError, ValueError) as error:
            self.problem = str(error)
        Tracer.tracing = None
        if log.dropped:
            self.notes.append(("records_dropped", f"the tracer dropped {log.dropped} records: kernels are missing"))
        work, number, meanings = log.launched()
        self._watch.log = None
        labels = self.sampler.labels if self.sampler is not None else []
        unsampled = self.sampler.problem if self.sampler is not None and not labels else ""
        rank = this_rank()
        return Traced(
            pid=os.getpid(),
            name=self.name,
            rank=rank.rank if rank is not None else None,
            devices=cuda_uuids() or [],
            work=work,
            marks=Marks(number, np.array(meanings, np.int64), labels, self.marks.paths, FIRST_RANGE),
            segments=self._watch.segments,
            loads=self.loads,
            syncs=log.syncs(),
            notes=self.notes + ([("not_traced", f"kernels: {self.problem}")] if self.problem else []),
            unsampled=unsampled,
            dropped=log.dropped,
        )


def _check_free() -> None:
    """Raise if something else in this process has CUPTI, which would lose its records."""
    if Tracer.tracing is not None:
        raise NotPossibleError("this process is traced already, and its kernels are in that Run")
    inner = getattr(getattr(sys.modules.get("torch"), "_C", None), "_autograd", None)
    if inner is not None and inner._profiler_enabled():
        raise NotPossibleError("torch's profiler, which the program has started before, holds CUPTI")


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Call a method, if its object still lives: what is registered for forks stays for ever."""
    if (still := method()) is not None:
        still()


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
