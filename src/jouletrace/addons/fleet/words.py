"""What the figures of a fleet are called, and why one of them is missing, in words."""

from __future__ import annotations

from jouletrace.report import reasons
from jouletrace.report.scale import Unit

NAMES = {"time_s": "time of an iteration", "energy_j": "energy of an iteration", "power_w": "power"}
"""By figure of ``spread.FIGURES``."""

PERCENT = Unit(0.01, "%")

REASONS: dict[str, str] = {
    "one_node": "there is one host",
    "one_gpu_a_node": "no host has two GPUs: GPUs and hosts can't be distinguished",
    "one_run_a_gpu": "every GPU ran once: runs and GPUs can't be distinguished; use --repeats",
    "one_window_a_run": "a run has one reading: it can't be determined from its rest",
    "one_gpu": "there is one GPU",
    "no_spread": "nothing differs",
    "few_gpus": "fewer than five",
    "few_runs": "too few runs",
    "did_not_vary": "it did not vary",
    "no_temperature": "the temperature isn't known",
    "temperature_did_not_vary": "the temperature of a GPU's runs did not vary enough",
    "virtual_time": "simulated GPUs have a time of their own",
    "collective": "GPUs wait for one another in every call",
    "in_turn": "GPUs ran in turn",
}
"""By reason code: why a figure of a fleet is missing; codes that a Run has too are in ``report.reasons``."""


SAME_TIME = "times are the same by construction, since GPUs wait for one another in every call"


def reason(code: str | None) -> str:
    """Why a figure is missing, in words."""
    return REASONS.get(code or "", "") or reasons.reason(code)
