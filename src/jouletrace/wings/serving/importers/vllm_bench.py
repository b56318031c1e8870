"""JSON of ``vllm bench serve --save-result --save-detailed``: a load an object, several with ``--append-result``.

Its times are those of a clock without a known origin. Its ``date``, in local time to the second, is when the load had
ended: by it the requests are placed, to a second or two. ``--offset`` places them better.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import RELATIVE, UNIX, ImportOptions, Left, read_text
from jouletrace.formats.importers.stamps import read_stamps
from jouletrace.run import Run
from jouletrace.run.forms import LoadFacts
from jouletrace.wings.serving.importers.load_results import Row, amount, arrivals, load_run, number_of, whole


def sniff(head: bytes) -> bool:
    """True if the beginning is that of such a file; its lists may be far from its first entries."""
    start = head.lstrip()
    return (
        start.startswith(b"{") and b'"request_throughput"' in head and (b'"num_prompts"' in head or b'"ttfts"' in head)
    )


def read(path: Path, options: ImportOptions) -> Run:
    """Read the requests of each load.

    Raises:
        BadInputError: If the file has no single requests with start times.
    """
    left = Left(path)
    found = list(_objects(read_text(path, left), path))
    if not all(isinstance(one.get("start_times"), list) for one in found):
        raise BadInputError(f"{path}: no start times of requests: run vllm bench serve with --save-detailed")
    dated = all(isinstance(one.get("date"), str) for one in found)
    levels = [_level(k, one, options if dated else None, path, left) for k, one in enumerate(found)]
    run = load_run(path, "vllm_bench", UNIX if dated else RELATIVE, levels, left)
    if dated:
        message = "its requests are placed by its date, to a second or two: give --offset to place them better"
        run.warn("clock_assumed", message, path.name)
        if options.time_zone is None:
            message = "its date has no time zone: UTC was assumed; state the zone with --time-zone"
            run.warn("time_zone_assumed", message, path.name)
    return run


def _objects(text: str, path: Path) -> Iterator[dict[str, Any]]:
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        try:
            found, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        except (ValueError, RecursionError) as error:
            raise BadInputError(f"{path}: not JSON: {error}") from None
        if not isinstance(found, dict):
            raise BadInputError(f"{path}: not the JSON of vllm bench serve")
        yield found


def _level(
    number: int, found: dict[str, Any], options: ImportOptions | None, path: Path, left: Left
) -> tuple[LoadFacts, list[Row]]:
    """A load and its requests; on Unix time if ``options`` are given."""
    rate = amount(found.get("request_rate")) or None
    size = number_of(found.get("max_concurrency"))
    if size is None and found.get("max_concurrency") is not None:
        left.add("no_concurrency", "loads have a concurrency that is no number of requests", place=f"load {number + 1}")
    names = [f"{rate:g}/s" if rate else "", f"{size} at once" if size else ""]
    name = ", at most ".join(filter(None, names)) or f"load {number + 1}"
    columns = [found.get(key) for key in ("start_times", "ttfts", "itls", "input_lens", "output_lens", "errors")]
    if any(one is not None and (not isinstance(one, list) or len(one) != len(columns[0] or ())) for one in columns):
        raise BadInputError(f"{path}: its lists of requests differ in length")
    starts, firsts, gaps, inputs, outputs, errors = (one or [None] * len(columns[0] or ()) for one in columns)
    rows: list[Row] = []
    for k, start in enumerate(starts):
        try:
            first, rest = float(firsts[k] or 0.0), float(sum(gaps[k] or ()))
            sent = round(float(start) * 1e9)
            after_ns = arrivals(first * 1e9, gaps[k], 1e9)
            begun, last = sent + round(first * 1e9), sent + round(first * 1e9) + round(rest * 1e9)
        except (TypeError, ValueError, OverflowError):
            left.add("no_times", "requests have no times", place=f"request {k + 1}")
            continue
        why = errors[k] or ("" if first > 0 else "no token")
        rows.append(
            {
                "id": k,
                "scheduled_ns": sent,
                "sent_ns": sent,
                "first_ns": None if why else begun,
                "last_ns": last,
                "input_tokens": whole(inputs[k]),
                "output_tokens": whole(outputs[k]),
                "status": "failed" if why else "ok",
                "error": str(why).splitlines()[-1][:200] if why else None,
                "after_ns": after_ns,
            }
        )
    if options is not None and rows:
        _place(rows, str(found["date"]), options, path)
    seconds = amount(found.get("duration")) or 0.0
    kind = "closed" if rate is None else "open"
    load = LoadFacts(name=name, kind=kind, rate_per_s=rate, seconds=seconds)
    return (load | LoadFacts(name=name, concurrency=size)) if size else load, rows


def _place(rows: list[Row], date: str, options: ImportOptions, path: Path) -> None:
    """Move requests so that the last ends at a date such as 20261123-071502."""
    digits = "".join(filter(str.isdigit, date))
    if len(digits) != 14:
        raise BadInputError(f"{path}: its date {date[:40]!r} is not of the form 20261123-071502")
    text = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]} {digits[8:10]}:{digits[10:12]}:{digits[12:]}"
    ended = int(read_stamps([text], options.time_zone).time_ns[0])
    by = ended - max(row["last_ns"] for row in rows)
    for row in rows:
        for name in ("scheduled_ns", "sent_ns", "first_ns", "last_ns"):
            row[name] = None if row[name] is None else row[name] + by
