"""Processes of our own modules: started so that they find this jouletrace, and nothing that lies in the folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jouletrace


def our_module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours; ``-P`` keeps the modules of the folder that it is started in out."""
    return [sys.executable, "-P", "-m", name, *arguments]


def python_path() -> str:
    """``PYTHONPATH`` under which it finds this jouletrace, from whatever folder, besides what is there already."""
    home = str(Path(jouletrace.__file__).resolve().parent.parent)
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), home]))
