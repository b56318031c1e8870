"""The dispatch mode under everything that follows operators as they run. Imports torch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from jouletrace.execution.steps.operators import is_bookkeeping, is_composite, without_kernel

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

    def view(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called for views and new memory, whose occurrence depends on how an iteration is run."""
        return func(*args, **kwargs)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Decompose composite operators; pass all others to ``operator``."""
        kwargs = kwargs or {}
        if is_bookkeeping(func):
            return func(*args, **kwargs)
        if is_composite(func, self._backend):
            with self, self._autocast_of(func):
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        if without_kernel(func) and torch.Tag.data_dependent_output not in func.tags:
            return self.view(func, args, kwargs)
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
