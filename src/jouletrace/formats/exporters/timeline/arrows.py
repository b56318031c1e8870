"""Arrows from a launch to what it launched, where the Run knows which launch it was."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.formats.exporters.timeline.tracks import Codes, Spans, codes

_LAUNCHED = ("kernel", "memcpy")
_LAUNCHES = "launch"


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
        """Numbers of the arrows that begin at each of some rows, by place in ``rows``."""
        first = np.searchsorted(self.sources, rows, "left")
        last = np.searchsorted(self.sources, rows, "right")
        return {int(i): self.numbers[first[i] : last[i]].tolist() for i in np.flatnonzero(last > first)}


def arrows_of(spans: Spans) -> Arrows:
    """Join launches to kernels and copies by correlation.

    Where several launches share a number (as those of several processes do), the one that names the
    same device counts; one launch of a graph may start many kernels.
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
    launches = np.flatnonzero(known & _is(kinds, kind, (_LAUNCHES,)))
    launched = np.flatnonzero(known & _is(kinds, kind, _LAUNCHED))
    source, several = _only(number[launches], number[launched])
    if several.any():
        by_device = _pair(number, device)
        exact, still = _only(by_device[launches], by_device[launched[several]])
        source[several] = exact
        several[several] = still | (exact < 0)
    found = np.flatnonzero(source >= 0)
    target, origin = launched[found], launches[source[found]]
    # A launch comes before what it launched; two clocks that disagree by more are no join.
    sound = spans.start_ns[origin] <= spans.start_ns[target]
    target, origin = target[sound], origin[sound]
    order = np.argsort(origin, kind="stable")
    into[target[order]] = np.arange(1, len(order) + 1)
    return Arrows(into, origin[order], np.arange(1, len(order) + 1), int(several.sum()))


def _is(kinds: list[str], kind: Codes, wanted: tuple[str, ...]) -> NDArray[np.bool_]:
    return np.isin(kind, [i for i, name in enumerate(kinds) if name in wanted])


def _only(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Place of each wanted number among the keys, -1 for none or several; and whether there are several."""
    order = np.argsort(keys, kind="stable")
    first = np.searchsorted(keys, wanted, "left", sorter=order)
    count = np.searchsorted(keys, wanted, "right", sorter=order) - first
    place = np.full(len(wanted), -1, np.int64)
    place[count == 1] = order[first[count == 1]]
    return place, count > 1


def _pair(number: NDArray[np.int64], device: Codes) -> NDArray[np.int64]:
    """One number for each pair that occurs."""
    return np.unique(np.stack([number, device]), axis=1, return_inverse=True)[1].ravel()
