"""``jt.LayerProfiler``: time and energy by layer of a model."""

from __future__ import annotations

from typing import Any, Self

from jouletrace.errors import BadInputError
from jouletrace.profiler.detail.part_profiler import PartProfiler
from jouletrace.workloads.generation import NEW_TOKENS


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
