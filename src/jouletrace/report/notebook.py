"""A Run shows itself in a notebook: its headline figures, where it was measured, and what is known to be wrong.

``run`` may import nothing of ``report``, so the notebook is told what to show, by the name of the
type: IPython asks for nothing until a Run is displayed, and importing this costs nothing.
"""

from __future__ import annotations

import sys
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jouletrace.run import Run


def register() -> None:
    """Tell the IPython that runs, if one does, how a Run is shown."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and shell.display_formatter is not None:
        shell.display_formatter.formatters["text/html"].for_type_by_name("jouletrace.run.model", "Run", to_html)
        shell.display_formatter.formatters["text/plain"].for_type_by_name("jouletrace.run.model", "Run", _pretty)


def to_html(run: Run) -> str:
    """A Run as a piece of HTML that takes the colours around it."""
    from jouletrace.report.content import document

    found = document(run)
    parts = ['<div style="max-width:60rem">']
    if found.simulated:
        parts.append(
            '<p style="color:#b00020;border:2px solid #b00020;padding:.2em .6em;display:inline-block">'
            f"<b>{escape(found.simulated)}</b></p>"
        )
    parts.append(f"<p><b>{escape(found.title)}</b><br>{'<br>'.join(map(escape, found.subtitle))}</p>")
    parts += [f'<p style="color:#a15c00"><b>{escape(line)}</b></p>' for line in found.unfinished]
    for section in found.sections:
        heads = "".join(f"<th{_align(column.numeric)}>{escape(column.name)}</th>" for column in section.columns)
        rows = "".join(
            "<tr>"
            + "".join(
                f"<td{_align(column.numeric)}>{escape(cell)}</td>"
                for column, cell in zip(section.columns, row, strict=True)
            )
            + "</tr>"
            for row in section.rows
        )
        title = f"<caption>{escape(section.title)}</caption>" if section.title else ""
        parts.append(f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>")
        parts += [f"<div><small>{escape(line)}</small></div>" for line in section.notes]
    parts += [f'<div style="color:#a15c00">Warning: {escape(line)}</div>' for line in found.warnings]
    parts.append("<div><small>Charts: <code>jt.plot(run)</code></small></div></div>")
    return "".join(parts)


def _align(numeric: bool) -> str:
    return f' style="text-align:{"right" if numeric else "left"}"'


def _pretty(run: Run, printer: object, cycle: bool) -> None:
    from jouletrace.report import render

    printer.text(render([run]))  # type: ignore[attr-defined]  # IPython's, which is not installed everywhere
