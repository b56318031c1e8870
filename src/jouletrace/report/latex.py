r"""A document as LaTeX: booktabs tables with a caption, and the methods sentence, ready to paste into a paper.

Only ``\usepackage{booktabs}`` is needed; what pdfLaTeX can't set is spelt out as a code point.
"""

from __future__ import annotations

import re
import unicodedata

from jouletrace.report.document import Document, Section
from jouletrace.report.scale import NBSP

_LONG = 36
"""Characters from which on a column of names gets a fixed width and may break after underscores."""

_ESCAPES = {char: "\\" + char for char in "{}$&#%_"} | {
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "`": r"\textasciigrave{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\char34{}", "–": r"\textendash{}"},
    **{char: f"{{{char}}}" for char in "[]*"},  # at the start of a row they would be arguments of the line break
    **{"±": r"$\pm$", "−": "$-$", "·": r"$\cdot$", "×": r"$\times$", "µ": r"$\mu$", "°": r"$^\circ$", NBSP: "~"},
}


def typeset(found: Document) -> str:
    """A document as LaTeX."""
    caption = ". ".join(filter(None, [found.caption or found.title, found.simulated]))
    about = [r"needs \usepackage{booktabs}", found.title, *found.unfinished, *found.subtitle]
    blocks = ["\n".join(f"% {line}" for line in about)]
    blocks += [rf"\textbf{{{_escape(line)}}}" for line in found.unfinished]
    blocks += [_table(section, caption) for section in found.sections] or [_escape(caption) + "."]
    blocks += [_escape(text) for text in found.methods]
    blocks.append("\n".join(_escape(f"{name}: {line}.") for name, line in found.facts))
    blocks += [r"\emph{Warning:} " + _escape(line) for line in found.warnings]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _table(section: Section, caption: str) -> str:
    caption = ". ".join(filter(None, [section.title, caption]))
    kept = [n for n, column in enumerate(section.columns) if not column.wide]
    long = [n for n in kept if any(len(row[n]) > _LONG for row in section.rows) and not section.columns[n].numeric]
    places = ["r" if section.columns[n].numeric else r"p{0.3\linewidth}" if n in long else "l" for n in kept]
    lines = [
        r"\begin{table}[htbp]",
        r"  \centering",
        rf"  \caption{{{_escape(caption)}.}}",
        rf"  \begin{{tabular}}{{{''.join(places)}}}",
        r"    \toprule",
        "    " + " & ".join(_escape(section.columns[n].name) for n in kept) + r" \\",
        r"    \midrule",
    ]
    lines += ["    " + " & ".join(_escape(row[n], breaking=n in long) for n in kept) + r" \\" for row in section.rows]
    lines += [r"    \bottomrule", r"  \end{tabular}"]
    lines += ["", r"  \smallskip"] if section.notes else []
    lines += [rf"  {{\footnotesize {_escape(note)}\par}}" for note in section.notes]
    return "\n".join([*lines, r"\end{table}"])


def _escape(text: str, *, breaking: bool = False) -> str:
    escaped = "".join(map(_escape_char, text))
    escaped = re.sub("-(?=-)", "-{}", escaped)  # or LaTeX would join them into a dash
    return escaped.replace(r"\_", r"\_\allowbreak{}") if breaking else escaped


def _escape_char(char: str) -> str:
    latin = ord(char) < 0x180 and unicodedata.category(char)[0] == "L"
    return _ESCAPES.get(char) or (char if char.isascii() or latin else rf"\texttt{{U+{ord(char):04X}}}")
