"""From the raw tables of a Run to its figures: pure, and the same for every origin of a Run."""

from jouletrace.analysis.analyse import analyse, analyse_recorded
from jouletrace.analysis.iterations import energies_per_iteration
from jouletrace.analysis.power import window_estimate

__all__ = ["analyse", "analyse_recorded", "energies_per_iteration", "window_estimate"]
