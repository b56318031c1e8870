"""Counts the work of a workload without running it: operators, operations and bytes, by means of fake tensors.

Fake tensors have shapes and types but no memory; counting a model with billions of weights
takes seconds. A query of a value (``tensor.item()``) returns the value of an ordinary input:
nothing is masked, no condition is unusual. Queries on which shapes depend have no answer.
Imports torch: import it only where needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from jouletrace.errors import NotPossibleError
from jouletrace.execution.steps.module_names import ModuleNames
from jouletrace.execution.steps.operators import (
    Operator,
    describe,
    has_kernel,
    is_bookkeeping,
    op_name,
    storage_key,
    tensors_in,
    written,
)
from jouletrace.execution.steps.trial import user_code
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.environment import require_device, short_name
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.placement import named_tensors
from jouletrace.workloads.user_code import check_ran

aten = torch.ops.aten

# for a copy between tensors or a table lookup, the output determines the bytes moved
_BAGS = (aten._embedding_bag, aten._embedding_bag_forward_only)
_LOOK_UP = (aten.embedding, aten.index, aten.index_select, aten.gather, aten.slice_scatter)


def _as_on_gpu(operator: Any, tensors: int) -> Callable[..., int]:
    """The formula of the GPU's operator: torch has none for the CPU's, which runs under fake tensors."""
    formula = flop_registry[operator]
    return lambda *args, **_: int(formula(*args[:tensors], out_val=None))


_FLOPS: dict[Any, Callable[..., int]] = {
    **flop_registry,
    aten._int_mm: flop_registry[aten.mm],
    aten._scaled_dot_product_flash_attention_for_cpu: _as_on_gpu(aten._scaled_dot_product_flash_attention, 3),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _as_on_gpu(
        aten._scaled_dot_product_flash_attention_backward, 4
    ),
}


MOST = 2**62
"""FLOPs of a call that a Run can state."""

_EIGHT_BITS = {aten._int_mm: "int8", aten._scaled_mm: "fp8"}
"""Products of 8 bits, and their pipes."""


class _AnswerValues(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Answers queries of values as for an ordinary input: all conditions hold, none is unusual."""

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._mode = mode
        self._any: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is aten._local_scalar_dense.default:
            return self._value(args[0])
        if func is aten.equal.default:
            return bool(args[0].shape == args[1].shape)
        out = func(*args, **(kwargs or {}))
        # the mode's memory of new tensors would keep module.half() from exchanging them
        self._mode.fake_tensor_converter.tensor_memo.clear()
        if isinstance(out, torch.Tensor) and out.dtype == torch.bool:
            self._note(func, args, out)
        return out

    def _note(self, func: Any, args: tuple[Any, ...], out: torch.Tensor) -> None:
        """Record the truth values that signal something unusual; a negation inverts them."""
        unusual = func.overloadpacket in (aten.any, aten.isnan, aten.isinf)
        if func.overloadpacket is aten.logical_not or func.overloadpacket is aten.bitwise_not:
            unusual = id(args[0]) not in self._any
        # fake tensors hash by identity; the id of a deleted one may be reused, so forget it
        (self._any.add if unusual else self._any.discard)(id(out))

    def _value(self, tensor: torch.Tensor) -> bool | int | float:
        constant = getattr(tensor, "constant", None)
        if constant is not None:
            with no_dispatch():
                return constant.item()  # type: ignore[no-any-return]
        if tensor.dtype == torch.bool:
            return id(tensor) not in self._any
        return 1.0 if tensor.dtype.is_floating_point else 1


class _CountOperators(TorchDispatchMode):  # type: ignore[no-untyped-call]  # as above
    """Records every operator that launches a kernel, in order; ``module`` is that of the last call."""

    def __init__(self, names: ModuleNames) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.operators: list[Operator] = []
        self.module = ""
        self._names = names
        self._host_calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if is_bookkeeping(func):
            return func(*args, **kwargs)
        if func.overloadpacket is aten.dropout and not args[2]:
            return args[0]  # as torch does; decomposed below it would become a copy
        # in inference mode composite operators arrive whole: a linear is a transpose and a product
        with self:
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        site, backward = self._names.locate()
        self.module = site.module
        _check_factors(func, args)
        out = func(*args, **kwargs)
        self._host_calls += 1
        outputs = list(tensors_in(out))
        overwritten = list(written(func, args, kwargs))
        if not has_kernel(func, [*outputs, *overwritten]):
            return out
        inputs = list(tensors_in((args, kwargs)))
        self.operators.append(
            Operator(
                # the CPU's attention represents the GPU's
                op=op_name(func).replace("_for_cpu", ""),
                shapes=describe(inputs),
                module=site.module,
                call=site.call,
                backward=backward,
                flops=flops_of(func, args, kwargs, out),
                bytes_moved=bytes_of(func, inputs, outputs, overwritten),
                dtype=_arithmetic(func, [*inputs, *outputs]),
                host_calls=self._host_calls,
            )
        )
        self._host_calls = 0
        return out


def _check_factors(func: Any, args: tuple[Any, ...]) -> None:
    """Refuse factors of different types as torch does with values; shapes alone go through.

    Raises:
        RuntimeError: As torch's.
    """
    if func.namespace == "aten" and func.overloadpacket in _FLOPS and func.overloadpacket not in _EIGHT_BITS:
        types = dict.fromkeys(str(factor.dtype) for factor in args[:3] if isinstance(factor, torch.Tensor))
        if len(types) > 1:
            raise RuntimeError(f"{op_name(func)}: inputs must have the same dtype, but are {' and '.join(types)}")


def _arithmetic(func: Any, tensors: list[torch.Tensor]) -> str:
    """Type in which an operator computes; that of a conversion from or to 8 bits is the wider one."""
    if func.overloadpacket in _EIGHT_BITS:
        return _EIGHT_BITS[func.overloadpacket]
    return next((short_name(t.dtype) for t in tensors if t.is_floating_point() and t.element_size() > 1), "fp32")


def flops_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    """Floating-point operations of a call by torch's formulas: products, convolutions, attention; 0 for others."""
    formula = _FLOPS.get(func.overloadpacket)
    return float(formula(*args, **kwargs, out_val=out)) if formula is not None else 0.0


def bytes_of(
    func: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor], overwritten: list[torch.Tensor]
) -> float:
    """Bytes of a call's inputs read and of its outputs written, each once."""
    write, read = _by_storage((*outputs, *overwritten)), _by_storage(inputs)
    if func.overloadpacket in _LOOK_UP:
        most = max(write.values(), default=0)
        read = {key: min(size, most) for key, size in read.items()}
    if func.overloadpacket in _BAGS:  # one row of the table per index
        table, indices = inputs[:2]
        read[storage_key(table)] = min(_size(table), indices.numel() * table.shape[1] * table.element_size())
    if func.overloadpacket in (aten.copy_, aten.fill_, aten.zero_):
        for tensor in overwritten:
            read.pop(storage_key(tensor), None)
    return float(sum(read.values()) + sum(write.values()))


def work_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> tuple[float, float]:
    """FLOPs and bytes of a call that has run; 0 where they can't be counted."""
    try:
        inputs, overwritten = list(tensors_in((args, kwargs))), list(written(func, args, kwargs))
        flops = flops_of(func, args, kwargs, out)
        return flops if 1 <= flops <= MOST else 0.0, bytes_of(func, inputs, list(tensors_in(out)), overwritten)
    except Exception:  # formulas may be anyone's, and sparse tensors have no storage: a count breaks off no profile
        return 0.0, 0.0


def _by_storage(tensors: Iterable[torch.Tensor]) -> dict[Any, int]:
    """Bytes of each storage that tensors show; several views of one add up, to all of it at most."""
    views = {(storage_key(t), t.storage_offset(), tuple(t.shape), t.stride()): t for t in tensors}
    shown: dict[Any, int] = {}
    for (key, *_), tensor in views.items():
        shown[key] = min(shown.get(key, 0) + _size(tensor), int(tensor.untyped_storage().nbytes()))
    return shown


def _size(tensor: torch.Tensor) -> int:
    """Bytes of a tensor in memory: for an expanded one, those that exist."""
    return min(tensor.numel() * tensor.element_size(), int(tensor.untyped_storage().nbytes()))


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Make every new tensor inside fake, and answer queries of values as for an ordinary input."""
    log = fake_tensor.log
    # errors are also raised, and then reported in one line instead of torch's hundred
    log.disabled, before = True, log.disabled
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, _AnswerValues(mode):
            yield
    finally:
        log.disabled = before


def count_operators(call: Callable[[], object], module: torch.nn.Module | None = None) -> list[Operator]:
    """The operators of one call that have a kernel, in order; ``module`` is the model whose modules are named.

    Call it inside ``fake_tensors``.

    Raises:
        NotPossibleError: If a shape depends on values, or an operator has no fake implementation.
    """
    with ModuleNames(module) as names:
        counter = _CountOperators(names)
        try:
            with counter:
                call()
        except (
            fake_tensor.DataDependentOutputException,
            fake_tensor.DynamicOutputShapeException,
            fake_tensor.UnsupportedOperatorException,
        ) as error:
            where = f" in {counter.module}" if counter.module else ""
            raise NotPossibleError(
                f"can't be simulated: {getattr(error, 'func', error)}{where} needs values, not only shapes"
            ) from error
    return counter.operators


def count_workload(workload: Workload, options: WorkloadOptions) -> tuple[Built, list[Operator]]:
    """Build a workload of fake tensors, which can't be run otherwise, and count the operators of one iteration.

    They determine ``facts["least_memory_bytes"]``.

    Raises:
        BadInputError: If the options don't fit, or the workload raises.
        NotPossibleError: If a library is missing, or an operator needs values.
    """
    require_device("cpu")
    with fake_tensors():
        built = workload.build("cpu", options)
        try:
            with user_code(built, "; a simulated GPU calls it with tensors that have shapes but no values"):
                if built.generation is not None:
                    tokens = built.facts["new_tokens"] or 1
                    few = built.generation(min(tokens, _COUNTED))
                    counted = _generated(count_operators(lambda: few(0), built.module), tokens)
                else:
                    counted = count_operators(lambda: check_ran(built.call(0), workload.name), built.module)
                if options.task == "train":  # an optimiser creates its state in the first iteration only
                    counted = count_operators(lambda: built.call(0), built.module)
            built.facts["least_memory_bytes"] = _least_memory(built, counted)
        finally:
            built.restore()
    return built, counted


_COUNTED = 3
"""Tokens whose operators are counted: the prompt's, and two whose difference is that of all later ones."""


def _generated(operators: list[Operator], tokens: int) -> list[Operator]:
    """The operators of an iteration that generates so many tokens, of those of the first ``_COUNTED``.

    Operations and bytes of every operator of attention and of a cache are linear in the cache's length.
    """
    if tokens <= _COUNTED:
        return operators
    second, third = (
        next(n for n, operator in enumerate(operators) if operator.call.startswith(f"{k}.")) for k in (2, 3)
    )
    pairs = list(zip(operators[second:third], operators[third:], strict=False))
    later = [_after(a, b, k) for k in range(1, tokens - _COUNTED + 1) for a, b in pairs]
    end = third + len(pairs)
    return [*operators[:end], *later, *operators[end:]]


def _after(a: Operator, b: Operator, k: int) -> Operator:
    """The operator that follows two of successive forwards k forwards later."""
    calls = zip(a.call.split("."), b.call.split("."), strict=True) if b.call else ()
    return replace(
        b,
        call=".".join(str(int(new) + k * (int(new) - int(old))) for old, new in calls),
        flops=b.flops + k * (b.flops - a.flops),
        bytes_moved=b.bytes_moved + k * (b.bytes_moved - a.bytes_moved),
    )


def _least_memory(built: Built, operators: Iterable[Operator]) -> int:
    """Lower bound on the memory of an iteration in bytes: weights and inputs, or the data of the largest operator.

    Other tensors alive at the same time are unknown.
    """
    module = built.module
    held = [*module.parameters(), *module.buffers()] if module is not None else []
    held += [tensor for _, tensor in named_tensors(built.inputs)]
    storages = {storage_key(tensor): tensor.untyped_storage().nbytes() for tensor in held}
    largest = max((operator.bytes_moved for operator in operators), default=0)
    return max(sum(storages.values()), int(largest))
