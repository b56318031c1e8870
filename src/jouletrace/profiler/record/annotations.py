"""Records ranges that a program marks for other profilers (NVTX, ``record_function``).

The marking functions are wrapped during a recording and restored afterwards. Where low-level functions exist, these
are wrapped, so that names imported before (``from ... import range_push``) work too. Ranges that torch marks
internally (an optimizer's step, say) are left out, since the program didn't mark them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from jouletrace.profiler.record.ranges import Marks, Opened

_HELD = "_jouletrace_opened"

_PUSHED: ContextVar[tuple[Opened, ...]] = ContextVar("jouletrace_pushed", default=())


class Annotations:
    """Converts annotations of this process to marks, from ``attach`` to ``detach``."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._originals: list[tuple[Any, str, Any]] = []
        self._seen: set[str] = set()

    def attach(self) -> None:
        """Wrap the modules imported so far; call it again for modules imported later."""
        for name, wrap in (
            ("torch.cuda.nvtx", self._wrap_torch_nvtx),
            ("torch.autograd.profiler", self._wrap_record_function),
            ("nvtx.nvtx", self._wrap_nvtx),
        ):
            module = sys.modules.get(name)
            spec = getattr(module, "__spec__", None)
            if name in self._seen or module is None or getattr(spec, "_initializing", False):
                continue
            self._seen.add(name)
            wrap(module)

    def detach(self) -> None:
        """Restore all wrapped functions."""
        while self._originals:
            owner, name, original = self._originals.pop()
            setattr(owner, name, original)

    def _wrap_torch_nvtx(self, module: Any) -> None:
        library: Any = getattr(module, "_nvtx", None)
        if hasattr(library, "rangePushA") and hasattr(library, "rangePop"):
            push, pop = self._pushing(library.rangePushA), self._popping(library.rangePop)
            self._put(module, "_nvtx", _Library(library, push, pop))
        else:
            self._put(module, "range_push", self._pushing(module.range_push))
            self._put(module, "range_pop", self._popping(module.range_pop))

    def _wrap_nvtx(self, module: Any) -> None:
        # Without an attached profiler the package doesn't call its library, so its own functions are wrapped.
        push, pop = self._pushing(module.push_range), self._popping(module.pop_range)
        for owner in (module, sys.modules.get("nvtx")):
            if owner is not None:
                self._put(owner, "push_range", push)
                self._put(owner, "pop_range", pop)
        self._wrap_context(module.annotate, lambda it: (getattr(it, "init_args", None) or (None,))[0])

    def _wrap_record_function(self, module: Any) -> None:
        self._wrap_context(module.record_function, lambda it: it.name)

    def _wrap_context(self, kind: Any, name_of: Callable[[Any], object]) -> None:
        """Wrap a class of context managers."""
        enter, leave, marks = kind.__enter__, kind.__exit__, self._marks

        @functools.wraps(enter)
        def entering(it: Any) -> Any:
            result = enter(it)
            opened = None if _by_torch() else marks.begin(str(name_of(it) or "range"))
            # One object may be entered again before its exit.
            it.__dict__.setdefault(_HELD, []).append(opened)
            return result

        @functools.wraps(leave)
        def leaving(it: Any, *error: Any) -> Any:
            held = it.__dict__.get(_HELD)
            opened = held.pop() if held else None
            if opened is not None:
                marks.end(opened)
            return leave(it, *error)

        self._put(kind, "__enter__", entering)
        self._put(kind, "__exit__", leaving)

    def _pushing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def push(message: Any = None, *args: Any, **options: Any) -> Any:
            result = original(message, *args, **options)  # first, since it may be missing and raise
            _PUSHED.set((*self._mine(), self._marks.begin(str(message or "range"))))
            return result

        return push

    def _popping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def pop(*args: Any, **options: Any) -> Any:
            if mine := self._mine():  # otherwise it was pushed before the recording
                _PUSHED.set(mine[:-1])
                self._marks.end(mine[-1])
            return original(*args, **options)

        return pop

    def _mine(self) -> tuple[Opened, ...]:
        """Open ranges that this task has pushed in this recording."""
        return tuple(opened for opened in _PUSHED.get() if opened.marks is self._marks)

    def _put(self, owner: Any, name: str, new: Any) -> None:
        self._originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, new)


def _by_torch() -> bool:
    """True where torch itself enters a range, perhaps by the tracer's hooks, whose globals have no name."""
    frame = sys._getframe(2)
    while frame.f_back and "__name__" not in frame.f_globals:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).startswith("torch.")


class _Library:
    """torch's NVTX library with wrapped push and pop; all other attributes are the library's."""

    def __init__(self, library: Any, push: Callable[..., Any], pop: Callable[..., Any]) -> None:
        self._library = library
        self.rangePushA = push
        self.rangePop = pop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)
