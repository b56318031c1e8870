"""User models: ``package.module:callable`` or ``file.py:callable``."""

from __future__ import annotations

import inspect
from typing import Any

from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.workloads.base import Built
from jouletrace.workloads.checks import check_options
from jouletrace.workloads.deferred import check_ran, check_runs
from jouletrace.workloads.environment import require_device
from jouletrace.workloads.leaving import no_silent_exit
from jouletrace.workloads.loader import check_place, importable, load_callable, split
from jouletrace.workloads.memory import memory_guard
from jouletrace.workloads.objects import build_object
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.random_weights import seeded
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
