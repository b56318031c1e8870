"""Names for work outside the modules, such as the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

OPTIMIZER = "(optimizer)"
DATA = "(data)"

_open: list[str] = []


@contextmanager
def marked(name: str) -> Iterator[None]:
    """Attribute the operators called inside to ``name`` instead of a module."""
    _open.append(name)
    try:
        yield
    finally:
        _open.pop()


def mark() -> str:
    """The innermost name in force; "" outside of any."""
    return _open[-1] if _open else ""
