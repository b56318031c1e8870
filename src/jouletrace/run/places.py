"""The place of a new Run, taken before anything is measured. Who takes it needs no Run, and so no pyarrow."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from jouletrace.errors import BadInputError, TakenError
from jouletrace.known_secrets import hidden, refresh
from jouletrace.run.files import RUN_JSON, Content, is_empty, new_folder, safe_name, shown, write_whole
from jouletrace.run.info import DeviceInfo

FORMAT = "jouletrace-run"
MAJOR = 3
VERSION = f"{MAJOR}.0"
"""Major and minor of the format. A newer minor opens (unknown fields are ignored); a newer major does not."""

MODE_VARIABLE = "JOULETRACE_FILE_MODE"
"""Environment variable: permissions of the files of a Run in octal digits; 600 if it isn't set."""


@dataclass(frozen=True)
class Taken:
    """A folder that this process has taken, which gives it the right to remove it and to write over what is in it.

    Attributes:
        process: The process, which isn't that of a fork.
        run: Id of the Run whose ``run.json`` it has written there; "" before.
        is_new: Whether the folder was made for it.
    """

    process: int
    run: str
    is_new: bool


TAKEN: dict[Path, Taken] = {}
"""By absolute path."""


def fresh_folder(base: Path | str, name: str) -> Path:
    """Create a new folder ``BASE/YYYYmmdd-HHMMSS-NAME``, with a counter if it exists.

    Raises:
        BadInputError: If the place can't be written.
    """
    stem = Path(base) / f"{time.strftime('%Y%m%d-%H%M%S')}-{safe_name(name) or 'run'}"
    for n in range(1, 10_000):
        folder = stem if n == 1 else stem.with_name(f"{stem.name}-{n}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not folder.exists():  # a parent is a file
                raise BadInputError(f"cannot write {folder}: a parent of it is a file") from None
            continue
        except OSError as error:
            raise BadInputError(f"cannot write {folder}: {error.strerror}") from None
        TAKEN[folder.absolute()] = Taken(os.getpid(), "", True)
        return folder
    raise BadInputError(f"all names from {stem} to {stem.name}-9999 are taken")


def kernels_of(path: Path) -> Path:
    """Where the Run with the kernels of a recording at a place lies, if there is one."""
    return path.with_suffix(".kernels") if path.suffix.lower() == ".zip" else path / "kernels"


EXISTS = "exists; results are never overwritten: name another place, or remove it"
SAVE_LATER = ", or leave save_to out and call run.save(place, overwrite=True)"
"""A further way out, in Python."""
OVERWRITE = ", or pass overwrite=True"
"""That of what writes a Run, or its figures, that is there."""


def check_free(path: Path | str, in_python: str = "") -> Path:
    """The path of a new Run, refused early if it exists (see ``TakenError``), or can't be written.

    Raises:
        BadInputError: In both cases.
    """
    target = Path(path)
    try:
        if target.exists() and not (target.is_dir() and is_empty(target)):
            raise TakenError(f"{shown(target)} {EXISTS}", in_python)
        parent = target.absolute().parent
        while not parent.exists():
            parent = parent.parent
    except OSError as error:
        raise BadInputError(f"cannot write {shown(target)}: {error.strerror or error}") from None
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise BadInputError(f"cannot write {shown(target)}: {parent} is not a writable folder")
    return target


def file_mode() -> int:
    """Permissions of the files of a Run: the owner's only, unless the environment states others.

    Raises:
        BadInputError: If the variable isn't a valid mode.
    """
    text = os.environ.get(MODE_VARIABLE, "600")
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0o400 <= mode <= 0o777:
        raise BadInputError(f"{MODE_VARIABLE}={text}: must be permissions in octal digits, such as 640")
    return mode


def take(folder: Path, id: str, header: bytes) -> None:
    """Take a folder for a Run, by linking its ``run.json``, which no other process can do then.

    Raises:
        BadInputError: If another Run is there.
        OSError: If it can't be written.
    """
    before = TAKEN.get(folder.absolute())
    is_new = not folder.exists() or (before is not None and before.process == os.getpid() and before.is_new)
    write_first(folder / RUN_JSON, header)
    TAKEN[folder.absolute()] = Taken(os.getpid(), id, is_new)


def begin(folder: Path, kind: str, devices: Sequence[DeviceInfo]) -> str:
    """Take a folder for a Run before all that a Run consists of is imported; returns its id.

    Raises:
        BadInputError: If another Run is there, or it can't be written.
    """
    id = uuid4().hex
    header = {"id": id, "kind": kind, "created_ns": time.time_ns(), "complete": False}
    header |= {"format": FORMAT, "schema_version": VERSION, "devices": [device.to_dict() for device in devices]}
    refresh()
    with written(folder, BadInputError):
        take(folder, id, hidden(json.dumps(header)).encode())
    return id


def write_first(path: Path, data: Content, in_python: str = "") -> None:
    """Write a file that must not be there, so that no other process takes its place; see ``TakenError``.

    Raises:
        BadInputError: If it is there.
        OSError: If it can't be written.
    """
    try:
        write_whole(path, data, mode=file_mode(), first=True)
    except FileExistsError:
        if not path.exists():  # a folder above it is a file
            raise
        raise TakenError(f"{shown(path)} {EXISTS}", in_python) from None


@contextmanager
def first_folder(path: Path, in_python: str = "") -> Iterator[Path]:
    """A folder to write into (``new_folder``), whose place must be free; see ``TakenError``.

    Raises:
        BadInputError: If it isn't.
        OSError: If it can't be written.
    """
    try:
        with new_folder(path) as folder:
            yield folder
    except FileExistsError:
        raise TakenError(f"{shown(path)} {EXISTS}", in_python) from None


@contextmanager
def written(target: Path, kind: type[Exception]) -> Iterator[None]:
    """Turn an error of writing to a place into one line.

    Raises:
        JouletraceError: Of this kind, with the place and the reason.
    """
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise kind(f"cannot write {shown(target)}: {getattr(error, 'strerror', None) or error}") from None
