"""What a child process of a recorded program imports first: little, since most children use no GPU.

Its tracer is imported with the first library that can use a GPU.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from jouletrace.profiler.program.imports import AfterImport

GPU_LIBRARIES = ("torch", "cupy", "jax", "numba", "pycuda", "tensorflow", "cuda.bindings", "cuda.core", "tensorrt")


def arm() -> None:
    """Trace this process once it has imported a library that can use a GPU."""
    armed = list[AfterImport]()

    def begin() -> None:
        if armed:
            armed.pop().__exit__()
            try:
                from jouletrace.profiler.program.children import trace_this_process
            except ImportError as error:  # a Python without what this package needs
                _say(f"its Python lacks {error.name}")
            else:
                trace_this_process()

    armed.append(AfterImport(GPU_LIBRARIES, begin).__enter__())


def _say(why: str) -> None:
    """Leave the reason why this process isn't traced."""
    with suppress(OSError, KeyError):
        Path(os.environ["JOULETRACE_CHILDREN"], f"{os.getpid()}.untraced").write_text(why)
