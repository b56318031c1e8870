"""A workload captured as a CUDA graph and replayed: no host work between its kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.execution.steps.cuda import CudaStep
from jouletrace.execution.steps.trial import name_of
from jouletrace.workloads.base import Built
from jouletrace.workloads.user_code import memory_guard, where_raised

if TYPE_CHECKING:
    import torch

_WARM_UP = 3
"""Iterations on the capturing stream before capture, in which libraries initialise and choose their kernels."""


class CaptureError(BadInputError):
    """The workload does something that a CUDA graph can't contain; ``--mode eager`` may work."""


class CudaGraphStep(CudaStep):
    """A workload as one CUDA graph for each input set, replayed in rotation; captured on construction.

    The graphs share a private memory pool. This is safe because they never run at the same time
    and the outputs of one graph are never read after another has run.

    Args:
        built: A workload that has run once.
        device: The GPU.

    Raises:
        CaptureError: If it can't be captured; the message names the likely operator.
        NotPossibleError: If memory runs out.
    """

    mode = "graph"

    def __init__(self, built: Built, device: torch.device) -> None:
        import torch

        self.device = device
        self._built = built
        self._next = 0
        self._graphs: list[torch.cuda.CUDAGraph] = []
        # A captured output must live as long as its graph writes to it.
        self._outputs: list[Any] = []
        with torch.cuda.device(device), memory_guard(f"capturing {name_of(built)}"):
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # untyped in torch
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for i in range(_WARM_UP * len(built.inputs)):
                    built.call(i)
            torch.cuda.synchronize()
            pool = torch.cuda.graph_pool_handle()
            for i in range(len(built.inputs)):
                self._capture(i, stream, pool)

    def launch(self) -> None:
        """See ``CudaStep.launch``; input sets rotate."""
        self._graphs[self._next % len(self._graphs)].replay()
        self._next += 1

    def describe(self) -> dict[str, Any]:
        """See ``CudaStep.describe``."""
        return {**super().describe(), "graphs": len(self._graphs), "capture_warm_up": _WARM_UP}

    def close(self) -> None:
        """Free the graphs and their memory."""
        import torch

        torch.cuda.synchronize(self.device)
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()
        self._outputs.clear()

    def _capture(self, i: int, stream: torch.cuda.Stream, pool: Any) -> None:
        import torch

        try:
            graph, outputs = capture(lambda: self._built.call(i), self.device, pool, stream)
        except JouletraceError:
            raise
        except Exception as error:
            first = first_cause(error)
            if isinstance(first, torch.OutOfMemoryError):
                raise first from error
            operator = self._failing_operator(i, stream)
            raise CaptureError(f"{name_of(self._built)} {explain(error, operator)}") from error
        self._graphs.append(graph)
        self._outputs.append(outputs)

    def _failing_operator(self, i: int, stream: torch.cuda.Stream) -> str | None:
        """Repeat the capture with a watch on operators, which the real capture must not have."""
        import torch

        with last_operator() as ran:
            try:
                torch.cuda.synchronize()
                capture(lambda: self._built.call(i), self.device, torch.cuda.graph_pool_handle(), stream)
            except Exception:
                return ran[-1] if ran else None
        return None


def capture(
    call: Callable[[], Any], device: torch.device, pool: Any, stream: torch.cuda.Stream
) -> tuple[torch.cuda.CUDAGraph, Any]:
    """A CUDA graph of the work of ``call``, and its outputs.

    The outer stream context restores the current stream when a failed capture leaves the
    inner one open. Other threads may use CUDA meanwhile ("thread_local").
    """
    import torch

    graph = torch.cuda.CUDAGraph()
    with (
        generator_kept(device),
        plain_path(),
        torch.cuda.stream(stream),
        torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"),
    ):
        outputs = call()
    return graph, outputs


@contextmanager
def last_operator() -> Iterator[list[str]]:
    """Yields a list whose only item is the operator that torch ran last inside the block ("aten.item.default").

    The list is empty before the first. In inference mode, composite operators appear as a whole.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    ran: list[str] = []

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's __init_subclass__
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            ran[:] = [str(func)]
            return func(*args, **(kwargs or {}))

    with Watch():  # type: ignore[no-untyped-call]  # torch's __init__
        yield ran


@contextmanager
def generator_kept(device: torch.device) -> Iterator[None]:
    """Keep torch's random generator of the GPU usable and unchanged if the capture inside fails.

    A capture that breaks off leaves the generator's state marked as being captured: from then on
    every random number outside of a graph raises "Offset increment outside graph capture". The
    mark can't be removed, so the generator gets a new state with its earlier seed and offset.
    """
    import torch

    generator = torch.cuda.default_generators[device.index]
    before = generator.get_state()
    try:
        yield
    except BaseException:
        generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
        generator.set_state(before)
        raise


def first_cause(error: BaseException) -> BaseException:
    """The first error: ending a broken capture fails too, and its error hides the first one."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def explain(error: BaseException, operator: str | None) -> str:
    """``"can't be captured as a CUDA graph at OPERATOR (file, line 3: code): reason; use --mode eager"``.

    Args:
        error: The exception of the capture.
        operator: The operator that ran last, where known.
    """
    first = first_cause(error)
    # CUDA adds paragraphs of general advice; the first line is the reason.
    reason = next(iter(str(first).splitlines()), "") or type(first).__name__
    at = f" at {operator}" if operator else ""
    where = where_raised(first)
    return f"can't be captured as a CUDA graph{at}{f' ({where})' if where else ''}: {reason}; use --mode eager"


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
