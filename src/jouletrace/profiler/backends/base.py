"""What a backend offers, and what it makes of a workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.execution.program import Program
from jouletrace.execution.steps.base import Step
from jouletrace.execution.steps.generation import GenerationSteps
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import RunWarning
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.model_file import ModelFile
from jouletrace.workloads.options import WorkloadOptions


@dataclass
class Prepared:
    """A built workload and the step that runs it.

    Attributes:
        built: The workload.
        step: Runs it on the device.
        real: Whether it computes real numbers (a simulated board computes none).
        make_program: Makes it ready to be traced; None of what can't be.
        make_generation: Makes the pieces of an iteration that generates tokens; None of others.
        warnings: Of its data, where ``steps.check_outputs`` can't look at them.
    """

    built: Built
    step: Step
    real: bool = True
    make_program: Callable[[], Program] | None = None
    make_generation: Callable[[], GenerationSteps] | None = None
    warnings: list[RunWarning] = field(default_factory=list)

    def program(self) -> Program:
        """The workload as it can be traced.

        Raises:
            NotPossibleError: If it can't.
        """
        if self.make_program is None:
            raise NotPossibleError(f"{self.built.facts.get('name', 'this workload')} can't be traced here")
        return self.make_program()


class Backend(Protocol):
    """A module that makes workloads ready to run."""

    def load_libraries(self, workload: Workload, device: Device) -> None:
        """Import what takes seconds and touches no GPU; what isn't there is said when it is needed."""

    def prepare(
        self, workload: Workload, device: Device, settings: ProfileSettings, options: WorkloadOptions
    ) -> Prepared:
        """Build the workload on the device and make its step; a context exists on a GPU from here on.

        Raises:
            BadInputError: If the options don't fit the workload.
            NotPossibleError: If something is missing here: a library, memory, a CUDA device.
        """


class Runtime(Backend, Protocol):
    """A backend that chooses its device itself."""

    def device_for(self, backend: str, device: str) -> str:
        """The device that "auto" means to it.

        Raises:
            NotPossibleError: If the runtime isn't installed.
        """


def lacks_phases(settings: ProfileSettings) -> bool:
    """Whether phases are asked for of an inference."""
    return settings.detail == "phase" and settings.task == "infer"


def check_phases(workload: Workload, settings: ProfileSettings, phases: set[str]) -> None:
    """Refuse to list the phases of what has but one. The user's own call may have more: forces are a gradient.

    Raises:
        BadInputError: Says what has phases.
    """
    if lacks_phases(settings) and len(phases) < 2:
        raise BadInputError(no_phases(workload))


def no_phases(workload: Workload) -> str:
    """What has phases, and what lists the parts of what has none."""
    if isinstance(workload, ModelFile):
        return f"{workload.name}: --detail phase: a model file has no phases; use --detail kernel, of its nodes"
    return (
        f"{workload.name}: --detail phase: an inference has no phases, --task train (forward, backward, optimizer) and "
        "--task generate (prefill, decode) have; use --detail layer or kernel"
    )
