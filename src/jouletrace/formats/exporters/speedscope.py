"""A profile for https://www.speedscope.app: stacks weighted by their energy."""

from __future__ import annotations

import json
from pathlib import Path

from jouletrace.formats.exporters.collapsed import stacks
from jouletrace.run import Run
from jouletrace.run.files import write_whole
from jouletrace.run.store import check_free
from jouletrace.version import __version__

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write(run: Run, path: Path | str) -> Path:
    """Write a sampled profile; weights are in millijoules, for which the format has no unit.

    Raises:
        BadInputError: If the path exists, or the Run has no energies.
    """
    target = check_free(path)
    found = stacks(run)
    frames = {name: i for i, name in enumerate(dict.fromkeys(name for names, _ in found for name in names))}
    weights = [1e3 * joules for _, joules in found]
    profile = {
        "type": "sampled",
        "name": f"{run.workload.get('name') or run.kind}: energy in mJ",
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [[frames[name] for name in names] for names, _ in found],
        "weights": weights,
    }
    document = {
        "$schema": SCHEMA,
        "exporter": f"jouletrace {__version__}",
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": [profile],
    }
    write_whole(target, json.dumps(document).encode())
    return target
