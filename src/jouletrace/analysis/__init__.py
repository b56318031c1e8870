"""From the raw tables of a Run to its figures: pure, and the same for every origin of a Run."""

from jouletrace.analysis.analyse import analyse, analyse_recorded
from jouletrace.analysis.iterations import energies_per_iteration
from jouletrace.analysis.power import window_estimate
from jouletrace.public import public_names

__all__ = ["analyse", "analyse_recorded", "energies_per_iteration", "window_estimate"]

__getattr__ = public_names(
    __name__,
    {
        "budget": "OFFSET_W budgets",
        "iterations": "fill",
        "kernel_powers": "by_operator pools",
        "meter": "Accuracy against_meter line",
        "model": "idle_energies idle_level",
        "power": "power_record",
        "rules": "RULES",
        "work": "ratio_of_sums",
    },
)
