"""Keys and values of attention at a known length, so that the same forward can run repeatedly.

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


class _KnownCache(DynamicCache):
    """A cache whose number of tokens is known without its layers."""

    def tokens(self) -> int:
        """Number of tokens that it holds."""
        raise NotImplementedError

    def get_seq_length(self, layer_idx: int = 0, *_: Any, **__: Any) -> int:
        return self.tokens()

    def get_mask_sizes(self, query: Any, *_: Any, **__: Any) -> tuple[int, int]:  # type: ignore[override]  # see below
        # The tokens of the query: their number, or in older versions their positions.
        return self.tokens() + (query if isinstance(query, int) else int(query.shape[0])), 0


class GrownCache(_KnownCache):
    """A cache ("dynamic") that copies its contents and a token into new memory, as ``generate`` does by default.

    Args:
        held: Initial contents; not written to.
        keep: Whether it keeps new keys and values. Otherwise it is the same before each forward.
    """

    def __init__(self, held: Held, *, keep: bool) -> None:
        super().__init__()
        self.held, self.keep = dict(held), keep

    def tokens(self) -> int:
        """See ``_KnownCache``."""
        return int(next(iter(self.held.values()))[0].shape[2]) if self.held else 0

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Keys and values of all tokens of a layer, with the new ones."""
        before = self.held.get(layer_idx) or (key_states.new_empty(0), value_states.new_empty(0))
        keys, values = (torch.cat(pair, dim=-2) for pair in zip(before, (key_states, value_states), strict=True))
        if self.keep:
            self.held[layer_idx] = (keys, values)
        return keys, values


class PlacedCache(_KnownCache):
    """A cache ("static") for one forward in memory for the longest sequence; attention reads only the tokens it holds.

    Args:
        memory: Memory of the cache; written to after ``length``.
        length: Number of tokens that it holds.
    """

    def __init__(self, memory: Held, length: int) -> None:
        super().__init__()
        self.memory, self.length = memory, length

    def tokens(self) -> int:
        """See ``_KnownCache``."""
        return self.length

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Keys and values of all tokens of a layer, with the new ones."""
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


def allocate(held: Held, tokens: int) -> Held:
    """Memory for ``tokens`` tokens, with ``held`` at its beginning."""

    def longer(tensor: torch.Tensor) -> torch.Tensor:
        batch, heads, length, size = tensor.shape
        memory = tensor.new_zeros(batch, heads, tokens, size)
        memory[:, :, :length] = tensor
        return memory

    return {layer: (longer(keys), longer(values)) for layer, (keys, values) in held.items()}


def first(held: Held, tokens: int) -> Held:
    """Copies of the first tokens."""
    return {
        layer: (keys[:, :, :tokens].clone(), values[:, :, :tokens].clone()) for layer, (keys, values) in held.items()
    }


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
