"""The recommended action for each GPU (inspect, keep or undecided), with the evidence."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.addons.fleet.findings import Findings
from jouletrace.addons.fleet.results import Fleet
from jouletrace.addons.fleet.spread import Spread
from jouletrace.addons.fleet.store import Store
from jouletrace.report.document import printable
from jouletrace.report.scale import fixed
from jouletrace.run import Estimate
from jouletrace.run.files import check_replaceable
from jouletrace.spreadsheets import csv_cells

INSPECT, KEEP, UNDECIDED = "inspect", "keep", "undecided"
LIMIT = 0.03
"""Default relative slowness from which a GPU should be inspected."""

SURE = 0.975
_HARDWARE = 0.01
"""Share of time slowed by hardware from which it counts as evidence."""

_LOST = ("vanished", "lost_gpu", "lost_node", "timed_out")


@dataclass(frozen=True)
class Action:
    """The recommended action for one GPU.

    Attributes:
        node, gpu: Host and UUID.
        name: Its name in the report.
        serial, slot: Serial number and PCI bus, which identify it physically; "" where the driver doesn't report them.
        action: "inspect", "keep" or "undecided".
        evidence: The reasons.
        slower, low, high: Slowness relative to the median of its group, with interval; None where it isn't measured.
    """

    node: str
    gpu: str
    name: str
    serial: str
    slot: str
    action: str
    evidence: str
    slower: float | None = None
    low: float | None = None
    high: float | None = None


def actions(fleet: Fleet, found: Sequence[Findings], limit: float = LIMIT) -> list[Action]:
    """The recommended action for every GPU of a fleet, those to inspect first.

    A GPU should be inspected if it is slower than the median of its group by more than ``limit``, with a probability
    of at least 97.5 %, if its hardware slowed it down, or if it failed while it was measured.

    Args:
        fleet: The results.
        found: Findings on its groups.
        limit: Relative slowness.
    """
    decided = [action for one in found for action in _of_group(one, fleet.failures, limit)]
    known = {(action.node, action.gpu) for action in decided}
    rest: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for failure in fleet.failures:
        key = str(failure.get("node", "")), str(failure.get("gpu", ""))
        if key not in known:
            rest.setdefault(key, []).append(failure)
    for (node, gpu), failures in rest.items():
        lost = [one for one in failures if one.get("reason") in _LOST]
        text = str((lost or failures)[0].get("text", ""))
        decided.append(
            Action(node, gpu, fleet.name(node, gpu), "", "", INSPECT if lost else UNDECIDED, f"never measured: {text}")
        )
    order = {INSPECT: 0, UNDECIDED: 1, KEEP: 2}
    return sorted(decided, key=lambda one: (order[one.action], -(one.slower or 0.0)))


def _of_group(findings: Findings, failures: Sequence[dict[str, Any]], limit: float) -> list[Action]:
    group, spread = findings.group, findings.spreads["time_s"]
    place = {place.gpu: place.off for place in spread.places}
    found = []
    for code, gpu in enumerate(group.gpus):
        off = place.get(code, Estimate.null("not_measured"))
        verdict, why = _slowness(spread, code, off, limit)
        evidence = [why]
        slowed = group.runs["hardware_share"][group.runs["gpu"] == code]
        most = float(np.max(slowed, where=np.isfinite(slowed), initial=0.0))
        if most > _HARDWARE:
            verdict = INSPECT
            evidence.append(f"slowed down by its hardware for {100 * most:.0f} % of the time in a run")
        lost = [f for f in failures if (f.get("node"), f.get("gpu")) == (gpu.node, gpu.id) and f.get("reason") in _LOST]
        if lost:
            verdict = INSPECT
            evidence.append(f"{len(lost)} runs failed: {lost[0].get('text', '')}")
        serial, slot = (str(gpu.facts.get(name) or "") for name in ("serial", "pci_bus"))
        text = "; ".join(evidence)
        found.append(Action(gpu.node, gpu.id, gpu.label, serial, slot, verdict, text, off.value, off.low, off.high))
    return found


def _slowness(spread: Spread, code: int, off: Estimate, limit: float) -> tuple[str, str]:
    """The action for a GPU by its distance from the median, and the reason."""
    if spread.alike:
        return UNDECIDED, "GPUs wait for one another in every call: times contain no information about a single one"
    if off.value is None or spread.split is None:
        return UNDECIDED, "no other GPU of its kind to compare it with"
    slow = float((spread.off[:, spread.split.gpu.tolist().index(code)] > limit).mean())
    verdict = INSPECT if slow >= SURE else KEEP if slow <= 1 - SURE else UNDECIDED
    shown = off if off.value >= 0 else off.scaled(-1)
    value, low, high = (fixed(100 * (end or 0.0), 2) for end in (shown.value, shown.low, shown.high))
    words = {
        INSPECT: f"more than the limit of {100 * limit:g} %",
        KEEP: f"within the limit of {100 * limit:g} %",
        UNDECIDED: f"which may or may not be within the limit of {100 * limit:g} %: more repeats would decide",
    }
    side = "slower" if off.value >= 0 else "faster"
    return verdict, f"{value} % ({low} to {high}) {side} than the median, {words[verdict]}"


def write_csv(found: Sequence[Action], simulated: bool, path: Path) -> None:
    """Write the actions for a spreadsheet; an older file of actions is replaced.

    Raises:
        BadInputError: If another file has that name, or it can't be written.
    """
    text = to_csv(found, simulated)
    check_replaceable(path, (text.partition("\n")[0],), "a table of actions")
    Store(str(path.parent)).write(path.name, text.encode())


def to_csv(found: Sequence[Action], simulated: bool) -> str:
    """The actions as CSV for a spreadsheet."""
    sink = StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    identity = ("action", "name", "serial", "host", "slot", "gpu")
    writer.writerow(["simulated", *identity, "slower_pct", "low_pct", "high_pct", "evidence"])
    for one in found:
        numbers = ["" if x is None else f"{100 * x:.4g}" for x in (one.slower, one.low, one.high)]
        words = csv_cells(map(printable, [one.action, one.name, one.serial, one.node, one.slot, one.gpu]))
        writer.writerow([str(simulated).lower(), *words, *numbers, *csv_cells([printable(one.evidence)])])
    return sink.getvalue()
