"""Keys and values of attention in memory that is there, so that a forward can be captured and run repeatedly.

The caches override the methods that all versions of transformers' ``DynamicCache`` call. Imports torch and
transformers, which takes seconds: import it only where needed.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from transformers import DynamicCache

Held = dict[int, tuple[torch.Tensor, torch.Tensor]]
"""Keys and values by layer, each of shape (batch, heads, tokens, head size)."""


class PlacedCache(DynamicCache):
    """A cache ("static") for one forward in memory for the longest sequence; attention reads only the tokens it holds.

    Args:
        memory: Memory of the cache, made where it lacks; written to after ``length``.
        length: Number of tokens that it holds.
        most: Number of tokens of the longest sequence.
    """

    def __init__(self, memory: Held, length: int, most: int) -> None:
        super().__init__()
        self.memory, self.length, self.most = memory, length, most

    def get_seq_length(self, layer_idx: int = 0, *_: Any, **__: Any) -> int:
        """Number of tokens that it holds."""
        return self.length

    def get_mask_sizes(self, query: Any, *_: Any, **__: Any) -> tuple[int, int]:  # type: ignore[override]  # see below
        """Numbers of tokens that a mask has, and that lie before it."""
        # The tokens of the query: their number, or in older versions their positions.
        return self.length + (query if isinstance(query, int) else int(query.shape[0])), 0

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Keys and values of all tokens of a layer, with the new ones."""
        if layer_idx not in self.memory:
            keys, values = (
                new_states.new_zeros(*new_states.shape[:2], self.most, new_states.shape[3])
                for new_states in (key_states, value_states)
            )
            self.memory[layer_idx] = keys, values
        new = key_states.shape[2]
        for memory, states in zip(self.memory[layer_idx], (key_states, value_states), strict=True):
            memory.narrow(2, self.length, new).copy_(states)
        if self.length == 0:
            return key_states, value_states
        keys, values = (memory.narrow(2, 0, self.length + new) for memory in self.memory[layer_idx])
        return keys, values


class _NoCache(DynamicCache):
    """Passes keys and values through and stays empty."""

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        return key_states, value_states


def cache_name(names: Iterable[str]) -> str | None:
    """Which of the arguments of a forward, or of the fields of its outputs, is the cache; None if it has none.

    Transformers calls it ``cache`` from 5.24 on, and ``past_key_values`` before.
    """
    there = set(names)
    return next((name for name in ("cache", "past_key_values") if name in there), None)


def cache_arguments(model: Any) -> dict[str, Any]:
    """Keyword arguments that make a forward of a model of transformers plain; empty for models without a cache.

    Without a cache and a mask, transformers compares the positions to detect packed sequences, which
    waits for the device in every forward. During capture it can't read them and builds an explicit
    mask, which excludes the fast kernels of attention. With a cache, even an empty one, it does
    neither, so the forward is the same in every mode.
    """
    name = cache_name(inspect.signature(model.forward).parameters)
    if name is None or model.config.is_encoder_decoder or not model.can_generate():
        return {}
    return {name: _NoCache(), "use_cache": False}
