"""The unit of each span: its own, or in an import the unit that represents all spans of its name."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from jouletrace.formats.exporters.timeline.tracks import Spans, codes
from jouletrace.run import MODEL_UNIT, Run

NONE = -1
"""No unit."""

_LEVELS = {"kernel": "kernel", "memcpy": "kernel", "op": "op", "layer": "layer", "range": "range", "iteration": "range"}
"""Level of the units that an import creates from the names of each kind of span."""


def units_of(run: Run, spans: Spans, known: Collection[int]) -> tuple[NDArray[np.int64], frozenset[int]]:
    """The unit of each span, shape (n,), ``NONE`` where it is missing; and the units that represent a name.

    Args:
        run: With units.
        spans: Of the Run.
        known: Units with figures; names of others are ignored.
    """
    own = spans.table["unit"].fill_null(NONE).to_numpy().astype(np.int64)
    if run.kind != "import":
        return own, frozenset()
    units = {
        (unit["level"], unit["name"], unit["module"]): unit["id"]
        for unit in run.units.to_pylist()
        if unit["id"] in known and unit["op"] is None
    }
    if not units:
        return own, frozenset()
    kinds, kind = codes(spans.table["kind"])
    names, name = codes(spans.table["name"])
    devices, device = codes(spans.table["device"])
    free = np.flatnonzero((own == NONE) | (own == MODEL_UNIT))
    key = (
        ((kind[free] + 1).astype(np.int64) * (len(names) + 1) + name[free] + 1) * (len(devices) + 1) + device[free] + 1
    )
    distinct, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    found = np.full(len(distinct), NONE, np.int64)
    for place, row in enumerate(free[first].tolist()):
        level = _LEVELS.get([*kinds, ""][kind[row]])
        called, where = [*names, ""][name[row]], [*devices, None][device[row]]
        # Units name their device only where a Run has several.
        found[place] = units.get((level, called, where), units.get((level, called, None), NONE))
    by_name = found[inverse.reshape(-1)]
    own[free] = np.where(by_name != NONE, by_name, own[free])
    return own, frozenset(found[found != NONE].tolist())
