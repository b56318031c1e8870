"""Models with reproducible random weights, and models whose tensors hold no values."""

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
    """A model of transformers with weights drawn by its class; the caller seeds torch.

    Weights are drawn in float32 and then cast. In float16 the uniform deviates behind a truncated
    normal reach its ends, and one weight in a thousand would be a hundred times too large.

    Returns:
        The model, and the origin of its weights: ``"random, seed 0"``, or ``"shapes only"`` where
        tensors hold no values.
    """
    if holds_values(device):
        return placed_random(lambda: model_class(config), device, dtype, seed)
    with device, _no_init_weights():
        model = model_class(config)
    model.tie_weights()  # otherwise part of the initialisation that was left out
    place_module(model, device, dtype)
    return model, "shapes only"


def placed_random(create: Callable[[], Any], device: torch.device, dtype: torch.dtype, seed: int) -> tuple[Any, str]:
    """A module with weights drawn by its own code, in float32 and then cast; see ``random_model``."""
    with device:
        model = create()
    place_module(model, device, dtype)
    return model, f"random, seed {seed}" if holds_values(device) else "shapes only"


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the generators of torch inside the block and restore them afterwards."""
    import torch

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _no_init_weights() -> AbstractContextManager[None]:
    """The context of transformers that leaves weights uninitialised."""
    home = "transformers.initialization"
    if importlib.util.find_spec(home) is None:  # before transformers 5
        home = "transformers.modeling_utils"
    context: AbstractContextManager[None] = importlib.import_module(home).no_init_weights()
    return context
