"""The captured graphs of a compiled workload, and what is known of their nodes. Imports torch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from jouletrace.errors import NotPossibleError
from jouletrace.steps.base import VariantRefusedError
from jouletrace.steps.cuda.compiled_calls import Named, NodeCall, group_calls, name_nodes
from jouletrace.steps.cuda.kept_graphs import KeptGraphs
from jouletrace.steps.units import Unit, group
from jouletrace.workloads.base import Built
from jouletrace.workloads.trees import named_tensors

_SAME = 5e-3
"""Outputs this near to one another, over the largest of them, are the same: atomic sums differ by their order."""


@dataclass
class CompiledGraphs:
    """What an untouched compiled step and all its variants share.

    Attributes:
        graphs: The captured graphs.
        named: Nodes of each input set's graph.
        calls: Calls of each, in the order of their capture.
        units: Parts of an iteration.
        outputs: What an iteration on each input set leaves.
        unnamed: Why nodes go without operators; "" if they don't.
        changing: Units whose repetition changes the outputs, as far as they have been repeated one by one.
    """

    graphs: KeptGraphs
    named: list[list[Named]]
    calls: list[list[NodeCall]]
    units: list[Unit]
    outputs: list[list[torch.Tensor]]
    unnamed: str = ""
    changing: dict[Unit, None] = field(default_factory=dict)

    @classmethod
    def capture(cls, built: Built, device: torch.device) -> CompiledGraphs:
        """Capture a compiled workload and find out what its graphs are made of.

        Raises:
            CaptureError: If it can't be captured.
            NotPossibleError: If torch or the driver is too old, memory runs out, or input sets run other kernels.
        """
        graphs = KeptGraphs(built, device)
        try:
            named, unnamed = name_nodes(built, graphs)
            calls = [group_calls(one) for one in named]
            for i, one in enumerate(calls):
                if [call.key for call in one] != [call.key for call in calls[0]]:
                    raise NotPossibleError(f"input set {i} runs other kernels than input set 0: use one input set")
            graphs.replay(len(calls))
            outputs = [[tensor.clone() for tensor in _tensors(graphs, i)] for i in range(len(calls))]
        except BaseException:
            graphs.close()
            raise
        return cls(graphs, named, calls, group(call.key for call in calls[0]), outputs, unnamed)

    def compare(self, i: int, changed: list[Unit]) -> None:
        """Look at the outputs of an iteration on input set ``i`` with units repeated, which has just ended.

        Raises:
            VariantRefusedError: If they are no numbers any more.
        """
        for found, wanted in zip(_tensors(self.graphs, i), self.outputs[i], strict=True):
            if bool(wanted.isfinite().all()) and not bool(found.isfinite().all()):
                what = ", ".join(map(str, changed)) or "the step"
                raise VariantRefusedError("not_finite", f"{what}: repeated, it leaves outputs that aren't finite")
            if len(changed) == 1 and not _alike(found, wanted):
                self.changing[changed[0]] = None


def _tensors(graphs: KeptGraphs, i: int) -> list[torch.Tensor]:
    return [tensor for _, tensor in named_tensors(graphs.outputs_of(i))]


def _alike(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    if not wanted.is_floating_point() or not wanted.numel():
        return bool(torch.equal(found, wanted))
    wanted = wanted.float()
    return bool((found.float() - wanted).abs().max() <= _SAME * wanted.abs().max())
