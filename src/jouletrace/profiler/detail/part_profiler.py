"""Common part of ``LayerProfiler`` and ``KernelProfiler``: a model, its runs, and their tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from jouletrace.errors import BadInputError
from jouletrace.profiler.detail.rows import (
    TOP,
    PartRow,
    columns,
    costliest,
    kernel_rows,
    layer_rows,
    records,
    write_files,
)
from jouletrace.profiler.detail.summary import Summary
from jouletrace.profiler.profile import profile
from jouletrace.run import Run
from jouletrace.run.shown import Shown
from jouletrace.workloads.options import NEW_TOKENS
from jouletrace.workloads.user import module_of

if TYPE_CHECKING:
    import torch

DETAIL_TIME_S = 20.0
"""Seconds of recording per run: with warm-up and the passes of the whole model a run takes less than a minute."""


class PartProfiler(Shown):
    """Profiles a model part by part, several times if requested.

    Attributes:
        runs: The Runs of the last ``profile``, each complete in itself.
    """

    noun: ClassVar[str]
    """"layer" or "kernel"."""

    def __init__(
        self,
        model: Any,
        device: str = "auto",
        *,
        mode: str = "eager",
        dtype: str | None = None,
        name: str | None = None,
    ) -> None:
        """Check the model without running it.

        Args:
            model: A ``torch.nn.Module``, a method of one (``model.generate``), or the name of a built-in workload.
            device: "auto", "cuda:N", a UUID, "cpu" or "sim:NAME"; or a ``torch.device``.
            mode: "eager", "graph" or "compile".
            dtype: Data type to cast to first, by its name or torch's; None keeps the model's.
            name: Name of the workload.

        Raises:
            BadInputError: If it isn't a model, or lies on several devices.
        """
        self._model = model
        self._module = module_of(model)
        self._check()
        if self._module is not None:
            _refuse_several_devices(self._module)
        self._options: dict[str, Any] = {"device": device, "mode": mode, "dtype": dtype, "name": name}
        self.runs: list[Run] = []

    def profile(
        self,
        inputs: Any = (),
        runs: int = 1,
        warmup: float = 5.0,
        *,
        detail_time: float = DETAIL_TIME_S,
        **options: Any,
    ) -> Self:
        """Profile the model on these inputs.

        The model is moved to the device and profiled as in inference; the train or eval mode of its modules and
        their hooks are restored afterwards.

        Args:
            inputs: A tuple of positional arguments, a mapping of keyword arguments, or a single argument.
            runs: Number of repetitions of the whole profile in this process.
            warmup: Time limit of each warm-up in seconds.
            detail_time: Length of each recording in seconds; intervals shrink with its square root.
            **options: As for ``jouletrace.profile``: ``target_ci``, ``seed``, ...

        Returns:
            This profiler.

        Raises:
            BadInputError: If an option is invalid, or the model doesn't take the inputs, with the model's message.
            NotPossibleError: If a library or device is missing.
        """
        if runs < 1:
            raise BadInputError(f"runs={runs}: must be at least 1")
        self.runs = []
        given = {**self._options, "detail": self.noun, "warmup": warmup, "detail_time": detail_time, **options}
        for _ in range(runs):
            with _kept_mode(self._module):
                self.runs.append(profile(self._model, inputs, **given))
        return self

    def __str__(self) -> str:
        """The summary, if anything has been profiled."""
        return str(self.summary()) if self.runs else repr(self)

    def __repr__(self) -> str:
        model = self._model
        of = model if isinstance(model, str) else getattr(model, "__qualname__", type(model).__qualname__)
        return f"{type(self).__name__}({of}, {len(self.runs)} run{'' if len(self.runs) == 1 else 's'})"

    @property
    def run(self) -> Run:
        """The last Run: all figures with intervals, checks, and the raw record; save it with ``run.save(path)``."""
        return self._done()[-1]

    def rows(self) -> list[list[PartRow]]:
        """The parts of each run, in order, which sum to the whole."""
        return [self._rows(run) for run in self._done()]

    def to_pandas(self) -> Any:
        """All rows of all runs as a pandas DataFrame (pandas must be installed)."""
        return self._frame(self._records())

    def top(self, n: int = TOP) -> Any:
        """The ``n`` rows of the last run with the most energy (time, where energy is unknown), as a DataFrame."""
        if n < 1:
            raise BadInputError(f"top({n}): must be at least 1")
        return self._frame(costliest(self._records(), self.rows(), n))

    def summary(self) -> Summary:
        """Printable summary by name: count, mean, total, and spread across runs."""
        return Summary(self._done(), self.rows(), self.noun)

    def to_csv(self, path: Path | str, *, overwrite: bool = False) -> list[Path]:
        """Write all rows, and the ten costliest.

        Returns:
            The paths of ``NAME.csv`` and ``NAME_top10_energy.csv``.

        Raises:
            BadInputError: If a file exists already or can't be written.
        """
        return write_files(path, self._done(), self.rows(), self.noun, overwrite=overwrite)

    def _rows(self, run: Run) -> list[PartRow]:
        """The parts of a run."""
        return {"layer": layer_rows, "kernel": kernel_rows}[self.noun](run)

    def _check(self) -> None:
        """Refuse a model that can't be profiled so."""

    def _done(self) -> list[Run]:
        if not self.runs:
            raise BadInputError(f"nothing has been profiled yet: call {type(self).__name__}.profile(inputs) first")
        return self.runs

    def _records(self) -> list[dict[str, Any]]:
        return records(self._done(), self.rows(), self.noun)

    def _frame(self, rows: Sequence[dict[str, Any]]) -> Any:
        import pandas as pd

        return pd.DataFrame(rows, columns=columns(self.noun, simulated=self.run.simulated))


def _refuse_several_devices(module: torch.nn.Module) -> None:
    devices = {str(tensor.device) for tensor in (*module.parameters(), *module.buffers())}
    placed = getattr(module, "hf_device_map", None) or {}
    devices |= {f"cuda:{device}" if isinstance(device, int) else str(device) for device in placed.values()}
    if len(devices) > 1:
        raise BadInputError(
            f"{type(module).__name__} is on several devices ({', '.join(sorted(devices))}): only a model on one device "
            "is supported; move it with model.to(device), or profile a part of it"
        )


@contextmanager
def _kept_mode(module: torch.nn.Module | None) -> Iterator[None]:
    """Restore the train or eval mode of each module."""
    before = [(submodule, submodule.training) for submodule in module.modules()] if module is not None else []
    try:
        yield
    finally:
        for submodule, training in before:
            submodule.training = training


class KernelProfiler(PartProfiler):
    """Time and energy of each kernel of a model or callable: one row per kernel, operator, input shapes and module.

    Equal layers share a row. On a CPU the rows are operators.
    """

    noun = "kernel"


class LayerProfiler(PartProfiler):
    """Time and energy of each layer: one row per call of each module that runs operators itself.

    ::

        profiler = jt.LayerProfiler(model).profile(inputs)
        print(profiler.summary())
        profiler.to_csv("layers.csv")

    The rows sum to the iteration, idle included. Containers appear in ``run`` (units of level
    "layer" form a tree), but not among the rows, where they would count their content twice.
    """

    noun = "layer"

    def profile_generation(self, inputs: Any = (), max_new_tokens: int = NEW_TOKENS, **options: Any) -> Self:
        """Profile token generation: prefill and decode, and the layers in each.

        ::

            profiler = jt.LayerProfiler(model).profile_generation(tokenizer(text, return_tensors="pt"), 128)
            profiler.run.result("energy_per_token_j")

        Args:
            inputs: ``input_ids`` of shape (batch, tokens) and ``attention_mask``, as a mapping or in this order.
            max_new_tokens: Exact number of tokens to generate per sample.
            **options: As for ``profile``.

        Returns:
            This profiler. Rows of layers are split into prefill and decode; ``run`` contains the phases.

        Raises:
            BadInputError: If the model isn't a generative model of transformers, or the inputs don't fit it.
            NotPossibleError: If a library or device is missing.
        """
        return self.profile(inputs, task="generate", max_new_tokens=max_new_tokens, **options)

    def _check(self) -> None:
        if self._module is None and not isinstance(self._model, str):
            kind = type(self._model).__name__
            raise BadInputError(f"a torch.nn.Module, or a method of one, is required to distinguish layers, not {kind}")
