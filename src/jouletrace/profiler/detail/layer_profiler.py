"""``jt.LayerProfiler``: where in a model time and energy go."""

from __future__ import annotations

from jouletrace.errors import BadInputError
from jouletrace.profiler.detail.part_profiler import PartProfiler


class LayerProfiler(PartProfiler):
    """What each layer of a model takes: a row for each module that runs operators itself, call by call.

    ::

        profiler = jt.LayerProfiler(model).profile(inputs)
        print(profiler.summary())
        profiler.to_csv("layers.csv")

    The rows add up to the iteration, launch and gaps included; containers are in ``run`` (units of level
    "layer" make a tree), not among the rows, where they would count their contents twice.
    """

    noun = "layer"

    def _check(self) -> None:
        if self._module is None and not isinstance(self._model, str):
            kind = type(self._model).__name__
            raise BadInputError(f"a torch.nn.Module, or a method of one, is needed to tell layers apart, not {kind}")
