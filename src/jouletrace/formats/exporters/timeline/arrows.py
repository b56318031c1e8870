"""Arrows from a launch to the work that it launched, where the Run identifies the launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.formats.exporters.timeline.tracks import Spans, codes
from jouletrace.formats.importers.joins import AMBIGUOUS, match


@dataclass(frozen=True)
class Arrows:
    """Arrows between spans, numbered from 1.

    Attributes:
        into: Number of the arrow that ends at each span; 0 for none, shape (n,).
        sources: Rows at which arrows begin, increasing, shape (m,).
        numbers: Number of the arrow that begins there, shape (m,).
        ambiguous: Spans whose correlation is that of several launches: no arrow is drawn to them.
    """

    into: NDArray[np.int64]
    sources: NDArray[np.int64]
    numbers: NDArray[np.int64]
    ambiguous: int

    def out_of(self, rows: NDArray[np.int64]) -> dict[int, list[int]]:
        """Numbers of the arrows that begin at some rows, by position in ``rows``."""
        first = np.searchsorted(self.sources, rows, "left")
        last = np.searchsorted(self.sources, rows, "right")
        return {int(i): self.numbers[first[i] : last[i]].tolist() for i in np.flatnonzero(last > first)}


def arrows_of(spans: Spans) -> Arrows:
    """Join launches to kernels and copies by correlation.

    Where several launches share a number (as those of several processes do), the one that names the
    same device is taken; one launch of a graph may start many kernels.
    """
    n = len(spans.start_ns)
    into = np.zeros(n, np.int64)
    none = np.empty(0, np.int64)
    column = spans.table["correlation"]
    if column.null_count == n:
        return Arrows(into, none, none, 0)
    known = np.asarray(column.is_valid()) & spans.drawn
    number = column.fill_null(0).to_numpy()
    kinds, kind = codes(spans.table["kind"])
    device = codes(spans.table["device"])[1]
    launches, launched = (
        np.flatnonzero(known & np.isin(kind, [i for i, name in enumerate(kinds) if name in wanted]))
        for wanted in (("launch",), ("kernel", "memcpy"))
    )
    source = match(number[launched], number[launches])
    several = source == AMBIGUOUS
    if several.any():
        by_device = np.unique(np.stack([number, device]), axis=1, return_inverse=True)[1].ravel()
        source[several] = match(by_device[launched[several]], by_device[launches])
        several &= source < 0
    found = np.flatnonzero(source >= 0)
    target, origin = launched[found], launches[source[found]]
    # A launch precedes its work; a pair that violates this by more than clocks differ is rejected.
    sound = spans.start_ns[origin] <= spans.start_ns[target]
    target, origin = target[sound], origin[sound]
    order = np.argsort(origin, kind="stable")
    into[target[order]] = np.arange(1, len(order) + 1)
    return Arrows(into, origin[order], np.arange(1, len(order) + 1), int(several.sum()))
