"""What a workload does, without doing it: operators, operations and bytes, counted on fake tensors.

Fake tensors have shapes and types but no memory; counting a model with billions of weights
takes seconds. A question about a value (``tensor.item()``) gets the answer of an ordinary input:
nothing is masked, no condition is unusual. Where shapes depend on values there is no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jouletrace.errors import NotPossibleError
from jouletrace.workloads.base import Built, Workload, WorkloadOptions

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Operator:
    """One call of an operator that launches a kernel.

    Attributes:
        op: Name with its namespace ("aten.addmm").
        shapes: Types and shapes of its tensor inputs ("f16[64,768] f16[768]").
        module: Qualified name of the innermost module, "" outside of all; in backward, the module
            of the forward operator.
        call: Which call of it, as of ``module_names.CallSite``.
        backward: Whether autograd calls it.
        flops: Floating-point operations of products and convolutions; 0 for other operators.
        bytes_moved: Bytes of its inputs read and of its outputs written.
        dtype: Type of the arithmetic: "fp16", "bf16", "fp32", "fp64", or the type's own name.
        in_place: Whether it writes over one of its inputs.
        sources: Places in the list of the operators that wrote its inputs in this iteration.
        host_calls: Operators that the host went through for it, those without a kernel since the
            last one with a kernel included.
    """

    op: str
    shapes: str
    module: str
    call: str
    backward: bool
    flops: float
    bytes_moved: float
    dtype: str
    in_place: bool
    sources: tuple[int, ...]
    host_calls: int


def fake_tensors() -> AbstractContextManager[Any]:
    """Inside, every new tensor is fake, and values that are asked for are those of an ordinary input."""
    from torch._subclasses import fake_tensor

    from jouletrace.steps.dispatch import AnswerValues

    log = fake_tensor.log

    @contextmanager
    def both() -> Iterator[None]:
        # what goes wrong is raised as well, and said in one line instead of torch's hundred
        log.disabled, before = True, log.disabled
        try:
            with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True) as mode, AnswerValues(mode):
                yield
        finally:
            log.disabled = before

    return both()


def count_operators(call: Callable[[], object], module: torch.nn.Module | None = None) -> list[Operator]:
    """The operators with a kernel of one call, in order. To be called inside ``fake_tensors``.

    Args:
        call: One iteration.
        module: The model whose modules are to be named.

    Raises:
        NotPossibleError: If a shape depends on values, or there is no fake form of an operator.
    """
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        UnsupportedOperatorException,
    )

    from jouletrace.steps.dispatch import CountOperators
    from jouletrace.steps.module_names import ModuleNames

    with ModuleNames(module) as names:
        counter = CountOperators(names)
        try:
            with counter:
                call()
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException) as error:
            where = f" in {counter.module}" if counter.module else ""
            raise NotPossibleError(
                f"can't be simulated: {getattr(error, 'func', error)}{where} needs values, not shapes alone"
            ) from error
    return counter.operators


def count_workload(workload: Workload, options: WorkloadOptions) -> tuple[Built, list[Operator]]:
    """Build a workload out of fake tensors and count the operators of one iteration.

    Returns:
        The workload, which can run no more than that, and its operators.

    Raises:
        BadInputError: If the options don't fit, or the workload raises.
        NotPossibleError: If a library is missing, or an operator needs values.
    """
    from jouletrace.steps.trial import user_code
    from jouletrace.workloads.deferred import check_ran
    from jouletrace.workloads.environment import require_device

    require_device("cpu")
    with fake_tensors():
        built = workload.build("cpu", options)
        try:
            with user_code(built, "; a simulated board calls it with tensors that have shapes and no values"):
                # an optimiser makes its state in the first iteration, and not again
                count_operators(lambda: check_ran(built.call(0), workload.name), built.module)
                operators = count_operators(lambda: built.call(0), built.module)
            built.facts["least_memory_bytes"] = least_memory(built, operators)
        finally:
            built.restore()
    return built, operators


def least_memory(built: Built, operators: Sequence[Operator]) -> int:
    """Bytes without which an iteration can't run: weights and inputs, or what the largest operator touches.

    A lower bound: what else is alive meanwhile isn't known.
    """
    from jouletrace.steps.operators import storage_key
    from jouletrace.workloads.trees import named_tensors

    module = built.module
    weights = [*module.parameters(), *module.buffers()] if module is not None else []
    held = {
        storage_key(tensor): tensor for tensor in [*weights, *(tensor for _, tensor in named_tensors(built.inputs))]
    }
    largest = max((operator.bytes_moved for operator in operators), default=0)
    return max(sum(tensor.untyped_storage().nbytes() for tensor in held.values()), int(largest))
