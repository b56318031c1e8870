"""Names for what a workload does outside of its modules, such as the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

OPTIMIZER = "(optimizer)"
DATA = "(data)"

_open: list[str] = []


@contextmanager
def marked(name: str) -> Iterator[None]:
    """Operators called inside belong to ``name`` instead of to a module."""
    _open.append(name)
    try:
        yield
    finally:
        _open.pop()


def mark() -> str:
    """The innermost name in force; "" if there is none."""
    return _open[-1] if _open else ""
