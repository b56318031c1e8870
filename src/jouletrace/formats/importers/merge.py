"""Several files as one Run: one clock, one set of devices, ids that don't collide, counters on their kernels."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.analysis.imported_recording import NO_COMMON_TIME
from jouletrace.analysis.monitor import MAY_COUNT_TWICE
from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import NO_CLOCK, RELATIVE, UNIX, ImportOptions, about
from jouletrace.formats.importers.columns import Coded, block, coded, join
from jouletrace.formats.importers.extent import TIMES, Extent, extent
from jouletrace.formats.importers.log import NAMELESS
from jouletrace.formats.importers.logged_twice import ANONYMOUS, leave_out_logged_twice
from jouletrace.formats.importers.power_sensor import describe_joined
from jouletrace.formats.importers.registry import importer
from jouletrace.formats.importers.stamps import zone_of
from jouletrace.formats.importers.window import cut
from jouletrace.run import MODEL_UNIT, DeviceInfo, Run, tables
from jouletrace.run.channels import POWER
from jouletrace.wing import kind_of

CORRELATIONS_OF_A_FILE = 1 << 52
"""Correlations reserved per file: more than any file has, over all its processes."""

_UNIT_COLUMNS = [
    *(("units", "id"), ("units", "parent"), ("divided", "unit"), ("divided", "site")),
    *((name, "unit") for name in ("spans", "windows", "results")),
]
_SPAN_COLUMNS = [("spans", "id"), ("spans", "parent"), ("counters", "span")]


def merge(runs: list[Run], paths: list[str], options: ImportOptions) -> Run:
    """One Run of the contents of all files, in the order of the files; Runs of one file each are consumed.

    A Run measured by jouletrace keeps its kind, and the others join it.

    Raises:
        BadInputError: If several files are such Runs, or state different figures of the whole.
    """
    measured = [path for run, path in zip(runs, paths, strict=True) if run.kind != "import"]
    if len(measured) > 1:
        raise BadInputError(f"{measured[0]} and {measured[1]} are both Runs: import joins others to one; see compare")
    _refuse_two_statements(runs, paths)
    _align(runs, paths, options)
    cut(runs, paths, options)
    _warn_of_gaps(runs, paths)
    order = sorted(range(len(runs)), key=lambda k: runs[k].kind == "import")
    runs, paths = [runs[k] for k in order], [paths[k] for k in order]
    _one_set_of_devices(runs)
    first = runs[0]
    if len(runs) > 1:
        _renumber(runs)
        _bring_counters(runs, paths)
        for kind in dict.fromkeys(filter(None, (kind_of(run.workload) for run in runs))):
            kind.join([run for run in runs if kind_of(run.workload) is kind])
        again = leave_out_logged_twice(runs, paths)
        _warn_of_two_meters(runs, paths)
        for name in tables.TABLES:
            setattr(first, name, join(name, [run.table(name) for run in runs if len(run.table(name))]))
        if again:  # parts of one record, in the order of time: a step back within it would be one of the clock
            first.samples = first.samples.sort_by("time_ns")
        first.units = _once(first.units)
        first.created_ns = _created_ns(runs)
        if all(run.workload.get("name") == Path(path).name for run, path in zip(runs, paths, strict=True)):
            first.workload["name"] = f"{Path(paths[0]).name} and {len(paths) - 1} more"
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
    describe_joined(first)
    return first


def _refuse_two_statements(runs: list[Run], paths: list[str]) -> None:
    """Refuse files that state different figures of the whole: there is no choosing.

    Raises:
        BadInputError: If there are two.
    """
    stated: dict[str, tuple[str, float]] = {}
    imported = ((run, path) for run, path in zip(runs, paths, strict=True) if run.kind == "import")
    for run, path in imported:
        for row in run.results.filter(pc.equal(run.results["unit"], MODEL_UNIT)).to_pylist():
            name, value = row["metric"], row["value"]
            if value is None:
                continue
            other, before = stated.setdefault(name, (path, value))
            if before != value:
                both = f"{other} and {path} state different figures of the whole ({name}: {before:.4g} and {value:.4g})"
                raise BadInputError(f"{both}: import each alone")


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
            if device.index is not None and not device.id.startswith(ANONYMOUS):
                by_index.setdefault(device.index, {})[device.id] = device
    ranks = {run.workload.get("rank") for run in runs if pc.any(pc.equal(run.spans["kind"], "kernel")).as_py()} - {None}
    elsewhere = {device.id for run in runs if about(run)["clock"] != NO_CLOCK for device in run.devices}
    hosts: dict[str, str] = {}
    for run in runs:
        if about(run)["clock"] == NO_CLOCK and len(run.devices) == len(elsewhere) == 1:
            _rename_devices(run, {run.devices[0].id: next(iter(elsewhere))})
            continue
        rank = run.workload.get("rank")
        new_ids: dict[str, str] = {}
        numbers = Counter(device.index for device in run.devices)
        for device in run.devices:
            if not device.id.startswith(ANONYMOUS) or device.index is None:
                continue
            known = [one for one in by_index.get(device.index, {}).values() if _may_be_one(device, one)]
            if len(ranks) > 1 and rank in ranks:
                new_ids[device.id] = f"{device.id}@rank{rank}"
            elif len(known) == 1 and numbers[device.index] == 1:  # GPUs of two nodes can't be distinguished by number
                new_ids[device.id] = known[0].id
            elif device.host and hosts.setdefault(device.id, device.host) != device.host:
                new_ids[device.id] = f"{device.id}@{device.host}"
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


def _warn_of_two_meters(runs: list[Run], paths: list[str]) -> None:
    """Say of the first two files that nothing distinguishes the device of one from that of the other."""
    meters = [
        (run, path, device)
        for run, path in zip(runs, paths, strict=True)
        for device in run.devices
        if run.channel(device.id, POWER) is not None
    ]
    for (run, path, device), (other, other_path, of_other) in combinations(meters, 2):
        if run is not other and not _differ(device, of_other) and extent(run).touches(extent(other)):
            text = f"{device.name} of {path} may be, or hold, what {of_other.name} of {other_path} is"
            runs[0].warn(MAY_COUNT_TWICE, f"{text}: they aren't added up; log the UUID in both, or import each alone")
            return


def _differ(one: DeviceInfo, other: DeviceInfo) -> bool:
    """True if ids, hosts, numbers or kinds of two devices say that they are two."""
    numbers = {one.index, other.index}
    return (
        one.id == other.id
        or not (one.id.startswith(ANONYMOUS) or other.id.startswith(ANONYMOUS))
        or bool(one.host and other.host and one.host != other.host)
        or (NAMELESS not in (one.name, other.name) and (one.kind != other.kind or len(numbers - {None}) == 2))
    )


def _may_be_one(anonymous: DeviceInfo, known: DeviceInfo) -> bool:
    """True if the names and hosts of two devices are compatible."""
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
        _replace(run, name, "device", column)


def _replace(run: Run, name: str, column: str, values: pa.ChunkedArray) -> None:
    """Put other values into a column of a Run's table."""
    table = run.table(name)
    setattr(run, name, table.set_column(table.schema.get_field_index(column), table.schema.field(column), values))


def _renumber(runs: list[Run]) -> None:
    """Number spans and units consecutively over all files; all files share the unit of the whole model.

    Correlations join within a file, so those of each file get a separate range.
    """
    spans = units = 0
    for k, run in enumerate(runs):
        _map(run, "spans", "correlation", k * CORRELATIONS_OF_A_FILE, keep=None)
        last_span, last_unit = pc.max(run.spans["id"]).as_py(), pc.max(run.units["id"]).as_py()
        for name, column in _SPAN_COLUMNS:
            _map(run, name, column, spans, keep=None)
        for name, column in _UNIT_COLUMNS:
            _map(run, name, column, units, keep=MODEL_UNIT)
        spans += 0 if last_span is None else last_span + 1
        units += 0 if last_unit is None else last_unit


def _map(run: Run, name: str, column: str, by: int, keep: int | None) -> None:
    table = run.table(name)
    if by == 0 or len(table) == 0:
        return
    old = table[column]
    new = pc.add(old, pa.scalar(by, pa.int64()))
    if keep is not None:
        new = pc.if_else(pc.equal(old, keep), old, new)
    _replace(run, name, column, new)


def _once(units: pa.Table) -> pa.Table:
    """Units that several files contain (the whole model) once: the first."""
    _, first = np.unique(units["id"].to_numpy(), return_index=True)
    return units.take(pa.array(np.sort(first))) if len(first) < len(units) else units


def _bring_counters(runs: list[Run], paths: list[str]) -> None:
    """Move counters of launches without times onto the kernels of the timeline among the files, if their format can.

    Launches that can't be distinguished, or that the timeline lacks, stay separate spans.
    """
    timelines = [run for run in runs if about(run)["clock"] != NO_CLOCK and len(run.spans)]
    kernels = join("spans", [run.spans for run in timelines])
    if not pc.any(pc.equal(kernels["kind"], "kernel")).as_py():
        return
    for run, path in zip(runs, paths, strict=True):
        if about(run)["clock"] != NO_CLOCK or len(run.counters) == 0:
            continue
        match_launches = getattr(importer(about(run)["format"]), "match_launches", None)
        if match_launches is None:
            continue
        rows, facts = match_launches(run.spans, kernels)
        about(run)["match"] = facts
        old = run.spans["id"].to_numpy()
        ids = kernels["id"].to_numpy()
        new = np.where(rows >= 0, ids[np.maximum(rows, 0)], old)
        spans = new[np.searchsorted(old, run.counters["span"].to_numpy())]
        _replace(run, "counters", "span", pa.array(spans))
        run.spans = run.spans.filter(pa.array(rows < 0))
        if facts["matched"] < facts["launches"]:
            message = (
                f"{facts['matched']} of {facts['launches']} launches were matched to kernels of the timeline; "
                f"{facts['ambiguous']} are ambiguous and {facts['unknown']} are not in it"
            )
            run.warn("counters_unmatched", message, Path(path).name)


def _shift(run: Run, by_ns: int) -> None:
    """Add to all times of a Run."""
    for name, columns in TIMES.items():
        for column in columns if by_ns else ():
            _replace(run, name, column, pc.add(run.table(name)[column], pa.scalar(by_ns, pa.int64())))
    if (kind := kind_of(run.workload)) is not None:
        kind.shift(run, by_ns)


def _align(runs: list[Run], paths: list[str], options: ImportOptions) -> None:
    """Align Runs of one file each to the clock of the first that has Unix time, and state how in each.

    Times since the Unix epoch stay unchanged. Times of day without a date are put on the day on which they
    overlap the reference. The first time of a file with another origin is aligned with the first time of the reference.
    That is a guess, with a warning unless an offset was given. Offsets are added last.
    """
    clocks = [about(run)["clock"] for run in runs]
    first = next((k for k, clock in enumerate(clocks) if clock == UNIX), None)
    if first is None:
        first = next((k for k, clock in enumerate(clocks) if clock == RELATIVE), 0)
    reference = extent(runs[first])
    for k, (run, path, clock) in enumerate(zip(runs, paths, clocks, strict=True)):
        said = "its times have an origin of their own" if clock == RELATIVE else "its times are Unix times"
        offset_s = _offset(k, path, len(runs), options)
        by_ns = 0
        if clock == NO_CLOCK:
            said = "it has no times"
        elif clock == RELATIVE and k != first:
            mine, midnight_ns = extent(run), None
            if clocks[first] == UNIX and "no_date" in {warning.code for warning in run.warnings}:
                midnight_ns = _midnight(mine, reference, options)
            if midnight_ns is not None:
                by_ns = midnight_ns
                said = f"its times of day were put on the day on which they overlap {Path(paths[first]).name}"
            elif mine.start_ns is not None and reference.start_ns is not None:
                by_ns = reference.start_ns - mine.start_ns
                said = f"its start was aligned with that of {Path(paths[first]).name}"
                if offset_s is None:
                    message = f"{said}, which is a guess: give --offset, or --offset 0 if it is right"
                    run.warn("clock_assumed", message, Path(path).name)
        if offset_s is not None and clock != NO_CLOCK:
            by_ns += round(offset_s * 1e9)
            said += f"; {offset_s:+g} s were added"
        _shift(run, by_ns)
        about(run)["aligned"] = said


def _midnight(daily: Extent, reference: Extent, options: ImportOptions) -> int | None:
    """The midnight since which times of day overlap Unix times; None without one."""
    if reference.start_ns is None:
        return None
    zone = zone_of(options.time_zone)
    day = datetime.fromtimestamp(reference.start_ns / 1e9, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    for days in (0, -1, 1):
        midnight_ns = round((day + timedelta(days)).timestamp()) * 10**9
        if daily.after(midnight_ns).touches(reference):
            return midnight_ns
    return None


def _warn_of_gaps(runs: list[Run], paths: list[str]) -> None:
    """Warn of a file that overlaps no other file in time."""
    extents = [extent(run) for run in runs]
    timed = [k for k, one in enumerate(extents) if one.start_ns is not None]
    for k in timed[: 1 if len(timed) == 2 else None]:  # for two files one line covers both
        # A later log of the same GPU continues its record: the hole between the two is stated as one.
        others = [extents[other] for other in timed if other != k and not _channels(runs[k]) & _channels(runs[other])]
        if others and not any(extents[k].touches(other) for other in others):
            message = (
                f"its times ({extents[k].said()}) don't overlap those of the other files "
                f"({', '.join(one.said() for one in others[:3])}): is its time zone or --offset right?"
            )
            runs[k].warn(NO_COMMON_TIME, message, Path(paths[k]).name)


def _channels(run: Run) -> set[tuple[str, str]]:
    return {(channel.device, channel.name) for channel in run.channels}


def _offset(k: int, path: str, n: int, options: ImportOptions) -> float | None:
    for key in (path, Path(path).name):
        if key in options.offsets_s:
            return options.offsets_s[key]
    return options.offset_s if k > 0 or n == 1 else None


def _created_ns(runs: list[Run]) -> int:
    """Begin of the imported content: the first time of all, or that of the files if they have no times."""
    starts = [extent(run).start_ns for run in runs if about(run)["clock"] == UNIX]
    return min((start for start in starts if start is not None), default=min(run.created_ns for run in runs))
