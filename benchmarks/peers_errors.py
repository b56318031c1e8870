"""Errors of tools beside the energy counter, and their cost, as tables, from what ``peers_gpu.py`` measured.

    python benchmarks/peers_errors.py OUT.json

The truth of each section is the counter between two of its own steps, and what it needs beside that:

- *steady*: the counter's line between its steps, since the load draws the same before and after an edge.
- *training*: the block and what lies between it and the next steps outside; while tools begin and end there, the GPU
  draws what it does in pauses of 40 ms, which the section measures.
- *bursts*: less idle power for the rest of the bracket (``bursts.py``).
- *inside*: the difference of whole cycles with and without a burst, without a tool: least squares over groups of
  cycles, energy = light power × light time + bursts × energy of a burst, whose scatter gives the truth's own error.
  Of a burst above the power limit it includes what the lighter work then draws less at the lower clock.
- *kernels*: each operator looped alone.

Steps are put on their grid (``steps_of``), and their errors are those of polls, not of what the load does between.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import theilslopes

import slowdown
from bursts import bracket, inner_bracket, true_energies
from canary import OPERATORS

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from brackets import CounterSteps
from jouletrace.stats.interval import mean_estimate

Row = dict[str, Any]
Truth = tuple[float, float]
"""Joules and their standard deviation."""

PAUSE_SD_W = 50.0
"""How far the power of a pause of another length may be from that of 40 ms."""


def steps_of(section: Row) -> CounterSteps:
    """The counter's steps of a section, on their grid, each as uncertain as a poll is long.

    Steps are even to 2 ms, but NVML shows them up to 20 ms late while it is busy. A steady load's energies between
    steps scatter by less than half as much about the grid as about the times of polls.
    """
    polled, width, millijoules = np.array(section["steps"], np.int64).T
    number = np.round((polled - polled[0]) / np.median(np.diff(polled)))
    slope = theilslopes(polled, number).slope
    middle_ns = (1000 * (slope * number + np.median(polled - slope * number))).round().astype(np.int64)
    half_ns = 500 * int(np.median(width))
    return CounterSteps(middle_ns + half_ns, middle_ns - half_ns, millijoules / 1e3, np.array([], int))


def stated(section: Row) -> list[Row]:
    """Rows that a tool has ended, in the order of time."""
    return [row for row in section["rows"] if "at" in row]


def window_j(section: Row, start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """Joules between the last steps that NVML showed before either edge: a window on the counter, without delay."""
    shown, _, millijoules = np.array(section["steps"], np.int64).T
    last, first = (millijoules[np.searchsorted(1000 * shown, at, side="right") - 1] for at in (end_ns, start_ns))
    return (last - first) / 1e3


def of_windows(section: Row, truths: Callable[[Row], list[Truth]]) -> list[Row]:
    """Errors in % of a window on the counter over every block, with whichever tool it was measured."""
    rows = stated(section)
    read_j = window_j(section, *(np.array([row["at"][which] for row in rows]) for which in (1, 2)))
    windows = [row | {"joules": [float(one)]} for row, one in zip(rows, read_j, strict=True)]
    return judged(section | {"rows": windows}, truths)


def of_random_windows(section: Row, about_s: float) -> tuple[float, float]:
    """Standard deviation and worst error, %, of windows on the counter within 0.05 s of a length, at random."""
    steps, rows, random = steps_of(section), stated(section), np.random.default_rng(0)
    length = 1e9 * random.uniform(about_s - 0.05, about_s + 0.05, 10_000)
    start = random.uniform(rows[0]["at"][0], rows[-1]["at"][3] - length)
    first, last = np.interp([start, start + length], (steps.time_ns + steps.before_ns) / 2, steps.energy_j)
    errors = 100 * (window_j(section, start, start + length) / (last - first) - 1)
    return float(errors.std()), float(np.abs(errors).max())


def least_squares(design: np.ndarray, energy_j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and their sd by the residuals, NaN where there are too few."""
    line, *_ = np.linalg.lstsq(design, energy_j, rcond=None)
    left, free = energy_j - design @ line, len(energy_j) - design.shape[1]
    if free < 1:
        return line, np.full(len(line), np.nan)
    return line, np.sqrt(left @ left / free * np.diag(np.linalg.inv(design.T @ design)))


def lowered_j(section: Row, count: int) -> Truth:
    """How much less lighter work draws within 0.2 s after a burst of so many replays, in cycles without a tool."""
    steps = steps_of(section)
    middle, design, energy_j = (steps.time_ns + steps.before_ns) / 2, [], []
    for group in section["groups"]:
        if group["count"] not in (0, count):
            continue
        bursts = group["bursts"] if group["count"] else []
        for i in np.flatnonzero((middle[:-1] > group["from"] + 1e8) & (middle[1:] <= group["to"])):
            ends = (middle[i], middle[i + 1])
            heavy_s = sum(overlap_s(ends, tuple(burst)) for burst in bursts)
            after_s = sum(overlap_s(ends, (ended, ended + 2e8)) for _, ended in bursts)
            design.append(((ends[1] - ends[0]) / 1e9 - heavy_s, heavy_s, after_s))
            energy_j.append(steps.energy_j[i + 1] - steps.energy_j[i])
    line, sd = least_squares(np.array(design), np.array(energy_j))
    return -0.2 * float(line[2]), 0.2 * float(sd[2])


def of_steady(section: Row) -> list[Truth]:
    """Energies by the counter's line between steps; their error is that of a step's time, and of its power."""
    steps = steps_of(section)
    middle = (steps.time_ns + steps.before_ns) / 2
    powers = np.diff(steps.energy_j) / np.diff(middle) * 1e9
    scatter_w = float(np.median(np.abs(powers - np.median(powers))) * 1.48)
    truths = []
    for row in stated(section):
        first, last = np.interp(row["at"][1:3], middle, steps.energy_j)
        time_sd_s = float(np.median(steps.time_ns - steps.before_ns)) / 1e9 / np.sqrt(12)
        truths.append((last - first, np.sqrt(2) * np.hypot(time_sd_s * np.median(powers), 0.03 * scatter_w)))
    return truths


def overlap_s(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Seconds that two intervals in ns share."""
    return max(0.0, min(first[1], second[1]) - max(first[0], second[0])) / 1e9


def of_training(section: Row) -> list[Truth]:
    """Energies of blocks by the bracket around each, less the steps and the pauses outside the block."""
    steps, waits = steps_of(section), section["waits"]
    work, pauses = inner_bracket(steps, waits["from"] - 900_000_000, waits["from"]), None
    pauses = inner_bracket(steps, waits["from"], waits["to"])
    work_w = work.energy_j / (work.end_ns - work.start_ns) * 1e9
    rest_s = sum(overlap_s((pauses.start_ns, pauses.end_ns), tuple(rest)) for rest in waits["rest"])
    pause_w = (pauses.energy_j - work_w * ((pauses.end_ns - pauses.start_ns) / 1e9 - rest_s)) / rest_s
    rests = [ends for row in stated(section) for ends in (row["at"][:2], row["at"][2:])]
    truths = []
    for row in stated(section):
        start, end = row["at"][1:3]
        around = bracket(steps, start, end)
        if around is None:
            truths.append((np.nan, np.nan))
            continue
        rest_s = sum(
            overlap_s(side, tuple(rest)) for side in ((around.start_ns, start), (end, around.end_ns)) for rest in rests
        )
        power_w = (around.energy_j - pause_w * rest_s) / ((around.end_ns - around.start_ns) / 1e9 - rest_s)
        sd_j = np.hypot(np.sqrt(2) * power_w * around.time_sd_s, PAUSE_SD_W * rest_s)
        truths.append((power_w * (end - start) / 1e9, sd_j))
    return truths


def of_bursts(section: Row) -> list[Truth]:
    """Energies above the idle of the pauses on both sides, as ``bursts.py`` has them."""
    start, end = (np.array([row["at"][which] for row in stated(section)]) for which in (1, 2))
    return list(zip(*true_energies(steps_of(section), start, end), strict=True))


def of_cycles(section: Row) -> dict[int, Truth]:
    """Energy of a burst by its number of replays, from the groups of cycles without a tool."""
    steps, groups = steps_of(section), section["groups"]
    middle = (steps.time_ns + steps.before_ns) // 2
    counts = sorted({group["count"] for group in groups} - {0})
    design, energy_j = np.zeros((len(groups), 1 + len(counts))), np.zeros(len(groups))
    for number, group in enumerate(groups):
        first, last = (int(np.argmin(np.abs(middle - group[end]))) for end in ("from", "to"))
        heavy_s = sum(ended - began for began, ended in group["bursts"]) / 1e9
        design[number, 0] = (middle[last] - middle[first]) / 1e9 - heavy_s
        if group["count"]:
            design[number, 1 + counts.index(group["count"])] = len(group["bursts"])
        energy_j[number] = steps.energy_j[last] - steps.energy_j[first]
    line, sd = least_squares(design, energy_j)
    return {count: (float(line[i]), float(sd[i])) for i, count in enumerate(counts, 1)}


def of_inside(section: Row) -> list[Truth]:
    """The energy of each row's burst."""
    truths = of_cycles(section)
    return [truths[row["count"]] for row in stated(section)]


def judged(section: Row, truths: Callable[[Row], list[Truth]]) -> list[Row]:
    """Rows with the truth, the error in % of it, and the error of the mean power over what the tool calls the block."""
    rows = []
    for row, (true_j, sd_j) in zip(stated(section), truths(section), strict=True):
        joules = (row.get("joules") or [None])[0]
        said = joules is not None and np.isfinite(true_j)
        error = 100 * (joules / true_j - 1) if said else np.nan
        length_s = (row["at"][2] - row["at"][1]) / 1e9
        rows.append(
            row
            | {"true_j": true_j, "sd_pct": 100 * sd_j / true_j, "error_pct": error}
            | {"power_error_pct": 100 * (joules / row["stated_s"] / (true_j / length_s) - 1) if said else np.nan}
        )
    return rows


def cell(rows: list[Row], which: str = "error_pct") -> str:
    """Mean ± standard deviation of errors; in brackets of how many blocks, and how many of these have none or 0 J."""
    values = np.array([row[which] for row in rows])
    known = values[np.isfinite(values)]
    if not len(values):
        return ""
    spread = f" ± {known.std(ddof=1):.1f}" if len(known) > 1 else ""
    zero = sum((row.get("joules") or [None])[0] == 0 for row in rows) if which == "error_pct" else 0
    more = f"; {len(values) - len(known)} without" if len(known) < len(values) else ""
    more += f"; {zero} of 0 J" if zero else ""
    return (f"{known.mean():+.1f}{spread}" if len(known) else "–") + f" ({len(values)}{more})"


def by_length(title: str, rows: list[Row], more: dict[str, Callable[[list[Row]], str]]) -> list[str]:
    """A table of errors by tool and length, with further columns."""
    lengths, tools = sorted({row["length_s"] for row in rows}), list(dict.fromkeys(row["tool"] for row in rows))
    lines = [f"## {title}", "", "| tool | " + " | ".join([*(f"{one:g} s" for one in lengths), *more]) + " |"]
    lines += ["|---" * (1 + len(lengths) + len(more)) + "|"]
    for tool in sorted(tools):
        own = [row for row in rows if row["tool"] == tool]
        cells = [cell([row for row in own if row["length_s"] == one]) for one in lengths]
        lines.append(f"| {tool} | " + " | ".join([*cells, *(call(own) for call in more.values())]) + " |")
    truth = ", ".join(
        f"{np.nanmedian([row['sd_pct'] for row in rows if row['length_s'] == one]):.2f} % at {one:g} s"
        for one in lengths
    )
    return [*lines, "", f"standard deviation of the truth: {truth}; {held(rows)}", ""]


def by_window(rows: list[Row]) -> str:
    """A window on the counter over all blocks: errors in %, by length."""
    lengths = sorted({row["length_s"] for row in rows})
    errors = (f"{cell([row for row in rows if row['length_s'] == one])} at {one:g} s" for one in lengths)
    return f"a window on the counter is off by {', '.join(errors)}"


def held(rows: list[Row]) -> str:
    """How many intervals hold the truth, taken for exact."""
    own = [row["joules"] for row in rows if len(row.get("joules", [])) == 3 and row["joules"][0] is not None]
    true = [row["true_j"] for row in rows if len(row.get("joules", [])) == 3 and row["joules"][0] is not None]
    inside = sum(low <= one <= high for (_, low, high), one in zip(own, true, strict=True))
    return f"jouletrace's intervals that hold it: {inside} of {len(own)}"


def median_ms(rows: list[Row], seconds: Callable[[Row], float]) -> str:
    return f"{1e3 * np.median([seconds(row) for row in rows]):.1f}"


def cores(rows: list[Row]) -> str:
    """CPU time beside the program, % of a core, in the longest blocks."""
    longest = max(row["length_s"] for row in rows)
    own = [row["cpu_s"] / row["length_s"] for row in rows if row["length_s"] == longest and row["cpu_s"] is not None]
    return f"{100 * np.mean(own):.1f}" if own else "–"


def alone(section: Row) -> dict[str, Row]:
    """By operator: joules of an execution alone, their sd, mean W, ms, and MHz right after."""
    steps, found = steps_of(section), {}
    for name, row in section["alone"].items():
        inner = inner_bracket(steps, *row["at"])
        if inner is None:
            continue
        seconds = (inner.end_ns - inner.start_ns) / 1e9
        watts, one_s = inner.energy_j / seconds, (row["at"][1] - row["at"][0]) / 1e9 / row["count"]
        found[name] = {"j": watts * one_s, "sd_pct": 100 * np.sqrt(2) * inner.time_sd_s / seconds, "w": watts}
        found[name] |= {"ms": 1e3 * one_s, "mhz": row["clock_mhz"]}
    return found


def of_table(rows: list[Row]) -> dict[str, Row]:
    """jouletrace's figure of each operator of the chain: of the same operator the longest is the first."""
    rows, figures = sorted(rows, key=lambda row: -(row["time_s"]["value"] or 0)), {}
    for name, (operator, which) in OPERATORS.items():
        own = [row for row in rows if {"kind": "op", "name": operator.removeprefix("aten.")} in row["path"]]
        if len(own) > which:
            figures[name] = own[which]["energy_j"]
    return figures


def ways(section: Row) -> dict[str, dict[str, float | None]]:
    """Joules of an execution by way and operator."""
    said = {
        name: values for name, values in section["said"].items() if isinstance(values, list) or "error" not in values
    }
    joules: dict[str, dict[str, float | None]] = {}
    if "in the chain" in said:
        seconds, chain = said.pop("in the chain"), section["chain"]
        inner = inner_bracket(steps_of(section), *chain["at"])
        if inner is not None and sum(seconds.values()) > 0:
            watts = inner.energy_j / (inner.end_ns - inner.start_ns) * 1e9
            whole_j = watts * (chain["at"][1] - chain["at"][0]) / 1e9 / chain["count"]
            total_s = sum(seconds.values())
            joules["torch.profiler's share × energy"] = {name: whole_j * one / total_s for name, one in seconds.items()}
            joules["Magneton's way, in place"] = {name: chain["watts"] * one for name, one in seconds.items()}
    joules |= {name: values for name, values in said.items() if name != "jouletrace"}
    if "jouletrace" in said:
        joules["jouletrace"] = {name: one["value"] for name, one in of_table(said["jouletrace"]).items()}
    return joules


def of_kernels(section: Row, limit_w: float) -> list[str]:
    """Errors of each way by operator, in %."""
    true, by_way = alone(section), ways(section)
    took = {**section["took_s"], "torch.profiler's share × energy": section["took_s"].get("in the chain")}
    took["Magneton's way, last 0.9 s of 2 s"] = section["took_s"].get("Magneton's way, replayed")
    took["Magneton's way, in place"] = took["torch.profiler's share × energy"]
    lines = ["## Operators of a chain beside each alone", "", "| way | " + " | ".join(true) + " | rms | sum | s |"]
    lines += ["|---" * (4 + len(true)) + "|"]
    own_s = section["said"].get("in the chain", {})
    rows = [
        ("alone, J", "{:.3f}", [row["j"] for row in true.values()]),
        ("alone, sd, %", "{:.2f}", [row["sd_pct"] for row in true.values()]),
        ("alone, W", "{:.0f}", [row["w"] for row in true.values()]),
        ("alone, MHz", "{:.0f}", [row["mhz"] for row in true.values()]),
        ("alone, ms", "{:.3f}", [row["ms"] for row in true.values()]),
        ("in the chain, ms", "{:.3f}", [1e3 * own_s.get(name, np.nan) for name in true]),
    ]
    for name, form, values in rows:
        whole = f"{sum(values):.3f}" if form == "{:.3f}" else ""
        lines.append(f"| {name} | {' | '.join(form.format(one) for one in values)} | | {whole} | |")
    for way, joules in by_way.items():
        errors = [
            100 * (joules[name] / true[name]["j"] - 1) if joules.get(name) is not None else np.nan for name in true
        ]
        cells = ["–" if np.isnan(one) else f"{one:+.1f}" for one in errors]
        rms = np.sqrt(np.nanmean(np.square(errors))) if np.isfinite(errors).any() else np.nan
        whole = "–" if np.isnan(errors).any() else f"{sum(joules[name] for name in true):.3f}"
        lines.append(f"| {way} | {' | '.join(cells)} | {rms:.1f} | {whole} | {took.get(way) or 0:.0f} |")
    if "jouletrace" in by_way:
        figures = of_table(section["said"]["jouletrace"])
        known = [name for name in true if name in figures and figures[name]["value"] is not None]
        widths = [50 * (figures[one]["high"] - figures[one]["low"]) / figures[one]["value"] for one in known]
        inside = sum(figures[one]["low"] <= true[one]["j"] <= figures[one]["high"] for one in known)
        lines += [
            "",
            f"jouletrace: intervals hold the truth, taken for exact, of {inside} of {len(known)}; half-widths ",
        ]
        lines[-1] += ", ".join(f"{one:.1f} %" for one in widths)
    capped = [name for name, row in true.items() if row["w"] > 0.97 * limit_w]
    return [*lines, "", f"at the power limit when alone: {', '.join(capped) or 'none'}", ""]


def of_overhead(section: Row) -> list[str]:
    """Time per iteration with each tool over that without, of the same round, in %, with the interval and rounds.

    That of ``jouletrace run`` is by its turns.
    """
    rounds: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in section["rows"]:
        if row["tool"] == "nothing" and "s" in row:
            rounds[row["work"], row["round"]].append(row["s"])
    works = list(dict.fromkeys(row["work"] for row in section["rows"]))
    lines = ["## Overhead, %", "", "| tool | " + " | ".join(works) + " |", "|---" * (1 + len(works)) + "|"]
    for tool in dict.fromkeys(row["tool"] for row in section["rows"]):
        cells = []
        for work in works:
            own = [row for row in section["rows"] if (row["tool"], row["work"]) == (tool, work) and "s" in row]
            plain = [rounds[work, row["round"]] for row in own]
            if tool == "nothing":  # the first of a round over the second
                ratios = [
                    both[0] / both[1] for both in rounds.values() if len(both) == 2 and both[0] in [r["s"] for r in own]
                ]
            else:
                ratios = [row["s"] / np.mean(one) for row, one in zip(own, plain, strict=True) if one]
            mean = mean_estimate(np.log(ratios)) if len(ratios) > 1 else None
            ends = () if mean is None or mean.value is None else (mean.value, mean.low, mean.high)
            percent = [100 * np.expm1(end) for end in ends]
            shown = "{:+.1f} ({:+.1f} to {:+.1f}; {})".format(*percent, len(ratios)) if ends else "–"
            cells.append(shown)
        lines.append(f"| {tool} | {' | '.join(cells)} |")
    for program, rows in section["run"].items():
        if isinstance(rows, list) and len({row["round"] for row in rows}) > 1:
            lines.append("jouletrace run, {}: {:+.1f} ({:+.1f} to {:+.1f})".format(program, *slowdown.more(rows)))
        else:
            lines.append(f"jouletrace run, {program}: –")
    return [*lines, ""]


def of_first(section: Row, lines: dict[str, int]) -> list[str]:
    """Seconds from the first call of a tool until its block may begin, then of the second; lines of a user."""
    shown = ["## Set-up", "", "| tool | first, s | again, s | lines |", "|---|---|---|---|"]
    for tool, count in lines.items():
        own = [row for row in section["rows"] if row["tool"] == tool]
        cells = [f"{(row['at'][1] - row['at'][0]) / 1e9:.3f}" if "at" in row else row.get("error", "–") for row in own]
        shown.append(f"| {tool} | {' | '.join(cells)} | {count} |")
    return [*shown, ""]


def tables(measured: Row) -> str:
    """All tables of what was measured, and what failed."""
    lines, limit_w = [], measured["machine"]["limit_w"]
    power = {"power alone": lambda rows: cell(rows, "power_error_pct")}
    waits = {
        "ms before": lambda rows: median_ms(rows, lambda row: (row["at"][1] - row["at"][0]) / 1e9),
        "ms after": lambda rows: median_ms(rows, lambda row: row.get("figure_s", np.nan)),
        "CPU ms after": lambda rows: median_ms(rows, lambda row: row.get("figure_cpu_s", np.nan)),
    }
    makers: dict[str, Callable[[Row], list[str]]] = {
        "first": lambda section: of_first(section, measured["machine"]["lines"]),
        "steady": lambda section: by_length(
            "Steady load", judged(section, of_steady), power | {"CPU, % of a core": cores}
        ),
        "training": lambda section: by_length("Training", judged(section, of_training), power),
        "bursts": lambda section: [
            *by_length("Bursts after pauses", judged(section, of_bursts), waits),
            by_window(of_windows(section, of_bursts)),
            "",
        ],
        "inside": lambda section: by_length("Bursts inside work", judged(section, of_inside), {}),
        "overhead": of_overhead,
        "kernels": lambda section: of_kernels(section, limit_w),
    }
    for name, make in makers.items():
        section = measured.get(name, {})
        if not section:
            continue
        try:
            lines += make(section)
        except Exception as error:  # a table that can't be made hides no other
            lines += [f"## {name}: {section.get('error') or f'{type(error).__name__}: {error}'}", ""]
        failed = {(row["tool"], row["error"]) for row in section.get("rows", []) if "error" in row}
        ways_failed = [(way, one["error"]) for way, one in section.get("said", {}).items() if "error" in one]
        lines += [f"{who}: {what}" for who, what in sorted([*failed, *ways_failed])]
    return "\n".join([*lines, f"seconds: {measured['took_s']}, {sum(measured['took_s'].values()):.0f} in all"])


if __name__ == "__main__":
    print(tables(json.loads(Path(sys.argv[1]).read_text())))
