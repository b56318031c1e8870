"""A cache that keeps nothing, for plain causal forwards of generative models."""

from __future__ import annotations

import inspect
from typing import Any

from jouletrace.workloads.environment import require_transformers


def cache_arguments(model: Any) -> dict[str, Any]:
    """Keyword arguments that make a forward of ``model`` plain; empty for models without a cache.

    Without a cache and a mask, transformers compares the positions to detect packed sequences, which
    waits for the device in every forward. During capture it can't read them and builds an explicit
    mask, which excludes the fast kernels of attention. With a cache, even an empty one, it does
    neither, so the forward is the same in every mode.
    """
    takes = inspect.signature(model.forward).parameters
    if "past_key_values" not in takes or model.config.is_encoder_decoder or not model.can_generate():
        return {}

    class NoCache(require_transformers().DynamicCache):  # type: ignore[misc]  # untyped base
        """Passes keys and values through and stays empty."""

        def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            return key_states, value_states

    return {"past_key_values": NoCache(), "use_cache": False}
