"""A part of the whole, as the icicle draws it."""

from __future__ import annotations

from dataclasses import dataclass

from jouletrace.report.results import ABSENT
from jouletrace.run import Estimate

ROOT = "0"
"""Key of the whole."""


@dataclass(frozen=True)
class Node:
    """A part of the whole.

    Attributes:
        key: Unique in the tree; ``ROOT`` for the whole.
        parent: Key of the node around it; "" for the root.
        label: What it is called, as short as its place allows.
        level: "model", "phase", "layer", "module", "op", "kernel", "device", "range" or "part".
        energy: Joules per iteration (or in all, where nothing is iterated).
        time: Seconds likewise.
        detail: What tells it from others of that name: module, shapes, how often.
        remarks: Codes of flags.
        how: "" if it was measured by itself, else how its figures came about.
    """

    key: str
    parent: str
    label: str
    level: str
    energy: Estimate = ABSENT
    time: Estimate = ABSENT
    detail: str = ""
    remarks: tuple[str, ...] = ()
    how: str = ""
