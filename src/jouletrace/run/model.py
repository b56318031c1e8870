"""The Run: everything known about one measurement, as plain data.

A live profile, an imported report, a recorded run and a run on a simulated GPU have the same form from here on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa

from jouletrace import higher
from jouletrace.arrays import Floats, Ints
from jouletrace.errors import BadInputError, unknown
from jouletrace.run import tables
from jouletrace.run.channel_file import ChannelFile
from jouletrace.run.channels import CHANNEL_UNITS
from jouletrace.run.estimate import Estimate
from jouletrace.run.forms import Calibration, Settings, StoredFigures, WorkloadFacts
from jouletrace.run.frames import to_pandas
from jouletrace.run.info import ChannelInfo, DeviceInfo, RunWarning
from jouletrace.run.lazily import compute as pc
from jouletrace.run.metrics import METRICS
from jouletrace.run.shown import Shown

T = TypeVar("T")
Held: TypeAlias = pa.Table | ChannelFile

MODEL_UNIT = 0
"""Id of the unit that stands for the whole model (or the whole recording)."""

_FEW = 3
"""Metrics that are named where there is none of a name."""


@dataclass(repr=False)
class Run(Shown):
    """One measurement: the workload, the devices, the sensor readings and the figures.

    Attributes:
        id: Identifies this measurement, in every copy and every later analysis of it; "" in Runs of older versions.
        kind: "profile", "monitor", "measure", "record", "program", "calibrate", "bench" or "import".
        created_ns: When it began, in nanoseconds since the Unix epoch.
        command: The command line, or the Python call, that created it.
        workload: What was run: name, task, batch, dtype, mode, origin of weights, ...
        settings: Every option in force, defaults included.
        devices: The devices that were recorded.
        channels: The channels that occur in ``samples``.
        calibration: By device id and channel, the results of ``calibrate`` (see ``sensor.calibration.response``).
        stored: Figures taken from an earlier measurement of the same GPU, each with its age.
        versions: Versions of jouletrace, Python, torch, driver, CUDA, ...
        environment: Environment variables that can change the result.
        clock_pairs: ``{"time_ns", "monotonic_ns"}`` at start and end, which reveal a step of the clock.
        recorder: The recorder's own cost: "cpu_s", "wall_s", "samples".
        complete: False while recording and after an interruption.
        warnings: Known problems that affect this Run.
        samples, recent, extremes, counters, activity, waveform, requests, steps: See ``run.tables``.
        spans, units, windows, results, divided, powers, errors: Likewise.
    """

    id: str = field(default_factory=lambda: uuid4().hex)
    kind: str = "profile"
    created_ns: int = 0
    command: str = ""
    workload: WorkloadFacts = field(default_factory=WorkloadFacts)
    settings: Settings = field(default_factory=Settings)
    devices: list[DeviceInfo] = field(default_factory=list)
    channels: list[ChannelInfo] = field(default_factory=list)
    calibration: dict[str, Calibration] = field(default_factory=dict)
    stored: StoredFigures = field(default_factory=StoredFigures)
    versions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    clock_pairs: list[dict[str, int]] = field(default_factory=list)
    recorder: dict[str, float] = field(default_factory=dict)
    complete: bool = True
    warnings: list[RunWarning] = field(default_factory=list)
    samples: pa.Table = field(default_factory=lambda: tables.empty("samples"))
    recent: pa.Table = field(default_factory=lambda: tables.empty("recent"))
    extremes: pa.Table = field(default_factory=lambda: tables.empty("extremes"))
    spans: pa.Table = field(default_factory=lambda: tables.empty("spans"))
    units: pa.Table = field(default_factory=lambda: tables.empty("units"))
    windows: pa.Table = field(default_factory=lambda: tables.empty("windows"))
    results: pa.Table = field(default_factory=lambda: tables.empty("results"))
    counters: pa.Table = field(default_factory=lambda: tables.empty("counters"))
    activity: pa.Table = field(default_factory=lambda: tables.empty("activity"))
    waveform: pa.Table = field(default_factory=lambda: tables.empty("waveform"))
    requests: pa.Table = field(default_factory=lambda: tables.empty("requests"))
    steps: pa.Table = field(default_factory=lambda: tables.empty("steps"))
    divided: pa.Table = field(default_factory=lambda: tables.empty("divided"))
    powers: pa.Table = field(default_factory=lambda: tables.empty("powers"))
    errors: pa.Table = field(default_factory=lambda: tables.empty("errors"))
    _kept: dict[str, tuple[Held, dict[Hashable, Any]]] = field(default_factory=dict, init=False, compare=False)
    _files: dict[str, ChannelFile] = field(default_factory=dict, init=False, compare=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A table that is in its file, all of it; other names that aren't there."""
            file = self.__dict__.get("_files", {}).get(name)
            if file is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return file.table

    def __repr__(self) -> str:
        """A summary in one line; ``print`` shows the figures."""
        name = self.workload.get("name") or self.command
        rows = ", ".join(f"{len(held(self, table))} {table}" for table in ("units", "windows", "samples", "results"))
        state = "" if self.complete else ", incomplete"
        shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(name))
        return f"Run({self.kind} {shown}, {rows}{state})"

    def __str__(self) -> str:
        """The verdict and one table, as ``jouletrace show`` prints them."""
        return higher.text_of(self)

    @property
    def simulated(self) -> bool:
        """True if any device of the Run is a simulated GPU."""
        return any(device.simulated for device in self.devices)

    def table(self, name: str) -> pa.Table:
        """One of the tables by name.

        Raises:
            BadInputError: If there is none of that name.
        """
        table = held(self, name)
        return table.table if isinstance(table, ChannelFile) else table

    def to_pandas(self, name: str = "results") -> Any:
        """A table as a pandas DataFrame.

        Raises:
            BadInputError: If there is none of that name.
            NotPossibleError: If pandas isn't installed.
        """
        return to_pandas(self.table(name))

    def channel(self, device: str, name: str) -> ChannelInfo | None:
        """The description of a channel as ``samples`` holds it, or None if the Run doesn't have it."""
        for channel in self.channels:
            if channel.device == device and channel.name == name:
                return channel.of_seconds() if len(held(self, "recent")) else channel
        return None

    def series(self, device: str, channel: str) -> tuple[Any, Any]:
        """Stamps (int64 ns) and values (float64) of one channel in stored order, as NumPy arrays.

        They are empty for a channel of ``run.channels`` that the device of the Run didn't report.

        Raises:
            BadInputError: If neither this Run nor ``run.channels`` has such a channel, or the Run no such device.
        """
        index = index_of(self)
        stamps, values = index.series(device, channel)
        if not len(stamps):
            devices = [
                *(entry.id for entry in self.devices),
                *(entry.device for entry in self.channels),
                *index.devices,
            ]
            if device not in devices:
                raise unknown("device", device, devices)
            channels = [*(entry.name for entry in self.channels if entry.device == device), *index.channels(device)]
            if channel not in channels and channel not in CHANNEL_UNITS:
                raise unknown(f"channel of {device}", channel, channels)
        return stamps, values

    def remember(self, name: str, key: Hashable, compute: Callable[[pa.Table], T]) -> T:
        """The result of ``compute`` on a table, or its file, cached until another of that name replaces it."""
        table = held(self, name)  # another thread may put a newer one there
        kept = self._kept.get(name)
        if kept is None or kept[0] is not table:
            kept = self._kept[name] = table, {}
        if key not in kept[1]:
            kept[1][key] = compute(table)
        value: T = kept[1][key]
        return value

    def result(self, metric: str, unit: int | str = MODEL_UNIT) -> Estimate:
        """A figure from ``results``; null with reason ``not_measured`` if it is missing.

        ``unit`` is a row of ``units`` by its number, or by its name or path ("epoch/forward") if only one has that.

        Energy, power and time of a recording of devices, which has none as a whole, are those of all devices together.

        Raises:
            BadInputError: If neither this Run nor ``run.metrics`` contains such a metric, or the name is that of no
                unit or of several; near ones are named.
        """
        metric = str(metric)
        if isinstance(unit, str):
            unit = higher.number_of(self, unit)
        row = self._result_row(metric, unit)
        if row is None and metric not in METRICS:
            there = set(self.results["metric"].to_pylist()) - {None}
            if metric not in there:
                raise BadInputError(f"no metric {metric!r}; {_hint(metric, there)} (all: run.results['metric'])")
        figure = Estimate.from_dict(row) if row else Estimate.null("not_measured")
        if row is None and unit == MODEL_UNIT:
            figure = higher.of_devices(self, metric)
        return figure.in_unit(METRICS[metric].unit) if metric in METRICS else figure

    def _result_row(self, metric: str, unit: int) -> dict[str, Any] | None:
        wanted = pc.and_(pc.equal(self.results["metric"], metric), pc.equal(self.results["unit"], unit))
        rows: list[dict[str, Any]] = self.results.filter(wanted).slice(0, 1).to_pylist()
        return rows[0] if rows else None

    def warn(self, code: str, message: str, where: str = "") -> None:
        """Add a warning, once."""
        warning = RunWarning(code, message, where)
        if warning not in self.warnings:
            self.warnings.append(warning)

    def report(self, path: str | Path, *, price: str | None = None, carbon: str | None = None) -> Path:
        """Write the Run as an HTML page that needs no network, as ``jouletrace report`` does; returns the path.

        Args:
            path: The HTML file, in a folder that exists; an older report that is there is replaced, nothing else is.
            price: Of a kWh, such as "0.30EUR/kWh", which adds the cost.
            carbon: CO2 equivalent of a kWh, such as "400g/kWh", which adds the emissions.

        Raises:
            BadInputError: If another file is there, the name doesn't end in ".html", it can't be written, or the price
                or mass can't be read.
            NotPossibleError: If plotly isn't installed.
        """
        return higher.report(self, path, price, carbon)

    def save(self, path: str, *, overwrite: bool = False) -> str:
        """Write to a folder, or to one file if ``path`` ends in ".zip"; returns the path.

        Raises:
            BadInputError: If the path exists already or can't be written.
        """
        return str(higher.save(self, path, overwrite=overwrite))


def held(run: Run, name: str) -> Held:
    """One of the tables by name, or its file where the rows are still there; both have a length.

    Raises:
        BadInputError: If there is none of that name.
    """
    if name not in tables.TABLES:
        raise unknown("table", name, tables.TABLES)
    there: Held = run.__dict__[name] if name in run.__dict__ else run._files[name]
    return there


def put(run: Run, name: str, held: Held) -> None:
    """Give a Run a table, or the file of one."""
    if isinstance(held, ChannelFile):
        run._files[name] = held
        run.__dict__.pop(name, None)
    else:
        setattr(run, name, held)


def index_of(run: Run) -> SampleIndex | ChannelFile:
    """The rows of ``samples`` by device and channel."""
    return run.remember(
        "samples", "index", lambda there: there if isinstance(there, ChannelFile) else SampleIndex(there)
    )


def derived(run: Run, **changes: Any) -> Run:
    """The same Run with other values of some fields; tables that are in files stay there, as by no ``replace``."""
    other = copy(run)
    other._kept, other._files = {}, dict(run._files)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def draft_of(run: Run) -> Run:
    """The same Run with lists and facts of its own, for an analysis to write in; tables never change themselves."""
    channels, facts = [replace(channel) for channel in run.channels], WorkloadFacts(**run.workload)
    draft = derived(run, channels=channels, workload=facts, warnings=list(run.warnings))
    draft._kept = run._kept
    return draft


def _hint(metric: str, there: set[str]) -> str:
    """The metrics of a Run that contain a name that is none, else those near it, else the first of the Run."""
    stated = [name for name in METRICS if name in there]
    near = [name for name in stated if metric and all(word in name for word in metric.lower().split("_"))][:_FEW]
    near = near or get_close_matches(metric, sorted(there | set(METRICS)), _FEW)
    return f"did you mean {' or '.join(near)}?" if near else f"this Run has {', '.join(stated[:_FEW]) or 'none'}"


_AT_ONCE = 1 << 18
"""Rows of which an index is made at a time, which bounds memory."""


class SampleIndex:
    """Rows of one ``samples`` table by device and channel, in stored order; rows without a stamp are left out.

    Args:
        table: The table; its values are not copied.

    Attributes:
        devices: Those that rows name.
    """

    def __init__(self, table: pa.Table) -> None:
        table = tables.conform(table, "samples")
        begins, of_run = [], []
        for first in range(0, max(len(table), 1), _AT_ONCE):
            part = table.slice(first, _AT_ONCE)
            (device, devices), (channel, channels) = (tables.decoded(part[name]) for name in ("device", "channel"))
            group = (device + 1) * len(channels) + channel  # rows without a device come first
            group[channel < 0] = -1
            if part["time_ns"].null_count:
                group[pc.is_null(part["time_ns"]).to_numpy()] = -1
            edges = np.flatnonzero(np.append(True, group[1:] != group[:-1])[: len(group)])
            begins.append(first + edges)
            of_run.append(group[edges])
        # a channel's rows come in runs of several, which are far fewer than the rows
        begin, groups = np.concatenate(begins), np.concatenate(of_run)
        order = np.argsort(groups, kind="stable")
        self._begins, self._lengths = begin[order], np.diff(begin, append=len(table))[order]
        self._places = np.searchsorted(groups[order], np.arange((len(devices) + 1) * len(channels) + 1))
        self._devices = {name: i for i, name in reversed(list(enumerate([None, *devices])))}
        self._channels = {name: i for i, name in reversed(list(enumerate(channels)))}
        self._stamps = tables.filled(table["time_ns"], 0).to_numpy()
        self._values = table["value"].to_numpy()
        self.devices: list[str] = devices

    def channels(self, device: str | None) -> list[str]:
        """The channels of a device; for None, those of rows without one."""
        first = self._devices.get(device)
        if first is None:
            return []
        runs = np.diff(self._places)[first * len(self._channels) :]
        return [name for name, slot in reversed(self._channels.items()) if runs[slot]]

    def series(self, device: str | None, channel: str) -> tuple[Ints, Floats]:
        """Stamps and values of one channel; both empty if there is none."""
        first, second = self._devices.get(device), self._channels.get(channel)
        if first is None or second is None:
            return np.empty(0, np.int64), np.empty(0)
        group = first * len(self._channels) + second
        runs = slice(self._places[group], self._places[group + 1])
        lengths = self._lengths[runs]
        before = np.cumsum(lengths) - lengths
        rows = np.repeat(self._begins[runs] - before, lengths) + np.arange(lengths.sum())
        return self._stamps[rows], self._values[rows]
