"""Moving modules and tensors to a device and a type, also where tensors hold no values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


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
