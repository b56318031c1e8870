"""What torch's operators say about themselves. Imports torch: to be imported where it is needed.

``func`` everywhere is a ``torch._ops.OpOverload``, which torch leaves untyped.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten

_SHORT = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "b8",
}
_MOST_DESCRIBED = 12
"""Tensors whose shapes are listed one by one."""

# no kernel: memory is taken, or a shape or a value is asked for
_NO_KERNEL = (
    aten.empty,
    aten.empty_like,
    aten.empty_strided,
    aten.new_empty,
    aten.new_empty_strided,
    aten.resize_,
    aten.set_,
    aten._unsafe_view,
    aten._local_scalar_dense,
    aten.is_same_size,
    aten.sym_size,
    aten.sym_stride,
    aten.sym_numel,
)
# what they write doesn't depend on what was there before, or doing it twice is doing it once
_IDEMPOTENT = (
    aten.copy_,
    aten.fill_,
    aten.zero_,
    aten._foreach_zero_,
    aten._foreach_copy_,
    aten.relu_,
    aten.clamp_,
    aten.clamp_min_,
    aten.clamp_max_,
    aten.hardtanh_,
    aten.abs_,
    aten.masked_fill_,
    aten.normal_,
    aten.uniform_,
    aten.bernoulli_,
    aten.random_,
    aten.exponential_,
)


def op_name(func: Any) -> str:
    """Its name with its namespace, without the overload: "aten.addmm"."""
    return f"{func.namespace}.{func.overloadpacket.__name__}"


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors among arguments or outputs, in order."""
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def describe(tensors: Iterable[torch.Tensor]) -> str:
    """Types and shapes: "f16[64,768] f16[768]".

    Of many tensors (an optimizer's operator takes all weights at once) the first few, and for all how
    many, their elements and a checksum, so that other shapes still read otherwise:
    "bf16[512,768] bf16[768] bf16[768] … 199 tensors, 109514298 elements, 5f3a9c11".
    """
    taken = list(tensors)
    texts = [_describe(tensor) for tensor in taken]
    if len(texts) <= _MOST_DESCRIBED:
        return " ".join(texts)
    elements = sum(tensor.numel() for tensor in taken)
    check = zlib.crc32(" ".join(texts).encode())
    return f"{' '.join(texts[:3])} … {len(texts)} tensors, {elements} elements, {check:08x}"


def has_kernel(func: Any, results: Iterable[torch.Tensor]) -> bool:
    """Whether a call does work on the device, as far as its schema tells.

    Args:
        func: The operator.
        results: Its outputs and what it writes.
    """
    return not without_kernel(func) and any(tensor.numel() > 0 for tensor in results)


@cache
def is_bookkeeping(func: Any) -> bool:
    """Whether it is torch's own: of its compiler or its profiler, not of the model."""
    return func.namespace in ("prim", "profiler")


def without_kernel(func: Any) -> bool:
    """Whether an operator never has a kernel: a view, or memory is taken, or a shape or value asked for."""
    return func.is_view or torch.Tag.inplace_view in func.tags or func.overloadpacket in _NO_KERNEL


def written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The arguments that the operator's schema says it writes.

    Fused optimisers are said to write the gradients, which they do only to take a loss scale out.
    """
    optimiser = func.overloadpacket.__name__.startswith("_fused_") and kwargs.get("grad_scale") is None
    for place, name in written_arguments(func):
        if optimiser and name == "grads":
            continue
        yield from tensors_in(args[place] if place < len(args) else kwargs.get(name))


@cache
def written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """Place and name of the arguments that the operator's schema says it writes."""
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def storage_key(tensor: torch.Tensor) -> int:
    """What tensors on one storage share, for as long as the storage lives."""
    return int(tensor.untyped_storage()._cdata)


def is_idempotent(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call that writes over its arguments may be made twice and leaves what one would."""
    # torch.Tag.out says the same, but is younger than the oldest torch that is served here.
    if any(argument.is_out for argument in func._schema.arguments):
        outs = {storage_key(tensor) for tensor in written(func, args, kwargs)}
        places = {name for _, name in written_arguments(func)}
        read = [args, {name: value for name, value in kwargs.items() if name not in places}]
        return not any(storage_key(tensor) in outs for tensor in tensors_in(read))
    if func.overloadpacket is aten.index_put_:
        return not (args[3] if len(args) > 3 else kwargs.get("accumulate", False))
    return func.overloadpacket in _IDEMPOTENT or func in (aten.scatter_.src, aten.scatter_.value)


@cache
def is_composite(func: Any, backend: str) -> bool:
    """Whether the dispatcher takes it apart into other operators on a backend ("CPU", "CUDA")."""
    registered = torch._C._dispatch_has_kernel_for_dispatch_key
    return registered(func.name(), "CompositeImplicitAutograd") and not registered(func.name(), backend)


def _describe(tensor: torch.Tensor) -> str:
    kind = _SHORT.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
    return f"{kind}[{','.join(str(length) for length in tensor.shape)}]"
