"""The errors that a user can meet, one type for each exit code of the command line.

Anything else that escapes is a bug and keeps its traceback.
"""

import os
import traceback
from collections.abc import Iterable
from difflib import get_close_matches

_LIBRARIES = (os.path.dirname(__file__), os.path.dirname(os.__file__), "site-packages", "dist-packages", "<string>")
"""Parts of the paths of files that no user wrote; the last is code that dataclasses generate."""


class JouletraceError(Exception):
    """Base of every expected failure: its text is one line that says what and where."""

    exit_code = 2

    @property
    def text(self) -> str:
        """The line as the command line prints it."""
        return str(self)

    def _render_traceback_(self) -> list[str]:
        """Lines that IPython shows in place of a traceback: the user's own code down to the failure, and the text."""
        chain: list[BaseException | None] = [self, self.__cause__]
        frames = [frame for error in chain if error is not None for frame in traceback.extract_tb(error.__traceback__)]
        own = [frame for frame in frames if not any(part in frame.filename for part in _LIBRARIES)]
        return [*"".join(traceback.format_list(own)).splitlines(), f"{type(self).__name__}: {self}"]


class BadInputError(JouletraceError):
    """Wrong use or bad input: an unknown name, an unreadable file, a value out of range."""

    exit_code = 2


class TakenError(BadInputError):
    """Something is at the place of a new Run.

    Args:
        text: What is where.
        in_python: A further way out, which the command line has not.
    """

    def __init__(self, text: str, in_python: str = "") -> None:
        super().__init__(text + in_python)
        self._text = text

    @property
    def text(self) -> str:
        """See ``JouletraceError``."""
        return self._text


class BrokenOffError(BadInputError):
    """Something failed after the workload had run, in a pass or in the analysis; what was recorded is kept."""


class NotPossibleError(JouletraceError):
    """Not possible here: the text names what is missing and, where known, how to get it."""

    exit_code = 3


class TimedOutError(NotPossibleError):
    """A program that was given a limit did not end within it; what was recorded until then is kept."""


class CheckFailedError(JouletraceError):
    """A check that the user asked for (such as ``--fail-if``) did not hold."""

    exit_code = 1


class RecorderDiedError(JouletraceError):
    """The recording process ended before it was asked to; what it had written is kept."""

    exit_code = 3


class ClosedError(JouletraceError):
    """Nothing failed: a recording was ended from outside of the block that began it; the text says how."""


class TerminatedError(KeyboardInterrupt):
    """SIGTERM or SIGHUP: treated as Ctrl-C, though no terminal has sent it to the programs we started."""


SIMULATE_GPU = "--device sim:h100 simulates a GPU"
WITHOUT_GPU = f"{SIMULATE_GPU}, --device cpu runs on the processor"
"""Ways to go on where there is no GPU: stands behind the reason why there is none."""

SIMULATED_TWICE = (
    "are simulated runs with the same readings, since a simulated GPU repeats itself: for independent runs "
    "add run=10, run=20, ... to the device (sim:h100?run=10)"
)
"""Stands behind the places of two Runs that one seed gave."""


def check_format(name: str, formats: Iterable[str]) -> None:
    """Refuse a format that there isn't, offering the nearest.

    Raises:
        BadInputError: If ``name`` is not among ``formats``.
    """
    known = list(formats)
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BadInputError(f"unknown format {name!r}: it is one of {', '.join(known)}{hint}")


def nearest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'a' or 'b'?"``, or ``""`` if nothing in ``known`` is near ``name``."""
    by_lower = {candidate.lower(): candidate for candidate in known if candidate != name}
    near = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    if not near:
        return ""
    return "; did you mean " + " or ".join(f"'{by_lower[match]}'" for match in near) + "?"


MOST_NAMED = 12
"""Most names that are listed in the place of one that isn't there."""


def unknown(what: str, name: object, known: Iterable[str]) -> BadInputError:
    """The refusal of a name that isn't among those ``known``, which lists them and offers the nearest."""
    there = [one for one in dict.fromkeys(known) if one]
    more = f" and {len(there) - MOST_NAMED} more" if len(there) > MOST_NAMED else ""
    listed = f"{', '.join(there[:MOST_NAMED])}{more}" if there else "none"
    return BadInputError(f"no {what} {name!r}; there is {listed}{nearest(str(name), there)}")
