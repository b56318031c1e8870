"""Traces the process that records itself, and those that it starts, from CUDA's start to the end of a recording."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from jouletrace.errors import NotPossibleError
from jouletrace.tracer.launching import DUTY, FOLDER, Duty, environment, library, obstacle
from jouletrace.tracer.process_trace import ProcessTrace
from jouletrace.tracer.reader import CALL, read


class InProcess:
    """The native tracer in this process, from now to ``end``.

    Where CUDA doesn't run yet, its driver loads the library as it starts, by variables of the environment. Processes
    that this one starts inherit them; its forks trace nothing.

    Args:
        operators: Whether operators and modules are marked.
        duty: The part of the time that is traced; None for that of ``Duty``.

    Attributes:
        problem: Why kernels are missing; "" if they aren't.
        ran: Whether CUDA ran before.
    """

    def __init__(self, operators: bool, duty: Duty | None = None) -> None:
        self.problem, self.ran, self._pid = "", cuda_runs(), os.getpid()
        self._given: dict[str, str] = {}
        self._folder: Path | None = None
        try:
            _check_free()
            self._calls, self._python = ctypes.CDLL(str(library())), ctypes.PyDLL(str(library()))
            self._python.jt_functions.restype = ctypes.py_object
            functions = self._python.jt_functions()
            self.push, self.pop, self.leave_call = functions["push"], functions["pop"], functions["leave"]
            self._enter, self._mark = functions["enter"], cache(partial(functions["mark"], 0, CALL))
            self._folder = Path(tempfile.mkdtemp(prefix="jouletrace-"))
            self._begin(environment(self._folder, operators=operators, duty=duty or Duty()), operators)
        except (NotPossibleError, OSError, ValueError) as error:
            self.problem = str(error)
            self._clear()

    def _begin(self, variables: dict[str, str], operators: bool) -> None:
        """Trace from CUDA's start on, or from now on.

        Raises:
            NotPossibleError: If CUDA runs, and CUPTI is missing or held.
        """
        self._given = {name: value for name, value in variables.items() if name not in os.environ}
        os.environ.update(self._given)
        if not self.ran:
            return
        folder, duty = variables[FOLDER].encode(), variables[DUTY].encode()
        if self._calls.jt_start(folder, int(operators), duty, int("torch" in sys.modules)):
            self._calls.jt_problem.restype = ctypes.c_char_p
            raise NotPossibleError(self._calls.jt_problem().decode(errors="replace"))

    def enter_call(self, name: str) -> int:
        """Begin a listed call of an operator in this thread; ``leave_call`` ends it, given what this returns."""
        return int(self._enter(self._mark(name)))

    def end(self) -> list[ProcessTrace]:
        """End tracing; what this process and those that it started ran until now, once."""
        if self._pid != os.getpid():
            self.leave()
        if self._folder is None:
            return []
        self._python.jt_end_hooks()
        whole = not self._calls.jt_stop()
        try:
            found = read(self._folder)
        except (OSError, MemoryError) as error:
            self.problem = f"what the tracer wrote can't be read: {error}"
            return []
        finally:
            self._clear()
        if not whole:
            late = "records_dropped", "CUPTI didn't end in time: the last kernels are missing"
            found = [replace(one, notes=[*one.notes, late]) if one.pid == self._pid else one for one in found]
        said = [text.removeprefix("kernels: ") for one in found for code, text in one.notes if code == "not_traced"]
        if not said and cuda_runs() and all(one.pid != os.getpid() for one in found):
            said = ["CUDA started without the tracer"]
        self.problem = next(iter(said), "")
        return found

    def leave(self) -> None:
        """Leave this fork, whose files are its parent's."""
        self._folder = None
        self._clear()

    def _clear(self) -> None:
        """Take out the variables and the folder."""
        for name, value in self._given.items():
            if os.environ.get(name) == value:
                del os.environ[name]
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._given, self._folder = {}, None


def trace(call: Callable[[InProcess], None]) -> ProcessTrace:
    """The work of this process on GPUs during a call, which gets the tracer for its marks, and waits for the GPUs.

    Raises:
        NotPossibleError: If kernels can't be traced here.
    """
    tracer = InProcess(operators=False, duty=Duty(first_kernels=sys.maxsize))
    if tracer.problem:
        raise NotPossibleError(f"kernel tracing: {tracer.problem}")
    try:
        call(tracer)
    finally:
        found = [one for one in tracer.end() if one.pid == os.getpid()]
    held = [text for one in found for code, text in one.notes if code == "profiler_inside"]
    if any("before, keeps CUPTI" in text for text in held):
        raise NotPossibleError("kernel tracing: torch's profiler, which ran before, keeps CUPTI: use another process")
    if held:
        raise NotPossibleError("kernel tracing: the workload uses torch's profiler: run it without")
    if not found or tracer.problem:
        raise NotPossibleError(f"kernel tracing: {tracer.problem or 'nothing was recorded'}")
    return found[0]


def _check_free() -> None:
    """Raise if this process can't be traced, or its records would be lost to others."""
    if problem := obstacle():
        raise NotPossibleError(problem)
    if FOLDER in os.environ:
        raise NotPossibleError("this process is traced already, and its kernels are in that Run")
    inner = getattr(getattr(sys.modules.get("torch"), "_C", None), "_autograd", None)
    if inner is not None and inner._profiler_enabled():
        raise NotPossibleError("torch's profiler, which the program has started before, holds CUPTI")


def cuda_runs() -> bool:
    """True if this process has started CUDA."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD)
    except OSError:
        return False
    return not driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
