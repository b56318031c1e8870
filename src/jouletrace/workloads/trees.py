"""Tensors inside tuples, lists, mappings and dataclasses, as inputs and outputs contain them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
