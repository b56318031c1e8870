"""Energy of a fleet by a dataset of power readings that is too large to import: one pass, in batches of rows.

Between two successive readings of a GPU its power is taken as their mean. No figure contains holes: times of more than
``GAP`` periods without a reading.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.errors import BadInputError
from jouletrace.run import Estimate

HEADINGS = {
    "time": ("time", "timestamp", "time_ns", "ts", "date"),
    "power": ("power_w", "power", "power.draw", "power.draw [w]", "dcgm_fi_dev_power_usage", "watts", "power_mw"),
    "gpu": ("gpu_uuid", "uuid", "gpu", "gpu_id", "device", "index"),
    "host": ("host", "hostname", "node", "instance"),
}
"""What is needed of a row, and the headings by which it is recognised, in lower case; without a host all are of one."""

GAP = 3.0
"""Periods of the readings without a reading from which on there is a hole."""

AT_REST = 0.25
"""A GPU is at rest below that share of the way from the fleet's 1 % quantile of power to its 99 % quantile."""

MOST_W = 5000.0
"""No GPU draws so many watts: a larger median is in other units."""

_DAY_NS = 86_400 * 10**9
_NO_TIME = np.iinfo(np.int64).min
_ROWS, _LOOKED_AT, _MOST_PIECES = 1 << 20, 16, 1 << 21


@dataclass(frozen=True)
class FleetLine:
    """Energy of a host, a GPU, a day or another value of a column.

    Attributes:
        what: Its name.
        energy: J of the time that is recorded; the interval is that of sampling, at 95 %.
        seconds: GPU seconds that are recorded.
        rest: Share of these at rest.
        gpus: Number of GPUs.
    """

    what: str
    energy: Estimate
    seconds: float
    rest: float
    gpus: int


@dataclass
class FleetEnergy:
    """Energies by each asked column, and of the whole.

    Attributes:
        whole: All of it.
        sums: Lines by what was asked, most energy first; days in their order.
        period_s: Usual time between two readings of a GPU.
        rest_w: Power below which a GPU is at rest.
        hole_s: GPU seconds in holes, which are in no figure.
        rows, dropped: Rows read, and those without a time or a power.
    """

    whole: FleetLine
    sums: dict[str, list[FleetLine]]
    period_s: float
    rest_w: float
    hole_s: float
    rows: int
    dropped: int


@dataclass
class _LastReadings:
    """The last reading of each GPU, and sums until then.

    Attributes:
        names: Number of each GPU by its host and name.
        labels: Number of each value of the asked column.
        time_ns, watts, label: The last reading of each GPU, and the label that it has until the next; NaN W for none.
        keys: GPU, label and day of sums, each of shape (3, m).
        values: Joules, their variance in J², seconds and seconds at rest of these, each of shape (4, m).
        hole_s, rows, dropped: As of ``FleetEnergy``.
    """

    names: dict[tuple[str, str], int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    time_ns: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    watts: Floats = field(default_factory=lambda: np.empty(0))
    label: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    keys: list[Ints] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)
    hole_s: float = 0.0
    rows: int = 0
    dropped: int = 0

    def grow(self) -> None:
        """Make room for GPUs that are new."""
        more = len(self.names) - len(self.watts)
        self.time_ns = np.append(self.time_ns, np.full(more, _NO_TIME))
        self.watts = np.append(self.watts, np.full(more, np.nan))
        self.label = np.append(self.label, np.zeros(more, np.int64))


def fleet_energy(
    paths: Sequence[Path], by: Sequence[str], given: Mapping[str, str], rest_w: float | None = None
) -> FleetEnergy:
    """Energies of all GPUs in a dataset.

    The interval holds the error of sampling: readings may vary as much within a period as from one to the next, so that
    the variance of a GPU's energy is half the sum of squared differences of successive readings, times the squares of
    their times. GPUs of one job vary together: standard deviations of GPUs are added, not their squares.

    Args:
        paths: Files of Parquet or CSV, or folders of them.
        by: "host", "gpu", "day", or a column of the dataset; of these at most one.
        given: Columns by what they are, a key of ``HEADINGS``.
        rest_w: Power below which a GPU is at rest; None to determine it.

    Raises:
        BadInputError: If files can't be read, lack a column, aren't in order of time, or hold no reading.
    """
    dataset = _dataset(paths)
    columns = _columns(dataset.schema.names, given)
    others = [name for name in by if name not in ("host", "gpu", "day")]
    for name in others:
        if name not in dataset.schema.names or len(others) > 1:
            there = ", ".join(dataset.schema.names)
            raise BadInputError(f"--by {name}: host, gpu, day and one column of the dataset: {there}"[:400])
    if others:
        columns["label"] = others[0]
    fragments = _in_order(dataset, columns)
    period_s, quantiles = _looked_at(fragments, columns)
    limit_w = quantiles[0] + AT_REST * (quantiles[1] - quantiles[0]) if rest_w is None else rest_w
    state = _LastReadings()
    for fragment in fragments:
        with _readable(fragment.path):
            for batch in fragment.to_batches(columns=list(dict.fromkeys(columns.values())), batch_size=_ROWS):
                _add(state, batch, columns, GAP * period_s, limit_w, str(fragment.path))
    if state.keys:
        _joined(state)
    if not state.keys or not state.values[0][2].any():
        raise BadInputError(f"{paths[0]}: no GPU has two readings with a time and a power within {GAP:g} periods")
    return _result(state, by, period_s, limit_w)


def _dataset(paths: Sequence[Path]) -> Any:
    import pyarrow.dataset as ds

    every = (file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path]))
    files = [file for file in every if _form(file)]
    forms = {_form(file) for file in files}
    if len(forms) != 1:
        why = "holds both Parquet and CSV" if forms else "no file .parquet, .csv or .csv.gz"
        raise BadInputError(f"{', '.join(map(str, paths))[:200]}: {why}")
    with _readable(files[0]):
        return ds.dataset([str(file) for file in files], format=forms.pop())


@contextmanager
def _readable(path: object) -> Iterator[None]:
    """Say in a line what can't be read.

    Raises:
        BadInputError: If the block meets a file that is damaged or can't be opened.
    """
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise BadInputError(f"{path}: {str(error).splitlines()[0][:200]}") from None


def _form(path: Path) -> str:
    if path.suffix in (".parquet", ".pq"):
        return "parquet"
    return "csv" if path.name.endswith((".csv", ".csv.gz")) else ""


def _columns(names: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """The column of each thing that is needed."""
    lower = {name.lower(): name for name in reversed(names)}
    if wrong := [text for what, text in given.items() if what not in HEADINGS or text not in names]:
        raise BadInputError(f"--map {wrong[0]}: {'|'.join(HEADINGS)}=COLUMN, one of {', '.join(names)}"[:400])
    columns = {what: next((lower[text] for text in usual if text in lower), "") for what, usual in HEADINGS.items()}
    columns |= given
    if missing := [what for what, name in columns.items() if not name and what != "host"]:
        raise BadInputError(
            f"no column of {missing[0]} in {', '.join(names)}: --map {missing[0]}=COLUMN names it"[:400]
        )
    return {what: name for what, name in columns.items() if name}


def _in_order(dataset: Any, columns: Mapping[str, str]) -> list[Any]:
    """Files by the time of their first row."""
    first: list[tuple[int, int, Any]] = []
    for fragment in dataset.get_fragments():
        with _readable(fragment.path):
            rows = fragment.head(1, columns=[columns["time"]])
        if rows.num_rows:
            first.append((int(_times(rows.column(0), columns["time"])[0]), len(first), fragment))
    if not first:
        raise BadInputError(f"{dataset.files[0]}: no rows")
    return [fragment for *_, fragment in sorted(first, key=lambda row: row[:2])]


def _looked_at(fragments: Sequence[Any], columns: Mapping[str, str]) -> tuple[float, tuple[float, float]]:
    """Usual seconds between two readings of a GPU, and the 1 and 99 % quantiles of power, by the starts of files."""
    watts, steps = [], []
    for fragment in fragments[:: max(1, len(fragments) // _LOOKED_AT)]:
        with _readable(fragment.path):
            head = fragment.head(1 << 17, columns=list(dict.fromkeys(columns.values())))
        rows = head.combine_chunks().to_batches()[0]
        time, power = (
            _times(rows.column(columns["time"]), columns["time"]),
            _watts(rows.column(columns["power"]), columns["power"]),
        )
        gpus = _gpus(_LastReadings(), rows, columns)  # of each host: the readings of several may lie between each other
        order = np.lexsort((time, gpus))
        step = np.diff(time[order])[np.diff(gpus[order]) == 0]
        steps.append(step[step > 0])
        watts.append(power[np.isfinite(power)])
    all_w, all_steps = np.concatenate(watts), np.concatenate(steps)
    if not len(all_steps) or not len(all_w):
        raise BadInputError("no GPU has two readings with a time and a power")
    if np.median(all_w) > MOST_W:
        median = f"its median is {np.median(all_w):.4g}"
        raise BadInputError(f"{columns['power']}: {median} W, more than a GPU draws; a column of mW ends in _mw")
    low, high = np.quantile(all_w, [0.01, 0.99])
    return float(np.median(all_steps)) / 1e9, (float(low), float(high))


def _times(column: Any, name: str) -> Ints:
    """Nanoseconds since 1970 UTC; the least integer where there is none."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return _numbers(column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64()))
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise BadInputError(f"{name}: {column.type} is no time; write times or seconds since 1970")
    stated = column.drop_null()
    digits = len(str(int(abs(stated[0].as_py())))) if len(stated) else 19
    scale = 10 ** max(0, 9 - 3 * max(0, (digits - 9) // 3))  # seconds have ten digits, ms thirteen
    if pa.types.is_integer(column.type):
        whole = _numbers(column.cast(pa.int64()))
        return np.where(whole == _NO_TIME, _NO_TIME, whole * scale)
    values = _array(column)
    return np.where(np.isfinite(values), np.round(np.nan_to_num(values) * scale), _NO_TIME).astype(np.int64)


def _numbers(column: Any) -> Ints:
    numbers: Ints = _array(column.fill_null(_NO_TIME))
    return numbers


def _array(column: Any) -> Any:
    """A column, or one of a batch, as an array."""
    import pyarrow as pa

    return np.asarray(column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy())


def _watts(column: Any, name: str) -> Floats:
    import pyarrow as pa

    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise BadInputError(f"{name}: {column.type} is no number of watts")
    watts: Floats = _array(column.cast(pa.float64()))
    return watts / 1e3 if name.lower().endswith("mw") else watts


def _codes(batch: Any, name: str) -> tuple[Ints, list[str]]:
    """The value of each row as a number, and the names of these; -1 becomes a name of its own, "unknown"."""
    column = batch.column(name)
    coded = column if hasattr(column, "dictionary") else column.dictionary_encode()
    names = [str(value) for value in coded.dictionary.to_pylist()]
    codes = coded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), [*names, "unknown"]


def _add(state: _LastReadings, batch: Any, columns: Mapping[str, str], gap_s: float, rest_w: float, path: str) -> None:
    """Add the time between readings of a batch, and from the last ones of those before."""
    time = _times(batch.column(columns["time"]), columns["time"])
    watts = _watts(batch.column(columns["power"]), columns["power"])
    gpu = _gpus(state, batch, columns)
    label = _labels(state, batch, columns)
    good = np.isfinite(watts) & (watts >= 0) & (time > _NO_TIME)
    state.rows, state.dropped = state.rows + len(time), state.dropped + int((~good).sum())
    if not good.all():
        time, watts, gpu, label = time[good], watts[good], gpu[good], label[good]
    if not len(time):
        return
    narrow = gpu.astype(np.uint16) if len(state.names) < 1 << 16 else gpu  # sorted by radix
    order = np.argsort(narrow, kind="stable")
    if (np.diff(time[order])[np.diff(gpu[order]) == 0] < 0).any():
        order = np.lexsort((time, gpu))
    time, watts, gpu, label = time[order], watts[order], gpu[order], label[order]
    first = np.flatnonzero(_changes(gpu))
    last = np.append(first[1:], len(gpu)) - 1
    before_ns, before_w, before = np.roll(time, 1), np.roll(watts, 1), np.roll(label, 1)
    whose = gpu[first]
    before_ns[first], before_w[first], before[first] = state.time_ns[whose], state.watts[whose], state.label[whose]
    begun = np.isfinite(before_w)  # without a reading before it the first one has no time
    before_ns, before_w = np.where(begun, before_ns, time), np.where(begun, before_w, watts)
    seconds = (time - before_ns) / 1e9
    if (seconds < 0).any():
        host, name = list(state.names)[gpu[np.argmin(seconds)]]
        raise BadInputError(
            f"{path}: times of {name}{' of ' + host if host else ''} go back; are rows given twice, or files not in "
            "order of time?"
        )
    state.time_ns[whose], state.watts[whose], state.label[whose] = time[last], watts[last], label[last]
    hole = seconds > gap_s
    state.hole_s += float(seconds[hole].sum())
    seconds[hole] = 0.0
    mean, step = (watts + before_w) / 2, watts - before_w
    day = (time - np.round(seconds * 5e8).astype(np.int64)) // _DAY_NS
    starts = np.flatnonzero(_changes(gpu) | _changes(day) | _changes(before))
    added = (mean * seconds, (step * seconds) ** 2 / 2, seconds, seconds * (mean < rest_w))
    state.keys.append(np.stack([gpu[starts], before[starts], day[starts]]))
    state.values.append(np.stack([np.add.reduceat(values, starts) for values in added]))
    if sum(keys.shape[1] for keys in state.keys) > _MOST_PIECES:
        _joined(state)


def _changes(numbers: Ints) -> Any:
    """True where a number differs from the one before it, and at the first."""
    return np.diff(numbers, prepend=-1) != 0


def _gpus(state: _LastReadings, batch: Any, columns: Mapping[str, str]) -> Ints:
    """The number of each row's GPU."""
    gpus, gpu_names = _codes(batch, columns["gpu"])
    hosts, host_names = _codes(batch, columns["host"]) if "host" in columns else (np.zeros_like(gpus), [""])
    pair = hosts * len(gpu_names) + gpus
    number = np.zeros(int(pair.max(initial=0)) + 1, np.int64)
    for each in np.flatnonzero(np.bincount(pair, minlength=1)):
        name = host_names[each // len(gpu_names)], gpu_names[each % len(gpu_names)]
        number[each] = state.names.setdefault(name, len(state.names))
    state.grow()
    numbers: Ints = number[pair]
    return numbers


def _labels(state: _LastReadings, batch: Any, columns: Mapping[str, str]) -> Ints:
    if "label" not in columns:
        return np.zeros(batch.num_rows, np.int64)
    codes, names = _codes(batch, columns["label"])
    numbers = [state.labels.setdefault(name, len(state.labels)) for name in names]
    return np.asarray(numbers, np.int64)[codes]


def _joined(state: _LastReadings) -> None:
    """Sum what batches added to the same GPU, label and day."""
    keys, values = np.concatenate(state.keys, axis=1), np.concatenate(state.values, axis=1)
    order = np.lexsort(keys)
    keys, values = keys[:, order], values[:, order]
    starts = np.flatnonzero((np.diff(keys, axis=1, prepend=-1) != 0).any(axis=0))
    state.keys, state.values = [keys[:, starts]], [np.add.reduceat(values, starts, axis=1)]


def _result(state: _LastReadings, by: Sequence[str], period_s: float, rest_w: float) -> FleetEnergy:
    keys, values = state.keys[0], state.values[0]
    names, labels = list(state.names), list(state.labels)
    of: dict[str, Callable[[Ints], str]] = {
        "host": lambda key: names[key[0]][0] or "unknown",
        "gpu": lambda key: " ".join(filter(None, names[key[0]])),
        "day": lambda key: (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=int(key[2]))).strftime("%Y-%m-%d"),
    }
    sums = {}
    for name in by:
        rows: dict[str, list[int]] = defaultdict(list)
        name_of: Callable[[Ints], str] = of.get(name, lambda key: labels[key[1]])
        for k, key in enumerate(keys.T):
            rows[name_of(key)].append(k)
        lines = [_line(what, keys[:, some], values[:, some]) for what, some in rows.items() if values[2, some].sum()]
        by_energy = sorted(lines, key=lambda line: -(line.energy.value or 0.0))
        sums[name] = sorted(lines, key=lambda line: line.what) if name == "day" else by_energy
    whole = _line("all", keys, values)
    return FleetEnergy(whole, sums, period_s, rest_w, state.hole_s, state.rows, state.dropped)


def _line(what: str, keys: Ints, values: Floats) -> FleetLine:
    joules, _, seconds, rest = values.sum(axis=1)
    variances = np.bincount(keys[0], values[1])
    half = 1.96 * float(np.sqrt(variances).sum())
    energy = Estimate(float(joules), float(joules) - half, float(joules) + half, method="readings")
    return FleetLine(
        what, energy, float(seconds), float(rest / seconds) if seconds else math.nan, len(np.unique(keys[0]))
    )
