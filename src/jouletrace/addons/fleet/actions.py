"""What to do with each GPU: inspect, keep, or not known yet; with the evidence."""

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
from jouletrace.addons.fleet.store import FolderStore
from jouletrace.report.document import printable
from jouletrace.report.scale import fixed
from jouletrace.run.files import check_replaceable
from jouletrace.spreadsheets import csv_cells

INSPECT, KEEP, UNDECIDED = "inspect", "keep", "undecided"
LIMIT = 0.03
"""Relative slowness that is worth a look, by default."""

SURE = 0.975
_HARDWARE = 0.01
"""Share of time slowed down by hardware from which on it is evidence."""

_LOST = ("vanished", "lost_gpu", "lost_node", "timed_out")


@dataclass(frozen=True)
class Action:
    """What to do with one GPU.

    Attributes:
        node, gpu: Host and UUID.
        name: What the report calls it.
        serial, slot: To find it by: serial number and PCI bus; "" where the driver doesn't tell.
        action: "inspect", "keep" or "undecided".
        evidence: Why.
        slower, low, high: Relative to the median of its group, with interval; None where not measured.
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
    """What to do with every GPU of a fleet, those to inspect first.

    A GPU is to be inspected if it is slower than the median of its group by more than ``limit``, with a probability
    of 97.5 % at least, if its hardware slowed it down, or if it fell off while it was measured.

    Args:
        fleet: The results.
        found: What is known of its groups.
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
    found = []
    off = None
    if spread.split is not None and len(spread.split.means) > 1 and not spread.alike:
        off = spread.draws / np.median(spread.draws, axis=1)[:, None] - 1
    place = {place.gpu: place for place in spread.places}
    for code, gpu in enumerate(group.gpus):
        one = place.get(code)
        evidence: list[str] = []
        verdict = UNDECIDED
        if one is not None and off is not None and spread.split is not None:
            slow = float((off[:, spread.split.gpu.tolist().index(code)] > limit).mean())
            verdict = INSPECT if slow >= SURE else KEEP if slow <= 1 - SURE else UNDECIDED
            evidence.append(_slowness(one.off.value, one.off.low, one.off.high, verdict, limit))
        else:
            waits = "GPUs wait for one another in every call: times tell nothing of one of them"
            evidence.append(waits if spread.alike else "nothing of its kind to hold it against")
        mine = group.runs["gpu"] == code
        slowed = group.runs["hardware_share"][mine]
        if np.isfinite(slowed).any() and float(np.nanmax(slowed)) > _HARDWARE:
            verdict = INSPECT
            evidence.append(
                f"slowed down by its hardware for {100 * float(np.nanmax(slowed)):.0f} % of the time in a run"
            )
        lost = [f for f in failures if (f.get("node"), f.get("gpu")) == (gpu.node, gpu.id) and f.get("reason") in _LOST]
        if lost:
            verdict = INSPECT
            evidence.append(f"{len(lost)} runs broke off: {lost[0].get('text', '')}")
        estimate = one.off if one is not None else None
        ends = (estimate.value, estimate.low, estimate.high) if estimate is not None else (None, None, None)
        serial, slot = (str(gpu.facts.get(name) or "") for name in ("serial", "pci_bus"))
        found.append(Action(gpu.node, gpu.id, gpu.label, serial, slot, verdict, "; ".join(evidence), *ends))
    return found


def _slowness(off: float | None, low: float | None, high: float | None, verdict: str, limit: float) -> str:
    if off is None or low is None or high is None:
        return "nothing of its kind to hold it against"
    word = "slower"
    if off < 0:
        word, off, low, high = "faster", -off, -high, -low
    numbers = f"{fixed(100 * off, 2)} % ({fixed(100 * low, 2)} to {fixed(100 * high, 2)}) {word} than the median"
    words = {
        INSPECT: f"more than the limit of {100 * limit:g} %",
        KEEP: f"within the limit of {100 * limit:g} %",
        UNDECIDED: f"which may or may not be within the limit of {100 * limit:g} %: more repeats would tell",
    }
    return f"{numbers}, {words[verdict]}"


def write_csv(found: Sequence[Action], simulated: bool, path: Path) -> None:
    """Write the actions for a spreadsheet; an older file of such is replaced.

    Raises:
        BadInputError: If another file is there, or it can't be written.
    """
    text = to_csv(found, simulated)
    check_replaceable(path, (text.partition("\n")[0],), "a table of actions")
    FolderStore(str(path.parent)).write(path.name, text.encode())


def to_csv(found: Sequence[Action], simulated: bool) -> str:
    """The actions for a spreadsheet."""
    sink = StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    names = [
        "simulated",
        "action",
        "name",
        "serial",
        "host",
        "slot",
        "gpu",
        "slower_pct",
        "low_pct",
        "high_pct",
        "evidence",
    ]
    writer.writerow(names)
    for one in found:
        numbers = ["" if x is None else f"{100 * x:.4g}" for x in (one.slower, one.low, one.high)]
        words = csv_cells(map(printable, [one.action, one.name, one.serial, one.node, one.slot, one.gpu]))
        writer.writerow([str(simulated).lower(), *words, *numbers, *csv_cells([printable(one.evidence)])])
    return sink.getvalue()
