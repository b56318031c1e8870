"""Several files as one Run: one clock, one set of devices, ids that don't collide, counters on their kernels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import NO_CLOCK, ImportOptions, about
from jouletrace.formats.importers.clock import align, created_ns, warn_of_gaps
from jouletrace.formats.importers.columns import Coded, block, coded, join
from jouletrace.formats.importers.ncu.match import match_launches
from jouletrace.run import MODEL_UNIT, DeviceInfo, Run, tables
from jouletrace.run.forms import Load

_ANONYMOUS = "imported:"
"""Prefix of the ids of devices whose UUID the file doesn't report; the number follows."""

CORRELATIONS_OF_A_FILE = 1 << 52
"""Correlations reserved per file: more than any file has, over all its processes."""

_UNIT_COLUMNS = {"spans": ("unit",), "units": ("id", "parent"), "windows": ("unit",), "results": ("unit",)}
_SPAN_COLUMNS = {"spans": ("id", "parent"), "counters": ("span",)}


def merge(runs: list[Run], paths: list[str], options: ImportOptions) -> Run:
    """One Run of the contents of all files, in the order of the files.

    Args:
        runs: One per file, from its importer; they are consumed.
        paths: Path of each file.
        options: Source of the offsets.

    A Run measured by jouletrace keeps its kind, and the others join it.

    Raises:
        BadInputError: If several files are such Runs.
    """
    measured = [path for run, path in zip(runs, paths, strict=True) if run.kind != "import"]
    if len(measured) > 1:
        raise BadInputError(f"{measured[0]} and {measured[1]} are both Runs: import joins others to one; see compare")
    align(runs, paths, options)
    warn_of_gaps(runs, paths)
    order = sorted(range(len(runs)), key=lambda k: runs[k].kind == "import")
    runs, paths = [runs[k] for k in order], [paths[k] for k in order]
    _one_set_of_devices(runs)
    first = runs[0]
    if len(runs) > 1:
        _renumber(runs)
        _bring_counters(runs, paths)
        _join_loads(runs)
        for name in tables.TABLES:
            setattr(first, name, join(name, [run.table(name) for run in runs if len(run.table(name))]))
        first.units = _once(first.units)
        first.created_ns = created_ns(runs)
    if options.latency_s is not None:
        first.settings["latency_s"] = options.latency_s
    for run in runs[1:]:
        first.settings["imported"].append(about(run))
        first.workload = {**run.workload, **first.workload}
        first.versions = {**run.versions, **first.versions}
        first.environment = {**run.environment, **first.environment}
        _add_devices(first, run)
        first.channels += [c for c in run.channels if first.channel(c.device, c.name) is None]
        first.warnings += [warning for warning in run.warnings if warning not in first.warnings]
    return first


def _one_set_of_devices(runs: list[Run]) -> None:
    """Give the same GPU the same id in every file, and GPUs of different ranks different ids.

    A file without UUIDs names its devices by number: they become the GPU with that number in another
    file, if only one has it. Two traces of different ranks may both give their
    own GPU the same number. Counters, which have no times, belong to the program in the other files: if
    they contain one device and the other files contain one, both are the same, whatever their numbers.
    """
    by_index: dict[int, dict[str, DeviceInfo]] = {}
    for run in runs:
        for device in run.devices:
            if device.index is not None and not device.id.startswith(_ANONYMOUS):
                by_index.setdefault(device.index, {})[device.id] = device
    ranks = {run.workload.get("rank") for run in runs if pc.any(pc.equal(run.spans["kind"], "kernel")).as_py()} - {None}
    elsewhere = {device.id for run in runs if about(run)["clock"] != NO_CLOCK for device in run.devices}
    for run in runs:
        if about(run)["clock"] == NO_CLOCK and len(run.devices) == len(elsewhere) == 1:
            _rename_devices(run, {run.devices[0].id: next(iter(elsewhere))})
            continue
        rank = run.workload.get("rank")
        new_ids: dict[str, str] = {}
        numbers = Counter(device.index for device in run.devices)
        for device in run.devices:
            if not device.id.startswith(_ANONYMOUS) or device.index is None:
                continue
            known = [one for one in by_index.get(device.index, {}).values() if _may_be_one(device, one)]
            if len(ranks) > 1 and rank in ranks:
                new_ids[device.id] = f"{device.id}@rank{rank}"
            elif len(known) == 1 and numbers[device.index] == 1:  # GPUs of two nodes can't be distinguished by number
                new_ids[device.id] = known[0].id
        _rename_devices(run, new_ids)
        if new_ids:
            about(run)["devices"] = new_ids


def _add_devices(first: Run, run: Run) -> None:
    """Add devices of another file; for a known device, add the facts that only this file has."""
    known = {device.id: device for device in first.devices}
    for device in run.devices:
        if device.id in known:
            known[device.id].details = {**device.details, **known[device.id].details}
        elif device.id not in _without_rows(run):
            first.devices.append(device)


def _without_rows(run: Run) -> set[str]:
    """Devices of a counter file whose launches were all matched to kernels of another file's device."""
    if "match" not in about(run):
        return set()
    return {device.id for device in run.devices} - set(run.spans["device"].unique().to_pylist())


def _may_be_one(anonymous: DeviceInfo, known: DeviceInfo) -> bool:
    """Whether the names and hosts of two devices are compatible."""
    if anonymous.host and known.host and anonymous.host != known.host:
        return False
    return anonymous.name in (known.name, f"device {anonymous.index}")


def _rename_devices(run: Run, new_ids: dict[str, str]) -> None:
    if not new_ids:
        return
    for device in run.devices:
        device.id = new_ids.get(device.id, device.id)
    for channel in run.channels:
        channel.device = new_ids.get(channel.device, channel.device)
    for name in ("spans", "samples"):
        table = run.table(name)
        if len(table) == 0:
            continue
        codes, texts = tables.decoded(table["device"])
        named = coded([new_ids.get(text, text) for text in texts])
        column = block(name, len(table), device=Coded(np.append(named.codes, -1)[codes], named.values))["device"]
        setattr(
            run, name, table.set_column(table.schema.get_field_index("device"), table.schema.field("device"), column)
        )


def _renumber(runs: list[Run]) -> None:
    """Number spans and units consecutively over all files; all files share the unit of the whole model.

    Correlations join within a file, so those of each file get a separate range.
    """
    spans = units = 0
    for k, run in enumerate(runs):
        _map(run, "spans", "correlation", k * CORRELATIONS_OF_A_FILE, keep=None)
        last_span, last_unit = pc.max(run.spans["id"]).as_py(), pc.max(run.units["id"]).as_py()
        for name, columns in _SPAN_COLUMNS.items():
            for column in columns:
                _map(run, name, column, spans, keep=None)
        for name, columns in _UNIT_COLUMNS.items():
            for column in columns:
                _map(run, name, column, units, keep=MODEL_UNIT)
        spans += 0 if last_span is None else last_span + 1
        units += 0 if last_unit is None else last_unit


def _join_loads(runs: list[Run]) -> None:
    """Number the loads of all files consecutively; the first file that stays has them all."""
    there = [run for run in runs if "serving" in run.workload]
    levels: list[Load] = []
    for run in there:
        _map(run, "requests", "level", len(levels), keep=None)
        levels += run.workload["serving"]["levels"]
    if there:
        runs[0].workload["serving"] = {**there[0].workload["serving"], "levels": levels}


def _map(run: Run, name: str, column: str, by: int, keep: int | None) -> None:
    table = run.table(name)
    if by == 0 or len(table) == 0:
        return
    old = table[column]
    new = pc.add(old, pa.scalar(by, pa.int64()))
    if keep is not None:
        new = pc.if_else(pc.equal(old, keep), old, new)
    setattr(run, name, table.set_column(table.schema.get_field_index(column), table.schema.field(column), new))


def _once(units: pa.Table) -> pa.Table:
    """Units that several files contain (the whole model) once: the first."""
    _, first = np.unique(units["id"].to_numpy(), return_index=True)
    return units.take(pa.array(np.sort(first))) if len(first) < len(units) else units


def _bring_counters(runs: list[Run], paths: list[str]) -> None:
    """Move counters of launches without times onto the kernels of the timeline among the files.

    Launches that can't be distinguished, or that the timeline lacks, stay separate spans.
    """
    timelines = [run for run in runs if about(run)["clock"] != NO_CLOCK and len(run.spans)]
    kernels = join("spans", [run.spans for run in timelines])
    if not pc.any(pc.equal(kernels["kind"], "kernel")).as_py():
        return
    for run, path in zip(runs, paths, strict=True):
        if about(run)["clock"] != NO_CLOCK or len(run.counters) == 0:
            continue
        matching = match_launches(run.spans, kernels)
        facts = about(run)["match"] = matching.facts()
        old = run.spans["id"].to_numpy()
        ids = kernels["id"].to_numpy()
        new = np.where(matching.rows >= 0, ids[np.maximum(matching.rows, 0)], old)
        spans = new[np.searchsorted(old, run.counters["span"].to_numpy())]
        run.counters = run.counters.set_column(0, run.counters.schema.field("span"), pa.array(spans))
        run.spans = run.spans.filter(pa.array(matching.rows < 0))
        if facts["matched"] < facts["launches"]:
            message = (
                f"{facts['matched']} of {facts['launches']} launches were matched to kernels of the timeline; "
                f"{matching.ambiguous} are ambiguous and {matching.unknown} are not in it"
            )
            run.warn("counters_unmatched", message, Path(path).name)
