"""Names of GPUs, the same in tables, pages and messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import count

Owner = tuple[str, str]
"""Host and UUID of a GPU."""


def gpu_names(gpus: Iterable[tuple[str, str, int | None]]) -> dict[Owner, str]:
    """Short unique names: the place on a single host, "GPU 3", or with the host where there are several.

    Args:
        gpus: Host, UUID and place on the host of each; one without a place takes the first free number there.

    Returns:
        Names by host and UUID: "GPU 3", "node-1:3", or the UUID where places are ambiguous.
    """
    places: dict[Owner, int | None] = {}
    for node, id, index in gpus:
        places[node, id] = index if index is not None else places.get((node, id))
    alone = len({node for node, _ in places}) < 2
    placed = {(node, index) for (node, _), index in places.items()}
    free = {node: (n for n in count() if (node, n) not in placed) for node, _ in places}
    found: dict[Owner, str] = {}
    for (node, id), index in sorted(places.items(), key=lambda item: item[0]):
        number = next(free[node]) if index is None else index
        found[node, id] = f"GPU {number}" if alone else f"{node}:{number}"
    taken = Counter(found.values())
    return {owner: name if taken[name] == 1 else owner[1] for owner, name in found.items()}


def is_meant(ask: str, node: str, id: str, name: str) -> bool:
    """Whether a text names a GPU: its name, its place with or without the host, or a beginning of its UUID."""
    wanted = ask.strip().lower().replace("gpu ", "")
    place = name.lower().removeprefix("gpu ").rpartition(":")[2]
    return bool(wanted) and (wanted in (place, f"{node.lower()}:{place}") or id.lower().startswith(wanted))
