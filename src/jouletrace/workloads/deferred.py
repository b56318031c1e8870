"""Calls that return before their body has run, and would therefore be timed at microseconds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from jouletrace.errors import BadInputError

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
    """Refuse a callable whose calls return before its body has run.

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
        kind, advice = type(outputs).__name__, _ADVICE[_GENERATOR]
    elif inspect.isawaitable(outputs) or inspect.isasyncgen(outputs) or isinstance(outputs, Future):
        kind, advice = type(outputs).__name__, _ADVICE[_COROUTINE] if inspect.iscoroutine(outputs) else _OTHERWISE
    else:
        return outputs
    if inspect.iscoroutine(outputs):
        outputs.close()  # otherwise Python warns that it was never awaited
    raise BadInputError(f"{name}: its call returns a {kind} before the work is done; {advice}")
