"""One call from raw tables to figures, whatever made the Run."""

from __future__ import annotations

from jouletrace.analysis.model import add_model
from jouletrace.analysis.monitor import add_devices
from jouletrace.analysis.power import power_record
from jouletrace.analysis.rows import Figures
from jouletrace.run import Run

_RECORD_WARNINGS = {
    "hole": "the power record has {n} holes; figures that touch one are null or flagged",
    "nan": "{n} readings were not numbers and were left out",
    "negative": "{n} readings were negative and were left out",
    "clock_stepped_back": "the clock stepped back {n} times while recording; the time lived twice was left out",
    "conflicting_stamps": "{n} stamps occur twice with different readings; the later reading was kept",
}


def analyse(run: Run) -> Run:
    """Compute ``results`` and ``units`` of a Run afresh from its raw tables; returns the same Run."""
    figures = Figures()
    _warn_of_record(run)
    if run.kind == "monitor":
        add_devices(run, figures)
    else:
        add_model(run, figures)
    run.results = figures.results()
    run.units = figures.units()
    return run


def _warn_of_record(run: Run) -> None:
    """Say what is wrong with the readings themselves."""
    for device in run.devices:
        found = power_record(run, device.id)
        if found is None:
            continue
        for code, count in found[0].issues.items():
            if code in _RECORD_WARNINGS:
                run.warn(f"record_{code}", _RECORD_WARNINGS[code].format(n=count), device.id)
