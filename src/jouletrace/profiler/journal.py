"""Writing down what a board was like before it is changed, so that even a crash leaves the way back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from jouletrace.errors import NotPossibleError
from jouletrace.run.files import write_whole


def write_journal(path: Path, data: Mapping[str, object]) -> None:
    """Write it down, whole or not at all, and on the disk when this returns.

    Raises:
        NotPossibleError: If it can't be written: then nothing may be changed.
    """
    try:
        write_whole(path, json.dumps(data, indent=1).encode(), durable=True)
    except OSError as error:
        raise _not_written(path, error) from None


@contextmanager
def locked_journal(path: Path, doing: str) -> Iterator[None]:
    """Nobody else uses a journal meanwhile; the lock ends with the process, however that ends.

    Args:
        path: The journal.
        doing: What somebody else would be doing: "dividing GPU-...".

    Raises:
        NotPossibleError: If somebody does, or the lock can't be made.
    """
    place = path.with_suffix(".lock")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        file = place.open("w")
    except OSError as error:
        raise _not_written(path, error) from None
    with file:
        with suppress(ImportError):  # where there is no fcntl, no driver lets a board be changed either
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise NotPossibleError(f"another jouletrace is {doing}: wait for it to end") from None
        yield


def _not_written(path: Path, error: OSError) -> NotPossibleError:
    return NotPossibleError(f"the journal {path} can't be written ({error.strerror}): nothing was changed")
