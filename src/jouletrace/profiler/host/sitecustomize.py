"""Keeps the ranges of a program without a GPU: a Python that PYTHONPATH leads here runs this file as it starts.

It takes the folder out of PYTHONPATH, which the program and what it starts see as it was.

The program's Python may lack jouletrace: the modules that keep ranges are loaded by their files, once torch or nvtx is
imported. The ranges are written at the end of the process, into the tracer's folder.

Until then only what every Python has imported is used, so that the program sees the modules that it would without us.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object  # typing isn't imported

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
_MARKING = ("torch.autograd.profiler", "torch.cuda.nvtx", "nvtx.nvtx")


def _load(name: str) -> Any:
    """A module of jouletrace without its packages."""
    from importlib import util

    spec: Any = util.spec_from_file_location(name, os.path.join(_ROOT, *name.split(".")) + ".py")
    sys.modules[name] = module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Finder:
    """Wraps what marks ranges once its module has been executed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._annotations: Any = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec that the other finders have of a module, None of those that mark no ranges."""
        if name not in _MARKING:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec: Any = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                spec._initializing = False  # else it would count as imported in part
                try:  # noqa: SIM105  # contextlib isn't imported
                    self._attach()
                except Exception:  # the program goes on
                    pass

            spec.loader.exec_module = exec_module
        return spec

    def _attach(self) -> None:
        import atexit

        if self._annotations is None:
            names = [f"jouletrace.{name}" for name in ("run.steady", "profiler.record.ranges")]
            there = {name: sys.modules.pop(name, None) for name in names}
            try:
                steady, ranges = map(_load, names)
                made = _load("jouletrace.profiler.record.annotations")
            finally:  # a program that imports jouletrace gets its own
                for name in (*names, "jouletrace.profiler.record.annotations"):
                    sys.modules.pop(name, None)
                sys.modules.update({name: module for name, module in there.items() if module is not None})
            offset_ns = steady.offset_ns()
            marks = ranges.Marks(lambda: offset_ns + steady.steady_ns())
            self._annotations = made.Annotations(marks)
            atexit.register(self._write, marks, os.getpid())
        self._annotations.attach()

    def _write(self, marks: Any, pid: int) -> None:
        """Write the ended ranges, and what is wrong with them; a fork has those of its parent, and writes none."""
        import json

        if os.getpid() == pid:
            text = json.dumps({"spans": [span[:7] for span in marks.take()], "warnings": marks.warnings()})
            try:
                with open(os.path.join(self._folder, f"{pid}.ranges"), "x", encoding="utf-8") as file:
                    file.write(text)
            except OSError:
                pass


def _begin() -> None:
    """Look for ranges from now on, undo what led here, and run the ``sitecustomize`` that this file hides."""
    sys.path[:] = [place for place in sys.path if place != _HERE]
    if theirs := [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part != _HERE]:
        os.environ["PYTHONPATH"] = os.pathsep.join(theirs)
    else:
        os.environ.pop("PYTHONPATH", None)
    if folder := os.environ.get("JOULETRACE_TRACE"):
        sys.meta_path.insert(0, Finder(folder))
    del sys.modules["sitecustomize"]
    __import__("sitecustomize")  # without one its ImportError ends ours, which ``site`` expects, and no module stays


_begin()
