"""Steps of the pieces of a generating iteration, on a real device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError
from jouletrace.execution.steps.base import Step
from jouletrace.execution.steps.counting import count_operators, fake_tensors, least_memory
from jouletrace.execution.steps.registry import check_options, make_step
from jouletrace.execution.steps.simulated import SimulatedStep, check_memory, kernels_of, with_usual_dtype
from jouletrace.execution.steps.trial import user_code
from jouletrace.simulator.boards import SimulatedGpu
from jouletrace.workloads.base import BETWEEN, DECODE, PREFILL, TOGETHER, Built, Generation, Segment, Workload
from jouletrace.workloads.environment import require_device
from jouletrace.workloads.options import WorkloadOptions

if TYPE_CHECKING:
    from jouletrace.execution.steps.operators import Operator  # imports torch

    Operators = list[Operator]


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


@dataclass(frozen=True)
class CountedGeneration:
    """A generating workload, counted without running it, for any simulated GPU.

    Attributes:
        built: The workload.
        mode: "graph" or "eager".
        pieces: Operators of each piece of an iteration.
        whole: Operators of an iteration.
        phases: Phase of each operator of an iteration.
    """

    built: Built
    mode: str
    pieces: tuple[Operators, ...]
    whole: Operators
    phases: tuple[str, ...]

    def on(self, device: SimulatedGpu) -> tuple[SimulatedStep, GenerationSteps]:
        """The iteration and its pieces on a GPU.

        Raises:
            NotPossibleError: If the GPU has too little memory.
        """
        check_memory(self.built, device)
        generation, mode = self.built.generation, self.mode
        assert generation is not None
        tf32 = self.built.facts.get("dtype") == "tf32"

        def step(operators: Sequence[Operator], launch: str = mode) -> SimulatedStep:
            return SimulatedStep(device, kernels_of(device, operators, tf32), launch)

        counted = list(zip(generation.segments, self.pieces, strict=True))
        by_phase = {segment.phase: operators for segment, operators in counted}
        pieces = GenerationSteps(
            generation,
            tuple(
                (_together(segment, mode), step(operators * _together(segment, mode).times))
                for segment, operators in counted
            ),
            step([*by_phase[PREFILL], *_shares(by_phase[BETWEEN], generation.steps)[0]]),
        )
        return step(self.whole), pieces


def simulate_generation(
    workload: Workload, options: WorkloadOptions, device: Device, mode: str
) -> tuple[Built, SimulatedStep, GenerationSteps, tuple[str, ...]]:
    """Count a generating workload without running it, and return it and its pieces as steps on a simulated GPU.

    Args:
        workload: The workload; it is built with fake tensors.
        options: Its options.
        device: The GPU.
        mode: "graph" or "eager".

    Returns:
        The workload, an iteration, its pieces, and the phase of each kernel of the iteration.

    Raises:
        BadInputError, NotPossibleError: As ``simulate_workload``.
    """
    if not isinstance(device, SimulatedGpu):
        raise BadInputError(f"{device.info.name} isn't a simulated GPU")
    counted = count_generation(workload, options, mode)
    steps = counted.on(device)
    counted.built.facts["device"] = device.info.name
    return counted.built, *steps, counted.phases


def count_generation(workload: Workload, options: WorkloadOptions, mode: str) -> CountedGeneration:
    """Count a generating workload, for any simulated GPU; see ``simulate_generation``."""
    check_options("simulated", mode)
    options = replace(with_usual_dtype(workload, options), own_loop="static" if mode == "graph" else "dynamic")
    built, pieces = _count(workload, options)
    assert built.generation is not None
    phased = _whole(built.generation, pieces)
    whole = [operator for _, operator in phased]
    built.facts["counted"] = {
        "operators": len(whole),
        "flops": sum(operator.flops for operator in whole),
        "bytes_moved": sum(operator.bytes_moved for operator in whole),
    }
    return CountedGeneration(built, mode, tuple(pieces), whole, tuple(phase for phase, _ in phased))


def _count(workload: Workload, options: WorkloadOptions) -> tuple[Built, list[Operators]]:
    """The workload, and the operators of each of its pieces."""
    require_device("cpu")
    with fake_tensors():
        built = workload.build("cpu", options)
        generation = built.generation
        if generation is None:
            raise BadInputError(f"--task generate: {workload.name} isn't a model that generates")
        try:
            with user_code(built, "; a simulated GPU calls it with tensors that have shapes but no values"):
                counted = [_once(built, segment) for segment in generation.segments]
                built.facts["least_memory_bytes"] = least_memory(
                    built, count_operators(lambda: generation.forwards(0), built.module)
                )
        finally:
            built.restore()
    return built, counted


def _once(built: Built, segment: Segment) -> Operators:
    return count_operators(lambda: segment.call(0), built.module)


def _together(segment: Segment, mode: str) -> Segment:
    """As on a real GPU: several short pieces are captured together."""
    return replace(segment, times=TOGETHER) if segment.phase != PREFILL and mode == "graph" else segment


def _whole(generation: Generation, counted: Sequence[Operators]) -> list[tuple[str, Operator]]:
    """The operators of an iteration with their phases; forwards between the counted lengths are interpolated.

    Operations and bytes of every operator of attention and of a cache are linear in the cache's length.
    """
    pieces = list(zip(generation.segments, counted, strict=True))
    decode = [(segment.length or 0, operators) for segment, operators in pieces if segment.phase == DECODE]
    between = next(operators for segment, operators in pieces if segment.phase == BETWEEN)
    shares = _shares(between, generation.steps)
    found = [(PREFILL, operator) for operator in pieces[0][1]] + [(BETWEEN, operator) for operator in shares[0]]
    for step in range(1, generation.steps):
        found += [(DECODE, operator) for operator in _at(generation.prompt + step, decode)]
        found += [(BETWEEN, operator) for operator in shares[step]]
    return found


def _shares(between: Operators, steps: int) -> list[Operators]:
    """The operators between forwards, after each of them; the remainder of the division follows the last."""
    each = len(between) // steps
    shares = [between[i * each : (i + 1) * each] for i in range(steps)]
    shares[-1] = between[(steps - 1) * each :]
    return shares


def _at(length: int, known: Sequence[tuple[int, Operators]]) -> Operators:
    (low, first), (high, last) = known[0], known[-1]
    if high == low or len(first) != len(last):
        return min(known, key=lambda one: abs(one[0] - length))[1]
    share = (length - low) / (high - low)
    return [
        replace(
            a,
            flops=a.flops + share * (b.flops - a.flops),
            bytes_moved=a.bytes_moved + share * (b.bytes_moved - a.bytes_moved),
        )
        for a, b in zip(first, last, strict=True)
    ]
