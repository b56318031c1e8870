"""A cache that keeps nothing, for plain causal forwards of models that could generate."""

from __future__ import annotations

import inspect
from typing import Any

from jouletrace.workloads.environment import require_transformers


def cache_arguments(model: Any) -> dict[str, Any]:
    """Keyword arguments that make a forward of ``model`` plain; empty for models without a cache.

    Given no cache and no mask, transformers compares the positions to find sequences packed into
    one, which waits for the device in every forward; during capture it can't look, and builds an
    explicit mask that bars attention from its fast kernels. With a cache, even an empty one, it
    does neither: the same plain causal forward in every mode.
    """
    takes = inspect.signature(model.forward).parameters
    if "past_key_values" not in takes or model.config.is_encoder_decoder or not model.can_generate():
        return {}

    class NoCache(require_transformers().DynamicCache):  # type: ignore[misc]  # untyped base
        """Hands keys and values on; stays empty."""

        def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            return key_states, value_states

    return {"past_key_values": NoCache(), "use_cache": False}
