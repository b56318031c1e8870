"""Calls that return before their body has run: timed, they would take microseconds whatever they do."""

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
    _GENERATOR: "give a function that takes all that it yields, such as lambda x: list(f(x))",
}
_OTHERWISE = "give a function that returns when the work is done"


def deferred(target: Any) -> str:
    """What kind of function it is if a call of it returns before its body has run; "" if it runs at once.

    Args:
        target: A function, a callable object, or a module, whose ``forward`` counts.
    """
    bodies = [target]
    if not inspect.isroutine(target) and not inspect.isclass(target):
        bodies.append(getattr(type(target), "__call__", None))  # noqa: B004
        with suppress(Exception):  # a property of the user's; the call itself says what it raises
            bodies.append(getattr(target, "forward", None))
    return next((kind for body in bodies for ask, kind in _ASKS if ask(body)), "")


def check_runs(target: Any, name: str) -> None:
    """Refuse a callable whose calls return before its body has run.

    Raises:
        BadInputError: If it is one: says what to give instead.
    """
    kind = deferred(target)
    if kind:
        why = f"a call of {kind} returns before its body has run"
        raise BadInputError(f"{name}: {why}; {_ADVICE.get(kind, _OTHERWISE)}")


def check_ran(outputs: Any, name: str) -> Any:
    """The outputs of a call, refused if they are a promise of what will run later.

    Raises:
        BadInputError: If they are.
    """
    if inspect.isgenerator(outputs) or isinstance(outputs, map | filter):
        kind, advice = type(outputs).__name__, _ADVICE[_GENERATOR]
    elif inspect.isawaitable(outputs) or inspect.isasyncgen(outputs) or isinstance(outputs, Future):
        kind, advice = type(outputs).__name__, _ADVICE[_COROUTINE] if inspect.iscoroutine(outputs) else _OTHERWISE
    else:
        return outputs
    if inspect.iscoroutine(outputs):
        outputs.close()  # or Python would say that it was never awaited
    raise BadInputError(f"{name}: its call returns a {kind} before the work is done; {advice}")
