"""Runs of loads on servers, as the core takes them (``report.kinds.KindOfRun``)."""

from jouletrace.analysis.serving.levels import add_serving as add
from jouletrace.comparing.loads import pair as paired
from jouletrace.report.serving import LEVEL, facts, leading, plots, prices, section, verdict

__all__ = ["LEVEL", "add", "facts", "leading", "paired", "plots", "prices", "section", "verdict"]
