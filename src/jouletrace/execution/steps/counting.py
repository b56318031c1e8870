"""Counts the work of a workload without running it: operators, operations and bytes, by means of fake tensors.

Fake tensors have shapes and types but no memory; counting a model with billions of weights
takes seconds. A query of a value (``tensor.item()``) returns the value of an ordinary input:
nothing is masked, no condition is unusual. Queries on which shapes depend have no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from jouletrace.errors import NotPossibleError
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.options import WorkloadOptions

if TYPE_CHECKING:
    import torch

    from jouletrace.execution.steps.operators import Operator  # imports torch


def fake_tensors() -> AbstractContextManager[Any]:
    """Make every new tensor inside fake, and answer queries of values as for an ordinary input."""
    from torch._subclasses import fake_tensor

    from jouletrace.execution.steps.dispatch import AnswerValues

    log = fake_tensor.log

    @contextmanager
    def both() -> Iterator[None]:
        # errors are also raised, and then reported in one line instead of torch's hundred
        log.disabled, before = True, log.disabled
        try:
            with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True) as mode, AnswerValues(mode):
                yield
        finally:
            log.disabled = before

    return both()


def count_operators(call: Callable[[], object], module: torch.nn.Module | None = None) -> list[Operator]:
    """The operators of one call that have a kernel, in order. Call it inside ``fake_tensors``.

    Args:
        call: One iteration.
        module: The model whose modules are named.

    Raises:
        NotPossibleError: If a shape depends on values, or an operator has no fake implementation.
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
                f"can't be simulated: {getattr(error, 'func', error)}{where} needs values, not only shapes"
            ) from error
    return counter.operators


def count_workload(workload: Workload, options: WorkloadOptions) -> tuple[Built, list[Operator]]:
    """Build a workload of fake tensors and count the operators of one iteration.

    Returns:
        The workload, which can't be run otherwise, and its operators.

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
            with user_code(built, "; a simulated GPU calls it with tensors that have shapes but no values"):
                # an optimiser creates its state in the first iteration only
                count_operators(lambda: check_ran(built.call(0), workload.name), built.module)
                operators = count_operators(lambda: built.call(0), built.module)
            built.facts["least_memory_bytes"] = least_memory(built, operators)
        finally:
            built.restore()
    return built, operators


def least_memory(built: Built, operators: Sequence[Operator]) -> int:
    """Lower bound on the memory of an iteration in bytes: weights and inputs, or the data of the largest operator.

    Other tensors alive at the same time are unknown.
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
