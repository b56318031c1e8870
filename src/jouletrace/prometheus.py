"""Pages of metrics in Prometheus' text format, or OpenMetrics, of which a few metrics are wanted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Metric

_MOST_LINES = 100_000
"""Lines of a page that are parsed: a parsed one takes a kilobyte."""

_MOST_NAMES = 10_000
_NAME = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})?[ \t]+\S", re.MULTILINE)


def families(text: str, prefixes: Iterable[str]) -> list[Metric]:
    """The metrics of a page whose names begin with one of ``prefixes``; none if these lines aren't in the format."""
    from prometheus_client.parser import text_string_to_metric_families  # slow to import, and servers alone need it

    begins = "|".join(map(re.escape, prefixes))
    wanted = re.finditer(rf"^(?:#[ \t]*\w+[ \t]+)?(?:{begins}).*$", text, re.MULTILINE)
    lines = [line[0] for line in islice(wanted, _MOST_LINES + 1)]
    if len(lines) > _MOST_LINES:
        return []
    try:
        return list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except (ValueError, IndexError):
        return []


def metric_names(text: str) -> set[str]:
    """Names of the metrics with values on a page, for suggestions after a misspelling."""
    return {found[1] for found in islice(_NAME.finditer(text), _MOST_NAMES)}
