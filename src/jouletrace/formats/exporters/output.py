"""A new file for another program, written whole or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from jouletrace.errors import BadInputError
from jouletrace.run.files import beside, link_first
from jouletrace.run.places import check_free


@contextmanager
def new_file(path: Path | str) -> Iterator[BinaryIO]:
    """Open a file for writing, compressed if its name ends in ".gz"; it gets its name when it is complete.

    Raises:
        BadInputError: If the path exists already, or can't be written.
    """
    if "\0" in str(path):
        raise BadInputError(f"cannot write {str(path)!r}: a name can't hold a null byte")
    target = check_free(path)
    try:
        with beside(target, durable=False) as partial:
            with partial.open("wb") as file:
                packed = target.suffix.lower() == ".gz"
                # Without a name and a time in the header, equal Runs give equal files.
                with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) if packed else file as written:
                    yield cast(BinaryIO, written)
            link_first(partial, target)
    except FileExistsError:
        raise BadInputError(f"{target} exists; results are never overwritten") from None
    except OSError as error:
        raise BadInputError(f"cannot write {target}: {error.strerror or error}") from None
