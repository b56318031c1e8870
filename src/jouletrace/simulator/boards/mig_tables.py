"""MIG profiles of real GPUs: the rows of ``nvidia-smi mig -lgip`` and ``-lgipp``.

They come from NVIDIA's MIG user guide and listings of real GPUs. A placement is a range of the eight
memory slices; placements of instances must not overlap. Memory differs by a few MiB between drivers.
"""

from __future__ import annotations

from typing import NamedTuple

from jouletrace.devices.mig import Placement, Profile


class _Kind(NamedTuple):
    """Properties that profiles of the same form share on all GPUs."""

    id: int
    slices: int
    total: int
    starts: tuple[int, ...]
    size: int


_KINDS = {
    "1g": _Kind(19, 1, 7, (0, 1, 2, 3, 4, 5, 6), 1),
    "1g+me": _Kind(20, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    "1g double": _Kind(15, 1, 4, (0, 2, 4, 6), 2),
    "2g": _Kind(14, 2, 3, (0, 2, 4), 2),
    "3g": _Kind(9, 3, 2, (0, 4), 4),
    "4g": _Kind(5, 4, 1, (0,), 4),
    "7g": _Kind(0, 7, 1, (0,), 8),
}

_Row = tuple[str, str, int, int, int, int, int, int]
"""Kind, name, memory in MiB, SMs, copy engines, decoders, JPEG decoders, optical flow units."""


def _a100(names: tuple[str, ...], memory: tuple[int, int, int, int]) -> tuple[_Row, ...]:
    one, two, four, eight = memory
    return (
        ("1g", names[0], one, 14, 1, 0, 0, 0),
        ("1g+me", names[0] + "+me", one, 14, 1, 1, 1, 1),
        ("1g double", names[1], two, 14, 1, 1, 0, 0),
        ("2g", names[2], two, 28, 2, 1, 0, 0),
        ("3g", names[3], four, 42, 3, 2, 0, 0),
        ("4g", names[4], four, 56, 4, 2, 0, 0),
        ("7g", names[5], eight, 98, 7, 5, 1, 1),
    )


def _hopper(names: tuple[str, ...], memory: tuple[int, int, int, int]) -> tuple[_Row, ...]:
    one, two, four, eight = memory
    return (
        ("1g", names[0], one, 16, 1, 1, 1, 0),
        ("1g+me", names[0] + "+me", one, 16, 1, 1, 1, 1),
        ("1g double", names[1], two, 26, 1, 1, 1, 0),
        ("2g", names[2], two, 32, 2, 2, 2, 0),
        ("3g", names[3], four, 60, 3, 3, 3, 0),
        ("4g", names[4], four, 64, 4, 4, 4, 0),
        ("7g", names[5], eight, 132, 8, 7, 7, 1),
    )


_ROWS: dict[str, tuple[_Row, ...]] = {
    "a100-40": _a100(
        ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"), (4864, 9856, 19968, 40192)
    ),
    "a100-80": _a100(
        ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"), (9728, 19968, 40448, 81152)
    ),
    "h100-80": _hopper(
        ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"), (9984, 20096, 40448, 81152)
    ),
    "h200-141": _hopper(
        ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"), (16384, 33280, 71168, 143104)
    ),
}  # fmt: skip

BOARD_SMS = {"a100-40": 108, "a100-80": 108, "h100-80": 132, "h200-141": 132}
"""SMs of the undivided GPU; with MIG on, an A100 loses ten of them."""

MEMORY_SLICES = 8

COMPUTE_SLICES = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}
"""Permitted compute slices of a compute instance, by the slices of its GPU instance."""

_COMPUTE_STARTS = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""A compute instance starts at a multiple of this."""


def profiles(preset: str) -> list[Profile]:
    """The profiles of a simulated GPU, ``free`` as on an undivided one; empty for a GPU without MIG."""
    found = []
    for kind, name, memory, sms, copy, decoders, jpeg, ofa in _ROWS.get(preset, ()):
        k = _KINDS[kind]
        places = tuple(Placement(start, k.size) for start in k.starts)
        found.append(
            Profile(name, k.id, k.slices, memory, sms, copy, decoders, 0, jpeg, ofa, False, k.total, k.total, places)
        )
    return found


def compute_placements(whole: int, slices: int) -> list[Placement]:
    """Possible placements of a compute instance of ``slices`` slices in a GPU instance of ``whole`` slices."""
    if slices not in COMPUTE_SLICES.get(whole, ()):
        return []
    step = _COMPUTE_STARTS[slices]
    return [Placement(start, slices) for start in range(0, whole - slices + 1, step)]
