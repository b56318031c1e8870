"""Loads the callable that ``package.module:name`` or ``file.py:name`` names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.workloads.leaving import no_silent_exit
from jouletrace.workloads.nearest import nearest
from jouletrace.workloads.user_errors import one_line


def split(spec: str) -> tuple[str, str] | None:
    """Module or file, and the name in it; None if ``spec`` has no such form."""
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not all(part.isidentifier() for part in name.split(".")):
        return None
    return place, name


def check_place(place: str) -> None:
    """Refuse a missing file before anything is imported.

    Raises:
        BadInputError: With the nearest names of files.
    """
    path = Path(place)
    if path.suffix == ".py" and not path.is_file():
        near = nearest(path.name, (other.name for other in path.parent.glob("*.py"))) if path.parent.is_dir() else ""
        raise BadInputError(f"{place}: no such file{near}")


def load_callable(place: str, name: str) -> Callable[..., Any]:
    """Import the module or file and get the callable.

    Raises:
        BadInputError: If the module, file or attribute is missing (the message offers the nearest names), the
            import raises, or the attribute can't be called.
    """
    check_place(place)
    module = _import(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            callables = [key for key, value in vars(found).items() if callable(value) and not key.startswith("_")]
            raise BadInputError(f"{place} has no '{part}'{nearest(part, callables)}")
        found = getattr(found, part)
    if not callable(found):
        raise BadInputError(f"{place}:{name} isn't callable but of type {type(found).__name__}")
    return found  # type: ignore[no-any-return]  # checked to be callable


@contextmanager
def importable(place: str) -> Iterator[None]:
    """Put the user's folder first on the import path, as if Python had been started there."""
    folder = str(Path(place).resolve().parent) if place.endswith(".py") else str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _import(place: str) -> ModuleType:
    try:
        with importable(place), no_silent_exit():
            return _import_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if place == missing or place.startswith(f"{missing}."):
            raise BadInputError(f"no module named '{missing}' (searched: this folder and Python's path)") from error
        raise BadInputError(f"{place} can't be imported: {one_line(error)}") from error
    except (Exception, SystemExit) as error:
        raise BadInputError(f"{place} can't be imported: {one_line(error)}") from error


def _import_file(path: Path) -> ModuleType:
    """Import one file under a unique name, which is in ``sys.modules`` because dataclasses require that."""
    name = f"jouletrace_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:  # only for a suffix unknown to Python
        raise BadInputError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
