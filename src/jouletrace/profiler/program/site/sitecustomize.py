"""Run by Python at the start of each process that a program under ``jouletrace run`` starts.

It lets the process trace itself, then runs the ``sitecustomize`` that it hides. It must import without jouletrace.
"""

import os
import sys
from importlib import import_module


def _chain() -> None:
    """Take this folder off the path, and run what it hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    own = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)  # the import of this module asks for it


def _trace() -> None:
    if os.environ.get("JOULETRACE_CHILDREN"):
        known = sys.path[:]
        try:
            sys.path.append(os.environ.get("JOULETRACE_SOURCE", ""))
            from jouletrace.profiler.program.hook import arm
        except ImportError:  # another Python, without this package
            return
        finally:
            sys.path[:] = known
        arm()


_chain()
_trace()
