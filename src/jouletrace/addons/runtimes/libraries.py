"""The libraries of the runtimes, with an error of one line where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from jouletrace.errors import NotPossibleError

_EXTRAS = {"openvino": "openvino"}
"""The extra of each library outside of "onnx"."""


def require(name: str) -> Any:
    """Import "onnx", "onnxscript", "onnxruntime" or "openvino".

    Raises:
        NotPossibleError: If it isn't installed or can't be imported; the message states how to install it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        extra = _EXTRAS.get(name, "onnx")
        raise NotPossibleError(f"{name} can't be imported ({error}): pip install 'jouletrace[{extra}]'") from error
