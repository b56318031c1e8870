"""The libraries of the runtimes: found, or their absence said in one line."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from jouletrace.errors import NotPossibleError

_EXTRAS = {"openvino": "openvino"}
"""The extra of each library that isn't in "onnx"."""


def require(name: str) -> Any:
    """Import "onnx", "onnxscript", "onnxruntime" or "openvino".

    Raises:
        NotPossibleError: If it isn't installed or can't be imported; says how to get it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        extra = _EXTRAS.get(name, "onnx")
        raise NotPossibleError(f"{name} can't be imported ({error}): pip install 'jouletrace[{extra}]'") from error
