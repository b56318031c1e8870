"""Lists what viewers reject in a Chrome trace: ``python tests/support/check_trace.py FILE``."""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def read(path: Path | str) -> Event:
    """A trace with its numbers as decimals, so that no nanosecond is rounded away."""
    data = Path(path).read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("ascii")
    return json.loads(text, parse_float=Decimal, parse_constant=_refuse)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def problems(document: Event) -> list[str]:
    """Faults that viewers would trip over; empty if nothing."""
    events = document["traceEvents"]
    found = [f"unknown phase {e['ph']!r}" for e in events if e["ph"] not in "XMCsfi"]
    found += [f"base isn't an integer: {document['baseTimeNanoseconds']}"][
        : not isinstance(document["baseTimeNanoseconds"], int)
    ]
    slices = [e for e in events if e["ph"] == "X"]
    for e in slices:
        if e["ts"] < 0 or e["dur"] < 0 or not isinstance(e["name"], str):
            found.append(f"bad slice {e}")
    return found + _not_nested(slices) + _bad_counters(events) + _bad_arrows(events, slices) + _unnamed(events)


def _not_nested(slices: list[Event]) -> list[str]:
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for e in slices:
        tracks[e["pid"], e["tid"]].append(e)
    found = []
    for place, track in tracks.items():
        if any(a["ts"] > b["ts"] for a, b in pairwise(track)):
            found.append(f"track {place} is not in order")
        stack: list[Decimal] = []
        for e in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
            while stack and stack[-1] <= e["ts"]:
                stack.pop()
            if stack and e["ts"] + e["dur"] > stack[-1]:
                found.append(f"track {place}: {e['name']} at {e['ts']} reaches out of the one that it is in")
            stack.append(e["ts"] + e["dur"])
    return found


def _bad_counters(events: list[Event]) -> list[str]:
    lines: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for e in events:
        if e["ph"] == "C":
            lines[e["pid"], e["name"]].append(e)
    found = []
    for place, line in lines.items():
        if any(a["ts"] > b["ts"] for a, b in pairwise(line)):
            found.append(f"counter {place} is not in order")
        if any(list(e["args"]) != [place[1]] or not isinstance(e["args"][place[1]], int | Decimal) for e in line):
            found.append(f"counter {place} has other args than its own number")
    return found


def _bad_arrows(events: list[Event], slices: list[Event]) -> list[str]:
    begins = {(e["pid"], e["tid"], e["ts"]) for e in slices}
    ends: dict[int, list[str]] = defaultdict(list)
    found = []
    for e in events:
        if e["ph"] in "sf":
            ends[e["id"]].append(e["ph"])
            if (e["pid"], e["tid"], e["ts"]) not in begins:
                found.append(f"arrow {e['id']} is tied to no slice")
    return found + [f"arrow {id} has {both}" for id, both in ends.items() if sorted(both) != ["f", "s"]]


def _unnamed(events: list[Event]) -> list[str]:
    named = {(e["pid"], e.get("tid")) for e in events if e["name"] in ("thread_name", "process_name")}
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} | {
        (e["pid"], None) for e in events if e["ph"] != "i"
    }
    return [f"no name for {place}" for place in used - named]


if __name__ == "__main__":
    wrong = problems(read(sys.argv[1]))
    print("\n".join(wrong) or "nothing wrong")
    sys.exit(bool(wrong))
