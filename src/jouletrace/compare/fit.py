"""Whether two sides were run alike, and what to say where they weren't."""

from __future__ import annotations

from collections.abc import Sequence

from jouletrace.compare.sides import Source, boards, items

_SAID = {
    "name": "workload",
    "task": "task",
    "batch": "batch",
    "seq_len": "sequence length",
    "dtype": "dtype",
    "mode": "mode",
    "weights": "weights",
}

_SETTINGS = {"l2": "L2 cache", "detail": "detail"}


def differences(a: Sequence[Source], b: Sequence[Source]) -> tuple[list[str], tuple[float, float]]:
    """What differs in how the sides were run, and what their figures are multiplied by to be of the same work.

    Where iterations hold different numbers of samples, time and energy are compared per sample.
    """
    one, other = a[0].run, b[0].run
    notes = []
    for key, word in _SAID.items():
        first, second = one.workload.get(key), other.workload.get(key)
        if first != second:
            notes.append(f"{word} differs: {_said(first)} in A, {_said(second)} in B")
    for key, word in _SETTINGS.items():
        first, second = one.settings.get(key), other.settings.get(key)
        if first != second:
            notes.append(f"{word} differs: {_said(first)} in A, {_said(second)} in B")
    scale = (1.0, 1.0)
    if items(a) != items(b):
        scale = (1 / items(a), 1 / items(b))
        notes.append("times back to back and energies are compared per sample, latency per iteration")
    notes += _of_boards(a, b)
    for key in ("jouletrace", "torch", "cuda"):
        first, second = one.versions.get(key), other.versions.get(key)
        if first != second:
            notes.append(f"{key} differs: {_said(first)} in A, {_said(second)} in B")
    return notes, scale


def warnings(a: Sequence[Source], b: Sequence[Source]) -> list[str]:
    """What the runs themselves warn of, each once, with its side."""
    found: dict[str, None] = {}
    for name, side in (("A", a), ("B", b)):
        for source in side:
            for warning in source.run.warnings:
                found[f"{name}: {warning.message}"] = None
    return list(found)


def _of_boards(a: Sequence[Source], b: Sequence[Source]) -> list[str]:
    notes = []
    first, second = boards(a), boards(b)
    if set(first) != set(second):
        notes.append(f"boards differ: {', '.join(first) or 'none'} in A, {', '.join(second) or 'none'} in B")
    for attribute, word in (("driver", "driver"), ("power_limit_w", "power limit")):
        values = [{getattr(device, attribute) for device in side.values()} for side in (first, second)]
        if values[0] != values[1]:
            said = [", ".join(sorted(map(_said, value))) for value in values]
            notes.append(f"{word} differs: {said[0]} in A, {said[1]} in B")
    return notes


def _said(value: object) -> str:
    return "not stated" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
