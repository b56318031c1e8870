"""Names of the figures of a fleet, and reasons for missing ones, in words."""

from __future__ import annotations

from jouletrace.report import reasons
from jouletrace.report.scale import Unit

NAMES = {"time_s": "time of an iteration", "energy_j": "energy of an iteration", "power_w": "power"}
"""Names by figure of ``spread.FIGURES``."""

PERCENT = Unit(0.01, "%")

REASONS: dict[str, str] = {
    "one_node": "only one host",
    "one_gpu_a_node": "no host has two GPUs: GPUs and hosts can't be distinguished",
    "one_run_a_gpu": "every GPU ran once: runs and GPUs can't be distinguished; use --repeats",
    "one_window_a_run": "a run has one reading: its variation can't be determined",
    "one_gpu": "only one GPU",
    "no_spread": "nothing differs",
    "few_gpus": "fewer than five",
    "few_runs": "too few runs",
    "did_not_vary": "the condition did not vary",
    "no_temperature": "the temperature is unknown",
    "temperature_did_not_vary": "the temperature of a GPU's runs did not vary enough",
    "virtual_time": "simulated GPUs have their own time",
    "collective": "GPUs wait for one another in every call",
    "in_turn": "GPUs ran in turn",
}
"""Reasons for missing figures of a fleet by code; codes that Runs share are in ``report.reasons``."""


SAME_TIME = "times are equal by construction, since GPUs wait for one another in every call"


def reason(code: str | None) -> str:
    """Why a figure is missing, in words."""
    return REASONS.get(code or "", "") or reasons.reason(code)
