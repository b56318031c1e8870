"""What a GPU is called: the same in tables, pages, files and lines about what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

Owner = tuple[str, str]
"""Host and UUID of a GPU."""


def gpu_names(gpus: Iterable[tuple[str, str, int | None]]) -> dict[Owner, str]:
    """Short names that no two have: a place on the one host, "GPU 3", or with the host where there are several.

    Args:
        gpus: Host, UUID and place on the host of each; one without a place is counted among those of its host.

    Returns:
        By host and UUID: "GPU 3", "node-1:3", or the UUID where places are taken twice.
    """
    places: dict[Owner, int | None] = {}
    for node, id, index in gpus:
        places[node, id] = index if index is not None else places.get((node, id))
    alone = len({node for node, _ in places}) < 2
    counted: Counter[str] = Counter()
    found: dict[Owner, str] = {}
    for (node, id), index in sorted(places.items(), key=lambda item: item[0]):
        number = counted[node] if index is None else index
        counted[node] += 1
        found[node, id] = f"GPU {number}" if alone else f"{node}:{number}"
    taken = Counter(found.values())
    return {owner: name if taken[name] == 1 else owner[1] for owner, name in found.items()}


def is_meant(ask: str, node: str, id: str, name: str) -> bool:
    """Whether a GPU may be called so: by its name, its place with its host or without, or a beginning of its UUID."""
    wanted = ask.strip().lower()
    place = name.lower().removeprefix("gpu ").rpartition(":")[2]
    return bool(wanted) and (
        wanted in (name.lower(), place, f"{node.lower()}:{place}") or id.lower().startswith(wanted)
    )
