"""An exception from the user's code in one line: its type, its text, and its origin."""

from __future__ import annotations

import linecache
import sys
import sysconfig
import traceback
from pathlib import Path

_OURS = str(Path(__file__).parent.parent)
_PYTHON = (sysconfig.get_paths()["stdlib"], "<")


def one_line(error: BaseException) -> str:
    """``"ValueError: bad shape (model.py, line 12: x.view(3))"``."""
    text = " ".join(str(error).split())
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    where = place(error)
    return f"{said} ({where})" if where else said


def place(error: BaseException) -> str:
    """``"model.py, line 12: x.view(3)"``: the deepest line that the reader can change.

    It is the deepest line of the user's own code, else of a library such as a model's, else of torch. Lines of
    jouletrace are left out.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    if not frames:
        return ""
    torch = sys.modules.get("torch")
    torch_folder = str(Path(torch.__file__).parent) if torch is not None and torch.__file__ else "<"
    libraries = [frame for frame in frames if not frame.filename.startswith((torch_folder, "<"))]
    own = [f for f in libraries if "site-packages" not in f.filename and not f.filename.startswith(_PYTHON)]
    frame = (own or libraries or frames)[-1]
    code = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"{Path(frame.filename).name}, line {frame.lineno}{f': {code}' if code else ''}"
