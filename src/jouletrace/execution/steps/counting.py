"""What a workload does, without doing it: operators, operations and bytes, counted on fake tensors.

Fake tensors have shapes and types but no memory; counting a model with billions of weights
takes seconds. A question about a value (``tensor.item()``) gets the answer of an ordinary input:
nothing is masked, no condition is unusual. Where shapes depend on values there is no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from jouletrace.errors import NotPossibleError
from jouletrace.execution.steps.operator import Operator
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.options import WorkloadOptions

if TYPE_CHECKING:
    import torch


def fake_tensors() -> AbstractContextManager[Any]:
    """Inside, every new tensor is fake, and values that are asked for are those of an ordinary input."""
    from torch._subclasses import fake_tensor

    from jouletrace.execution.steps.dispatch import AnswerValues

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

    from jouletrace.execution.steps.dispatch import CountOperators
    from jouletrace.execution.steps.module_names import ModuleNames

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
    from jouletrace.execution.steps.trial import user_code
    from jouletrace.workloads.deferred import check_ran
    from jouletrace.workloads.environment import require_device

    require_device("cpu")
    with fake_tensors():
        built = workload.build("cpu", options)
        try:
            with user_code(built, "; a simulated GPU calls it with tensors that have shapes and no values"):
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
    from jouletrace.execution.steps.operators import storage_key
    from jouletrace.workloads.trees import named_tensors

    module = built.module
    weights = [*module.parameters(), *module.buffers()] if module is not None else []
    held = {
        storage_key(tensor): tensor for tensor in [*weights, *(tensor for _, tensor in named_tensors(built.inputs))]
    }
    largest = max((operator.bytes_moved for operator in operators), default=0)
    return max(sum(tensor.untyped_storage().nbytes() for tensor in held.values()), int(largest))
