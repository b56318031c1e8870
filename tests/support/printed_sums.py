"""Tables of parts as a terminal prints them, and how far their rows are from making up the row above."""

import re

from jouletrace.report import render
from jouletrace.run.parts import Parts

TABLES = {"layer": "Layers|Ranges and modules", "kernel": "Operators and kernels", "phase": "Phases"}
OPTIONS = ({}, {"verbose": True}, {"top": 3})

_WIDE = 400
_UNITS = {"kJ": 1e3, "J": 1.0, "mJ": 1e-3, "µJ": 1e-6}
_NUMBER = re.compile(r"−?\d+(?:\.(\d+))?")


def number_of(text, factor):
    """A printed number and half of its last digit, in J; None for a dash or nothing."""
    found = _NUMBER.match(text.strip())
    if found is None:
        return None
    return float(found[0].replace("−", "-")) * factor, 0.5 * 10.0 ** -len(found[1] or "") * factor


def headline_of(text):
    """The energy that a verdict states first, with half of its last digit, in J; None without one."""
    found = re.search(rf"(?:^|= )({_NUMBER.pattern})(?: ±[^a-z]*| \([^)]*\))? (kJ|mJ|µJ|J)\b", text, re.M)
    return None if found is None else number_of(found[1], _UNITS[found[3]])


def rows_of(text, title):
    """Rows of a printed table: device, depth, label and energy with half of its last digit."""
    lines = text.replace("\u00a0", " ").splitlines()
    start = next(n for n, line in enumerate(lines) if re.match(title, line))
    rule = next(n for n in range(start, len(lines)) if set(lines[n].strip()) == {"─"})
    head = lines[rule - 1]
    energy = re.search(r"energy \((kJ|mJ|µJ|J)\)", head)
    if energy is None:
        return []
    names = list(re.finditer(r"\S+(?: \S+)*", head))
    column = next(
        n for n, one in enumerate(names) if one.start() == energy.start() or energy.start() in range(*one.span())
    )
    device = names[0][0] == "device"
    label_at = names[1].start() if device else 0
    found = []
    for line in lines[rule + 1 :]:
        if not line.strip() or line.startswith(("[", "all rows", "more:", "–:")):
            break
        label = line[label_at:]
        depth = (len(label) - len(label.lstrip())) // 2
        cell = line[names[column - 1].end() : energy.end()]
        gpu = line[:label_at].strip() if device else ""
        found.append((gpu, depth, re.split(r"  +", label.strip())[0], number_of(cell, _UNITS[energy[1]])))
    return found


def gaps(rows, wholes):
    """Rows whose printed parts don't make them up: label, what is printed, its parts' sum, and the rounding of both.

    Args:
        rows: Those of ``rows_of``.
        wholes: By device, what the outermost rows make up.
    """
    wrong = []
    for gpu, whole in wholes.items():
        own = [(-1, "whole", whole)] + [row[1:] for row in rows if row[0] == gpu]
        for n, (depth, label, energy) in enumerate(own):
            inside = []
            for inner, _, one in own[n + 1 :]:
                if inner <= depth:
                    break
                if inner == depth + 1 and one is not None:
                    inside.append(one)
            if inside and energy is not None:
                total, slack = (sum(column) for column in zip(*inside, strict=True))
                if abs(total - energy[0]) > slack + energy[1] + 1e-9 * abs(energy[0]):
                    wrong.append((gpu, label, energy[0], total, slack + energy[1]))
    return wrong


def wholes_of(run, text):
    """Energies that outermost rows make up, by device: that of the verdict, or of each GPU of several."""
    results = Parts(run)
    if not results.gpus:
        return {"": headline_of(text)}
    return {name: (part.get("energy_total_j").value, 0.0) for name, part in results.gpus.items()}


def wrong_sums(run, level, title, **options):
    """Rows of a level of a Run whose printed parts don't make them up."""
    text = render([run], detail=level, width=_WIDE, **options).replace("\u00a0", " ")
    if not re.search(title, text, re.M):
        return []
    return gaps(rows_of(text, title), wholes_of(run, text))


def sums_of(run):
    """Rows of all tables of a Run that divide its whole whose printed parts don't make them up.

    A list of modules that contain one another divides nothing.
    """
    parts, wrong = Parts(run), []
    for level in (level for level in TABLES if parts.units(level)):
        ids = {one.id for one in parts.units(level)}
        nested = level == "layer" and any(one.parent in ids for one in parts.units(level))
        for options in OPTIONS:
            if not (nested and "top" in options):
                wrong += wrong_sums(run, level, TABLES[level], **options)
    return wrong
