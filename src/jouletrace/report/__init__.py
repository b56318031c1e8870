"""What people read: one module a format, with ``render`` for one Run and ``render_many`` for several.

A format is one module and one line in ``FORMATS``. Modules are imported when asked for, so that
listing the formats costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from jouletrace.errors import BadInputError, check_format

if TYPE_CHECKING:
    from jouletrace.report.comparison.data import Comparison
    from jouletrace.run import Run

FORMATS: dict[str, str] = {
    "table": "jouletrace.report.table",
    "json": "jouletrace.report.json",
    "csv": "jouletrace.report.csv",
    "markdown": "jouletrace.report.markdown",
    "latex": "jouletrace.report.latex",
}
"""Name of each format and the module that renders it."""

DETAILS = ("model", "phase", "layer", "op", "kernel", "range")
"""How far a Run can be broken down, coarse to fine; ranges are what a program or its profiler marked."""


class Renderer(Protocol):
    """What a module of ``FORMATS`` offers."""

    def render(
        self, run: Run, *, detail: str = "model", top: int | None = None, compared: Comparison | None = None
    ) -> str:
        """One Run as text.

        Args:
            run: What to show.
            detail: A name in ``DETAILS``: which parts are listed below the model.
            top: List only so many parts, those that took the most energy (or time) first.
            compared: What a Run of ``ab`` says of its two sides; None for another.
        """

    def render_many(
        self,
        runs: Sequence[Run],
        *,
        detail: str = "model",
        top: int | None = None,
        compared: Sequence[Comparison | None] = (),
    ) -> str:
        """Several Runs as text, side by side; ``compared`` by Run."""


_OF_IMPORTS = ("kernel", "layer")
"""What an import lists if it has it: what ran on the GPU, not thousands of frames of the program."""


def default_detail(run: Run) -> str:
    """In which detail a Run is shown where none is asked for: that which it was made with."""
    if run.kind != "import":
        return str(run.settings.get("detail", "model"))
    levels = set(run.units["level"].to_pylist())
    return next((level for level in _OF_IMPORTS if level in levels), "model")


def render(
    runs: Sequence[Run],
    form: str = "table",
    *,
    detail: str = "model",
    top: int | None = None,
    compared: Sequence[Comparison | None] = (),
) -> str:
    """One Run, or several side by side, as text.

    Args:
        runs: What to show; at least one.
        form: A name in ``FORMATS``.
        detail: A name in ``DETAILS``.
        top: List only so many parts, the costliest first.
        compared: By Run, what one of ``ab`` says of its two sides (see ``compare.paired``), None for others; in all
            formats but CSV, which is one table.

    Raises:
        BadInputError: If there is no such format or detail, or ``top`` is below 1.
    """
    if detail not in DETAILS:
        raise BadInputError(f"unknown detail {detail!r}: it is one of {', '.join(DETAILS)}")
    if top is not None and top < 1:
        raise BadInputError(f"top {top}: must be at least 1")
    if not runs:
        raise BadInputError("no Run to show")
    found = renderer(form)
    if len(runs) == 1:
        return found.render(runs[0], detail=detail, top=top, compared=compared[0] if compared else None)
    return found.render_many(runs, detail=detail, top=top, compared=compared)


def renderer(name: str) -> Renderer:
    """The renderer of a format.

    Raises:
        BadInputError: If there is no such format; the nearest is offered.
    """
    check_format(name, FORMATS)
    return cast(Renderer, import_module(FORMATS[name]))
