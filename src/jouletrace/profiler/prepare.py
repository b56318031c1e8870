"""From a workload and a device to a step that is ready to run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from jouletrace import workloads
from jouletrace.devices.base import Device
from jouletrace.devices.cuda_order import cuda_index, show_alone
from jouletrace.errors import SIMULATE_GPU, BadInputError, NotPossibleError
from jouletrace.execution.program import Program
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import RunWarning
from jouletrace.runtimes import registry as runtimes
from jouletrace.steps import make_step
from jouletrace.steps.base import Step
from jouletrace.steps.generation import GenerationSteps, make_generation_steps
from jouletrace.steps.modes import check_options
from jouletrace.steps.trial import user_code
from jouletrace.workloads import ObjectWorkload
from jouletrace.workloads.base import Built, Workload, WorkloadOptions
from jouletrace.workloads.local_folder import LocalFolder
from jouletrace.workloads.model_file import ModelFile
from jouletrace.workloads.transformers_models import BuiltInModel
from jouletrace.workloads.user import UserWorkload

if TYPE_CHECKING:
    from jouletrace.steps.cuda.step import CudaStep


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


def resolve(workload: str | Workload) -> Workload:
    """A workload by its name or path, or the workload itself.

    Raises:
        BadInputError: If there is none of that name; the nearest are offered.
    """
    return workloads.resolve(workload) if isinstance(workload, str) else workload


def for_workload(workload: Workload, settings: ProfileSettings) -> ProfileSettings:
    """The settings with backend and device as they are meant for this workload.

    Raises:
        BadInputError: If the options don't go with the runtime that a model file is for, or phases are asked for of
            what has none.
    """
    check_has_phases(workload, settings)
    if isinstance(workload, ModelFile) and settings.backend == "auto":
        settings = replace(settings, backend=workload.backend)
    if settings.backend in runtimes.BACKENDS:
        return replace(settings, device=runtimes.device_for(settings.backend, settings.device))
    if settings.threads is not None or settings.streams > 1:
        return replace(settings, backend="torch")  # which says that it has no such options
    return settings


def check_has_phases(workload: Workload, settings: ProfileSettings) -> None:
    """Refuse to list phases of what is known to have none without being built.

    Raises:
        BadInputError: Says what has phases, and what lists the parts of what has none.
    """
    if _lacks_phases(settings) and not isinstance(workload, UserWorkload | ObjectWorkload):
        raise BadInputError(_no_phases(workload))


def check(device: Device, settings: ProfileSettings) -> None:
    """Refuse options that don't go with the device, before anything is measured.

    Raises:
        BadInputError: Names the option.
    """
    check_own_time(device)
    kind = "simulated" if device.info.simulated else device.info.kind
    try:
        check_options(kind, settings.mode, settings.l2, settings.dtype, where=device.spec)
    except BadInputError as error:
        if "no_gpu" not in device.info.details:
            raise
        raise BadInputError(f"{error}; {SIMULATE_GPU}; none is here: {device.info.details['no_gpu']}") from None
    if settings.mode == "compile" and settings.detail != "model" and device.info.kind == "cpu":
        raise BadInputError(
            f"--detail {settings.detail} with --mode compile on {device.spec}: compiled code on a CPU has no operators"
        )


def check_own_time(device: Device) -> None:
    """Refuse to run a load on a simulated board in real time.

    Raises:
        BadInputError: Names the device. The process that records would open a board of its own, on which nothing runs.
    """
    if device.info.simulated and not device.clock.virtual:
        raise BadInputError(f"{device.spec}: what runs on a simulated board runs in its own time; leave out realtime=1")


def load_libraries(workload: Workload, device: Device, settings: ProfileSettings) -> None:
    """Import what takes seconds and touches no GPU; what isn't there is said when it is needed."""
    if device.info.simulated or device.info.kind == "mig" or settings.backend in runtimes.BACKENDS:
        return  # an instance is chosen before torch looks at what is here
    with suppress(ImportError):
        import torch  # noqa: F401

        if isinstance(workload, BuiltInModel | LocalFolder):
            import transformers  # noqa: F401


def prepare(workload: Workload, device: Device, settings: ProfileSettings) -> Prepared:
    """Build the workload on the device and make its step; a context exists on a GPU from here on.

    Raises:
        BadInputError: If the options don't fit the workload.
        NotPossibleError: If something is missing here: a library, memory, a CUDA device.
    """
    options = WorkloadOptions(
        task=settings.task,
        batch=settings.batch,
        seq_len=settings.seq_len,
        dtype=settings.dtype,
        seed=settings.seed,
        input_sets=settings.input_sets,
        config=settings.config,
        optimizer=settings.optimizer,
        label_smoothing=settings.label_smoothing,
        data=settings.data,
        max_new_tokens=settings.max_new_tokens,
        early_stop=settings.early_stop,
        random=settings.random,
    )
    if settings.backend in runtimes.BACKENDS:
        return _prepare_runtime(workload, device, settings, options)
    if settings.task == "generate":
        return _prepare_generation(workload, device, settings, options)
    if device.info.simulated and settings.data is not None:
        raise BadInputError(f"--data: images are loaded by a real host, and {device.spec} computes with shapes alone")
    if device.info.simulated:
        from jouletrace.devices.simulated import SimulatedGpu
        from jouletrace.execution.simulated import SimulatedProgram
        from jouletrace.steps.simulated import simulate_workload

        built, simulated = simulate_workload(workload, options, device, settings.mode)
        program = SimulatedProgram(simulated, cast(SimulatedGpu, device))
        _check_phases(workload, settings, {call.phase for call in program.listing().calls})
        return Prepared(built, simulated, real=False, make_program=lambda: program)
    torch_device = torch_device_of(device)
    built = workload.build(torch_device, options)
    step = make_step(built, torch_device, settings.mode, l2=settings.l2)
    if settings.detail != "model" and settings.mode != "compile":
        _check_parts(workload, settings, built, torch_device)
    return Prepared(built, step, make_program=lambda: _program(built, step, torch_device))


def _check_parts(workload: Workload, settings: ProfileSettings, built: Built, torch_device: str) -> None:
    """Refuse what has no parts, before its whole is measured in vain."""
    import torch

    from jouletrace.execution.listing import listing

    with user_code(built), listing(built.module, torch.device(torch_device)) as seen:
        built.call(0)
    if not seen:
        asked = f"{workload.name}: --detail {settings.detail}"
        raise BadInputError(f"{asked}: it calls no operator of torch on {torch_device}")
    _check_phases(workload, settings, {one.phase for one in seen})


def _program(built: Built, step: Step, torch_device: str) -> Program:
    """A workload on a real device, ready to be traced."""
    import torch

    if torch_device == "cpu":
        from jouletrace.execution.cpu import CpuProgram

        return CpuProgram(built)
    from jouletrace.execution.gpu import GpuProgram

    return GpuProgram(built, cast("CudaStep", step), torch.device(torch_device))


def _check_phases(workload: Workload, settings: ProfileSettings, phases: set[str]) -> None:
    """Refuse to list the phases of what has but one. The user's own call may have more: forces are a gradient."""
    if _lacks_phases(settings) and len(phases) < 2:
        raise BadInputError(_no_phases(workload))


def _lacks_phases(settings: ProfileSettings) -> bool:
    """Whether phases are asked for of an inference."""
    return settings.detail == "phase" and settings.task == "infer"


def _no_phases(workload: Workload) -> str:
    if isinstance(workload, ModelFile):
        return f"{workload.name}: --detail phase: a model file has no phases; use --detail kernel, of its nodes"
    return (
        f"{workload.name}: --detail phase: an inference has no phases, --task train (forward, backward, optimizer) and "
        "--task generate (prefill, decode) have; use --detail layer or kernel"
    )


def _prepare_runtime(
    workload: Workload, device: Device, settings: ProfileSettings, options: WorkloadOptions
) -> Prepared:
    """The same in a runtime other than torch."""
    if device.info.simulated:
        raise BadInputError(f"--backend {settings.backend} runs on a real device, not on {device.spec}")
    on = torch_device_of(device)
    cuda = int(on.partition(":")[2]) if on != "cpu" else None
    made = runtimes.make(
        workload, options, settings.backend, cuda=cuda, threads=settings.threads, streams=settings.streams
    )
    return Prepared(made.built, made.step, real=False, warnings=made.warnings)


def _prepare_generation(
    workload: Workload, device: Device, settings: ProfileSettings, options: WorkloadOptions
) -> Prepared:
    """The same of a workload that generates tokens; its parts are those of one forward of each kind."""
    if device.info.simulated:
        from jouletrace.devices.simulated import SimulatedGpu
        from jouletrace.execution.simulated import SimulatedProgram
        from jouletrace.steps.simulated_generation import simulate_generation

        built, whole, pieces, phases = simulate_generation(workload, options, device, settings.mode)
        return Prepared(
            built,
            whole,
            real=False,
            make_program=lambda: SimulatedProgram(whole, cast(SimulatedGpu, device), phases),
            make_generation=lambda: pieces,
        )
    torch_device = torch_device_of(device)
    # Transformers' loop asks the device after each token whether to go on, which a graph can't.
    own_loop = "static" if settings.mode == "graph" else None
    built = workload.build(torch_device, replace(options, own_loop=own_loop))
    generation = built.generation
    if generation is None:
        raise BadInputError(f"--task generate: {workload.name} is no model that generates")
    step = make_step(built, torch_device, settings.mode)
    return Prepared(
        built,
        step,
        make_program=lambda: _program(built, step, torch_device),
        make_generation=lambda: make_generation_steps(built, torch_device, settings.mode),
    )


def torch_device_of(device: Device) -> str:
    """The name that torch gives a device: found by UUID, since CUDA and NVML count differently.

    Raises:
        NotPossibleError: If CUDA can't see the device.
    """
    if device.info.kind == "cpu":
        return "cpu"
    if device.info.kind == "mig" and not context_in_this_process():
        show_alone(device.info.id)
    index = cuda_index(device.info.id)
    if index is None:
        raise NotPossibleError(
            f"{device.info.name} ({device.info.id}) is not visible to CUDA here: check CUDA_VISIBLE_DEVICES"
        )
    return f"cuda:{index}"


def context_in_this_process() -> bool:
    """Whether this process has a CUDA context through torch already."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available() and torch.cuda.is_initialized())
