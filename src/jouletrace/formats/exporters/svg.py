"""A picture of a Run as SVG: power within an iteration above its kernels, else kernels by stream and power."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.formats.exporters.output import new_file
from jouletrace.formats.exporters.picture import LEFT, RIGHT, WIDTH, Axis, Sheet, clipped, nice, scaled
from jouletrace.formats.exporters.timeline import Timeline, timeline_of
from jouletrace.formats.exporters.timeline.counters import Counter
from jouletrace.formats.exporters.timeline.stretch import Stretch, stretch_of
from jouletrace.formats.exporters.timeline.tracks import Process, Spans, Track, codes, spans_of
from jouletrace.report import waveform
from jouletrace.run import Run
from jouletrace.run.channels import POWER
from jouletrace.run.names import short_names

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""The colours of Okabe and Ito, which most colour-blind readers can distinguish (jfly.uni-koeln.de/color)."""

_OTHER, _PALE = "#888888", "#bbbbbb"
_PERCENT = (("Compute", ""), ("Memory", ""), ("Achieved occupancy", "Theoretical occupancy"))
"""Counters that are drawn, each with its upper bound, which is drawn behind it."""

_AROUND = 25
"""Readings of power shown before and after the iteration."""

_POWER_HIGH, _LANE, _ROW = 104, 24, 62
_MOST_LANES = 12


def write(run: Run, path: Path | str) -> Path:
    """Draw one iteration of a Run (all of it if its iterations are unknown), with the power within or around it.

    Raises:
        BadInputError: If nothing in the Run has a time, or the path exists already or
            can't be written.
    """
    with new_file(path) as file:
        inside = waveform.picture(run)
        picture = inside[0] if inside is not None else draw(run)
        if picture is None:
            raise BadInputError("nothing in the Run has a time: there is nothing to draw")
        file.write(picture.encode())
    return Path(path)


def draw(run: Run) -> str | None:
    """The picture of a timeline; None if nothing in the Run has a time.

    Raises:
        BadInputError: If its times lie more than 292 years apart.
    """
    timeline = timeline_of(run)
    spans = spans_of(run)
    stretch = stretch_of(run, spans)
    if stretch is None:
        return None
    process = _shown(stretch, timeline)
    lines = {line.name: line for line in timeline.lines if line.process == process.id}
    sheet = Sheet()
    sheet.text(LEFT, 26, _title(run, process), size=17, bold=True)
    sheet.text(LEFT, 46, _facts(spans, stretch, lines), grey=True)
    y = 72.0
    if "Power" in lines and len(lines["Power"].time_ns) > 1:
        y = _power(sheet, run, stretch, process, lines["Power"], y)
    axis = Axis(stretch.start_ns, stretch.end_ns)
    if len(stretch.kernels):
        tracks = [track for track in timeline.tracks if track.process == process.id]
        y = _kernels(sheet, spans, stretch, tracks, axis, y)
    y += 10
    for name, bound in _PERCENT:
        if name in lines:
            y = _percent(sheet, lines[name], lines.get(bound), axis, y)
    y = sheet.time_axis(axis, y - 10) + 12
    if len(stretch.kernels):
        y = _legend(sheet, spans, stretch, y)
    return sheet.done(y + 8)


def _shown(stretch: Stretch, timeline: Timeline) -> Process:
    """The device to show: the one with kernels; without kernels one with known power; else the last."""
    processes = timeline.processes
    if len(stretch.kernels):
        return next(process for process in processes if process.device == stretch.device)
    powered = {line.process for line in timeline.lines if line.name == "Power"}
    return next((process for process in processes if process.id in powered), processes[-1])


def _title(run: Run, process: Process) -> str:
    facts = run.workload
    words = [word for word in (facts.get("name"), facts.get("dtype"), facts.get("mode")) if word]
    if facts.get("batch") is not None:
        words.insert(1, f"batch {facts['batch']}")
    return " · ".join([", ".join(words) or run.kind, process.name.split(" (")[0]])


def _facts(spans: Spans, stretch: Stretch, lines: dict[str, Counter]) -> str:
    """Facts of the segment: its length, the time with kernels, clock and temperature."""
    length = stretch.end_ns - stretch.start_ns
    found = [f"{stretch.what}: {scaled(length)}"]
    if len(stretch.kernels):
        start, end = spans.start_ns[stretch.kernels], np.maximum.accumulate(spans.end_ns[stretch.kernels])
        busy = int(np.maximum(end - np.maximum(start, np.append(start[0], end[:-1])), 0).sum())
        found.append(f"{len(start)} kernels, which run in {scaled(busy)} of it ({busy / length:.0%})")
    for name, unit in (("SM clock", "MHz"), ("Temperature", "°C")):
        line = lines.get(name)
        if line is not None and len(line.time_ns):
            # The reading that holds at its beginning, and those within.
            at = max(int(np.searchsorted(line.time_ns, stretch.start_ns, "right")) - 1, 0)
            until = max(int(np.searchsorted(line.time_ns, stretch.end_ns, "right")), at + 1)
            low, high = f"{line.value[at:until].min():.0f}", f"{line.value[at:until].max():.0f}"
            found.append(f"{low} {unit}" if low == high else f"{low} to {high} {unit}")
    return " · ".join(found)


def _power(sheet: Sheet, run: Run, stretch: Stretch, process: Process, line: Counter, y: float) -> float:
    """Readings of power, each over its interval, on a separate axis; returns the position of the segment there."""
    channel = run.channel(process.device or "", POWER)
    period = int(np.median(np.diff(line.time_ns)))
    lag = int(channel.delay_s * 1e9) if channel is not None and channel.delay_s is not None else period // 2
    since = line.time_ns - (lag + period // 2)
    start = min(max(stretch.start_ns - _AROUND * period, int(since[0])), stretch.start_ns)
    end = max(min(stretch.end_ns + _AROUND * period, int(since[-1]) + period), stretch.end_ns)
    time, value = clipped(since, line.value, start, end)
    if len(time) == 0:
        return y
    gain = channel.gain_pct if channel is not None else None
    band = (gain or 0.0) / 100
    axis, top = Axis(start, end), nice(float(value.max()) * (1 + band))
    words = f"band: gain of the GPU's sensor, ±{gain:g} %" if gain else "the sensor's gain error is unknown"
    sheet.heading(y, "Power, W", _POWER_HIGH, 0, top)
    sheet.text(WIDTH - RIGHT, y - 4, f"a reading every {scaled(period)}; {words}", grey=True, end=True)
    if band:
        sheet.band(axis, time, value * (1 - band), value * (1 + band), top, y, _POWER_HIGH)
    sheet.steps(axis, time, value, top, y, _POWER_HIGH, _COLOURS[1])
    low, high = axis.x(stretch.start_ns), axis.x(stretch.end_ns)
    below = sheet.time_axis(axis, y + _POWER_HIGH, since=stretch.start_ns) + 8
    return sheet.funnel(low, high, y, y + _POWER_HIGH, below) + 10


def _kernels(sheet: Sheet, spans: Spans, stretch: Stretch, tracks: list[Track], axis: Axis, y: float) -> float:
    """A lane per stream; kernels by colour."""
    colour = _colours(spans, stretch)
    names, name = codes(spans.table["name"])
    inside = np.zeros(len(spans.start_ns), bool)
    inside[stretch.kernels] = True
    lanes = [(track.name, track.rows[inside[track.rows]]) for track in tracks]
    lanes = [(title, rows) for title, rows in lanes if len(rows)]
    for title, rows in lanes[:_MOST_LANES]:
        sheet.text(LEFT - 10, y + 15, title.removeprefix("Kernels, "), end=True)
        fills = [colour.get(names[code] if code >= 0 else "", _OTHER) for code in name[rows].tolist()]
        sheet.boxes(axis, spans.start_ns[rows], spans.end_ns[rows], fills, y, _LANE - 4)
        y += _LANE
    if len(lanes) > _MOST_LANES:
        sheet.text(LEFT, y + 12, f"and {len(lanes) - _MOST_LANES} more streams", grey=True)
        y += _LANE
    return y + 12


def _times(spans: Spans, stretch: Stretch) -> list[tuple[str, int, int]]:
    """Names of kernels with their number and total time, the longest first."""
    names, name = codes(spans.table["name"])
    code = name[stretch.kernels] + 1
    length = spans.end_ns[stretch.kernels] - spans.start_ns[stretch.kernels]
    count, total = np.bincount(code), np.bincount(code, length)
    words = ["", *names]
    return [(words[i], int(count[i]), int(total[i])) for i in np.argsort(-total, kind="stable") if count[i]]


def _colours(spans: Spans, stretch: Stretch) -> dict[str, str]:
    return {name: colour for (name, *_), colour in zip(_times(spans, stretch), _COLOURS, strict=False)}


def _percent(sheet: Sheet, line: Counter, bound: Counter | None, axis: Axis, y: float) -> float:
    """A counter of kernels while they run, in front of its upper bound."""
    high = _ROW - 22
    behind = [] if bound is None else [(_PALE, *clipped(bound.time_ns, bound.value, axis.start_ns, axis.end_ns))]
    drawn = [*behind, (_COLOURS[0], *clipped(line.time_ns, line.value, axis.start_ns, axis.end_ns))]
    top = nice(max((float(value.max()) for *_, value in drawn if len(value)), default=1.0))
    sheet.heading(y, f"{line.name}, %", high, 0, top)
    for colour, time, value in drawn:
        sheet.steps(axis, time, value, top, y, high, colour, filled=True)
    if bound is not None:
        sheet.text(WIDTH - RIGHT, y - 4, f"behind: {bound.name.lower()}", grey=True, end=True)
    return y + _ROW


def _legend(sheet: Sheet, spans: Spans, stretch: Stretch, y: float) -> float:
    """The longest kernels: colour, short name, launches and time."""
    times = _times(spans, stretch)
    shown = times[: len(_COLOURS)]
    short = short_names([name for name, *_ in shown])
    for (name, count, total), colour in zip(shown, _COLOURS, strict=False):
        sheet.key(y, colour, f"{short[name] or '(no name)'}: {count} launches, {scaled(total)}")
        y += 18
    if len(times) > len(shown):
        rest = times[len(shown) :]
        count, total = sum(one[1] for one in rest), sum(one[2] for one in rest)
        sheet.key(y, _OTHER, f"{len(rest)} more names: {count} launches, {scaled(total)}")
        y += 18
    return y
