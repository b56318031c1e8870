"""Figures in an experiment tracker by one call, without a trainer: ``jt.log_to``."""

from __future__ import annotations

from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.profiler.record.recording import Recording
from jouletrace.profiler.record.split import prefixed, totals
from jouletrace.run import Run
from jouletrace.run.parts import Parts

_OF_DEVICES = ("time_s", "energy_total_j", "power_w")
"""Figures that a recording has of its devices, and of all of them together."""


def log_to(tracker: Any, source: Recording | Run, *, step: int | None = None) -> dict[str, float]:
    """Log the figures of a recording or a Run to a tracker; returns them by name.

    Args:
        tracker: W&B or MLflow (the module, or a run of W&B), a ``SummaryWriter`` of TensorBoard, a logger of Lightning,
            or any function of a dictionary.
        source: A recording that goes on, whose ``energy_j`` and ``power_w`` are plain sums up to a second ago; or one
            that has ended, or a Run: each figure of the whole with its ends, as in ``--json`` (``energy_total_j``,
            ``energy_total_j_low``, ``energy_total_j_high``), and ``energy_NAME_j`` of each outermost range.
        step: Step at which the tracker shows them; the next one if None.

    Raises:
        BadInputError: If the tracker is none of these.
    """
    figures = _figures(source)
    if hasattr(tracker, "add_scalar"):
        for name, value in figures.items():
            tracker.add_scalar(name, value, step)
    elif hasattr(tracker, "log_metrics"):
        tracker.log_metrics(figures, step=step)
    elif hasattr(tracker, "log"):
        try:
            tracker.log(figures, step=step)
        except TypeError as error:  # as of logging, math
            raise BadInputError(f"log_to: {tracker!r} has a log that isn't W&B's: {error}") from error
    elif callable(tracker):
        tracker(figures)
    else:
        raise BadInputError(
            f"log_to: a {type(tracker).__name__} has none of add_scalar (TensorBoard), log_metrics (MLflow, Lightning)"
            " and log (W&B), and isn't a function"
        )
    return figures


def _figures(source: Recording | Run) -> dict[str, float]:
    """Those that are known, by name."""
    if isinstance(source, Recording) and source.run is None:
        if not source.started:
            return {}
        now = source.now()
        return prefixed({"energy_j": now.energy_j, "power_w": now.power_w}, now.simulated)
    run, split = (source.run, source.split) if isinstance(source, Recording) else (source, None)
    if not isinstance(run, Run):
        raise BadInputError(f"log_to: give a recording of jt.record or a Run, not a {type(source).__name__}")
    figures: dict[str, float | None] = {
        name: value for name, value in totals(run, split).items() if name not in ("energy_j", "power_w")
    }
    for name in dict.fromkeys((*_OF_DEVICES, *Parts(run).whole.figures)):
        estimate = run.result(name)
        figures |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return prefixed(figures, run.simulated)
