"""A step on a simulated board: kernels whose truth is known, that can be removed and repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from jouletrace.devices.base import Device
from jouletrace.devices.simulated import Schedule, SimKernel, SimulatedGpu
from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError
from jouletrace.steps.base import DETACHED, Interval, Launch
from jouletrace.steps.counting import Operator
from jouletrace.steps.cycles import Cycles
from jouletrace.steps.modes import check_options
from jouletrace.steps.pacing import spread
from jouletrace.steps.trial import name_of
from jouletrace.steps.units import Key, Unit, group
from jouletrace.workloads.base import Built, Workload, WorkloadOptions

_TOGGLING_SLOWDOWN = 1.055
_GARBAGE_POWER = 0.6
_SPIN, _SPIN_W = "spin", 40.0
_COLD = 0.5
"""What a kernel loses whose input isn't fresh in the cache, over what a repetition saves by its cache."""


class SimulatedStep:
    """Iterations of kernels on a simulated board.

    A variant is captured afresh: a removed operator hands on its stored output, so later kernels
    see right data. ``toggle`` does what is tempting instead and fails as on a real board: the
    graph stays slower for good, and kernels behind the disabled one work on what another one
    left in its buffer.

    Args:
        device: The board; a context exists on it from here on.
        kernels: The kernels of one iteration, in order.
        launch: "graph", or "eager" where the host launches each operator.
        spin_s: Seconds of a kernel that does nothing but wait, added to pace the step below the
            power cap.
        pieces: Into how many waits that is split, spread over the iteration.

    Raises:
        BadInputError: If there is nothing to run, or ``launch`` is unknown.
    """

    mode = "simulated"

    def __init__(
        self,
        device: SimulatedGpu,
        kernels: Sequence[SimKernel],
        launch: str = "graph",
        spin_s: float = 0.0,
        pieces: int = 1,
    ) -> None:
        if not kernels:
            raise BadInputError("a simulated step needs at least one kernel")
        check_options("simulated", launch)
        self._device = device
        self._launch = launch
        self._kernels = tuple(kernels)
        self._spin_s = spin_s
        self._pieces = pieces
        self._launches = (1,) * len(self._kernels)
        self._changes: dict[Unit, int] = {}
        self._disabled: frozenset[Unit] = frozenset()
        self._toggled = False
        self._captured: Schedule | None = None
        device.board.hold_context()

    @property
    def schedule(self) -> Schedule:
        """What runs on the board, for the truth about it."""
        if self._captured is None:
            eager = self._launch == "eager"
            self._captured = self._device.board.schedule(self._launched(), eager, self._slowdown())
        return self._captured

    def replay(self, n: int) -> Interval:
        """Run ``n`` iterations back to back; see ``Step``."""
        return Interval(*self._device.board.run(self.schedule, n))

    def latencies(self, n: int) -> NDArray[np.float64]:
        """Seconds of each of ``n`` iterations, shape (n,); see ``Step``."""
        return self._device.board.run_timed(self.schedule, n)

    def cycles(self) -> Cycles:
        """See ``CountsCycles``: of one SM, as all of a board run at one clock."""
        count, time_ns = self._device.board.cycles()
        return Cycles(np.array([0]), np.array([count]), np.array([time_ns]))

    def describe(self) -> dict[str, Any]:
        """How it was made ready."""
        described: dict[str, Any] = {
            "mode": self.mode,
            "launch": self._launch,
            "kernels": sum(map(abs, self._launches)),
        }
        if self._spin_s > 0:
            described["spin_s"] = self._spin_s
        return described

    def close(self) -> None:
        """Nothing to free; the context stays until the device is closed, as on a real board."""

    @property
    def changes(self) -> Mapping[Unit, int]:
        """See ``Variant``."""
        return self._changes

    def units(self) -> list[Unit]:
        """Its parts in the order of their first launch."""
        return group(map(_key, self._kernels), (kernel.call for kernel in self._kernels))

    def variant(self, changes: Mapping[Unit, int]) -> Self:
        """A fresh step with each unit launched so often for once; see ``VariableStep``.

        A variant can be varied further. A repetition finds its data in the cache, as far as they
        fit there; what reads a stored output does not, and pays for it.

        Raises:
            BadInputError: If a unit isn't one of the step, or a multiplicity is below ``DETACHED``.
        """
        fresh = self._copy()
        for unit, multiplicity in changes.items():
            places = self.places(unit)
            if multiplicity < DETACHED:
                raise BadInputError(f"multiplicity must be 0 or more, or -1 (detached), not {multiplicity}")
            fresh._launches = tuple(multiplicity if i in places else n for i, n in enumerate(fresh._launches))
        fresh._changes = {**self._changes, **changes}
        return fresh

    def as_graph(self) -> Self:
        """The same kernels launched as a graph, as the user would find it."""
        return type(self)(self._device, self._kernels, "graph")

    def launches(self) -> list[Launch]:
        """See ``KnowsLaunches``."""
        units = {unit.key: unit for unit in self.units()}
        return [
            Launch(units.get(_key(kernel)) if kernel.op else None, "kernel", kernel.name)
            for kernel in self.schedule.kernels
        ]

    def kernel_times(self, n: int) -> NDArray[np.int64]:
        """See ``TracesItself``; at the mean clock of that time."""
        return self._device.board.run_traced(self.schedule, n)

    def empty(self) -> Self:
        """The variant without any unit: launch alone."""
        return self.variant(dict.fromkeys(self.units(), 0))

    def paced(self, spin_s: float, pieces: int = 1) -> Self:
        """A fresh step with a kernel at its end, or several, that wait for ``spin_s`` and draw little."""
        fresh = self._copy()
        fresh._spin_s = spin_s
        fresh._pieces = 1 if self._launch == "eager" else max(1, min(pieces, len(self._kernels)))
        return fresh

    def places(self, unit: Unit) -> frozenset[int]:
        """Which kernels of the step a unit is, as in the arrays of its truth.

        Raises:
            BadInputError: If the unit isn't one of the step.
        """
        found = frozenset(i for i, kernel in enumerate(self._kernels) if _key(kernel) == unit.key)
        if not found:
            raise BadInputError(f"the simulated step has no unit {unit}")
        return found

    def check(self) -> None:
        """Raise unless it has the kernels of the step it was made from, its changed units apart.

        Raises:
            JouletraceError: If it hasn't.
        """
        changed = {unit.key for unit in self._changes}
        launched = [kernel for kernel in self.schedule.kernels if kernel.name != _SPIN]
        rest = [kernel.name for kernel in launched if _key(kernel) not in changed]
        wanted = [kernel.name for kernel in self._kernels if _key(kernel) not in changed]
        if rest != wanted:
            raise JouletraceError(f"the variant has {len(rest)} other kernels, its reference {len(wanted)}")

    def toggle(self, unit: Unit, enabled: bool) -> None:
        """Switch the nodes of ``unit`` off or on in the captured graph, as ``cudaGraphNodeSetEnabled`` does.

        Here to show that it must not be used: the graph is slower from the first call on, and
        what the disabled kernels would have written is left as other kernels left it.
        """
        self.places(unit)
        self._disabled = self._disabled - {unit} if enabled else self._disabled | {unit}
        self._toggled = True
        self._captured = None

    def _copy(self) -> Self:
        fresh = type(self)(self._device, self._kernels, self._launch, self._spin_s, self._pieces)
        fresh._launches, fresh._changes = self._launches, self._changes
        return fresh

    def _slowdown(self) -> float:
        return _TOGGLING_SLOWDOWN if self._toggled else 1.0

    def _launched(self) -> list[SimKernel]:
        off = frozenset(i for unit in self._disabled for i in self.places(unit))
        garbage = self._garbage(off)
        stored = frozenset(i for i, times in enumerate(self._launches) if times in (0, DETACHED))
        due = spread(self._pieces, len(self._kernels)) if self._spin_s > 0 else frozenset()
        launched: list[SimKernel] = []
        for i, (kernel, times) in enumerate(zip(self._kernels, self._launches, strict=True)):
            if i - 1 in due:
                launched.append(self._spin())
            if i in off or times == 0:
                continue
            first = kernel.scaled(power=_GARBAGE_POWER) if i in garbage else kernel
            cold = stored.intersection(self._sources(i))
            if any(times != DETACHED or self._launches[source] != DETACHED for source in cold):
                first = replace(first, time_s=first.time_s * (1 + _COLD * (1 - first.repeat)))
            launched.append(first)
            launched.extend([replace(first, time_s=first.time_s * first.repeat, host_calls=1)] * (times - 1))
        if due:
            launched.append(self._spin())
        return launched

    def _spin(self) -> SimKernel:
        return SimKernel(_SPIN, self._spin_s / self._pieces, _SPIN_W, clocked=0.0, core=1.0, sources=())

    def _garbage(self, off: frozenset[int]) -> frozenset[int]:
        """Kernels that work on garbage if those in ``off`` don't run."""
        if not off:
            return frozenset()
        spoiled = {i for i in off if not self._kernels[i].in_place}
        for i in range(len(self._kernels)):
            # the step repeats: what an in-place kernel left unwritten keeps the values of the last one
            if any(source in spoiled for source in self._sources(i)):
                spoiled.add(i)
        return frozenset(spoiled)

    def _sources(self, i: int) -> tuple[int, ...]:
        """Places of the kernels whose output a kernel reads."""
        sources = self._kernels[i].sources
        return sources if sources is not None else ((i - 1,) if i else ())


def _key(kernel: SimKernel) -> Key:
    return kernel.op or kernel.name, kernel.shapes, kernel.module, kernel.backward


def simulate_workload(
    workload: Workload, options: WorkloadOptions, device: Device, mode: str
) -> tuple[Built, SimulatedStep]:
    """Count a workload without running it and make it a step on a simulated board.

    Args:
        workload: What to run. It is built with fake tensors, so its weights take no memory.
        options: How it is to be built; without a dtype, models made here take fp16, as on CUDA.
        device: The board.
        mode: "graph" or "eager".

    Raises:
        BadInputError: If the options don't fit, the mode or the device is no simulated one.
        NotPossibleError: If its operators can't be counted without values, the board has too little
            memory, or torch is missing.
    """
    from jouletrace.steps.counting import count_workload

    if not isinstance(device, SimulatedGpu):
        raise BadInputError(f"{device.info.name} is no simulated board")
    check_options("simulated", mode)
    built, operators = count_workload(workload, with_usual_dtype(workload, options))
    if not operators:
        raise BadInputError(f"{workload.name}: it calls no operator that a GPU would run")
    check_memory(built, device)
    built.facts["device"] = device.info.name
    built.facts["counted"] = {
        "operators": len(operators),
        "flops": sum(operator.flops for operator in operators),
        "bytes_moved": sum(operator.bytes_moved for operator in operators),
    }
    return built, SimulatedStep(device, kernels_of(device, operators, built.facts.get("dtype") == "tf32"), mode)


def with_usual_dtype(workload: Workload, options: WorkloadOptions) -> WorkloadOptions:
    """The options with the number format that a GPU would be given where nobody asks for one."""
    from jouletrace.workloads.objects import ObjectWorkload
    from jouletrace.workloads.user import UserWorkload

    if options.dtype is not None or isinstance(workload, UserWorkload | ObjectWorkload):
        return options
    usual = "bf16" if options.task == "train" else "fp16"
    return replace(options, dtype=getattr(workload, "own_dtype", None) or usual)


def check_memory(built: Built, device: Device) -> None:
    """Refuse what no board of that memory could run, as a real one would.

    Raises:
        NotPossibleError: With what it needs at least, and what there is.
    """
    needed, there = built.facts["least_memory_bytes"], device.info.memory_bytes
    if there is not None and needed > there:
        raise NotPossibleError(
            f"{name_of(built)}: out of memory: it needs at least {needed / 2**30:.4g} GiB, and "
            f"{device.info.name} has {there / 2**30:.4g} GiB; try a smaller --batch"
        )


def kernels_of(device: SimulatedGpu, operators: Sequence[Operator], tf32: bool = False) -> list[SimKernel]:
    """A kernel for each operator, by the board's roofline.

    Args:
        device: The board.
        operators: In order.
        tf32: Whether single-precision products are computed in TF32.

    Raises:
        BadInputError: If the board has no pipes for a dtype.
    """
    roofline = device.board.roofline
    return [
        roofline.kernel(
            f"{operator.op.partition('.')[2]}_{operator.dtype}",
            operator.flops,
            operator.bytes_moved,
            "tf32" if tf32 and operator.dtype == "fp32" else operator.dtype,
            op=operator.op,
            shapes=operator.shapes,
            module=operator.module,
            call=operator.call,
            sources=operator.sources,
            in_place=operator.in_place,
            host_calls=operator.host_calls,
            backward=operator.backward,
        )
        for operator in operators
    ]
