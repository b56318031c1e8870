"""User models: ``package.module:callable`` or ``file.py:callable``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.workloads.base import Built
from jouletrace.workloads.checks import check_options
from jouletrace.workloads.deferred import check_ran, check_runs
from jouletrace.workloads.environment import require_device
from jouletrace.workloads.leaving import no_silent_exit
from jouletrace.workloads.memory import memory_guard
from jouletrace.workloads.nearest import nearest
from jouletrace.workloads.objects import build_object
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.placement import seeded
from jouletrace.workloads.user_errors import one_line

_RETURNS = "(model, inputs) or (callable, args)"


class UserWorkload:
    """A callable of the user's that returns ``(model, inputs)`` or ``(callable, args)``.

    It receives those of ``batch``, ``seq_len``, ``dtype``, ``device`` and ``seed`` for which it has
    parameters; torch's generator is seeded before.

    Attributes:
        name: The spec as given.
    """

    def __init__(self, spec: str) -> None:
        """Check the form of ``spec``; the user's code is imported by ``build``.

        Raises:
            BadInputError: If it isn't "place:name", or names a missing file.
        """
        parts = split(spec)
        if parts is None:
            raise BadInputError(f"'{spec}': write file.py:callable or package.module:callable")
        self.name = spec
        self._place, self._callable = parts
        check_place(self._place)

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """See ``Workload.build``."""
        check_options(self.name, options)
        on = require_device(device)
        make = load_callable(self._place, self._callable)
        check_runs(make, self.name)
        arguments = self._arguments(make, device, options)
        try:
            with (
                memory_guard(f"{self.name} on {device}"),
                importable(self._place),
                seeded(options.seed, on),
                no_silent_exit(),
            ):
                returned = check_ran(make(**arguments), self.name)
        except JouletraceError:
            raise
        except (Exception, SystemExit) as error:
            raise BadInputError(f"{self.name} raised {one_line(error)}") from error
        target, inputs = self._pair(returned)
        built = build_object(target, inputs, device, options, name=self.name, batch=arguments.get("batch"))
        if built.module is not None:
            built.facts["weights"] = f"as given by {self.name}, torch seeded with {options.seed}"
        if "seq_len" in arguments:
            built.facts["seq_len"] = arguments["seq_len"]
        return built

    def _arguments(self, make: Any, device: str, options: WorkloadOptions) -> dict[str, Any]:
        """The options for which the callable has parameters; an option without a parameter is refused."""
        offered: dict[str, Any] = {
            "batch": options.batch,
            "seq_len": options.seq_len,
            "dtype": options.dtype,
            "device": device,
            "seed": options.seed,
        }
        try:
            parameters = inspect.signature(make).parameters.values()
        except (ValueError, TypeError):  # some builtins have no signature
            parameters = {}.values()
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        for key in ("batch", "seq_len"):
            if offered[key] is not None and not takes_any and key not in named:
                option = key.replace("_", "-")
                raise BadInputError(f"--{option} {offered[key]}: {self.name} has no parameter '{key}' to take it")
        given = {key: value for key, value in offered.items() if value is not None and (takes_any or key in named)}
        lacking = [
            p.name
            for p in parameters
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in given
        ]
        if lacking:
            hint = (
                "give --" + lacking[0].replace("_", "-")
                if lacking[0] in offered
                else f"it may ask for {', '.join(offered)}"
            )
            raise BadInputError(f"{self.name} needs an argument '{lacking[0]}': {hint}")
        return given

    def _pair(self, returned: Any) -> tuple[Any, Any]:
        """The two values that it must return."""
        if not isinstance(returned, tuple):
            raise BadInputError(f"{self.name} returned {type(returned).__name__}, not {_RETURNS}")
        if len(returned) != 2:
            raise BadInputError(f"{self.name} returned a tuple of {len(returned)}, not {_RETURNS}")
        target, inputs = returned
        if not callable(target):
            raise BadInputError(
                f"{self.name} returned {type(target).__name__} first, which can't be called; required is {_RETURNS}"
            )
        return target, inputs


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
