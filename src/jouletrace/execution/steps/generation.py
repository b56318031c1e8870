"""Steps of the pieces of a generating iteration, on a real device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jouletrace.execution.steps.base import Step
from jouletrace.execution.steps.registry import make_step
from jouletrace.workloads.base import Built
from jouletrace.workloads.generation_pieces import Generation, Segment


@dataclass(frozen=True)
class GenerationSteps:
    """The pieces of a generating iteration, ready to run.

    Attributes:
        generation: The generation.
        segments: Its pieces with their steps.
        first_token: Runs until the first token exists.
    """

    generation: Generation
    segments: tuple[tuple[Segment, Step], ...]
    first_token: Step

    def close(self) -> None:
        """Free the steps' memory on the device."""
        for _, step in self.segments:
            step.close()
        self.first_token.close()


def make_generation_steps(built: Built, torch_device: str, mode: str) -> GenerationSteps:
    """Prepare the pieces of a generating workload; runs or captures each.

    Args:
        built: The workload, built on ``torch_device``.
        torch_device: "cuda:N" or "cpu".
        mode: Mode of the whole: "eager", or "graph" (CUDA only).

    Raises:
        BadInputError, NotPossibleError: As ``make_step``.
    """
    generation = built.generation
    assert generation is not None

    def step(segment: Segment) -> Step:
        return make_step(replace(built, call=segment.call), torch_device, mode)

    return GenerationSteps(
        generation,
        tuple((segment, step(segment)) for segment in generation.segments),
        make_step(replace(built, call=generation.first_token), torch_device, mode),
    )
