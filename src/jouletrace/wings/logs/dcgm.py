"""Logs of DCGM: scrapes of dcgm-exporter, answers of a Prometheus that scraped it, and its fields as CSV."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import ImportOptions, decode_text, read_head, read_text
from jouletrace.formats.importers.blanks import is_blank
from jouletrace.formats.importers.delimited import left_out_texts, read_delimited
from jouletrace.formats.importers.log import Log
from jouletrace.formats.importers.metric_rows import joined_rows
from jouletrace.formats.importers.stamps import time_line
from jouletrace.formats.importers.units import decimal_sign, gpu_number
from jouletrace.run import Run
from jouletrace.run.channels import ENERGY_COUNTER, POWER
from jouletrace.sensor.kinds import INSTANT, USAGE


class Field(NamedTuple):
    """The meaning of a field.

    Attributes:
        short: Name in the header of ``dcgmi dmon``; "" if unknown.
        channel: Name of the channel.
        unit: Printed unit, as known to ``units.unit``.
        board: Whether it belongs to the whole GPU even where it is listed for a MIG instance.
    """

    short: str
    channel: str
    unit: str
    board: bool = False


FIELDS: dict[str, Field] = {
    "DEV_POWER_USAGE": Field("POWER", "power_w", "W", board=True),
    "DEV_POWER_USAGE_INSTANT": Field("PWINST", "power_instant_w", "W", board=True),
    "DEV_TOTAL_ENERGY_CONSUMPTION": Field("TOTEC", ENERGY_COUNTER, "mJ", board=True),
    "DEV_POWER_MGMT_LIMIT": Field("PMLMT", "power_limit_w", "W", board=True),
    "DEV_ENFORCED_POWER_LIMIT": Field("EPLMT", "power_limit_w", "W", board=True),
    "DEV_POWER_MGMT_LIMIT_MIN": Field("PMMIN", "power_min_limit_w", "W", board=True),
    "DEV_POWER_MGMT_LIMIT_MAX": Field("PMMAX", "power_max_limit_w", "W", board=True),
    "DEV_POWER_MGMT_LIMIT_DEF": Field("PMDEF", "power_default_limit_w", "W", board=True),
    "DEV_GPU_TEMP": Field("TMPTR", "temperature_c", "C", board=True),
    "DEV_MEMORY_TEMP": Field("MMTMP", "temperature_memory_c", "C", board=True),
    "DEV_SM_CLOCK": Field("SMCLK", "clock_sm_mhz", "MHz", board=True),
    "DEV_MEM_CLOCK": Field("MMCLK", "clock_memory_mhz", "MHz", board=True),
    "DEV_GPU_UTIL": Field("GPUTL", "utilization_gpu_pct", "%", board=True),
    "DEV_MEM_COPY_UTIL": Field("MCUTL", "utilization_memory_pct", "%", board=True),
    "DEV_ENC_UTIL": Field("ENCUTL", "utilization_encoder_pct", "%", board=True),
    "DEV_DEC_UTIL": Field("DECUTL", "utilization_decoder_pct", "%", board=True),
    "DEV_CLOCK_THROTTLE_REASONS": Field("", "throttle_bits", "", board=True),
    "DEV_CLOCKS_EVENT_REASONS": Field("", "throttle_bits", "", board=True),  # its name since DCGM 3.3
    "DEV_FB_USED": Field("FBUSD", "memory_used_bytes", "MiB"),
    "DEV_FB_FREE": Field("FBFRE", "memory_free_bytes", "MiB"),
    "DEV_FB_TOTAL": Field("FBTTL", "memory_total_bytes", "MiB"),
    "PROF_GR_ENGINE_ACTIVE": Field("GRACT", "graphics_active", ""),
    "PROF_SM_ACTIVE": Field("SMACT", "sm_active", ""),
    "PROF_SM_OCCUPANCY": Field("SMOCC", "sm_occupancy", ""),
    "PROF_PIPE_TENSOR_ACTIVE": Field("TENSO", "pipe_tensor_active", ""),
    "PROF_PIPE_FP64_ACTIVE": Field("FP64A", "pipe_fp64_active", ""),
    "PROF_PIPE_FP32_ACTIVE": Field("FP32A", "pipe_fp32_active", ""),
    "PROF_PIPE_FP16_ACTIVE": Field("FP16A", "pipe_fp16_active", ""),
    "PROF_DRAM_ACTIVE": Field("DRAMA", "memory_active", ""),
    "PROF_PCIE_TX_BYTES": Field("PCITX", "pcie_sent_bytes_per_s", "B/s", board=True),
    "PROF_PCIE_RX_BYTES": Field("PCIRX", "pcie_received_bytes_per_s", "B/s", board=True),
    "PROF_NVLINK_TX_BYTES": Field("NVLTX", "nvlink_sent_bytes_per_s", "B/s", board=True),
    "PROF_NVLINK_RX_BYTES": Field("NVLRX", "nvlink_received_bytes_per_s", "B/s", board=True),
}
"""Fields by name without ``DCGM_FI_``; ratios lie between 0 and 1."""

_SHORT = {one.short: name for name, one in FIELDS.items() if one.short}
_OLD = {"power_usage": "DEV_POWER_USAGE", "total_energy_consumption": "DEV_TOTAL_ENERGY_CONSUMPTION"}

_INSTANCE_COLUMNS = {"mig_profile", "mig_instance", "mig_id", "gpu_i_profile", "gpu_i_id", "instance", "instanceid"}
_ENTITY_COLUMNS = ("entityid", "entity", "gpu", "gpu_id")
_LABEL_COLUMNS = {
    **{"uuid": "uuid", "gpu_uuid": "uuid", "modelname": "name", "model_name": "name", "model": "name", "name": "name"},
    **{"hostname": "host", "host": "host", "node": "host", "dcgm_fi_driver_version": "driver"},
}
"""Columns that describe the GPU of a row, with what they state."""
_STAMP_COLUMNS = ("timestamp", "time", "datetime", "date")

_METRIC = re.compile(
    r"^(?P<name>(?:DCGM_FI|dcgm)_\w+)\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\}\s+(?P<value>\S+)(?:\s+(?P<stamp>\d{10,19}))?\s*$"
)
_DMON = re.compile(r"^# *Entity +[A-Z]", re.M)
"""The header of ``dcgmi dmon``."""
_CELL = re.compile(r"(?:^|[,;\t\"])DCGM_FI_\w+(?:[,;\t\"]|$)", re.M)
"""A name in a row, where each has one metric."""
_ENTITY = re.compile(r"(GPU|[A-Z][\w-]*) (\d+)$")

_FACTS = {"pci_bus": "pci_bus_id", "host": "hostname", "driver": "dcgm_fi_driver_version"}
_LABEL = re.compile(r'\b(\w+)\s*+=\s*"((?:[^"\\]|\\.)*)"')


def sniff(head: bytes) -> bool:
    """True if the beginning of a file is that of scrapes, of an answer or of such a CSV."""
    text = decode_text(head)
    return _is_scrape(text) or _is_answer(text) or _is_csv(text)


def read(path: Path, options: ImportOptions) -> Run:
    """Read scrapes, an answer, or a CSV with a time in each row.

    Raises:
        BadInputError: If it is none of them, holds no reading, or the time zone is unknown.
    """
    head = decode_text(read_head(path))
    if _is_scrape(head):
        return _read_scrapes(path, options)
    if _is_answer(head):
        return _read_answer(path, options)
    if _is_csv(head):
        return read_csv(path, options)
    raise BadInputError(f"{path}: not recognised as a file of dcgm")


def _is_scrape(head: str) -> bool:
    return re.search(r"^(# (HELP|TYPE) )?(DCGM_FI|dcgm)_\w+[ {]", head, re.M) is not None and "{" in head


def _is_answer(head: str) -> bool:
    return re.search(r'"resultType"\s*:\s*"(matrix|vector)"|\A\s*\{\s*"status"\s*:\s*"error"', head) is not None


def _is_csv(head: str) -> bool:
    header = head.lstrip("\ufeff\r\n ").partition("\n")[0]
    names = [cell.strip().strip('"') for cell in re.split(r"[,;\t]", header)]
    if _DMON.search(head):
        return True
    if "value" in map(str.lower, names):  # one metric a row
        return _CELL.search(head) is not None
    full = any(name.upper().startswith("DCGM_") for name in names)
    entity = any(name.lower() in _ENTITY_COLUMNS for name in names)
    return (full and len(names) > 1) or (entity and any(name.upper() in _SHORT for name in names))


def _field(name: str) -> Field:
    """A field by any of its names: ``DCGM_FI_DEV_...``, ``dcgm_...`` of old exporters, or dmon's short name.

    A field outside the table becomes a channel with the field's name.
    """
    upper = name.upper()
    key = _SHORT.get(upper, upper.removeprefix("DCGM_FI_").removeprefix("DCGM_"))
    for candidate in (key, f"DEV_{key}", f"PROF_{key}", _OLD.get(key.lower(), "")):
        if candidate in FIELDS:
            return FIELDS[candidate]
    return Field("", re.sub(r"\W+", "_", key.lower()).strip("_") or "field", "")


def _unit_of(name: str) -> units.Unit:
    return units.unit(_field(name).unit) or units.NO_UNIT


class _DcgmLog(Log):
    """Readings with their GPUs and MIG instances."""

    def __init__(self, path: Path, options: ImportOptions) -> None:
        super().__init__(path, options)
        self._name = options.device
        self._seen: set[tuple[str, str, int]] = set()

    def board(self, index: str, uuid: str = "", name: str = "", **facts: str) -> str:
        """Id of a GPU; its facts are taken from its first occurrence."""
        shown = name or self._name or f"device {index or 0}"
        return self.device(uuid or f"imported:{index or 0}", shown, index=gpu_number(index), **facts)

    def instance(self, board: str, number: str, profile: str = "") -> str:
        """Id of a MIG instance of a GPU."""
        parent = self.devices[board]
        about = {"parent": board, "no_power": "mig_no_power"}
        name = f"{parent.name} MIG {profile or number}"
        return self.device(f"{board}/{number}", name, kind="mig", index=parent.index, details=about)

    def labelled(self, name: str, labels: Mapping[str, str], row: int, text: str, place: str) -> None:
        """Add a reading with the labels of dcgm-exporter, their names in lower case."""
        board = self.board(
            *(labels.get(key, "") for key in ("gpu", "uuid", "modelname")),
            **{fact: labels.get(key, "") for fact, key in _FACTS.items()},
        )
        value = self.left.number(text, ".", place)
        if value is None:
            self.empty(board, _field(name).channel, name)
            return
        part = labels.get("gpu_i_id")
        instance = self.instance(board, part, labels.get("gpu_i_profile", "")) if part else None
        self.take(name, board, instance, row, value)

    def take(
        self, name: str, board: str, instance: str | None, row: int, value: float, unit: units.Unit | None = None
    ) -> None:
        """Add a reading, in the field's unit unless in another; the GPU's own, repeated for each instance, once."""
        what = _field(name)
        if what.board and instance is not None:
            key = (board, what.channel, row)
            if key in self._seen:
                return
            self._seen.add(key)
        device = board if what.board or instance is None else instance
        field = INSTANT if what.channel == "power_instant_w" else USAGE
        self.add(device, what.channel, value, unit or _unit_of(name), f"DCGM, {name}", field)


def _read_scrapes(path: Path, options: ImportOptions) -> Run:
    """Read scrapes; a new one begins where a metric is repeated or has another time, or after a line with a time."""
    log = _DcgmLog(path, options)
    seen: set[str] = set()
    own = ""
    row, stamp = -1, ""  # the time on a line of its own, for the next scrape
    for line, text in enumerate(map(str.strip, read_text(path, log.left).split("\n")), start=1):
        found = _METRIC.match(text)
        if found is None:
            if time := time_line(text):
                row, stamp, seen = -1, time, set()
            elif text and not text.startswith("#"):
                log.left.add("broken_rows", "lines are neither metrics nor comments", place=f"line {line}")
            continue
        series = f"{found['name']}{{{found['labels']}}}"
        if row < 0 or series in seen or (found["stamp"] or "") != own:
            own = found["stamp"] or ""
            row, stamp, seen = log.row(stamp or own), "", set()
        seen.add(series)
        labels = {key.lower(): text for key, text in _LABEL.findall(found["labels"])}
        log.labelled(found["name"], labels, row, found["value"], f"line {line}")
    return _with_power(log).run("dcgm", "scrapes", dialect="dcgm-exporter")


def _with_power(log: _DcgmLog) -> _DcgmLog:
    """The log, in which a GPU without power beside others that have it lacks it: an exporter leaves out such fields."""
    boards = [device.id for device in log.devices.values() if device.kind != "mig"]
    for board in boards if any(POWER in log.channels(board) for board in boards) else ():
        log.empty(board, POWER, "power")
    return log


def _read_answer(path: Path, options: ImportOptions) -> Run:
    """Read the answer to ``/api/v1/query_range?query={__name__=~"DCGM_FI_.*"}``, or to a query of single fields."""
    log, answer = _DcgmLog(path, options), None
    try:
        answer = json.loads(read_text(path, log.left))
        series = [
            ({key.lower(): str(text) for key, text in one["metric"].items()}, one.get("values") or [one["value"]])
            for one in answer.get("data", answer)["result"]
        ]
        readings = [(float(time), labels, str(text)) for labels, values in series for time, text in values]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        said = f"{type(error).__name__}: {error}"
        if isinstance(answer, dict) and answer.get("error"):
            said = f"its error: {answer['error']}"
        raise BadInputError(f"{path}: not a whole answer of Prometheus ({said})") from None
    if any("__name__" not in labels for labels, _ in series):
        raise BadInputError(
            f"{path}: a series without a name: query fields as they are, such as DCGM_FI_DEV_POWER_USAGE"
        )
    row, before = -1, -1.0
    for time, labels, text in sorted(readings, key=lambda one: one[0]):
        if time != before:
            row, before = log.row(f"{time:.3f}"), time
        log.labelled(labels["__name__"], labels, row, text, f"{labels['__name__']} at {time:.3f}")
    return _with_power(log).run("dcgm", "readings", dialect="prometheus")


def _dmon_as_csv(text: str, log: Log) -> str:
    """What ``dcgmi dmon`` printed, as CSV with as many lines; rows of MIG instances don't state their GPU."""
    lines = []
    for line in text.split("\n"):
        entity, *cells = re.split(r" {2,}", line.strip().replace("# Entity", "#Entity"))
        found = _ENTITY.match(entity)
        if entity.startswith("#Entity"):
            cells = [cell for pair in cells for cell in pair.split()]
            lines.append(",".join(["Entity", *cells]))
        elif found and found[1] == "GPU":
            lines.append(",".join([entity, *(cell for some in cells for cell in some.split())]))
        else:
            log.left.add("other_lines", "rows are of other entities than GPUs", 1 if found else 0)
            lines.append("" if found or entity == "ID" else line)
    return "\n".join(lines)


def read_csv(path: Path, options: ImportOptions) -> Run:
    """Read fields of DCGM as CSV with a time and an entity in each row.

    Raises:
        BadInputError: If it holds no reading, or the time zone is unknown.
    """
    log = _DcgmLog(path, options)
    text = read_text(path, log.left).lstrip("\ufeff\r\n ")
    start = 0
    if _DMON.search(text):
        text = _dmon_as_csv(text, log)
        start = text.find("Entity,")  # behind lines of the shell, or the time of the first block
    plain = read_delimited(text, log.left, start=max(start, 0))
    table = joined_rows(path, plain, {})
    lower = [name.strip('"').lower() for name in table.header]
    entity = next((i for i, name in enumerate(lower) if name in _ENTITY_COLUMNS), None)
    stamp = next((i for i, name in enumerate(lower) if name in _STAMP_COLUMNS), None)
    if entity is None:
        log.apart = "log the column EntityId, too"
    parts = [i for i, name in enumerate(lower) if name in _INSTANCE_COLUMNS]
    labels = {lower[i]: i for i in range(len(lower)) if lower[i] in _LABEL_COLUMNS}
    skipped = {entity, stamp, *parts, *labels.values()}
    skipped |= set(range(len(plain.header))) if len(plain.header) < len(table.header) else set()
    others = [
        i for i, name in enumerate(table.header) if name and i not in skipped and _field(name) not in FIELDS.values()
    ]
    skipped |= set(left_out_texts(table, others, log.left))
    fields = [i for i, name in enumerate(table.header) if i not in skipped and name]
    decimal = decimal_sign(units.split(row[i])[0] for row in table.rows[:200] for i in fields)
    for cells, line, above in zip(table.rows, table.lines, table.times, strict=True):
        digits = re.sub(r"^\D+", "", cells[entity]) if entity is not None else "0"
        if gpu_number(digits) is None:
            log.left.add("broken_rows", "rows have no entity", place=f"line {line}")
            continue
        stated = {
            label: cells[labels[name]]
            for name, label in _LABEL_COLUMNS.items()
            if name in labels and not is_blank(cells[labels[name]])
        }
        board = log.board(digits, **stated)
        profile = " ".join(cells[i] for i in parts if not is_blank(cells[i]))
        instance = log.instance(board, profile, profile) if profile else None
        number = log.row(cells[stamp] if stamp is not None else above, instance or board)
        for i in fields:
            place = f"line {line}, column {table.header[i]}"
            digits, printed = units.split(cells[i])
            value = log.left.number(digits, decimal, place)
            unit = log.left.unit(printed, _unit_of(table.header[i]), place)
            if value is None:
                log.empty(board, _field(table.header[i]).channel, table.header[i])
            elif unit is not None:
                log.take(table.header[i], board, instance, number, value, unit)
    return log.run("dcgm", "rows", dialect="csv")
