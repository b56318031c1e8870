"""Names that would steer a terminal or a spreadsheet."""

import re

ESC = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
FORMULAS = ["=1+2", "+1", "-1+2", "@SUM(A1)", "\t=1", "＝1"]


def controls(text):
    """Characters of a text that steer a terminal."""
    return re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


def formulas(cells):
    """Cells that a spreadsheet would compute."""
    return [cell for cell in cells if cell[:1] in "=+-@\t＝" and cell and not re.fullmatch(r"-?[\d.e+-]+", cell)]
