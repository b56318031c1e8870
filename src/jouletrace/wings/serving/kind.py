"""Runs of loads on servers, as the core takes them (``report.kinds.KindOfRun``)."""

from jouletrace.wings.serving.analysis.levels import add_serving as add
from jouletrace.wings.serving.importers.join import edges, join, shift
from jouletrace.wings.serving.paired import pair as paired
from jouletrace.wings.serving.report import LEVEL, facts, leading, plots, prices, section, verdict

__all__ = [
    "LEVEL",
    "add",
    "edges",
    "facts",
    "join",
    "leading",
    "paired",
    "plots",
    "prices",
    "section",
    "shift",
    "verdict",
]
