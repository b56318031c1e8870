"""Comparison of Runs: which figures differ, by how much, and whether chance can explain it."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "checks": "parse",
        "compare": "against_first",
        "paired": "lane",
        "pairs": "DIFFERENT INCONCLUSIVE SAME WORSE",
    },
)
