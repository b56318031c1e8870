"""``ab``: two workloads alternate on one GPU, so that drift affects both equally."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from jouletrace.analysis.power import tail_s
from jouletrace.comparing.paired import SIDES, add_results, blocks_needed, lane, paired
from jouletrace.comparing.pairs import DIFFERENT, Comparison
from jouletrace.devices import open_device
from jouletrace.devices.base import others
from jouletrace.errors import BadInputError, BrokenOffError, NotPossibleError
from jouletrace.execution.steps.base import Step, counted_replay
from jouletrace.option import named
from jouletrace.profiler.detail.kernel_recording import record
from jouletrace.profiler.passes import LEAST_PERIODS, power_channel, warm_up, window
from jouletrace.profiler.prepare import Prepared, check, prepare
from jouletrace.profiler.progress import Progress, reported, start
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.figures import Units
from jouletrace.run.forms import Settings
from jouletrace.run.places import SAVE_LATER, check_free
from jouletrace.workloads import ObjectWorkload, resolve
from jouletrace.workloads.base import Workload
from jouletrace.workloads.user_code import no_silent_exit

_SPARE = 1.1
"""Of the time that is advised: blocks may take longer than those measured."""

_HOUR_S = 3600
"""No one waits so long for a comparison."""

_ORDERS = ((0, 1, 1, 0), (1, 0, 0, 1))


@dataclass(frozen=True)
class AbSettings:
    """Settings of the comparison of two workloads.

    Attributes:
        margin: Relative difference below which they count as equal; a quarter of it is the requested half-width.
        max_time_s: Time limit of the windows in seconds.
        window_s: Least length of a window in seconds; longer if the sensor requires it.
        ramp_s: Seconds of load before each window, so that the GPU and its sensor have settled after the other side.
        latency_s: Seconds of timed iterations in each quarter of a block.
        first_stage: Blocks whose spread determines the total number.
        detail_time_s: Seconds for which the kernels of each side are recorded if the sides differ, after all windows; 0
            for none.

    Raises:
        BadInputError: With the option, its value and the allowed values.
    """

    margin: float = 0.01
    max_time_s: float = 40.0
    window_s: float = 0.4
    ramp_s: float = 0.15
    latency_s: float = 0.1
    first_stage: int = 8
    detail_time_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1:
            raise BadInputError(f"--margin {self.margin:g}: must lie between 0 and 100 %")
        for name in ("max_time_s", "window_s", "ramp_s", "latency_s"):
            if not 0 < getattr(self, name) < math.inf:
                option, value = name.removesuffix("_s").replace("_", "-"), getattr(self, name)
                raise BadInputError(f"--{option} {value:g}: must be more than 0 s")
        if self.first_stage < 3:
            raise BadInputError(f"first_stage {self.first_stage}: at least 3 blocks are needed")


def run_ab(
    a: str | Workload,
    b: str | Workload,
    settings: ProfileSettings,
    how: AbSettings | None = None,
    *,
    settings_b: ProfileSettings | None = None,
    fail_if: Sequence[str] = (),
    folder: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> tuple[Run, Comparison]:
    """Measure two workloads in blocks of A B B A on one GPU, in one process.

    ``settings_b`` are those of B if they differ, and ``fail_if`` checks (see ``comparing.checks``). ``command`` names
    the Run.

    Raises:
        BadInputError, NotPossibleError: As ``prepare``: both must fit the device at once.
        BrokenOffError: If a check matches nothing that was measured.
    """
    how, progress = how or AbSettings(), progress or Progress()
    workloads = [resolve(workload) for workload in (a, b)]
    each = [settings, replace(settings_b or settings, device=settings.device)]
    device = open_device(settings.device)
    try:
        for of_side in each:
            check(device, of_side)
        start(progress, device, settings.device)
        names = [workload.name for workload in workloads]
        stated = cast(Settings, {**settings.to_dict(), **asdict(how), "b": each[1].to_dict()})
        session = Session(
            "ab",
            [device],
            folder=folder,
            command=command,
            workload={"name": " against ".join(names)},
            settings=stated,
            calibrated=settings.calibrated,
        )
        with session, no_silent_exit(), ExitStack() as stack:
            session.warn_of_others(others([device]))
            progress.begin("building both workloads", 0)
            prepared: list[Prepared] = []
            for side, side_workload, of_side in zip(SIDES, workloads, each, strict=True):
                try:
                    ready = prepare(side_workload, device, of_side)
                except NotPossibleError as error:
                    if of_side.batch == settings.batch:
                        raise
                    said = str(error).replace("a smaller --batch", "a smaller --batch-b")  # an option of B alone
                    raise NotPossibleError(said) from error
                prepared.append(ready)
                for warning in ready.warnings:
                    session.run.warn(warning.code, warning.message, warning.where)
                stack.callback(ready.step.close)
                session.run.workload[side] = {
                    **ready.built.facts,
                    "mode": of_side.mode,
                    "step": ready.step.describe(),
                    "items": ready.built.items,
                }
            session.save_header()
            iteration_s = _measure(session, [side_prepared.step for side_prepared in prepared], how, settings, progress)
            if how.detail_time_s and device.info.kind != "cpu":
                finer = replace(settings, detail="kernel", detail_time_s=how.detail_time_s)
                _record(session, prepared, finer, iteration_s, progress)
            stack.close()
            session.warn_of_others(others([device], used_here=True))
            run = session.finish()
    finally:
        device.close()
    progress.begin("computing the figures (seconds to minutes)", 0)
    try:
        comparison = paired(run, fail_if)
    except BadInputError as error:
        raise BrokenOffError(str(error)) from error  # a check that matches nothing: the Run is kept
    add_results(run, comparison)
    session.save()
    return run, comparison


def ab(
    a: Any,
    b: Any,
    inputs: Any = (),
    *,
    inputs_b: Any = None,
    device: str = "auto",
    mode: str = "eager",
    dtype: str | None = None,
    margin: float = 0.01,
    max_time: float = 40.0,
    detail_time: float = 0.0,
    save_to: str | Path | None = None,
    progress: bool | Progress = True,
    **options: Any,
) -> Comparison:
    """Compare two models or callables on one GPU in alternation: latency, time, power, energy.

    Args:
        a: A module, any callable, or the name of a built-in workload.
        b: The other one.
        inputs: Positional arguments as a tuple, keyword arguments as a mapping, or a single argument; for both.
        inputs_b: Inputs of B, if they differ.
        device: "auto", "cuda:N", a UUID, "cpu" or "sim:NAME"; or a ``torch.device``.
        mode: "eager", "graph" or "compile".
        dtype: Data type to cast to first, by its name or torch's; None keeps the models'.
        margin: Relative difference below which they count as equal.
        max_time: Time limit of the windows in seconds.
        detail_time: Seconds for which kernels of each side are recorded on a GPU, if the sides differ: 6 name causes.
        save_to: Folder of the Run; None saves none.
        progress: Whether lines on stderr report the device and each phase; ``JOULETRACE_PROGRESS=0`` prints none.
        **options: Further options of ``jouletrace profile``, as of ``jt.profile``.

    Returns:
        The comparison; print it, or read its ``rows``.

    Raises:
        BadInputError: If an option is invalid, or a model doesn't take its inputs.
        NotPossibleError: If a library or device is missing.
    """
    settings = ProfileSettings(device=device, mode=mode, dtype=dtype, **named(ProfileSettings, options, "ab"))
    target = check_free(save_to, SAVE_LATER).absolute() if save_to is not None else None
    first, other = _workload(a, inputs), _workload(b, inputs if inputs_b is None else inputs_b)
    how = AbSettings(margin=margin, max_time_s=max_time, detail_time_s=detail_time)
    with reported(progress) as receiver:
        return run_ab(first, other, settings, how, folder=target, command="jouletrace.ab()", progress=receiver)[1]


def _workload(target: Any, inputs: Any) -> str | Workload:
    return target if isinstance(target, str) else ObjectWorkload(target, inputs)


def _measure(
    session: Session, steps: list[Step], how: AbSettings, settings: ProfileSettings, progress: Progress
) -> list[float]:
    """Measure the blocks; returns the seconds of an iteration of each side."""
    power = power_channel(session)
    iteration_s = []
    for side, step in zip(SIDES, steps, strict=True):
        progress.begin(f"warm-up of {side.upper()}", settings.warmup_s, at_most=True)
        with session.phase(f"warm-up {side}"):
            iteration_s.append(warm_up(session, step, settings.warmup_s, progress).iteration_s)
    window_s = max(how.window_s, LEAST_PERIODS * ((power.period_s or 0.0) if power else 0.0))
    sides = list(zip(SIDES, steps, iteration_s, strict=True))
    rng = np.random.default_rng(settings.seed)
    clock = session.clock
    begin_ns = clock.time_ns()
    block = wanted = 0
    first = how.first_stage
    progress.begin("A and B in turn", how.max_time_s, at_most=True)
    with session.phase("energy"):
        while block < max(wanted, first):
            start_ns = clock.time_ns()
            for turn in _ORDERS[int(rng.integers(2))]:
                _quarter(session, *sides[turn], window_s, how, block)
            session.recorder.check()
            block += 1
            took_s = (clock.time_ns() - start_ns) / 1e9
            progress.advance(took_s)
            if (clock.time_ns() - begin_ns) / 1e9 + took_s > how.max_time_s and block >= 3:
                break
            if block == first:
                if power is not None:
                    session.recorder.wait_until(clock.time_ns() + int(tail_s(power) * 1e9))
                wanted = blocks_needed(session.snapshot(), how.margin / 4)
    if block < wanted:
        each_s = (clock.time_ns() - begin_ns) / 1e9 / block
        session.run.warn(*not_met(block, wanted, each_s))
    return iteration_s


def _record(
    session: Session, prepared: list[Prepared], settings: ProfileSettings, iteration_s: list[float], progress: Progress
) -> None:
    """Record the kernels of both sides, if these differ: what ``paired`` names causes by."""
    power = power_channel(session)
    tail_ns = 0 if power is None else int(tail_s(power) * 1e9)
    session.recorder.wait_until(session.clock.time_ns() + tail_ns)
    if not any(row.verdict in DIFFERENT for row in paired(session.snapshot()).rows):
        return
    units: Units | None = None
    for side, ready, seconds in zip(SIDES, prepared, iteration_s, strict=True):
        facts = session.run.workload[side]
        units = record(session, ready.traceable(), settings, seconds, progress, facts, units) or units
        session.recorder.wait_until(session.clock.time_ns() + tail_ns)


def not_met(blocks: int, wanted: int, each_s: float) -> tuple[str, str]:
    """Code and words of how many of the required blocks fit, with the time for all of up to an hour, to 10 s."""
    longer_s = 10 * math.ceil(_SPARE * wanted * each_s / 10)
    fit = f"{blocks} of {wanted} required blocks fit the time"
    if longer_s > _HOUR_S:
        return "host_unsteady", f"{fit}: this host is too unsteady for such a difference"
    return "target_not_met", f"{fit}: give --max-time {longer_s}"


def _quarter(
    session: Session, side: str, step: Step, iteration_s: float, window_s: float, how: AbSettings, block: int
) -> None:
    """Measure a quarter of a block for one side: ramp-up, a window, then timed iterations."""
    counted_replay(step, max(1, math.ceil(how.ramp_s / iteration_s)))
    window(session, side, step, max(1, math.ceil(window_s / iteration_s)), block=block)
    start_ns = session.clock.time_ns()
    seconds = step.latencies(max(5, min(round(how.latency_s / iteration_s), 500)))
    session.add_iterations(start_ns, seconds, lane(side, block))
