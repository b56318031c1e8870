"""Steps of a server's scheduler: read from a log, and joined with the Run of a load and that of the server.

The log has a JSON object a line, in any order::

    {"start_ns": 1.., "end_ns": 1.., "new_tokens": 512, "prefilling": 1, "decoding": 7, "context_tokens": 3001}

Times are nanoseconds since the Unix epoch. ``new_tokens`` are tokens of prompts that the step reads, of ``prefilling``
sequences (optional); ``decoding`` sequences each get a token, and have ``context_tokens`` in their caches together.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.arrays import Floats
from jouletrace.errors import BadInputError
from jouletrace.run import Run, load, tables
from jouletrace.run.files import open_regular
from jouletrace.run.forms import RecordingFacts
from jouletrace.run.names import with_article
from jouletrace.run.recording_names import has_recording
from jouletrace.run.sound import MOST_NS
from jouletrace.wings.serving.analysis.steps import steps_in

MOST_BYTES = 1 << 30
NOT_READ, NOT_TRACED, MISSING = "steps_not_read", "steps_not_traced", "steps_missing"
"""Warnings: the log can't be used; the server's Run gives no energies of steps; the log covers a part of the load."""

_SLACK_STEPS, _SLACK_S = 5, 0.1
"""Longest time by which an answer may end after the last logged step, in long steps and in seconds: answers travel."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
_Context = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=MOST_NS)]


class LoggedStep(msgspec.Struct):
    """A line of the log."""

    start_ns: _Time
    end_ns: _Time
    new_tokens: _Count
    decoding: _Count
    context_tokens: _Context
    prefilling: _Count | None = None


def read_steps(path: Path) -> pa.Table:
    """The ``steps`` of a log, in order of time; those without a token are left out.

    Steps may overlap by less than half of themselves, as stamps of a host do: each then begins as the one before ends.

    Raises:
        BadInputError: If it can't be read, a line isn't sound (the line is named), or steps overlap.
    """
    try:
        with open_regular(path) as file:
            if file.seek(0, os.SEEK_END) > MOST_BYTES:
                raise BadInputError(f"{path}: larger than {MOST_BYTES >> 30} GiB")
            file.seek(0)
            data = file.read()
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror or error}") from None
    found = [one for one in _decoded(path, data) if one.new_tokens or one.decoding]
    if not found:
        raise BadInputError(f"{path}: it has no step with a token")
    return _table(path, found)


def _decoded(path: Path, data: bytes) -> list[LoggedStep]:
    """The steps of all lines; a last line without its end may still be being written, unless it is the only one."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BadInputError(f"{path}: its byte order mark says UTF-16: write it in UTF-8")
    lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
    found, decode = list[LoggedStep](), msgspec.json.Decoder(LoggedStep).decode
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(decode(line))
            except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
                if number < len(lines) or not found:
                    raise BadInputError(f"{path}: line {number} is no step: {error}") from None
    return found


def _table(path: Path, found: Sequence[LoggedStep]) -> pa.Table:
    columns = {name: [getattr(one, name) for one in found] for name in LoggedStep.__struct_fields__}
    table = tables.conform(pa.table(columns), "steps").sort_by("start_ns")
    start, end = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
    begun = np.maximum(start, np.append(start[:1], end[:-1]))
    if (wrong := end <= start).any():
        raise BadInputError(f"{path}: a step ends before it begins, at {int(start[np.argmax(wrong)])} ns")
    if (wrong := 2 * (begun - start) > end - start).any():
        at = int(start[np.argmax(wrong)])
        raise BadInputError(f"{path}: steps overlap at {at} ns: each engine needs a log of its own, and its own GPUs")
    new, prefilling = table["new_tokens"].to_numpy(), table["prefilling"]
    stated = pc.fill_null(prefilling, pa.scalar(-1, pa.int64())).to_numpy()
    if (wrong := (stated > new) | ((stated == 0) & (new > 0))).any():
        at = int(np.argmax(wrong))
        raise BadInputError(
            f"{path}: the step at {int(start[at])} ns reads {int(new[at])} new_tokens of {int(stated[at])} prefilling "
            "sequences: each of these reads at least one; leave prefilling out if it isn't known"
        )
    return tables.changed(table, "start_ns", begun)


def join(run: Run, log: pa.Table | None, server: Path | None = None) -> Run:
    """Add the steps that ran around the requests of a Run, and their energies by the server's traced kernels.

    Args:
        run: Of a load.
        log: As of ``read_steps``, on the server's clock; None for the steps that the answers show.
        server: The Run of the server under ``jouletrace run``; None without.

    Returns:
        The same Run, to be analysed again.

    Raises:
        BadInputError: If the Run has no requests, the others are of another time or other GPUs, or there is no log and
            the answers don't show the steps.
    """
    if not len(run.requests):
        raise BadInputError("the Run has no requests: give one of jouletrace bench")
    ahead_ns = round(1e9 * max((float(one.details.get("clock_offset_s", 0.0)) for one in run.devices), key=abs))
    if log is None and steps_in(run) is None:
        raise BadInputError("its answers don't show the server's steps: give a log of them")
    steps = _moved(run.steps, ahead_ns) if log is None else log
    traced = traced_steps(run, steps, server) if server is not None else None
    if traced is not None:
        joules, covariance = traced
        steps = tables.changed(steps, "traced_j", pa.array(joules, from_pandas=True))
        run.workload["serving"]["traced_covariance"] = covariance.tolist()
    steps = _moved(steps, -ahead_ns)
    begin, end = pc.min(run.requests["sent_ns"]).as_py(), pc.max(run.requests["last_ns"]).as_py()
    there = pc.and_(pc.greater(steps["end_ns"], begin), pc.less(steps["start_ns"], end))
    if not pc.any(there).as_py():
        spans = [(begin, end), (steps["start_ns"][0].as_py(), steps["end_ns"][-1].as_py())]
        requests, logged = (f"{_time(since)} to {_time(until)}" for since, until in spans)
        raise BadInputError(f"the steps are of {logged}, the requests of {requests}: they have no time in common")
    samples = run.samples["time_ns"]  # idle power is seen before and after the requests: their steps belong to it
    if len(samples):
        begin, end = min(begin, pc.min(samples).as_py()), max(end, pc.max(samples).as_py())
    inside = pc.and_(pc.greater(steps["end_ns"], begin), pc.less(steps["start_ns"], end))
    run.steps = tables.conform(steps.filter(inside), "steps")
    if log is not None:
        run.workload["serving"].pop("streamed", None)
        run.warnings = [one for one in run.warnings if one.code not in (NOT_READ, MISSING)]  # of another log
        _warn_of_missing(run)
    return run


def _moved(steps: pa.Table, by_ns: int) -> pa.Table:
    """Steps on a clock that is ahead by so much."""
    for name in ("start_ns", "end_ns"):
        steps = tables.changed(steps, name, pc.add(steps[name], by_ns))
    return steps


def _warn_of_missing(run: Run) -> None:
    """Warn if the log begins after the first answer, or ends before the last: its steps then carry others' energy."""
    ok = run.requests.filter(pc.equal(run.requests["status"], "ok"))
    if not len(ok):
        return
    start, end = run.steps["start_ns"].to_numpy(), run.steps["end_ns"].to_numpy()
    slack_ns = max(_SLACK_STEPS * float(np.quantile(end - start, 0.95)), _SLACK_S * 1e9)
    first, last = pc.min(ok["first_ns"]).as_py(), pc.max(ok["last_ns"]).as_py()
    late_s = 0.0 if first is None else (int(start[0]) - first) / 1e9
    early_s = (last - int(end[-1])) / 1e9
    for missing_s, what in (
        (late_s, "begins {:.3g} s after the first answer"),
        (early_s, "ends {:.3g} s before the last answer"),
    ):
        if missing_s * 1e9 > slack_ns:
            message = f"the log of steps {what.format(missing_s)}: bills by steps lack what ran then"
            run.warn(MISSING, message)


def _time(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def traced_steps(run: Run, steps: pa.Table, server: Path) -> tuple[Floats, Floats] | None:
    """Energies of steps on all GPUs of a load by the server's kernels, NaN where none were analysed; shape (n,).

    Also what the error of the kernels' powers does to the factors of a step (``step_powers``). None, with a
    warning, if the server's Run gives no powers of kernels.

    Raises:
        BadInputError: If the server's Run isn't of the same GPUs, or holds no kernels.
    """
    from jouletrace.wings.serving.analysis.step_powers import step_powers

    run_of_server = load(server)
    parts = _of_gpus(run_of_server, server)
    total, covariance = np.zeros(len(steps)), np.zeros((5, 5))
    for device in run.devices:
        if device.id not in parts:
            there = ", ".join(sorted(parts)) or "no GPU"
            raise BadInputError(f"{server}: its kernels ran on {there}, the load was measured on {device.id}")
        found = step_powers(run_of_server, parts[device.id], steps)
        if isinstance(found, str):
            run.warn(NOT_TRACED, f"the server's kernels have no energies: {found}", device.id)
            return None
        total, covariance = total + found[0], covariance + found[1]
    if not np.isfinite(total).any():
        run.warn(NOT_TRACED, "the part of the server's Run that was analysed lies outside of the steps")
        return None
    return total, covariance


def _of_gpus(run: Run, place: Path) -> dict[str, RecordingFacts]:
    """The recordings of a program by the GPU's id."""
    if run.kind != "program":
        raise BadInputError(f"{place}: {with_article(run.kind)}, not a Run of jouletrace run")
    if not has_recording(run):
        apart = any("start_ns" not in one for one in run.workload.get("recordings", ()))
        hint = "; this old Run of several GPUs kept those of each in a Run beside it: give that" if apart else ""
        raise BadInputError(f"{place}: no kernels were traced in it{hint}")
    return {one.get("device") or run.devices[0].id: one for one in run.workload["recordings"]}
