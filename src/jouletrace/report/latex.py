r"""LaTeX tables with booktabs, a caption, and the methods sentence: ready to paste into a paper.

Only ``\usepackage{booktabs}`` is needed; what pdfLaTeX can't set is spelt out as a code point.
"""

from __future__ import annotations

import re
import unicodedata

from jouletrace.report.document import Document, Section
from jouletrace.report.scale import NBSP

_LONG = 36
"""Characters from which on a column of names gets a fixed width and may break after underscores."""

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': r"\char34{}",
    "[": "{[}",  # in front of a cell it would be an argument of the line break before it
    "]": "{]}",
    "*": "{*}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": r"\textendash{}",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "µ": r"$\mu$",
    "°": r"$^\circ$",
    NBSP: "~",
}


def typeset(found: Document) -> str:
    """A document as LaTeX."""
    blocks = [r"% needs \usepackage{booktabs}"]
    blocks[0] = "\n".join([blocks[0], *(f"% {line}" for line in (found.title, *found.unfinished, *found.subtitle))])
    caption = ". ".join(filter(None, [found.caption, found.simulated]))
    blocks += [rf"\textbf{{{_escape(line)}}}" for line in found.unfinished]
    blocks += [_table(section, caption) for section in found.sections]
    if not found.sections:
        blocks.append(_escape(caption) + ".")
    blocks += [_escape(text) for text in found.methods]
    blocks.append("\n".join(_escape(f"{name}: {line}.") for name, line in found.facts))
    blocks += [r"\emph{Warning:} " + _escape(line) for line in found.warnings]
    return "\n\n".join(blocks) + "\n"


def _table(section: Section, caption: str) -> str:
    if section.title:
        caption = f"{section.title}. {caption}"
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
    for row in section.rows:
        lines.append("    " + " & ".join(_escape(row[n], breaking=n in long) for n in kept) + r" \\")
    lines += [r"    \bottomrule", r"  \end{tabular}"]
    if section.notes:
        lines += ["", r"  \smallskip"]
        lines += [rf"  {{\footnotesize {_escape(note)}\par}}" for note in section.notes]
    return "\n".join([*lines, r"\end{table}"])


def _escape(text: str, *, breaking: bool = False) -> str:
    escaped = "".join(map(_escape_char, text))
    escaped = re.sub("-(?=-)", "-{}", escaped)  # or LaTeX would join them into a dash
    return escaped.replace(r"\_", r"\_\allowbreak{}") if breaking else escaped


def _escape_char(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    latin = ord(char) < 0x180 and unicodedata.category(char)[0] == "L"
    if char.isascii() or latin:
        return char
    return rf"\texttt{{U+{ord(char):04X}}}"
