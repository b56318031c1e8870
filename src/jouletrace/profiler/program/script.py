"""Running a user's program in this process, as Python would run it."""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import pkgutil
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.known_secrets import hidden
from jouletrace.run.files import near

PARKED_S = 5.0
"""Longest time for which a signal that ends the program stops its main thread, which may hold a lock that we need."""

_DEADLY = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@dataclass(frozen=True)
class Script:
    """A Python program with its arguments.

    Attributes:
        target: Path of a script, a folder or a zip with a ``__main__.py``, or name of a module.
        arguments: Its arguments.
        module: Whether ``target`` names a module (``python -m``).
    """

    target: str
    arguments: tuple[str, ...] = ()
    module: bool = False

    @property
    def name(self) -> str:
        """What the Run is called: the script, which a launcher (torchrun) has among its arguments, or the module."""
        if self.module:
            return self.target
        launched = [word for word in self.arguments if word.endswith(".py")] if not Path(self.target).suffix else []
        return Path(launched[0] if launched else self.target).absolute().name

    def check(self) -> None:
        """Refuse what Python couldn't run, before anything is recorded.

        Raises:
            BadInputError: If the script is missing, unreadable or no valid Python, or the module isn't there.
        """
        if self.module:
            self._check_module()
        elif pkgutil.get_importer(self.target) is None:
            self._check_file()
        elif Path(self.target).is_dir() and not (Path(self.target) / "__main__.py").is_file():
            raise BadInputError(f"run {self.target}: a folder without a __main__.py")

    def _check_module(self) -> None:
        top = self.target.partition(".")[0]  # to look further would import the package, before it is recorded
        sys.path.insert(0, os.getcwd())
        try:
            found = importlib.util.find_spec(top)
        except (ImportError, ValueError) as error:
            raise BadInputError(f"run -m {self.target}: {error}") from None
        finally:
            sys.path.pop(0)
        if found is None:
            raise BadInputError(f"run -m {self.target}: no module of that name can be imported from here")

    def _check_file(self) -> None:
        try:
            self._code(self.target)
        except OSError as error:
            raise BadInputError(f"run {self.target}: {error.strerror or error}{near(self.target, '*.py')}") from None
        except (SyntaxError, ValueError, ImportError, EOFError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            said = error.msg if isinstance(error, SyntaxError) else error
            raise BadInputError(f"run {self.target}{line}: not valid Python ({said})") from None

    def _code(self, file: str) -> CodeType | None:
        """The code of a script, which may be compiled already."""
        with open(file, "rb") as opened:
            compiled = opened.read(len(MAGIC_NUMBER)) == MAGIC_NUMBER
        if compiled:
            return SourcelessFileLoader("__main__", file).get_code("__main__")
        loader = SourceFileLoader("__main__", file)
        code: CodeType = loader.source_to_code(loader.get_data(file), file)
        return code

    def run(self, ends: bool = False) -> int:
        """Run it in this process as ``__main__``; returns its exit code. Its traceback goes to stderr.

        Args:
            ends: Whether the process ends with it: what Python does at its end is done too. It waits for threads and
                calls the handlers of ``atexit``.
        """
        before = sys.argv, sys.path[:], sys.modules["__main__"]
        known = set(sys.modules)
        sys.argv = ["-m" if self.module else self.target, *self.arguments]
        sys.path[:] = _without_launcher(before[0])
        sys.modules["__main__"] = main = ModuleType("__main__")
        try:
            code = _exit_code_of(lambda: self._execute(main))
            if ends:
                code = _exit_code_of(_python_ends) or code
        finally:
            folder = Path(sys.path[0]) if sys.path else None
            sys.argv, sys.path[:], sys.modules["__main__"] = before
            if folder is not None:
                _forget_modules(folder, known)
        return code

    def _execute(self, main: ModuleType) -> None:
        """As ``python TARGET``, or ``python -m TARGET``; pickles and spawned processes know it as ``__main__``."""
        main.__dict__["__builtins__"] = sys.modules["builtins"]
        if self.module:
            sys.path.insert(0, os.getcwd())
            runpy._run_module_as_main(self.target)  # type: ignore[attr-defined]  # what ``python -m`` calls
            return
        file = os.path.join(os.getcwd(), self.target)
        if pkgutil.get_importer(self.target) is not None:
            sys.path.insert(0, os.path.abspath(file))
            runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
            return
        code = self._code(file)
        assert code is not None
        sys.path.insert(0, os.path.dirname(os.path.realpath(file)))
        compiled = code.co_filename != file
        main.__file__ = file
        main.__loader__ = (SourcelessFileLoader if compiled else SourceFileLoader)("__main__", file)
        main.__dict__["__cached__"] = None
        exec(code, main.__dict__)


def _forget_modules(folder: Path, known: Collection[str]) -> None:
    """Forget what was imported from the program's folder: a ``rich.py`` there isn't the library that we print with."""
    places = {name: getattr(sys.modules[name], "__file__", None) for name in set(sys.modules) - set(known)}
    own = {
        name
        for name, place in places.items()
        if place in (str(folder / f"{name}.py"), str(folder / name / "__init__.py"))
    }
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        del sys.modules[name]


def _without_launcher(argv: Sequence[str]) -> list[str]:
    """``sys.path`` without the folder of the ``jouletrace`` command, where Python looks first."""
    launcher = {os.getcwd(), os.path.dirname(os.path.realpath(argv[0]))} if argv else set()
    return sys.path[1:] if sys.path and sys.path[0] in launcher else sys.path[:]


def _python_ends() -> None:
    """What Python does between the end of the main thread and that of the process."""
    threading._shutdown()  # type: ignore[attr-defined]  # joining alone would wait for ever for idle executors
    atexit._run_exitfuncs()


def _exit_code_of(run: Callable[[], None]) -> int:
    """The exit code with which Python would end after ``run``."""
    try:
        run()
        return 0
    except SystemExit as ended:
        return _exit_code(ended.code)
    except BaseException as error:
        uncaught = error
    _print_uncaught(uncaught)
    return 130 if isinstance(uncaught, KeyboardInterrupt) else 1


def _exit_code(code: object) -> int:
    """As Python maps the argument of ``sys.exit``; a text is printed."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if abs(code) <= sys.maxsize else 0xFF
    with suppress(OSError, ValueError):
        print(code, file=sys.stderr)
    return 1


def _print_uncaught(error: BaseException) -> None:
    """Hand an exception to the program's ``sys.excepthook``, without the frames of this package."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error.with_traceback(frames), frames
    try:
        sys.excepthook(type(error), error, frames)
    except Exception as second:
        own = second.__traceback__.tb_next if second.__traceback__ is not None else None
        print("Error in sys.excepthook:", file=sys.stderr)
        traceback.print_exception(type(second), second, own)
        print("\nOriginal exception was:", file=sys.stderr)
        traceback.print_exception(type(error), error, frames)


class HardExit:
    """Calls ``before`` ahead of ``os._exit``, also in forks, and of a death by SIGTERM or SIGHUP.

    A signal ends the program where it is, as without us: nothing is unwound, no handler of ``atexit`` is called, and
    the process dies of that signal. A thread learns of it by Python's wake-up pipe, since the main one may be in a long
    call that isn't Python.

    Args:
        before: Receives the exit code.
    """

    def __init__(self, before: Callable[[int], None]) -> None:
        self._before, self._original, self._owner = before, os._exit, os.getpid()
        self._handlers: dict[int, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._dying, self._finished = threading.Lock(), threading.Event()
        self._masks = threading.local()

    def __enter__(self) -> HardExit:
        os._exit = self._exit  # type: ignore[assignment]
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *_DEADLY)}
            for number in _DEADLY:
                if self._handlers[number] != signal.SIG_IGN:
                    signal.signal(number, self._signalled)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._forget)
                self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        os._exit = self._original
        _stop_timers()
        for number, handler in self._handlers.items():  # the program may have set its own
            signal.signal(number, handler)
        self._handlers = {}
        self._deafen()

    def _listen(self) -> None:
        """Let a thread read the number of each signal that arrives."""
        self._pipe = reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

        def listen() -> None:
            while got := os.read(reading, 1):
                if signal.getsignal(got[0]) == self._signalled:
                    self._die(got[0])
            os.close(reading)

        threading.Thread(target=listen, name="jouletrace-signals", daemon=True).start()

    def _deafen(self) -> None:
        if self._pipe is not None:
            if (other := signal.set_wakeup_fd(-1)) not in (-1, self._pipe[1]):
                signal.set_wakeup_fd(other)  # of the program
            with suppress(OSError):  # the program has closed all that it didn't open
                os.close(self._pipe[1])
            self._pipe = None

    def _hold(self) -> None:
        """Hold signals during a fork: Python drops those that reach the new process before it is ready."""
        self._masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _DEADLY if self._handlers else ())

    def _release(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.before)

    def _forget(self) -> None:
        """Let signals end a fork as they would without us."""
        for number in _DEADLY:
            if signal.getsignal(number) == self._signalled:
                signal.signal(number, signal.SIG_DFL)
        if self._pipe is not None:
            os.close(self._pipe[0])
            self._deafen()
        self._release()

    def _exit(self, status: int) -> None:
        os._exit = self._original
        if os.getpid() == self._owner:
            _stop_timers()
        self._finish(status & 0xFF)
        self._original(status)

    def _finish(self, code: int) -> None:
        try:
            self._before(code)
        except JouletraceError as error:
            print(f"jouletrace: {hidden(str(error))}", file=sys.stderr, flush=True)
        except BaseException:
            traceback.print_exc()

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        for other in _DEADLY:  # a second one ends the process at once
            signal.signal(other, signal.SIG_DFL)
        # In a thread of its own, since this one may be anywhere, with any lock; the program may hold the wake-up pipe.
        threading.Thread(target=self._die, args=(number,), name="jouletrace-end", daemon=True).start()
        self._finished.wait(PARKED_S)

    def _die(self, number: int) -> None:
        """End the process by a signal, once; from a thread."""
        if not self._dying.acquire(blocking=False):
            return
        os._exit = self._original
        _stop_timers()
        self._finish(128 + number)
        self._finished.set()
        ctypes.CDLL(None).signal(number, None)  # SIG_DFL; Python's own call works in the main thread alone
        os.kill(os.getpid(), number)
        self._original(128 + number)


def _stop_timers() -> None:
    """End the program's alarms, which would reach our code."""
    for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"):
        if hasattr(signal, name):
            signal.setitimer(getattr(signal, name), 0)
