"""Errors of exhausted memory in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from jouletrace.errors import NotPossibleError

_SIGNS = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    # more bytes than can be counted
    "integer multiplication overflow",
    "Storage size calculation overflowed",
    "Overflow when unpacking long",
)
# The wordings of torch's CUDA allocator ("Tried to allocate 2.00 GiB", "1.2 GiB is free") and of its
# CPU allocator ("you tried to allocate 17179869184 bytes").
_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+) (\w+)")
_FREE = re.compile(r"of which ([\d.]+ \w+) is free")


@contextmanager
def memory_guard(what: str) -> Iterator[None]:
    """Turn exhaustion of host or device memory inside the block into an error of one line.

    Args:
        what: The work in progress, with its batch: the beginning of the message.

    Raises:
        NotPossibleError: If memory ran out; the message states the requested and, where known, the free amount.
    """
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:
        text = str(error)
        if not isinstance(error, MemoryError) and not any(sign in text for sign in _SIGNS):
            raise
        raise NotPossibleError(f"{what}: out of memory{_amounts(text)}; try a smaller --batch") from error


def _amounts(text: str) -> str:
    """The amounts in the allocator's message, such as `` (asked for 2.00 GiB more, 1.2 GiB free)``."""
    said = []
    if asked := _ASKED.search(text):
        said.append(f"asked for {_readable(asked[1], asked[2])} more")
    if free := _FREE.search(text):
        said.append(f"{free[1]} free")
    return f" ({', '.join(said)})" if said else ""


def _readable(number: str, unit: str) -> str:
    """An amount in a readable unit: the CPU allocator states bytes, with up to eleven digits."""
    return f"{float(number) / 2**30:.2f} GiB" if unit == "bytes" else f"{number} {unit}"
