"""A Run in the tables of a fleet: one row of figures, its windows, its iterations, its samples."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jouletrace.addons.fleet.imported import kernel_figures, kernel_launches
from jouletrace.addons.fleet.power_step import power_step
from jouletrace.analysis.conditions import Course, Spread, conditions
from jouletrace.analysis.latency import latencies_s
from jouletrace.analysis.windows import of_variant
from jouletrace.run import Run
from jouletrace.run.forms import Fleet
from jouletrace.run.tables import mark_simulated

_TEXT, _NUMBER, _WHOLE, _FLAG = pa.string(), pa.float64(), pa.int64(), pa.bool_()
_CHANNEL = pa.dictionary(pa.int32(), pa.string())


def _schema(columns: dict[str, tuple[pa.DataType, str, str]]) -> pa.Schema:
    return pa.schema(
        [pa.field(n, kind, metadata={"unit": unit, "description": says}) for n, (kind, unit, says) in columns.items()]
    )


RUNS = _schema(
    {
        "repeat": (_WHOLE, "", "which repeat on this GPU, from 0"),
        "order": (_WHOLE, "", "place in the order of its host, where GPUs ran in turn"),
        "placement": (_TEXT, "", "together or in-turn"),
        "noise": (_TEXT, "", "loads alongside, as requested"),
        "noise_here": (_FLAG, "", "whether one of them ran on this GPU"),
        "host": (_TEXT, "", "host name"),
        "model": (_TEXT, "", "marketing name of the GPU"),
        "index": (_WHOLE, "", "NVML index"),
        "serial": (_TEXT, "", "serial number of the GPU"),
        "pci_bus": (_TEXT, "", "PCI bus id: the slot"),
        "vbios": (_TEXT, "", "version"),
        "driver": (_TEXT, "", "version"),
        "persistence": (_FLAG, "", "whether persistence mode is on"),
        "power_limit_w": (_NUMBER, "W", "enforced power limit"),
        "power_limit_min_w": (_NUMBER, "W", "lowest limit that can be set"),
        "power_limit_max_w": (_NUMBER, "W", "highest limit that can be set"),
        "power_limit_default_w": (_NUMBER, "W", "limit after a reset"),
        "workload": (_TEXT, "", "what was run"),
        "dtype": (_TEXT, "", "number format"),
        "size": (_WHOLE, "", "size of a gemm"),
        "start_ns": (_WHOLE, "ns", "when the measurement began, by the host's clock, since the Unix epoch"),
        "at_ns": (_WHOLE, "ns", "when it should have begun"),
        "virtual_time": (_FLAG, "", "true: a simulated GPU with its own time"),
        "time_s": (_NUMBER, "s", "time of an iteration, back to back, mean of windows"),
        "latency_s": (_NUMBER, "s", "median time of single iterations"),
        "energy_j": (_NUMBER, "J", "energy of an iteration"),
        "power_w": (_NUMBER, "W", "mean power of the GPU while it ran"),
        "idle_w": (_NUMBER, "W", "deep idle power before"),
        "context_idle_w": (_NUMBER, "W", "idle power with a context"),
        "clock_mhz": (_NUMBER, "MHz", "mean SM clock while it ran, as the driver reports it"),
        "counted_mhz": (_NUMBER, "MHz", "mean SM clock while it ran, by the SMs' cycle counters; null if not read"),
        "clock_memory_mhz": (_NUMBER, "MHz", "mean memory clock while it ran"),
        "temperature_c": (_NUMBER, "Cel", "mean temperature of the die while it ran"),
        "temperature_max_c": (_NUMBER, "Cel", "highest temperature of the die while it ran"),
        "temperature_before_c": (_NUMBER, "Cel", "temperature before anything ran"),
        "cool_down_s": (_NUMBER, "s", "waited for the GPU to cool down"),
        "cooled": (_FLAG, "", "whether it was cool in time; null if no wait was requested"),
        "power_cap_share": (_NUMBER, "1", "share of time in which the power cap lowered the clock"),
        "thermal_share": (_NUMBER, "1", "share of time in which software or hardware lowered it for heat"),
        "hardware_share": (_NUMBER, "1", "share of time in which hardware slowed it down: heat, power brake"),
        "step_rest_w": (_NUMBER, "W", "power before the load began"),
        "step_settled_w": (_NUMBER, "W", "power some time after"),
        "step_peak_w": (_NUMBER, "W", "the maximum in between; null if it may be noise"),
        "step_rise_s": (_NUMBER, "s", "from the load's begin to 90 % of the rise, as the sensor shows it"),
        "step_return_s": (_NUMBER, "s", "from the load's begin until power is back from a peak"),
        "gain_pct": (_NUMBER, "pct", "gain error of the power sensor that software can't see"),
        "warnings": (_TEXT, "", "codes of the run's warnings"),
        "simulated": (_FLAG, "", "true: a simulated GPU, no hardware was measured"),
    }
)

WINDOWS = _schema(
    {
        "repeat": (_WHOLE, "", "which repeat on this GPU, from 0"),
        "order": (_WHOLE, "", "place in the order of windows"),
        "start_ns": (_WHOLE, "ns", "start since the Unix epoch"),
        "iterations": (_WHOLE, "", "iterations in the window"),
        "time_s": (_NUMBER, "s", "time of an iteration"),
        "energy_j": (_NUMBER, "J", "energy of an iteration"),
        "clock_mhz": (_NUMBER, "MHz", "mean SM clock, as the driver reports it"),
        "counted_mhz": (_NUMBER, "MHz", "mean SM clock, by the SMs' cycle counters; null if not read"),
        "temperature_c": (_NUMBER, "Cel", "mean temperature"),
    }
)

ITERATIONS = _schema(
    {
        "repeat": (_WHOLE, "", "which repeat on this GPU, from 0"),
        "iteration": (_WHOLE, "", "place in the order of singly timed iterations"),
        "time_s": (_NUMBER, "s", "its time; of a gemm or memcpy, the kernel's"),
    }
)

SAMPLES = _schema(
    {
        "repeat": (_WHOLE, "", "which repeat on this GPU, from 0"),
        "time_ns": (_WHOLE, "ns", "the sensor's stamp, since the Unix epoch"),
        "channel": (_CHANNEL, "", "what was read, with its unit as suffix"),
        "value": (_NUMBER, "by channel", "the reading"),
    }
)

TABLES = {"runs": RUNS, "windows": WINDOWS, "iterations": ITERATIONS, "samples": SAMPLES}

_POSSIBLE = {
    "s": (0.0, 1e7),
    "J": (0.0, 1e11),
    "W": (0.0, 1e4),
    "MHz": (0.0, 1e5),
    "Cel": (-100.0, 300.0),
    "1": (0.0, 1.0),
    "pct": (0.0, 100.0),
}
"""Upper bounds by unit: generous limits on what a measurement of one GPU can give."""

_MORE_THAN_NOTHING = ("time_s", "latency_s")
_ROUNDING = 1e-9

_THERMAL = ("sw_thermal", "hw_thermal")
_HARDWARE = ("hw_slowdown", "hw_thermal", "hw_power_brake")


class Measured:
    """A Run of a fleet, as tables.

    Args:
        run: An analysed profile.
        repeat: Number of the repeat, for Runs that were not made by ``fleet run``.

    Attributes:
        run: As given.
        row: Its row of ``runs``.
    """

    def __init__(self, run: Run, repeat: int = 0) -> None:
        self.run = run
        told = run.settings.get("fleet", Fleet())
        self._repeat = told.get("repeat", repeat)
        self.row = {**self._identity(told), **self._figures(), **self._conditions(told), **power_step(run)}
        self._launches = kernel_launches(run) if run.kind == "import" else None
        if self._launches is not None:
            self.row |= kernel_figures(run, self._launches)

    def tables(self) -> dict[str, pa.Table]:
        """The tables by the names of ``TABLES``."""
        found = {
            "runs": pa.Table.from_pylist([self.row], schema=RUNS),
            "windows": self._windows(),
            "iterations": self._iterations(),
            "samples": self._samples(),
        }
        return {name: mark_simulated(t) if self.run.simulated and name != "runs" else t for name, t in found.items()}

    def _identity(self, told: Fleet) -> dict[str, Any]:
        device, workload = self.run.devices[0], self.run.workload
        limits = device.power_limits_w
        return {
            "repeat": self._repeat,
            "order": told.get("order"),
            "placement": told.get("placement"),
            "noise": " ".join(told.get("noise", ())) or None,
            "noise_here": told.get("noise_here", False),
            "host": device.host,
            "model": device.name,
            "index": device.index,
            "serial": device.serial,
            "pci_bus": device.pci_bus,
            "vbios": device.vbios,
            "driver": device.driver,
            "persistence": device.persistence,
            "power_limit_w": device.power_limit_w,
            **{f"power_limit_{end}_w": limits.get(end) for end in ("min", "max", "default")},
            "workload": workload.get("name", ""),
            "dtype": workload.get("dtype"),
            "size": workload.get("size") or workload.get("size_mib"),
            "at_ns": told.get("at_ns"),
            "simulated": self.run.simulated,
            "warnings": ",".join(sorted({warning.code for warning in self.run.warnings})) or None,
        }

    def _figures(self) -> dict[str, Any]:
        run = self.run
        device = run.devices[0]
        power = run.channel(device.id, "power_w")
        time_s = run.result("iteration_time_s").value
        latency_s = run.result("latency_s").value
        return {
            "start_ns": _phase_start(run, "latency") or run.created_ns,
            "virtual_time": device.simulated and "realtime" not in run.settings.get("device", ""),
            "time_s": latency_s if time_s is None else time_s,
            "latency_s": latency_s,
            "energy_j": run.result("energy_total_j").value,
            "power_w": run.result("power_w").value,
            "idle_w": run.result("baseline_deep_idle_w").value,
            "context_idle_w": run.result("baseline_context_idle_w").value,
            "gain_pct": power.gain_pct if power is not None else None,
        }

    def _conditions(self, told: Fleet) -> dict[str, Any]:
        found = conditions(self.run)
        clocks, heat = found["clocks_mhz"], found["temperature_c"]
        why = found["throttle_reasons"]
        cooled = told.get("cool_down") or {}
        return {
            "clock_mhz": _mean(clocks["sm_reported"]),
            "counted_mhz": _mean(clocks["sm_measured"]),
            "clock_memory_mhz": _mean(clocks["memory"]),
            "temperature_c": _mean(heat),
            "temperature_max_c": heat and heat["max"],
            "temperature_before_c": cooled.get("to_c"),
            "cool_down_s": cooled.get("seconds"),
            "cooled": cooled.get("reached"),
            "power_cap_share": None if why is None else why.get("sw_power_cap", 0.0),
            "thermal_share": None if why is None else max(why.get(name, 0.0) for name in _THERMAL),
            "hardware_share": None if why is None else max(why.get(name, 0.0) for name in _HARDWARE),
        }

    def _windows(self) -> pa.Table:
        if self._launches is not None:
            return self._of_launches(self._launches)
        found = of_variant(self.run, "untouched")
        replays = found["replays"].to_numpy()
        columns = {name: found[name] for name in ("order", "start_ns", "clock_mhz", "counted_mhz", "temperature_c")}
        for name in ("time_s", "energy_j"):
            whole = found[name].to_numpy(zero_copy_only=False).astype(np.float64)
            columns[name] = pa.array(whole / replays, from_pandas=True)
        return self._table(WINDOWS, {**columns, "iterations": found["replays"]}, len(found))

    def _of_launches(self, launches: pa.Table) -> pa.Table:
        """Every launch of an imported trace's kernel as a window; its energy is unknown."""
        n = len(launches)
        columns = {
            "order": np.arange(n),
            "start_ns": launches["start_ns"],
            "iterations": np.ones(n, np.int64),
            "time_s": (launches["end_ns"].to_numpy() - launches["start_ns"].to_numpy()) / 1e9,
        }
        return self._table(WINDOWS, columns, n)

    def _iterations(self) -> pa.Table:
        seconds = latencies_s(self.run)
        return self._table(ITERATIONS, {"iteration": np.arange(len(seconds)), "time_s": seconds}, len(seconds))

    def _samples(self) -> pa.Table:
        found = self.run.samples.filter(pc.equal(self.run.samples["device"], self.run.devices[0].id))
        return self._table(SAMPLES, {name: found[name] for name in ("time_ns", "channel", "value")}, len(found))

    def _table(self, schema: pa.Schema, columns: Mapping[str, Any], n: int) -> pa.Table:
        """A table of this repeat; absent columns are null."""
        given = {"repeat": np.full(n, self._repeat, np.int64), **columns}
        arrays = []
        for field in schema:
            values = given.get(field.name)
            if values is None:
                arrays.append(pa.nulls(n, field.type))
            else:
                arrays.append(values.cast(field.type) if hasattr(values, "cast") else pa.array(values, field.type))
        return pa.Table.from_arrays(arrays, schema=schema)


def _mean(of: Spread | Course | None) -> float | None:
    return of and of["mean"]


def to_parquet(table: pa.Table, about: Mapping[str, str] | None = None) -> bytes:
    """A table as the bytes of a Parquet file.

    Args:
        table: The table.
        about: Metadata of the file.
    """
    sink = io.BytesIO()
    labelled = table.replace_schema_metadata({**(table.schema.metadata or {}), **(about or {})})
    pq.write_table(labelled, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def check_possible(table: pa.Table) -> None:
    """Refuse figures that no measurement of a GPU gives: negative, infinite or absurdly large ones.

    Args:
        table: Of runs, windows or iterations, with the units of ``TABLES``.

    Raises:
        ValueError: With the first such column, its value and the possible range.
    """
    for field in table.schema:
        low, high = _POSSIBLE.get(((field.metadata or {}).get(b"unit") or b"").decode(), (None, None))
        if low is None or high is None or field.type != _NUMBER:
            continue
        values = table[field.name].drop_null().to_numpy()  # NaN, like null, means unknown
        wrong = (values < low - _ROUNDING) | (values > high + _ROUNDING)
        if field.name in _MORE_THAN_NOTHING:
            wrong |= values == 0
        if wrong.any():
            raise ValueError(f"{field.name} is {values[wrong][0]:g}, which no measurement gives")
    if {"time_s", "energy_j"} <= set(table.column_names):
        power = pc.divide(table["energy_j"], table["time_s"]).drop_null().to_numpy()
        wrong = power > _POSSIBLE["W"][1]
        if wrong.any():
            raise ValueError(f"energy_j over time_s is {power[wrong][0]:g} W, which no GPU draws")


def _phase_start(run: Run, name: str) -> int | None:
    wanted = pc.and_(pc.equal(run.spans["kind"], "phase"), pc.equal(run.spans["name"], name))
    starts = run.spans.filter(wanted)["start_ns"]
    return int(pc.min(starts).as_py()) if len(starts) else None
