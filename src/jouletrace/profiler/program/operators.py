"""Operators and modules of some iterations of an unchanged program, by which kernels get their names.

A few calls of the outermost module, and what follows each until the next (backward, the optimizer), run under a
dispatch mode that marks the launches of each operator. The mode is entered and left in a hook of that module's call, in
the program's own thread, and costs about 15 us per operator meanwhile.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from jouletrace.run.recording_names import of_equal_layers
from jouletrace.tracer.process_trace import Label

SAMPLED, MOST_S = 4, 3.0
"""Iterations in one sample, and the longest time of a sample."""

FIRST_S, EVERY_S, MOST_SAMPLES = 3.0, 20.0, 3
"""When samples are taken: so long after CUDA began, then in these intervals, and how many at most."""

WATCHED_S = 1.0
"""Least time in which calls of modules are watched, to learn which is the outermost."""

UNLABELLED, BETWEEN = -1, -2
"""Meanings of marks: a launch of no operator; the edges of a sample."""


class OperatorSampler:
    """Samples operators of a program.

    Args:
        mark: Marks the launches since the last mark with a number.
        device: Type of the device on which the program runs.

    Attributes:
        labels: What the numbers mean.
        problem: Why there is no sample.
    """

    def __init__(self, mark: Callable[[int], object], device: str = "cuda") -> None:
        self.device = device
        self.labels: list[Label] = []
        self.problem = "no torch module ran for long enough"
        self._mark = mark
        self._codes: dict[Label, int] = {}
        self._hooks: list[Any] = []
        self._samples = 0
        self._due: float | None = None
        self._seen: dict[int, tuple[int, int]] = {}
        self._depth = self._least = 0
        self._until = 0.0
        self._root: int | None = None
        self._thread: int | None = None
        self._mode: Any = None
        self._names: Any = None
        self._calls = 0

    def look(self) -> None:
        """Prepare a sample if one is due; called now and then from any thread."""
        try:
            self._look()
        except Exception as error:
            self._give_up(error)

    def _look(self) -> None:
        module = sys.modules.get("torch.nn.modules.module")
        if module is None or getattr(module.__spec__, "_initializing", False) or self._hooks:
            return
        torch = sys.modules["torch"]
        if self.device == "cuda" and not torch.cuda.is_initialized():
            return
        if _compiles():
            self.problem = "the program compiles its code: kernels have the compiler's names"
            self._samples = MOST_SAMPLES
            return
        if self._due is None:
            self._due = time.monotonic() + FIRST_S
        if self._samples >= MOST_SAMPLES or time.monotonic() < self._due:
            return
        self._seen, self._depth, self._least, self._root, self._thread = {}, 0, 0, None, None
        self._until = time.monotonic() + WATCHED_S
        self._hooks = [
            module.register_module_forward_pre_hook(self._entering),
            module.register_module_forward_hook(self._leaving, always_call=True),
        ]

    def end(self) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _entering(self, module: Any, _inputs: Any) -> None:
        try:
            self._follow(module)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Sample no more: a fault of ours must not reach the program, nor end the thread that looks."""
        self.problem = f"sampling failed ({type(error).__name__}: {error})"
        self._samples = MOST_SAMPLES
        self.end()

    def _follow(self, module: Any) -> None:
        thread = threading.get_ident()
        if self._thread is not None and thread != self._thread:
            return
        if self._mode is not None:
            if id(module) == self._root:
                self._calls += 1
                if self._calls > SAMPLED or self._mode.over():
                    self._stop()
            return
        self._thread = thread
        if self._depth < self._least:
            self._seen, self._least = {}, self._depth
        if self._depth == self._least:
            times, size = self._seen.get(id(module), (0, 0))
            self._seen[id(module)] = times + 1, size or sum(1 for _ in module.modules())
            largest = max(size for _, size in self._seen.values())
            times, size = self._seen[id(module)]
            if times > 1 and size == largest and time.monotonic() > self._until:
                self._begin(module)
        self._depth += 1

    def _leaving(self, module: Any, _inputs: Any, _output: Any) -> None:
        if threading.get_ident() == self._thread and self._mode is None:
            self._depth -= 1  # below 0 where the hooks came within a call: outer modules are still to be seen

    def _begin(self, module: Any) -> None:
        import torch
        from torch.utils import _python_dispatch

        from jouletrace.execution.steps.module_names import ModuleNames

        if _python_dispatch._get_current_dispatch_mode() is not None or torch.compiler.is_compiling():
            self.problem = "the program runs under a dispatch mode of its own"
            return
        if self.device == "cuda" and torch.cuda.is_current_stream_capturing():
            return
        self._names = ModuleNames(module)
        self._names.__enter__()
        self._mode = _sampling_mode(self._names, self._label, self._mark, self.device)
        self._mark(BETWEEN)
        self._mode.__enter__()
        self._root, self._calls = id(module), 1

    def _stop(self) -> None:
        from torch.utils import _python_dispatch

        current: Any = _python_dispatch._get_current_dispatch_mode()
        if self._mode is None or current is not self._mode:
            return  # a mode of the program lies above; the next call may find it gone
        self._mode.__exit__(None, None, None)
        self._names.__exit__(None, None, None)
        self._mark(BETWEEN)
        self._mode = self._names = None
        self._samples += 1
        self._due = time.monotonic() + EVERY_S
        self.problem = ""
        self.end()

    def _label(self, op: str, module: str) -> int:
        label = (op, of_equal_layers(module))
        if label not in self._codes:
            self._codes[label] = len(self.labels)
            self.labels.append(label)
        return self._codes[label]


def _compiles() -> bool:
    """Whether torch.compile has compiled a frame: modes and global hooks would make it compile all of them again."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)  # absent while it is imported
    return bool(counters and counters["frames"]["total"])


def _sampling_mode(names: Any, label: Callable[[str, str], int], mark: Callable[[int], object], device: str) -> Any:
    """The mode; torch is imported by the program, not by us."""
    import torch

    from jouletrace.execution.steps.operators import OperatorMode, op_name

    class Sampling(OperatorMode):  # type: ignore[no-untyped-call]  # untyped in torch
        """Marks what each operator launched."""

        def __init__(self) -> None:
            super().__init__(torch.device(device))
            self._until = time.monotonic() + MOST_S

        def over(self) -> bool:
            """Whether the sample has lasted long enough."""
            return time.monotonic() > self._until

        def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            """See ``OperatorMode``."""
            if self.over():
                return func(*args, **kwargs)
            site, _ = names.locate()
            mark(UNLABELLED)
            out = func(*args, **kwargs)
            mark(label(op_name(func), site.module))
            return out

    return Sampling()
