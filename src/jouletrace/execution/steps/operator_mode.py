"""The dispatch mode under everything that follows operators as they really run. Imports torch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from jouletrace.execution.steps.operators import is_bookkeeping, is_composite, without_kernel

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Sees every operator that a backend has code for, in forward and backward, and nothing else.

    A composite operator, which comes whole in inference mode, is taken apart as the dispatcher
    would do it, autocast included, so that a call runs what it runs without the mode: the kernels
    of a capture under this mode are those of one without.

    Args:
        device: Where the workload runs.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.device = device
        self._backend = device.type.upper()
        self._autocast = torch._C.DispatchKey.__members__[f"Autocast{self._backend}"]

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called in order for each operator that may do work, in place of it; returns its outputs."""
        return func(*args, **kwargs)

    def view(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called for views and new memory, which come and go with how an iteration is run."""
        return func(*args, **kwargs)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Take composite operators apart; hand all others to ``operator``."""
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
        """Let autocast act on the parts of a composite that it hasn't acted on itself.

        Torch suspends autocast below a mode, and whether it is on can't be asked there: only whether
        a context is entered. (An unlisted composite in a region where autocast is switched off
        inside of one where it is on is taken for cast; the check of kernels would see it.)
        """
        inside = torch.autocast_increment_nesting() > 1
        torch.autocast_decrement_nesting()
        if not inside or func.has_kernel_for_dispatch_key(self._autocast):
            return nullcontext()
        return torch._C._SetExcludeDispatchKeyGuard(self._autocast, False)
