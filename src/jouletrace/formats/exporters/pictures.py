"""Pictures: the power within an iteration as SVG, and stacks of energies for flame graphs."""

from __future__ import annotations

import json
from pathlib import Path

from jouletrace.analysis.facts import facts_of
from jouletrace.errors import BadInputError
from jouletrace.formats.exporters.output import new_file
from jouletrace.report.tree import tree, widths
from jouletrace.report.waveform import picture
from jouletrace.run import Run
from jouletrace.run.parts import Parts
from jouletrace.run.paths import Path as Steps
from jouletrace.version import __version__
from jouletrace.words.text import printable


def write_svg(run: Run, path: Path | str) -> Path:
    """Draw the power within an iteration above its kernels: the picture of the HTML report.

    Raises:
        BadInputError: If the Run has none, or the path exists already or can't be written.
    """
    with new_file(path) as file:
        drawn = picture(run)
        if drawn is None:
            own = "--format collapsed draws where the energy of a program went"
            instead = own if run.kind == "program" else "profile with --detail kernel or layer"
            raise BadInputError(f"this Run holds no power within an iteration: {instead}")
        file.write(drawn[0].encode())
    return Path(path)


def write_collapsed(run: Run, path: Path | str) -> Path:
    """Write ``train.py;forward;layer1;conv 12345`` for each part: microjoules without what its own parts take.

    flamegraph.pl, speedscope and inferno read it.

    Raises:
        BadInputError: If the path exists, or the Run has no energies.
    """
    with new_file(path) as file:
        for names, joules in _stacks(run):
            words = (
                printable(" ".join(name.replace(";", ":").split())) for name in names
            )  # without what separates stacks
            file.write(f"{';'.join(words)} {round(1e6 * joules)}\n".encode())
    return Path(path)


def write_speedscope(run: Run, path: Path | str) -> Path:
    """Write a sampled profile for https://www.speedscope.app; weights are millijoules, for which it has no unit.

    Raises:
        BadInputError: If the path exists, or the Run has no energies.
    """
    with new_file(path) as file:
        found = _stacks(run)
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
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": f"jouletrace {__version__}",
            "shared": {"frames": [{"name": name} for name in frames]},
            "profiles": [profile],
        }
        file.write(json.dumps(document).encode())
    return Path(path)


def _stacks(run: Run) -> list[tuple[list[str], float]]:
    """Names from the whole inwards, and joules of a part less those of its own parts; nothing below 0.5 µJ.

    A part takes at least what its own parts take together, as the page draws it: the stacks sum to the whole, and to
    more only by what parts come to beyond what is around them.

    Raises:
        BadInputError: If the Run has no energies.
    """
    parts = Parts(run)
    nodes = tree(run, parts, facts_of(run, parts).together)
    own: dict[Steps, float] = {(): 0.0}
    names: dict[Steps, list[str]] = {(): []}
    for node, joules in zip(nodes, widths(nodes, "energy"), strict=True):
        names[node.path] = [*names[node.parent], node.label]
        own[node.path] = joules
        own[node.parent] -= joules
    found = [(names[node.path], own[node.path]) for node in nodes if own[node.path] >= 5e-7]
    if not found:
        raise BadInputError("this Run has no energies to draw as stacks")
    return found
