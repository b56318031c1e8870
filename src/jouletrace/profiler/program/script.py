"""Running a user's program in this process, as Python would run it."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jouletrace.errors import BadInputError


@dataclass(frozen=True)
class Script:
    """A Python program with its arguments.

    Attributes:
        target: Path of a script, or name of a module.
        arguments: Its arguments.
        module: Whether ``target`` names a module (``python -m``).
    """

    target: str
    arguments: tuple[str, ...] = ()
    module: bool = False

    @property
    def name(self) -> str:
        """What the Run is called."""
        return self.target if self.module else Path(self.target).name

    def check(self) -> None:
        """Refuse what Python couldn't run, before anything is recorded.

        Raises:
            BadInputError: If the script is missing, unreadable or no valid Python, or the module isn't there.
        """
        if self.module:
            import importlib.util

            sys.path.insert(0, os.getcwd())
            try:
                found = importlib.util.find_spec(self.target)
            except (ImportError, ValueError) as error:
                raise BadInputError(f"run -m {self.target}: {error}") from None
            finally:
                sys.path.pop(0)
            if found is None:
                raise BadInputError(f"run -m {self.target}: no module of that name can be imported from here")
            return
        path = Path(self.target)
        if path.is_dir():
            if not (path / "__main__.py").is_file():
                raise BadInputError(f"run {self.target}: a folder without a __main__.py")
            return
        try:
            source = path.read_bytes()
        except OSError as error:
            raise BadInputError(f"run {self.target}: {error.strerror or error}") from None
        try:
            compile(source, self.target, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            said = error.msg if isinstance(error, SyntaxError) else error
            raise BadInputError(f"run {self.target}{line}: not valid Python ({said})") from None

    def run(self) -> int:
        """Run it in this process as ``__main__``; returns its exit code. Its traceback goes to stderr."""
        before = sys.argv[:], sys.path[:]
        sys.argv = [self.target, *self.arguments]
        try:
            if self.module:
                sys.path.insert(0, os.getcwd())
                runpy.run_module(self.target, run_name="__main__", alter_sys=True)
            else:
                if not Path(self.target).is_dir():
                    sys.path.insert(0, str(Path(self.target).resolve().parent))
                runpy.run_path(self.target, run_name="__main__")
        except SystemExit as ended:
            return _exit_code(ended.code)
        except KeyboardInterrupt:
            return 130
        except BaseException:
            _print_own(sys.exc_info()[1])
            return 1
        finally:
            sys.argv, sys.path[:] = before
        return 0


def _exit_code(code: object) -> int:
    """As Python maps the argument of ``sys.exit``; a text is printed."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _print_own(error: BaseException | None) -> None:
    """The traceback without the frames of this package and of ``runpy``."""
    if error is None:
        return
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)


class HardExit:
    """Makes ``os._exit`` call ``before`` first: what was recorded until then is kept."""

    def __init__(self, before: Callable[[int], None]) -> None:
        self._before, self._original, self._owner = before, os._exit, os.getpid()

    def __enter__(self) -> HardExit:
        os._exit = self._exit  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        os._exit = self._original

    def _exit(self, status: int) -> None:
        os._exit = self._original
        if os.getpid() == self._owner:
            self._before(status)
        self._original(status)


def script_of(arguments: Sequence[str], module: str | None) -> Script:
    """The program of a command line.

    Raises:
        BadInputError: If none is named.
    """
    if module is not None:
        return Script(module, tuple(arguments), module=True)
    if not arguments:
        raise BadInputError("run: name a script, -m MODULE, or -- COMMAND")
    return Script(arguments[0], tuple(arguments[1:]))
