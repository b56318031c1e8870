"""Walks of the calls of a print: how often control enters packages, and which objects hold the name of a kernel."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import jouletrace as jt
from jouletrace.report import render
from jouletrace.run import Run, tables

ROOT = f"{Path(jt.__file__).parent}/"
DATA, WORDS = ("run", "stats"), "words"
MARK = "marked_kernel"
FORMS = {
    "show": str,
    "show --detail layer": lambda run: render([run], detail="layer"),
    "show -v --detail kernel": lambda run: render([run], verbose=True, detail="kernel"),
    "show --json": lambda run: render([run], "json"),
}
"""Prints of a loaded Run by the command that makes them."""

_DEPTH, _SAMPLE = 6, 12


def walked(call: Callable[[], object], see: Callable[[FrameType, str, Any], None]) -> None:
    """Call ``see`` with each frame of ours, "call" or "return", and the returned value while ``call`` runs."""
    collects = gc.isenabled()
    gc.disable()  # finalisers of what earlier tests left would be frames of ours
    sys.setprofile(lambda frame, event, value: see(frame, event, value) if event in ("call", "return") else None)
    try:
        call()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()


def package(frame: FrameType) -> str | None:
    """The package of a frame; None if it isn't in one of ours."""
    path = frame.f_code.co_filename
    name, _, rest = path.removeprefix(ROOT).partition("/")
    return name if rest and path.startswith(ROOT) else None


def entered(call: Callable[[], object], passed: str = "") -> tuple[int, int]:
    """How often control enters a package coming from another one: of all calls and returns, and of first calls.

    ``run`` and ``stats`` are packages of their own among first calls alone: those of each function. A call into
    ``words``, from which none goes on, is a part of its caller. ``passed`` is a package that counts in neither.
    """
    found: list[str] = []
    first: dict[tuple[str, str], str] = {}

    def see(frame: FrameType, event: str, value: Any) -> None:
        name, code = package(frame), frame.f_code
        if event == "call" and name not in (None, WORDS, passed):
            first.setdefault((code.co_filename, code.co_qualname.partition(".<locals>")[0]), name)
        at: FrameType | None = frame if event == "call" else frame.f_back
        while at is not None and package(at) in (None, WORDS, *DATA, passed):
            at = at.f_back
        name = at and package(at)
        if name and found[-1:] != [name]:
            found.append(name)

    walked(call, see)
    names = list(first.values())
    return len(found), sum(one != before for before, one in zip([None, *names], names, strict=False))


def forms(call: Callable[[], object], holds: Callable[[Any], bool]) -> set[str]:
    """Names of the classes of ours of which a call took or returned an instance that ``holds`` says yes to."""
    found: set[str] = set()

    def see(frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(ROOT):
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        there = [value] if event == "return" else [frame.f_locals[name] for name in names if name in frame.f_locals]
        for one in (own for each in there for own in _ours(each)):
            name = f"{type(one).__module__.removeprefix('jouletrace.')}.{type(one).__qualname__}"
            if name not in found and holds(one):
                found.add(name)

    walked(call, see)
    return found


def has_text(one: Any, text: str, depth: int = _DEPTH) -> bool:
    """True if an object holds a text, at any of some depths, in the first entries of what it holds."""
    if isinstance(one, str) and text in one:
        return True
    if isinstance(one, pa.Table):
        return text in str(one.slice(0, 1000).to_pylist())
    return depth > 0 and any(has_text(each, text, depth - 1) for each in _contents(one))


def _contents(one: Any) -> list[Any]:
    """Contents of an object: of a container its entries, else its attributes."""
    if isinstance(one, Mapping):
        return list(one.values())
    if isinstance(one, list | tuple | set | frozenset):
        return list(one)
    slots = [getattr(one, name, None) for name in getattr(type(one), "__slots__", ())]
    return [*vars(one).values(), *slots] if hasattr(one, "__dict__") else slots


def _ours(value: Any, depth: int = 2) -> Iterator[Any]:
    """Instances of our classes among a value and the first entries of what it holds."""
    if type(value).__module__.startswith("jouletrace."):
        yield value
    elif depth and isinstance(value, list | tuple | dict):
        for one in _contents(value)[:_SAMPLE]:
            yield from _ours(one, depth - 1)


def printed(run: Run) -> set[str]:
    """Classes whose instances hold the name of the costliest kernel while its row is printed."""
    units = run.units.to_pylist()
    kernels = {row["id"] for row in units if row["level"] == "kernel"}
    figures = (row for row in run.results.to_pylist() if row["unit"] in kernels and row["metric"] == "energy_total_j")
    costliest = max(figures, key=lambda row: row["value"] or 0.0)["unit"]
    rows = [row | {"name": MARK, "op": None} if row["id"] == costliest else row for row in units]
    run.units = tables.from_rows(rows, "units")
    return forms(lambda: render([run], detail="kernel"), lambda one: has_text(one, MARK))
