"""Rated power of GPUs by their names, for logs that state no limit: only precise enough to recognise a glitch."""

from __future__ import annotations

import re

_RATED_W = {
    r"T4G?|A2|L4|P4": 75,
    r"Jetson|Orin|Xavier": 130,
    r"A10G?|A16|A30|P40|RTX A[24]\d00": 300,
    r"[VP]100|TITAN \w+|A40|RTX A[56]000|L40S?|RTX 6000 Ada.*": 450,
    r"RTX \d0\d0.*": 600,
    r"A100|A800": 500,
    r"H100|H200|H800|H20": 700,
    r"G[HB]\d00|B[123]00": 1400,
}
"""Watts by family: what the largest of each may draw."""

_NAMES = [(re.compile(rf"\b({names})\b", re.I), rated_w) for names, rated_w in _RATED_W.items()]


def rated_w(name: str) -> float | None:
    """The power in watts that a GPU of this name is rated for, or the largest of its family; None if unknown."""
    return next((float(watts) for form, watts in _NAMES if form.search(name)), None)
