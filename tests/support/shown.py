"""Parts of what is shown of a Run: its trust, its verdict, one of its facts."""

from __future__ import annotations

import json
from typing import Any

from jouletrace.analysis.facts import facts_of
from jouletrace.report import render
from jouletrace.report.contract import to_json_object
from jouletrace.report.tariffs import Tariff
from jouletrace.report.tree import TreeNode, tree
from jouletrace.run import Run
from jouletrace.run.parts import Parts

_WIDE = 1000


def trust_of(run: Run) -> dict[str, Any]:
    """The object "trust" of its JSON."""
    found: dict[str, Any] = to_json_object(run)["trust"]
    return found


def rows(found: dict[str, Any], division: str, *kinds: str) -> list[dict[str, Any]]:
    """Rows of a division of a JSON object whose last step is of one of these kinds; all without any."""
    own: list[dict[str, Any]] = found["parts"].get(division, [])
    return [row for row in own if not kinds or (row["path"] and row["path"][-1]["kind"] in kinds)]


def name_of(row: dict[str, Any], kind: str = "") -> str | None:
    """The name of a row's step of a kind, or of its last step; None without one."""
    return next((str(step["name"]) for step in reversed(row["path"]) if kind in ("", step["kind"])), None)


def leaves(found: dict[str, Any], division: str) -> list[dict[str, Any]]:
    """Rows of a division below which there are no others, so that each joule occurs once among them."""
    own = rows(found, division)
    paths = [row["path"] for row in own]
    above = {json.dumps(path[:n]) for path in paths for n in range(len(path))}
    return [row for row in own if json.dumps(row["path"]) not in above]


def failed_of(run: Run, code: str) -> list[dict[str, Any]]:
    """Entries of a code among the checks that failed."""
    return [one for one in trust_of(run)["failed"] if one["code"] == code]


def verdict_of(run: Run, tariff: Tariff | None = None) -> list[str]:
    """Lines of its verdict, how far to trust it included."""
    blocks = render([run], width=_WIDE, tariff=tariff).replace("\u00a0", " ").split("\n\n")
    (lines,) = [lines for block in blocks if any(map(_of_trust, lines := block.splitlines()))]
    return lines


def headline_of(run: Run) -> str:
    """The line that says how far to trust it."""
    return next(filter(_of_trust, verdict_of(run)))


def fact_of(run: Run, name: str) -> str | None:
    """The line below its tables that begins with that name; None without one."""
    lines = render([run], width=_WIDE, verbose=True).replace("\u00a0", " ").splitlines()
    return next((line.removeprefix(name).strip() for line in lines if line.startswith(f"{name}  ")), None)


def methods_of(run: Run) -> str:
    """The paragraph of methods, as Markdown has it."""
    return render([run], "markdown").replace("\u00a0", " ").replace("\\", "")


def nodes_of(run: Run) -> list[TreeNode]:
    """Where its energy and time go, as its page draws it."""
    parts = Parts(run)
    return tree(run, parts, facts_of(run, parts).together)


def _of_trust(line: str) -> bool:
    return line.startswith(("trust: ", "no figure"))
