"""Judges a changed file by the command line, beside the file that it was made from."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jouletrace import load
from jouletrace.cli import main
from mutation import DOUBT, SAME, Mutation

_STATED = re.compile(r"([\d.]+)(?: ±\s[\d.]+)? (m|k|)W on average")
_SI = {"m": 1e-3, "": 1.0, "k": 1e3}


@dataclass(frozen=True)
class Read:
    """An import that ended with 0, as ``show`` and ``verify`` open it.

    Attributes:
        level: Whether to trust it.
        failed: Codes of the checks that failed.
        figures: All figures, by what they are of; their order is of no account.
        sums: Power, its half-width and energy over all devices, energy of the whole where it is stated, time over all
            kernels, and the mean power in the headline.
    """

    level: str
    failed: frozenset[str]
    figures: Counter[tuple[Any, ...]]
    sums: dict[str, float | None]


def call(*arguments: str) -> tuple[int | str, str, str]:
    """Exit code, or the exception that came through, and what a command says."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: int | str = main.run(list(arguments))
        except Exception as error:
            code = repr(error)
    return code, out.getvalue(), err.getvalue()


def imported(data: bytes, folder: Path, *options: str) -> Read | str | None:
    """The figures read of a file; None if it is refused as it should be; words for anything else."""
    place, path = folder / "run", folder / "log.txt"
    shutil.rmtree(place, ignore_errors=True)
    path.write_bytes(data)
    code, out, err = call("import", str(path), "-o", str(place), *options)
    if code == 2:
        wrong = out or place.exists() or err.count("\n") != 1 or not err.startswith("jouletrace: ")
        return f"refused in other than one line: {(out + err)[-300:]!r}" if wrong else None
    if code != 0:
        return f"import ended with {code}: {err[-300:]}"
    said = {}
    for name, arguments in (("show", ()), ("show", ("--json",)), ("verify", ())):
        code, said[name, arguments], err = call(name, str(place), *arguments)
        if code != 0:
            return f"import ended with 0, {name} with {code}: {err[-300:]}"
    try:
        return _read(place, said["show", ()], json.loads(said["show", ("--json",)]))
    except Exception as error:
        return f"import ended with 0, load with {error!r}"


def _read(place: Path, headline: str, shown: dict[str, Any]) -> Read:
    run = load(place)
    units = {unit["id"]: unit for unit in run.units.to_pylist()}
    figures: Counter[tuple[Any, ...]] = Counter()
    sums: dict[str, float | None] = dict.fromkeys(("power_w", "half_w", "energy_total_j", "whole_j", "time_s"))
    for row in run.results.to_pylist():
        unit = units.get(row["unit"], {})
        of = unit.get("level"), unit.get("name")
        figures[
            "figure", *of, row["metric"], row["reason"], *map(_rounded, (row["value"], row["low"], row["high"]))
        ] += 1
        wanted = "kernel" if row["metric"] == "time_s" else "device"
        if row["metric"] in sums and unit.get("level") == wanted and row["value"] is not None:
            sums[row["metric"]] = (sums[row["metric"]] or 0.0) + row["value"]
            if row["metric"] == "power_w" and row["low"] is not None:
                sums["half_w"] = (sums["half_w"] or 0.0) + (row["high"] - row["low"]) / 2
        if row["metric"] == "energy_total_j" and unit.get("level") == "model":
            sums["whole_j"] = row["value"]
    for row in run.counters.to_pylist():
        figures["counter", row["span"], row["section"], row["metric"], _rounded(row["value"])] += 1
    figures.update(("device", device.name) for device in run.devices)
    figures.update(("request", *map(str, row.values())) for row in run.requests.to_pylist())
    stated = _STATED.search(headline)
    sums["stated_w"] = float(stated[1]) * _SI[stated[2]] if stated else None
    return Read(shown["trust"]["level"], frozenset(one["code"] for one in shown["trust"]["failed"]), figures, sums)


def _rounded(value: float | None) -> object:
    return f"{value:.9g}" if isinstance(value, float) else value


class Judge:
    """Judges changed files, each beside the one that it was made from, which is read once.

    Args:
        folder: To write in.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[bytes, tuple[str, ...]], Read | str | None] = {}

    def fault(self, mutation: Mutation) -> tuple[str, str]:
        """The outcome (read, refused or failed), and what is wrong with it in words, "" where nothing is."""
        key = mutation.like, mutation.like_options
        if key not in self._known:
            self._known[key] = imported(mutation.like, self._folder, *mutation.like_options)
        like = self._known[key]
        found = imported(mutation.data, self._folder, *mutation.options)
        if isinstance(found, str):
            return "failed", found
        if not isinstance(like, Read):
            return "failed", f"the file to compare with isn't read: {like or 'refused'}"
        if found is None:
            return "refused", "refused, though nothing of it changed" if mutation.holds == SAME else ""
        if mutation.holds == SAME:
            return "read", _difference(found, like)
        if found.level in ("yes", "with care") and found.failed <= like.failed:
            doubted = f"trust: {found.level}, and no check fails"
            return "read", doubted if mutation.holds == DOUBT else _untrue(found, like, mutation)
        return "read", ""


def _difference(found: Read, like: Read) -> str:
    if found.figures != like.figures:
        more, less = found.figures - like.figures, like.figures - found.figures
        return f"figures changed: {list(more)[:2]} in place of {list(less)[:2]}"
    return "" if found.level == like.level else f"trust: {found.level} in place of {like.level}"


def _untrue(found: Read, like: Read, mutation: Mutation) -> str:
    """The fault of the figures of a Run that is trusted."""
    for name in mutation.compared:
        was, now = like.sums[name], found.sums[name]
        if was is None:
            continue
        if now is None:
            return f"trust: {found.level}, and no {name} in place of {was:g}"
        if not math.isclose(now, was * mutation.factor, rel_tol=mutation.within):
            return f"trust: {found.level}, and {name} is {now:.5g} in place of {was * mutation.factor:.5g}"
    was, now = like.sums["half_w"], found.sums["half_w"]
    if mutation.narrowest and was is not None and (now is None or now < was * mutation.narrowest):
        return f"trust: {found.level}, and power is known to ± {now:.3g} W in place of {was:.3g} W"
    of, stated = found.sums["power_w"], found.sums["stated_w"]
    if of is not None and stated is not None and not math.isclose(of, stated, rel_tol=0.01):
        return f"trust: {found.level}, and the headline says {stated:g} W of devices that draw {of:.5g} W together"
    return ""
