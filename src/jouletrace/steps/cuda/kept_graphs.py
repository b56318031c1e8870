"""Captured graphs that are kept, so that their nodes can be looked at and copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jouletrace.errors import NotPossibleError
from jouletrace.steps.cuda.graph import CudaGraphStep
from jouletrace.steps.cuda.node_copies import CapturedGraph, Driver
from jouletrace.workloads.base import Built

if TYPE_CHECKING:
    import torch


class KeptGraphs(CudaGraphStep):
    """A captured step whose graphs outlive their instantiation.

    Attributes:
        captured: The graph of each input set.
    """

    def __init__(self, built: Built, device: torch.device, beside: CudaGraphStep | None = None) -> None:
        """Capture, as of ``CudaGraphStep``.

        Raises:
            CaptureError: If it can't be captured.
            NotPossibleError: If torch or the driver is too old, or memory runs out.
        """
        import torch

        driver = Driver()
        super().__init__(built, device, beside)
        self.captured: list[CapturedGraph] = []
        with torch.cuda.device(device):
            try:
                for graph in self._graphs:
                    graph.instantiate()
                    self.captured.append(CapturedGraph(driver, graph.raw_cuda_graph()))
            except BaseException:
                self.close()
                raise

    def outputs_of(self, i: int) -> Any:
        """Outputs of input set ``i``: of the last iteration on it, whichever graph launched that."""
        return self._outputs[i]

    def describe(self) -> dict[str, Any]:
        """See ``CudaStep.describe``; a compiled workload says how it was compiled."""
        return {**super().describe(), **self._built.facts.get("compile", {})}

    def _new_graph(self) -> torch.cuda.CUDAGraph:
        import torch

        if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
            raise NotPossibleError(f"--mode compile with parts needs torch 2.8 or later, not {torch.__version__}")
        return torch.cuda.CUDAGraph(keep_graph=True)
