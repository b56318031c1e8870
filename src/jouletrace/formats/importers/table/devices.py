"""Which device each row of a table is of, by all columns that say something of it."""

from __future__ import annotations

from collections.abc import Sequence

from jouletrace.formats.importers.table.headings import HOST, INSTANCE, NUMBER, UUID
from jouletrace.run import DeviceInfo


class Devices:
    """The devices of a table, in order of appearance.

    A row is of another device if its host, its UUID, its number or its MIG instance is another.

    Args:
        columns: What says so, and in which column.
        name: Of all devices, as given by the user.
    """

    def __init__(self, columns: Sequence[tuple[str, int]], name: str | None) -> None:
        self._columns = columns
        self._name = name
        self._infos: dict[str, DeviceInfo] = {}
        self._ids: dict[tuple[str, ...], str] = {}

    def id(self, cells: Sequence[str], number: str = "") -> str:
        """Id of the device of a row; of the one with this number, where a row holds several."""
        key = (*(cells[column] for _, column in self._columns), number)
        if key not in self._ids:
            facts: dict[str, list[str]] = {role: [] for role in (HOST, UUID, NUMBER, INSTANCE)}
            for role, column in self._columns:
                facts[role].append(cells[column])
            self._ids[key] = self._add(
                "/".join(filter(None, facts[HOST])),
                "".join(facts[UUID]),
                number or "".join(facts[NUMBER]),
                "".join(facts[INSTANCE]),
            )
        return self._ids[key]

    def infos(self) -> list[DeviceInfo]:
        """All devices so far."""
        return list(self._infos.values())

    def _add(self, host: str, uuid: str, number: str, instance: str) -> str:
        known = uuid.upper().startswith(("GPU-", "MIG-"))
        index = int(number) if number.isdecimal() and len(number) < 5 else None
        if not (uuid or number or host):
            index = 0
        plain = uuid if known else f"imported:{uuid or number or (host if not instance else '') or 0}"
        id = f"{plain}/{instance}" if instance else plain
        there = self._infos.get(id)
        if there is not None and there.host != host:  # nodes number their GPUs alike
            id = f"{id}@{host}"
        if id not in self._infos:
            words = [f"device {number or uuid or host}" if (number or uuid or host) else "meter"]
            words += [f"of {host}"] if host and (number or uuid) else []
            words += [f"MIG {instance}"] if instance else []
            kind = "mig" if instance else "gpu" if index is not None or known else "meter"
            self._infos[id] = DeviceInfo(id, self._name or " ".join(words), kind=kind, host=host, index=index)
        return id
