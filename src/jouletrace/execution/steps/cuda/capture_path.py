"""Keeps a capture on the path of the plain workload, which some libraries leave during captures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def plain_path() -> Iterator[None]:
    """Make transformers take its ordinary path during a capture.

    While a stream captures, transformers builds explicit attention masks, which it omits
    otherwise. With such a mask attention falls back to unfused fp32 kernels, and a captured DeiT-B
    takes three times as long on the GPU as the eager one. A graph must contain the kernels of the
    step that it represents.
    """
    utilities = sys.modules.get("transformers.utils.import_utils")
    asks = getattr(utilities, "is_cuda_stream_capturing", None)
    if utilities is None or asks is None:
        yield
        return
    utilities.is_cuda_stream_capturing = lambda: False  # type: ignore[attr-defined]  # seen by is_tracing there
    try:
        yield
    finally:
        utilities.is_cuda_stream_capturing = asks  # type: ignore[attr-defined]  # as above
