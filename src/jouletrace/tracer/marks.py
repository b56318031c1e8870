"""From the marks of a process to what each of its launches belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jouletrace.arrays import Ints
from jouletrace.run import tables
from jouletrace.run.recording_names import of_equal_layers
from jouletrace.tracer.names import operator, operators_in
from jouletrace.tracer.process_trace import Launched
from jouletrace.tracer.rows import Text, plain

MOST_NESTED = 64
"""Longest path of ranges; what is nested deeper belongs to the last of these."""

MODULE, OPERATOR, BACKWARD, RANGE, CALL = "m", "o", "b", "r", "c"
"""Kinds of marks. A CALL is an operator's call in a listing, whose name stays as it is."""

_SEPARATORS = re.compile(r"[\s,+]+")


@dataclass(frozen=True)
class _Place:
    """Operator and module of a mark, the module that the same launches have without operators, and if it is a CALL."""

    operator: str = ""
    module: str = ""
    unmarked: str = ""
    listed: bool = False


def owned(text: Text, work: Launched, rows: NDArray[np.void], order: Ints) -> Launched:
    """The launches with the operator, module and ranges of each.

    Args:
        text: Names and marks of the process.
        work: What ran.
        rows: All rows of the process.
        order: Those of ``work``.
    """
    places, paths = _marks(text)
    labels: dict[_Place, int] = {_Place(): 0}
    number = np.array([_label(labels, place) for place in places])
    label = _of_compilers(text, work, labels, _known(number, rows["owner"][order]))
    distinct = {path: k for k, path in enumerate(dict.fromkeys(paths))}
    modules = np.array([labels[_Place("", place.unmarked, place.unmarked)] for place in labels])
    return replace(
        work,
        labels=[(place.operator, place.module) for place in labels],
        label=label,
        module=modules[label],
        sampled=rows["sampled"][order] != 0,
        thread=rows["thread"][order].astype(np.int64),
        paths=list(distinct),
        path=_known(np.array([distinct[path] for path in paths]), rows["range"][order]),
    )


def calls_of(text: Text) -> dict[str, int]:
    """How often each module was called outside of others, by its name."""
    found: dict[str, int] = {}
    for mark, calls in text.calls.items():
        _, kind, named = text.marks[mark - 1] if 0 < mark <= len(text.marks) else (0, "", 0)
        if kind == MODULE and named < len(text.names):
            name = plain(text.names[named])
            found[name] = found.get(name, 0) + calls
    return found


def _marks(text: Text) -> tuple[list[_Place], list[tuple[str, ...]]]:
    """Operator and module, and path of ranges, of each mark; those of the mark 0, which is none, are first."""
    places, paths = [_Place()], [tuple[str, ...]()]
    for parent, kind, named in text.marks:
        above = parent if parent < len(places) else 0
        around, path = places[above], paths[above]
        name = plain(text.names[named]) if named < len(text.names) else ""
        if kind == MODULE:
            module = of_equal_layers(name)
            around = _Place("", module, module)
        elif kind == OPERATOR:
            around = _Place(operator(name), around.module, around.unmarked)
        elif kind == CALL:
            around = _Place(name, listed=True)
        elif kind == BACKWARD:  # runs outside of the modules' calls
            around = _Place(operator(name), around.module)
        elif kind == RANGE and len(path) < MOST_NESTED:
            path = (*path, name)
        places.append(around)
        paths.append(path)
    return places, paths


def _label(labels: dict[_Place, int], place: _Place) -> int:
    """The number of a label, which is added with that of the same place without operators."""
    labels.setdefault(_Place("", place.unmarked, place.unmarked), len(labels))
    return labels.setdefault(place, len(labels))


def _known(of_mark: Ints, mark: NDArray[np.uint32]) -> Ints:
    """Of each launch, what its mark has; a mark whose line was lost is none."""
    return of_mark[np.where(mark < len(of_mark), mark, 0)]


def _of_compilers(text: Text, work: Launched, labels: dict[_Place, int], label: Ints) -> Ints:
    """The labels, those of kernels that a compiler made with the operators that these stand for."""
    fused = [_fused(text.fused.get(name, "")) or operators_in(name) for name in work.names]
    listed = np.array([place.listed for place in labels])[label]
    made = np.flatnonzero(np.array([bool(one) for one in fused], bool)[work.name] & ~listed)
    if not len(made):
        return label
    before = list(labels)
    pairs, which = tables.distinct(label[made] * len(fused) + work.name[made])
    numbers = []
    for pair in pairs.tolist():
        place = before[pair // len(fused)]
        numbers.append(_label(labels, _Place(fused[pair % len(fused)], place.module, place.unmarked)))
    label[made] = np.array(numbers)[which]
    return label


def _fused(operators: str) -> str:
    return "+".join(operator(one).removeprefix("aten.") for one in _SEPARATORS.split(operators) if one)
