"""Properties that torch's operators state, and the mode that intercepts them as they run. Imports torch.

``func`` is always a ``torch._ops.OpOverload``, which torch leaves untyped.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten

_SHORT = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int8: "i8",
    torch.float8_e4m3fn: "f8",
    torch.bool: "b8",
}
_MOST_DESCRIBED = 12
"""Number of tensors whose shapes are listed singly."""

_NO_KERNEL = re.compile(
    r"(new_)?empty(_strided)?|empty_like|resize_|set_|_unsafe_view|_local_scalar_dense|is_same_size|"
    r"sym_(size|stride|numel)"
)
"""Operators of aten that allocate memory, or query a shape or a value."""

_IDEMPOTENT = re.compile(
    r"(_foreach_)?(copy|zero)_|(masked_)?fill_|relu_|clamp(_min|_max)?_|hardtanh_|abs_|"
    r"(normal|uniform|bernoulli|random|exponential)_"
)
"""Operators of aten whose result doesn't depend on the earlier contents, or which done twice act as done once."""


def op_name(func: Any) -> str:
    """Name of an operator with its namespace, without the overload: "aten.addmm"."""
    return f"{func.namespace}.{func.overloadpacket.__name__}"


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors among arguments or outputs, in order."""
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def describe(tensors: Iterable[torch.Tensor]) -> str:
    """Types and shapes: "f16[64,768] f16[768]".

    Of many tensors (an optimizer's operator takes all weights at once) the first few are listed, with the number of
    all, their elements and a checksum, so that other shapes still read differently:
    "bf16[512,768] bf16[768] bf16[768] … 199 tensors, 109514298 elements, 5f3a9c11".
    """
    taken = list(tensors)
    texts = [
        f"{_SHORT.get(tensor.dtype, str(tensor.dtype).removeprefix('torch.'))}[{','.join(map(str, tensor.shape))}]"
        for tensor in taken
    ]
    if len(texts) <= _MOST_DESCRIBED:
        return " ".join(texts)
    elements = sum(tensor.numel() for tensor in taken)
    check = zlib.crc32(" ".join(texts).encode())
    return f"{' '.join(texts[:3])} … {len(texts)} tensors, {elements} elements, {check:08x}"


def has_kernel(func: Any, results: Iterable[torch.Tensor]) -> bool:
    """True if a call with these outputs and written arguments does work on the device, as far as its schema states."""
    return not without_kernel(func) and any(tensor.numel() > 0 for tensor in results)


@cache
def is_bookkeeping(func: Any) -> bool:
    """True if it belongs to torch itself (compiler, profiler), not to the model."""
    return func.namespace in ("prim", "profiler")


def without_kernel(func: Any) -> bool:
    """True if an operator never has a kernel: a view, an allocation, or a query of a shape or value."""
    return func.is_view or torch.Tag.inplace_view in func.tags or _is_one_of(func, _NO_KERNEL)


@cache
def _is_one_of(func: Any, names: re.Pattern[str]) -> bool:
    return func.namespace == "aten" and names.fullmatch(func.overloadpacket.__name__) is not None


def written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The arguments that the operator writes according to its schema.

    The schema of fused optimisers also lists the gradients, which they write only to remove a loss scale.
    """
    optimiser = func.overloadpacket.__name__.startswith("_fused_") and kwargs.get("grad_scale") is None
    for index, name in written_arguments(func):
        if optimiser and name == "grads":
            continue
        yield from tensors_in(args[index] if index < len(args) else kwargs.get(name))


@cache
def written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """Position and name of the arguments that the operator writes according to its schema."""
    return tuple(
        (index, argument.name)
        for index, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def storage_key(tensor: torch.Tensor) -> int:
    """A key shared by all tensors on one storage, as long as the storage lives."""
    return int(tensor.untyped_storage()._cdata)


def is_idempotent(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if two runs of a call that overwrites its arguments leave the same state as one."""
    # torch.Tag.out states the same, but is newer than the oldest supported torch.
    if any(argument.is_out for argument in func._schema.arguments):
        outs = {storage_key(tensor) for tensor in written(func, args, kwargs)}
        places = {name for _, name in written_arguments(func)}
        read = [args, {name: value for name, value in kwargs.items() if name not in places}]
        return not any(storage_key(tensor) in outs for tensor in tensors_in(read))
    if func.overloadpacket is aten.index_put_:
        return not (args[3] if len(args) > 3 else kwargs.get("accumulate", False))
    return _is_one_of(func, _IDEMPOTENT) or func in (aten.scatter_.src, aten.scatter_.value)


@cache
def is_composite(func: Any, backend: str) -> bool:
    """True if the dispatcher decomposes it into other operators on a backend ("CPU", "CUDA")."""
    registered = torch._C._dispatch_has_kernel_for_dispatch_key
    return registered(func.name(), "CompositeImplicitAutograd") and not registered(func.name(), backend)


@dataclass(frozen=True, slots=True)
class Operator:
    """One call of an operator that launches a kernel.

    Attributes:
        op: Name with its namespace ("aten.addmm").
        shapes: Types and shapes of its tensor inputs ("f16[64,768] f16[768]").
        module: Qualified name of the innermost module, "" outside of all; in backward, the module
            of the forward operator.
        call: Number of the module's call, as of ``module_names.CallSite``.
        backward: Whether autograd calls it.
        flops: Floating-point operations of products and convolutions; 0 for other operators.
        bytes_moved: Bytes of its inputs read and of its outputs written.
        dtype: Type of the arithmetic: "fp16", "bf16", "fp32", "fp64", or the type's own name.
        host_calls: Operators that the host called for it, including those without a kernel since the
            last one with a kernel.
    """

    op: str
    shapes: str
    module: str
    call: str
    backward: bool
    flops: float
    bytes_moved: float
    dtype: str
    host_calls: int


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Intercepts every operator for which a backend has code, in forward and backward, and nothing else.

    A composite operator, which arrives whole in inference mode, is decomposed as the dispatcher
    would decompose it, autocast included. A call therefore runs the same work as without the mode:
    a capture under this mode has the same kernels as one without.

    Args:
        device: Device of the workload.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.device = device
        self._backend = device.type.upper()
        self._autocast = torch._C.DispatchKey.__members__[f"Autocast{self._backend}"]

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called in order in place of each operator that may do work; returns the operator's outputs."""
        return func(*args, **kwargs)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if is_bookkeeping(func):
            return func(*args, **kwargs)
        if is_composite(func, self._backend):
            with self, self._autocast_of(func):
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        if without_kernel(func) and torch.Tag.data_dependent_output not in func.tags:
            return func(*args, **kwargs)  # a view or new memory, whose occurrence depends on how an iteration is run
        return self.operator(func, args, kwargs)

    def _autocast_of(self, func: Any) -> AbstractContextManager[Any]:
        """Apply autocast to the parts of a composite to which it wasn't applied as a whole.

        Torch suspends autocast below a mode, and its state can't be queried there: only whether
        a context is entered. (An unlisted composite in a region where autocast is switched off
        inside of one where it is on counts as cast; the check of kernels would detect it.)
        """
        inside = torch.autocast_increment_nesting() > 1
        torch.autocast_decrement_nesting()
        if not inside or func.has_kernel_for_dispatch_key(self._autocast):
            return nullcontext()
        return torch._C._SetExcludeDispatchKeyGuard(self._autocast, False)
