"""``jt.LayerProfiler``: where in a model time and energy go."""

from __future__ import annotations

from typing import Any, Self

from jouletrace.errors import BadInputError
from jouletrace.profiler.detail.part_profiler import PartProfiler
from jouletrace.workloads.generation import NEW_TOKENS


class LayerProfiler(PartProfiler):
    """What each layer of a model takes: a row for each module that runs operators itself, call by call.

    ::

        profiler = jt.LayerProfiler(model).profile(inputs)
        print(profiler.summary())
        profiler.to_csv("layers.csv")

    The rows add up to the iteration, idle included; containers are in ``run`` (units of level
    "layer" make a tree), not among the rows, where they would count their contents twice.
    """

    noun = "layer"

    def profile_generation(self, inputs: Any = (), max_new_tokens: int = NEW_TOKENS, **options: Any) -> Self:
        """Profile the model while it generates: prefill and decode, and the layers in each.

        ::

            profiler = jt.LayerProfiler(model).profile_generation(tokenizer(text, return_tensors="pt"), 128)
            profiler.run.result("energy_per_token_j")

        Args:
            inputs: ``input_ids`` of shape (batch, tokens) and ``attention_mask``, as a mapping or in this order.
            max_new_tokens: Tokens to generate for each sample; exactly so many, unless ``early_stop=True``.
            **options: As of ``profile``.

        Returns:
            This profiler. Rows of layers are split into prefill and decode; ``run`` has the phases.

        Raises:
            BadInputError: If the model is none of transformers that generates, or the inputs don't fit it.
            NotPossibleError: If something is missing here.
        """
        return self.profile(inputs, task="generate", max_new_tokens=max_new_tokens, **options)

    def _check(self) -> None:
        if self._module is None and not isinstance(self._model, str):
            kind = type(self._model).__name__
            raise BadInputError(f"a torch.nn.Module, or a method of one, is needed to tell layers apart, not {kind}")
