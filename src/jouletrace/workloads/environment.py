"""The libraries and devices that a workload needs, with an error of one line where they are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, NotPossibleError

if TYPE_CHECKING:
    import torch

_INSTALL = "pip install 'jouletrace[torch]'"


def require_transformers() -> Any:
    """Import transformers.

    Raises:
        NotPossibleError: If it isn't installed or can't be imported.
    """
    try:
        import transformers
    except ImportError as error:
        raise NotPossibleError(f"transformers can't be imported ({error}): {_INSTALL}") from error
    return transformers


def require_device(device: str) -> torch.device:
    """The torch device named ``device`` ("cuda:0", "cpu", "meta"), after a check that it exists.

    Raises:
        BadInputError: If torch has no such kind of device.
        NotPossibleError: If torch isn't installed or can't use the device here.
    """
    try:
        import torch
    except ImportError as error:
        raise NotPossibleError(f"torch can't be imported ({error}): {_INSTALL}") from error
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise BadInputError(f"'{device}' is no torch device: write cuda:N or cpu") from error
    return _cuda(found) if found.type == "cuda" else found


def _cuda(device: torch.device) -> torch.device:
    """The same with its index, if torch can use it."""
    import torch

    if not torch.cuda.is_available():
        why = "is built without CUDA"
        if torch.version.cuda is not None:
            why = f"is built for CUDA {torch.version.cuda} and has no GPU that it can use"
        raise NotPossibleError(f"{device}: torch {torch.__version__} {why}")
    count = torch.cuda.device_count()
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= count:
        raise NotPossibleError(f"{device}: torch sees {count} GPU{'s' if count != 1 else ''} here")
    return torch.device("cuda", index)
