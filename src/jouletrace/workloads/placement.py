"""Tensors inside tuples, lists and mappings; moving them and modules to a device and a type, also without values."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def named_tensors(tree: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in ``tree`` with its path ("logits", "0.keys"), in order.

    Descends into tuples, lists, mappings and dataclasses; ignores other objects.
    """
    import torch

    if isinstance(tree, torch.Tensor):
        yield path, tree
        return
    children: Iterator[tuple[Any, Any]] = iter(())
    # Mappings first: the outputs of transformers are both mapping and dataclass.
    if isinstance(tree, Mapping):
        children = iter(tree.items())
    elif isinstance(tree, (tuple, list)):
        children = iter(enumerate(tree))
    elif is_dataclass(tree) and not isinstance(tree, type):
        children = ((field.name, getattr(tree, field.name)) for field in fields(tree))
    for key, child in children:
        yield from named_tensors(child, f"{path}.{key}" if path else str(key))


def map_tensors(change: Callable[[torch.Tensor], torch.Tensor], tree: Any) -> Any:
    """``tree`` with every tensor replaced by ``change(tensor)``, in new containers.

    Descends into tuples, named tuples, lists and mappings. A mapping becomes a plain ``dict``, which
    a call can unpack; other objects stay the same.
    """
    import torch

    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        return {key: map_tensors(change, child) for key, child in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(change, child) for child in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tensors(change, child) for child in tree)
    return tree


def holds_values(device: torch.device) -> bool:
    """False on device "meta" and inside a ``FakeTensorMode``, where tensors are shapes only."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    return device.type != "meta" and not isinstance(torch.empty(0), FakeTensor)


def place_module(module: torch.nn.Module, device: torch.device, dtype: torch.dtype | None) -> None:
    """Move ``module`` in place; cast its floating parameters and buffers unless ``dtype`` is None."""
    if holds_values(device):
        module.to(device, dtype)
    else:
        _replace_tensors(module, device, dtype)


def kept(module: torch.nn.Module) -> Callable[[], None]:
    """A function that restores every present attribute of ``module`` and its parts: tensors, flags, caches."""
    stores: list[dict[str, Any]] = []
    for part in module.modules():
        stores += [vars(part), part._parameters, part._buffers, part._modules]
    before = [(store, dict(store)) for store in stores]

    def restore() -> None:
        for store, contents in before:
            store.clear()
            store.update(contents)

    return restore


def _replace_tensors(module: torch.nn.Module, device: torch.device, dtype: torch.dtype | None) -> None:
    """Do the work of ``Module.to`` for tensors without values, which it refuses to replace."""
    import torch

    moved: dict[int, torch.Tensor] = {}  # tied tensors stay tied
    for part in module.modules():
        for store in (part._parameters, part._buffers):
            for name, tensor in store.items():
                if tensor is None:
                    continue
                if id(tensor) not in moved:
                    new = tensor.detach().to(device, dtype if tensor.is_floating_point() else None)
                    is_parameter = isinstance(tensor, torch.nn.Parameter)
                    moved[id(tensor)] = torch.nn.Parameter(new, tensor.requires_grad) if is_parameter else new
                store[name] = moved[id(tensor)]  # type: ignore[assignment]  # one of the two kinds in each store


def random_model(model_class: Any, config: Any, device: torch.device, dtype: torch.dtype, seed: int) -> tuple[Any, str]:
    """A model of transformers with weights drawn by its class; the caller seeds torch.

    Weights are drawn in float32 and then cast. In float16 the uniform deviates behind a truncated
    normal reach its ends, and one weight in a thousand would be a hundred times too large.

    Returns:
        The model, and the origin of its weights: ``"random, seed 0"``, or ``"shapes only"`` without values.
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
