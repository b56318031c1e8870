"""The contract of backends, and the prepared workload that they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.execution.program import Program
from jouletrace.execution.steps.base import Step
from jouletrace.execution.steps.registry import GenerationSteps
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import RunWarning
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.saved_models import ModelFile


@dataclass
class Prepared:
    """A built workload and the step that runs it.

    Attributes:
        built: The workload.
        step: Runs it on the device.
        real: Whether it computes real numbers (a simulated GPU computes none).
        make_program: Prepares it for tracing; None if it can't be traced.
        make_generation: Builds the pieces of an iteration that generates tokens; None for other tasks.
        warnings: Warnings about its data, where ``steps.check_outputs`` can't inspect them.
    """

    built: Built
    step: Step
    real: bool = True
    make_program: Callable[[], Program] | None = None
    make_generation: Callable[[], GenerationSteps] | None = None
    warnings: list[RunWarning] = field(default_factory=list)

    def program(self) -> Program:
        """The workload, ready for tracing.

        Raises:
            NotPossibleError: If it can't be traced.
        """
        if self.make_program is None:
            raise NotPossibleError(f"{self.built.facts.get('name', 'this workload')} can't be traced here")
        return self.make_program()


class Backend(Protocol):
    """A module that prepares workloads."""

    def load_libraries(self, workload: Workload, device: Device) -> None:
        """Import slow libraries, which touches no GPU; missing libraries are reported when they are used."""

    def prepare(
        self, workload: Workload, device: Device, settings: ProfileSettings, options: WorkloadOptions
    ) -> Prepared:
        """Build the workload on the device and its step; from here on a GPU has a context.

        Raises:
            BadInputError: If the options don't fit the workload.
            NotPossibleError: If a library, memory or a CUDA device is missing.
        """


class Runtime(Backend, Protocol):
    """A backend with its own choice of device."""

    def device_for(self, backend: str, device: str) -> str:
        """The device that "auto" stands for.

        Raises:
            NotPossibleError: If the runtime isn't installed.
        """


def lacks_phases(settings: ProfileSettings) -> bool:
    """Whether phases of an inference are requested."""
    return settings.detail == "phase" and settings.task == "infer"


def check_phases(workload: Workload, settings: ProfileSettings, phases: set[str]) -> None:
    """Refuse to list phases if there is only one. A user's call may have several: forces require a gradient.

    Raises:
        BadInputError: With the tasks that have phases.
    """
    if lacks_phases(settings) and len(phases) < 2:
        raise BadInputError(no_phases(workload))


def no_phases(workload: Workload) -> str:
    """The message that names the tasks with phases, and the detail for workloads without."""
    if isinstance(workload, ModelFile):
        return (
            f"{workload.name}: --detail phase: a model file has no phases; use --detail kernel, which lists its nodes"
        )
    return (
        f"{workload.name}: --detail phase: an inference has no phases; --task train (forward, backward, optimizer) and "
        "--task generate (prefill, decode) have phases; use --detail layer or kernel"
    )
