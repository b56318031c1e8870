"""Reads one metric from a page in Prometheus' text format, version 0.0.4, or OpenMetrics 1.0.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})\s*(?:\{{((?:[^\"}}]|\"(?:[^\"\\]|\\.)*\")*)\}})?\s*(\S+)")
_LABEL = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*\"((?:[^\"\\]|\\.)*)\"")
_PARTS_THAT_COUNT = ("_count", "_bucket", "_sum")
"""Monotonic parts of a histogram or summary; a sum is monotonic if no negative value is observed, as is the rule."""

COUNTER, UNTYPED = "counter", "untyped"


@dataclass
class Metric:
    """One metric of a page.

    Attributes:
        kind: "counter", "gauge", "histogram", ... as declared; "untyped" if undeclared.
        values: Values of the selected series, by their labels as text.
        unselected: Number of series with other labels.
        names: All names with values on the page, for suggestions after a misspelling.
    """

    kind: str = UNTYPED
    values: dict[str, float] = field(default_factory=dict)
    unselected: int = 0
    names: set[str] = field(default_factory=set)
    declared: bool = False

    @property
    def counts(self) -> bool | None:
        """Whether it is a counter; None if the page doesn't declare its type."""
        return None if self.kind in (UNTYPED, "unknown") else self.kind == COUNTER


def find(text: str, name: str, labels: Mapping[str, str]) -> Metric:
    """The series of a metric with these labels; malformed lines are skipped."""
    found = Metric()
    for line in map(str.strip, text.split("\n")):
        if line.startswith("#"):
            _take_comment(line, name, found)
            continue
        match = _SAMPLE.match(line)
        if match is None:
            continue
        found.names.add(match[1])
        if match[1] != name:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        own = {key: _unescaped(text) for key, text in _LABEL.findall(match[2] or "")}
        if all(own.get(key, "") == wanted for key, wanted in labels.items()):
            series = ",".join(f"{key}={own[key]}" for key in sorted(own))
            found.values[series] = value
        else:
            found.unselected += 1
    return found


def _take_comment(line: str, name: str, found: Metric) -> None:
    words = line.split(None, 3)
    if len(words) < 4 or words[0] != "#" or words[1] != "TYPE":
        return
    family, kind = words[2], words[3].strip().lower()
    if family == name or (kind == COUNTER and name == f"{family}_total"):
        found.kind, found.declared = kind, True
    elif kind in ("histogram", "summary") and name in {family + part for part in _PARTS_THAT_COUNT}:
        found.kind, found.declared = COUNTER, True


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)
