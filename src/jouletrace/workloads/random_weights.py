"""Models with random weights, reproducibly, and models whose tensors hold no values at all."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from jouletrace.workloads.placement import holds_values, place_module

if TYPE_CHECKING:
    import torch


def random_model(model_class: Any, config: Any, device: torch.device, dtype: torch.dtype, seed: int) -> tuple[Any, str]:
    """A model of transformers with weights as its class draws them, torch seeded by the caller.

    Weights are drawn in float32 and then cast: drawn in float16, the uniform deviates behind a
    truncated normal hit its ends, and a weight in a thousand would be a hundred times too large.

    Returns:
        The model, and the origin of its weights: ``"random, seed 0"``, or ``"shapes only"`` where
        tensors hold no values and so nothing is drawn.
    """
    if holds_values(device):
        return placed_random(lambda: model_class(config), device, dtype, seed)
    with device, _no_init_weights():
        model = model_class(config)
    model.tie_weights()  # otherwise part of the initialisation that was left out
    place_module(model, device, dtype)
    return model, "shapes only"


def placed_random(create: Callable[[], Any], device: torch.device, dtype: torch.dtype, seed: int) -> tuple[Any, str]:
    """A module with weights as its own code draws them, in float32 and then cast; see ``random_model``."""
    with device:
        model = create()
    place_module(model, device, dtype)
    return model, f"random, seed {seed}" if holds_values(device) else "shapes only"


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """The generators of torch seeded inside the block, and as they were after it."""
    import torch

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _no_init_weights() -> AbstractContextManager[None]:
    """The context of transformers that leaves weights as they were allocated."""
    home = "transformers.initialization"
    if importlib.util.find_spec(home) is None:  # before transformers 5
        home = "transformers.modeling_utils"
    context: AbstractContextManager[None] = importlib.import_module(home).no_init_weights()
    return context
