"""The experiment on parts: what each operator costs, in context."""

from __future__ import annotations

from jouletrace.analysis.power import measured_sampling, tail_s
from jouletrace.analysis.windows import fill
from jouletrace.errors import BadInputError
from jouletrace.experiments.parts import unit_rows
from jouletrace.experiments.plan import PlanSettings
from jouletrace.experiments.run_plan import Experiment
from jouletrace.experiments.window_length import spread_within, window_length
from jouletrace.profiler.detail.kernels import trace_kernels
from jouletrace.profiler.passes import power_channel
from jouletrace.profiler.prepare import Prepared
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.session import Session
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import MODEL_UNIT
from jouletrace.steps.base import OnlyRepeated, VariableStep

FIRST_ID = MODEL_UNIT + 1

TIME_WINDOW_S = 0.15
"""Length of windows where there is no power sensor to wait for."""


def parts(session: Session, prepared: Prepared, settings: ProfileSettings, progress: Progress) -> None:
    """Run the experiment on parts, then trace kernels; windows, units and spans go to the session.

    Raises:
        BadInputError: If the workload has no operator that could be changed.
        NotPossibleError: If its operators can't be followed.
    """
    step = prepared.variable_step()
    try:
        session.run.workload["parts"] = described = step.describe()
        if "fallback" in described:
            why = described["fallback"]["text"]
            session.run.warn("not_capturable", f"parts were measured without a graph, by repetition: it {why}")
        experiment = _experiment(session, step, settings)
        progress.begin("parts: what each operator costs", settings.detail_time_s)
        _run(session, experiment, progress)
        for code, text in [*experiment.notes, *(step.remarks() if isinstance(step, OnlyRepeated) else [])]:
            session.run.warn(code, text)
        iteration_s = step.replay(1).seconds
        trace_kernels(session, step, experiment.parts, iteration_s, progress)
    finally:
        if step is not prepared.step:
            step.close()


def _experiment(session: Session, step: VariableStep, settings: ProfileSettings) -> Experiment:
    power = power_channel(session)
    tail_ns = int((tail_s(power) if power else 0.0) * 1e9)

    def measured() -> object:
        run = session.snapshot()
        if power is not None and len(run.windows):
            session.recorder.wait_until(int(run.windows["end_ns"].to_numpy().max()) + tail_ns)
            run = session.snapshot()
        fill(run)
        return run.windows

    period_s = power.period_s if power and power.period_s else 0.02
    plan = PlanSettings(
        budget_s=settings.detail_time_s,
        sensor_s=period_s,
        sampling_s=power.sampling_s if power else None,
        window_s=TIME_WINDOW_S if power is None else _window_s(session, period_s, settings.detail_time_s),
        detuned_window_s=_least_s(period_s),
        pace=power is not None and session.run.devices[0].kind == "gpu",
        together=settings.resolve == "grouped",
        # a module of a few forwards is no sum of what its operators take in many
        removal=not isinstance(step, OnlyRepeated),
        phases=settings.detail == "phase" and settings.task == "train",
        modules=0 if settings.task == "generate" else PlanSettings.modules,
        seed=settings.seed,
    )
    device = session.run.devices[0].id if session.run.devices else ""
    return Experiment(step, measured, plan, FIRST_ID, lambda: measured_sampling(session.snapshot(), device))


def _window_s(session: Session, period_s: float, budget_s: float) -> float:
    """Long against the sensor's period, and against what readings of the step itself swing by."""
    windows = [row for row in session.snapshot().windows.to_pylist() if row["variant"] == "untouched"]
    edges = [(row["start_ns"], row["end_ns"]) for row in windows]
    spread = spread_within(*session.power(0), edges, round(2e9 * period_s))
    return window_length(_least_s(period_s), spread, budget_s)


def _least_s(period_s: float) -> float:
    return max(PlanSettings.window_s, 25 * period_s)


def _run(session: Session, experiment: Experiment, progress: Progress) -> None:
    """Windows as they come. Units are written with the first window of a block: parts are final then."""
    written = False
    with session.phase("parts"):
        for window in experiment.windows():
            if window.block >= 0 and not written:
                _add_units(session, experiment)
                written = True
            session.add_window(**window.columns())
            progress.advance((window.end_ns - window.start_ns) / 1e9)
            session.recorder.check()
    if not written:
        raise BadInputError("the experiment on parts ended before it began: give it more time with --detail-time")


def _add_units(session: Session, experiment: Experiment) -> None:
    session.add_units(unit_rows(experiment.parts, experiment.groups, MODEL_UNIT))
