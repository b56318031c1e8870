"""The user's models: objects given in Python, ``package.module:callable`` and ``file.py:callable``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, JouletraceError, nearest
from jouletrace.import_path import users
from jouletrace.run import RunWarning
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Built, Call, Inputs, Iteration
from jouletrace.workloads.environment import common_facts, precision, require_device, require_transformers, short_name
from jouletrace.workloads.options import WorkloadOptions, check_consistent
from jouletrace.workloads.placement import holds_values, kept, map_tensors, named_tensors, place_module, seeded
from jouletrace.workloads.training import TrainingIteration, loss_of_outputs, make_optimizer
from jouletrace.workloads.transformers_models import read_as
from jouletrace.workloads.user_code import check_ran, check_runs, memory_guard, no_silent_exit, one_line

if TYPE_CHECKING:
    import torch


class ObjectWorkload:
    """A model (or any callable) and its inputs.

    The model is used in place: it is moved to the device, put in eval mode and, if a dtype is
    requested, cast; the inputs are copied. A simulated GPU needs only shapes and leaves the model as it was.

    Args:
        target: A module or any callable.
        inputs: A tuple of positional arguments, a mapping of keyword arguments, or a single argument.
        name: Name in messages and results; by default that of its class or function.

    Raises:
        BadInputError: If ``target`` can't be called.
    """

    def __init__(self, target: Any, inputs: Any = (), name: str | None = None) -> None:
        self.name = name or str(getattr(target, "__qualname__", type(target).__qualname__))
        if not callable(target):
            raise BadInputError(f"{self.name}: a model or callable is required, not {type(target).__name__}")
        self._target = target
        self._inputs = inputs

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """See ``Workload.build``."""
        check_consistent(self.name, options)
        for option, given in (("--batch", options.batch), ("--seq-len", options.seq_len)):
            if given is not None:
                raise BadInputError(f"{option} {given}: {self.name} comes with its own inputs")
        return build_object(self._target, self._inputs, device, options, name=self.name)

    def warnings(self) -> list[RunWarning]:
        """Warnings ``train_mode`` before a build for inference: of the model, or of those that a function names."""
        if (module := module_of(self._target)) is not None:
            text = f"{self.name} was in train mode: it ran in eval mode (dropout off, running statistics)"
            return [RunWarning("train_mode", text)] if _trains(module) else []
        try:
            variables = inspect.getclosurevars(self._target)
        except (TypeError, ValueError):  # it isn't written in Python, or names what isn't there yet
            return []
        names = [
            name for name, value in {**variables.globals, **variables.nonlocals}.items() if _trains(module_of(value))
        ]
        text = f"{self.name} ran {{0}} in train mode (dropout on, statistics of the batch): call {{0}}.eval() first"
        return [RunWarning("train_mode", text.format(name)) for name in names]


def module_of(target: Any) -> torch.nn.Module | None:
    """The module that is called, or whose method is called; None for another callable, or a name."""
    torch = sys.modules.get("torch")
    if torch is None:  # a module implies that torch has been imported
        return None
    owner = target if isinstance(target, torch.nn.Module) else getattr(target, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None


def _trains(module: torch.nn.Module | None) -> bool:
    """True if a part is in train mode that computes something else in eval mode."""
    if module is None:
        return False
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.modules.dropout import _DropoutNd

    parts = [part for part in module.modules() if isinstance(part, _BatchNorm | _DropoutNd)]
    return any(part.training and getattr(part, "p", 1.0) > 0 for part in parts)


def build_object(
    target: Any, inputs: Any, device: str, options: WorkloadOptions, *, name: str, batch: int | None = None
) -> Built:
    """An existing model or callable, moved to ``device``; inputs as of ``ObjectWorkload``, options already checked.

    Without a dtype, everything keeps its type. ``batch`` is the number of samples in the inputs, where known; else
    the first dimension of a module's first input tensor counts.

    Raises:
        BadInputError: If the options don't fit, or a call of ``target`` returns before its body has run.
        NotPossibleError: If the device is missing or has no memory left.
    """
    check_runs(target, name)
    _refuse(options, name)
    on = require_device(device)
    how = precision(options.dtype, device)
    module = module_of(target)  # a bound method of a model (model.encode) carries its model

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        cast = how.weights if how.weights is not None and tensor.is_floating_point() else None
        return tensor.to(on, cast)

    restore = kept(module) if module is not None and not holds_values(on) else lambda: None
    try:
        with memory_guard(f"{name} on {device}"):
            if module is not None:
                place_module(module, on, how.weights)
                module.train(options.task == "train")
            args, kwargs = arguments(inputs)
            placed: Inputs = (map_tensors(moved, args), map_tensors(moved, kwargs))
            dtypes = _dtypes(module, placed)
    except BaseException as error:
        restore()
        if isinstance(error, RecursionError):
            text = "a module contains itself, perhaps indirectly: torch can't iterate over its parts"
            raise BadInputError(f"{name}: {text}") from None
        raise
    if batch is None and module is not None:
        batch = _leading(placed)
    facts: WorkloadFacts = {
        "name": name,
        "task": options.task,
        "batch": batch,
        "weights": "as given" if module is not None else None,
        "inputs": "as given",
        **common_facts(module, how, on),
    }
    facts["dtype"] = how.name or dtypes
    call: Any = Iteration(target, [placed], how.settings)
    if options.task == "train":
        if module is None:
            raise BadInputError(f"--task train: {name} isn't a model: it has no parameters to train")
        if options.data is not None:
            raise BadInputError(f"--data: {name} comes with its inputs; a folder needs a model that classifies images")
        optimizer = make_optimizer(options.optimizer, module, on)
        call = TrainingIteration(target, [placed], how.training, loss_of_outputs(name), optimizer)
        facts |= {"optimizer": options.optimizer}
    generation: Callable[[int], Call] | None = None
    if options.task == "generate":
        require_transformers()
        from jouletrace.workloads.generation import make_generation

        try:
            with memory_guard(f"{name} on {device}"):
                call, generation, task_facts = make_generation(module or target, [placed], how.settings, options, name)
        except BaseException:
            restore()
            raise
        facts |= task_facts
    return Built(call, module, [placed], facts, items=batch or 1, restore=restore, generation=generation)


def _refuse(options: WorkloadOptions, name: str) -> None:
    """Refuse options that don't apply to existing objects."""
    if options.config:
        raise BadInputError(f"--config {next(iter(options.config))}: {name} has no configuration to change")
    if options.random:
        raise BadInputError(f"--random: {name} comes with its own weights")
    if options.input_sets != 1:
        raise BadInputError(f"--input-sets {options.input_sets}: {name} comes with one set of inputs")


def arguments(inputs: Any) -> Inputs:
    """Positional and keyword arguments: a tuple's items, a mapping's items, or the single object."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple) and not hasattr(inputs, "_fields"):
        return inputs, {}
    return (inputs,), {}


def _leading(placed: Inputs) -> int | None:
    """First dimension of the first tensor, which is the batch for most models."""
    return next((int(tensor.shape[0]) for _, tensor in named_tensors(placed) if tensor.dim() > 0), None)


def _dtypes(module: torch.nn.Module | None, placed: Inputs) -> str | None:
    """The floating types in use, such as "fp32" or "fp16+fp32"."""
    tensors = [tensor for _, tensor in named_tensors(placed)] + (list(module.parameters()) if module else [])
    return "+".join(sorted({short_name(t.dtype) for t in tensors if t.is_floating_point()})) or None


_RETURNS = "(model, inputs) or (callable, args)"


class UserWorkload:
    """A callable of the user's that returns ``(model, inputs)`` or ``(callable, args)``; ``build`` imports it.

    It receives those of ``batch``, ``seq_len``, ``dtype``, ``device`` and ``seed`` for which it has parameters, and
    ``--config`` by names of its own ones, read as the types of their defaults; torch's generator is seeded before.

    Raises:
        BadInputError: If ``spec`` isn't "place:name", or names a missing file.
    """

    def __init__(self, spec: str) -> None:
        parts = split(spec)
        if parts is None:
            raise BadInputError(f"'{spec}': write file.py:callable or package.module:callable")
        self.name = spec
        self._place, self._callable = parts
        check_place(self._place)

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """See ``Workload.build``."""
        check_consistent(self.name, options)
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
        left = replace(options, config={})  # which make has taken
        built = build_object(target, inputs, device, left, name=self.name, batch=arguments.get("batch"))
        if options.config:
            built.facts["config"] = {key: arguments[key] for key in options.config}
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
        for key, text in options.config.items():
            if key in offered or key not in named:
                meant = nearest(key, sorted(named))
                raise BadInputError(
                    f"--config {key}: {self.name} has no parameter '{key}' of its own to take it{meant}"
                )
            default = next(p.default for p in parameters if p.name == key)
            offered[key] = read_as(key, text, None if default is inspect.Parameter.empty else default)
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
    source, colon, name = spec.rpartition(":")
    if not colon or not source or not all(part.isidentifier() for part in name.split(".")):
        return None
    return source, name


def check_place(source: str) -> None:
    """Refuse a missing file before anything is imported.

    Raises:
        BadInputError: With the nearest names of files.
    """
    path = Path(source)
    if path.suffix == ".py" and not path.is_file():
        near = nearest(path.name, (other.name for other in path.parent.glob("*.py"))) if path.parent.is_dir() else ""
        raise BadInputError(f"{source}: no such file{near}")


def load_callable(source: str, name: str) -> Callable[..., Any]:
    """Import the module or file and get the callable.

    Raises:
        BadInputError: If the module, file or attribute is missing (the message offers the nearest names), the
            import raises, or the attribute can't be called.
    """
    check_place(source)
    module = _import(source)
    attribute: Any = module
    for part in name.split("."):
        if not hasattr(attribute, part):
            callables = [key for key, value in vars(attribute).items() if callable(value) and not key.startswith("_")]
            raise BadInputError(f"{source} has no '{part}'{nearest(part, callables)}")
        attribute = getattr(attribute, part)
    if not callable(attribute):
        raise BadInputError(f"{source}:{name} isn't callable but of type {type(attribute).__name__}")
    return attribute  # type: ignore[no-any-return]  # checked to be callable


@contextmanager
def importable(source: str) -> Iterator[None]:
    """Put the user's folder first on the import path, as if Python had been started there."""
    folder = str(Path(source).resolve().parent) if source.endswith(".py") else str(Path.cwd())
    first = [folder, *users]
    sys.path[:0] = first
    try:
        yield
    finally:
        for entry in first:
            if entry in sys.path:
                sys.path.remove(entry)


def _import(source: str) -> ModuleType:
    try:
        with importable(source), no_silent_exit():
            return _import_file(Path(source)) if source.endswith(".py") else importlib.import_module(source)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if source == missing or source.startswith(f"{missing}."):
            raise BadInputError(f"no module named '{missing}' (searched: this folder and Python's path)") from error
        raise BadInputError(f"{source} can't be imported: {one_line(error)}") from error
    except (Exception, SystemExit) as error:
        raise BadInputError(f"{source} can't be imported: {one_line(error)}") from error


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
