"""Running code of the user's: errors and exhausted memory in one line, exits, and calls that return too early."""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from jouletrace.errors import BadInputError, NotPossibleError

_OURS = str(Path(__file__).parent.parent)
_PYTHON = (sysconfig.get_paths()["stdlib"], "<")


def one_line(error: BaseException) -> str:
    """``"ValueError: bad shape (model.py, line 12: x.view(3))"``."""
    text = " ".join(str(error).split())
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    where = where_raised(error)
    return f"{said} ({where})" if where else said


def where_raised(error: BaseException) -> str:
    """``"model.py, line 12: x.view(3)"``: the deepest line that the reader can change.

    It is the deepest line of the user's own code, else of a library such as a model's, else the module of torch that
    raised, by its name in the model, else a line of torch. Lines of jouletrace are left out.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    if not frames:
        return ""
    torch = sys.modules.get("torch")
    torch_folder = str(Path(torch.__file__).parent) if torch is not None and torch.__file__ else "<"
    libraries = [frame for frame in frames if not frame.filename.startswith((torch_folder, "<"))]
    of_user = [f for f in libraries if "site-packages" not in f.filename and not f.filename.startswith(_PYTHON)]
    if not of_user and not libraries and (module := _module_of(error)):
        return module
    frame = (of_user or libraries or frames)[-1]
    code = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"{Path(frame.filename).name}, line {frame.lineno}{f': {code}' if code else ''}"


def _module_of(error: BaseException) -> str:
    """``"module 3.fc: Linear(in_features=9, out_features=8, bias=True)"``: the innermost that raised; "" for none."""
    torch = sys.modules.get("torch")
    selves = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    modules = [candidate for candidate in selves if torch is not None and isinstance(candidate, torch.nn.Module)]
    if not modules:
        return ""
    name = next((name for name, submodule in modules[0].named_modules() if submodule is modules[-1]), "")
    return f"module {name}: {' '.join(repr(modules[-1]).split())}" if name else ""


class ExitRefused(SystemExit):
    """A call of ``os._exit`` that would have ended a measurement."""


@contextmanager
def no_silent_exit() -> Iterator[None]:
    """Make ``os._exit`` raise in this process, so that the recording is kept and the end is reported.

    Otherwise it would end the process silently and successfully. A forked child may still call it. Another thread
    can't be unwound from here: its call ends the process, but never with code 0.

    Raises:
        ExitRefused: If the thread inside the context calls it.
    """
    owner, thread, really = os.getpid(), threading.get_ident(), os._exit

    def refuse(status: int) -> NoReturn:
        if os.getpid() != owner:
            really(status)
        text = f"os._exit({status}) ends the process before it is measured"
        if threading.get_ident() != thread:
            print(f"jouletrace: {text}", file=sys.stderr, flush=True)
            really(status or 1)
        raise ExitRefused(text)

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = really


_SIGNS = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    # more bytes than can be counted
    "integer multiplication overflow",
    "Storage size calculation overflowed",
    "Overflow when unpacking long",
)
# The wordings of torch's CUDA allocator ("Tried to allocate 2.00 GiB", "1.2 GiB is free") and of its
# CPU allocator ("you tried to allocate 17179869184 bytes").
_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+) (\w+)")
_FREE = re.compile(r"of which ([\d.]+ \w+) is free")


@contextmanager
def memory_guard(what: str) -> Iterator[None]:
    """Turn exhaustion of host or device memory inside the block into an error of one line.

    Args:
        what: The work in progress, with its batch: the beginning of the message.

    Raises:
        NotPossibleError: If memory ran out; the message states the requested and, where known, the free amount.
    """
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:
        text = str(error)
        if not isinstance(error, MemoryError) and not any(sign in text for sign in _SIGNS):
            raise
        said = []
        if asked := _ASKED.search(text):
            number, unit = asked[1], asked[2]
            amount = f"{float(number) / 2**30:.2f} GiB" if unit == "bytes" else f"{number} {unit}"
            said.append(f"asked for {amount} more")
        if free := _FREE.search(text):
            said.append(f"{free[1]} free")
        amounts = f" ({', '.join(said)})" if said else ""
        raise NotPossibleError(f"{what}: out of memory{amounts}; try a smaller --batch") from error


_COROUTINE, _GENERATOR = "an async function", "a generator function"
_ASKS: tuple[tuple[Callable[[object], bool], str], ...] = (
    (inspect.iscoroutinefunction, _COROUTINE),
    (inspect.isasyncgenfunction, "an async generator function"),
    (inspect.isgeneratorfunction, _GENERATOR),
)
_ADVICE = {
    _COROUTINE: "give a function that runs it to its end, such as lambda x: asyncio.run(f(x))",
    _GENERATOR: "give a function that consumes all that it yields, such as lambda x: list(f(x))",
}
_OTHERWISE = "give a function that returns when the work is done"


def deferred(target: Any) -> str:
    """The kind of a function whose call returns before its body has run; "" for one that runs at once.

    Args:
        target: A function, a callable object, or a module, of which ``forward`` is checked.
    """
    bodies = [target]
    if not inspect.isroutine(target) and not inspect.isclass(target):
        bodies.append(getattr(type(target), "__call__", None))  # noqa: B004
        with suppress(Exception):  # a user's property may raise; the call itself then reports it
            bodies.append(getattr(target, "forward", None))
    return next((kind for body in bodies for ask, kind in _ASKS if ask(body)), "")


def check_runs(target: Any, name: str) -> None:
    """Refuse a callable whose calls return before its body has run: they would be timed at microseconds.

    Raises:
        BadInputError: If it is such a callable; the message states what to give instead.
    """
    kind = deferred(target)
    if kind:
        why = f"a call of {kind} returns before its body has run"
        raise BadInputError(f"{name}: {why}; {_ADVICE.get(kind, _OTHERWISE)}")


def check_ran(outputs: Any, name: str) -> Any:
    """The outputs of a call, unless they are an object that runs the work later.

    Raises:
        BadInputError: If they are such an object.
    """
    if inspect.isgenerator(outputs) or isinstance(outputs, map | filter):
        advice = _ADVICE[_GENERATOR]
    elif inspect.isawaitable(outputs) or inspect.isasyncgen(outputs) or isinstance(outputs, Future):
        advice = _ADVICE[_COROUTINE] if inspect.iscoroutine(outputs) else _OTHERWISE
    else:
        return outputs
    if inspect.iscoroutine(outputs):
        outputs.close()  # otherwise Python warns that it was never awaited
    raise BadInputError(f"{name}: its call returns a {type(outputs).__name__} before the work is done; {advice}")
