"""Judges the estimator on the recordings of ``gpu.py``; needs no GPU.

    OMP_NUM_THREADS=1 python benchmarks/estimator/gpu_recorded.py FOLDER... -o FILE.json

A row for each program and length of bursts, for each operator of the chain, for each program at the power limit. Ways:
*library* is ``attribute`` for each burst alone, *together* with all bursts of a program in one solve, and *timeline*
either of these with kernels, whose names are their kinds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import gpu_truth
import numpy as np
from gpu_files import Kernels, read
from gpu_truth import Truth, edges, steps_of
from gpu_ways import AFTER_S, BEFORE_S, Case, Ends, alone, attributed, together

from jouletrace.attribution.activity import Kind, activity_of
from jouletrace.attribution.attempts import attempts
from jouletrace.attribution.program import attribute_program
from jouletrace.run.readings import Readings
from jouletrace.sensor.kinds import HOPPER_SENSOR
from jouletrace.sensor.shares import Response, Timeline

REST_NS = 1_800_000_000, 1_900_000_000
"""Idle before and after the host-bound loop, of which a little is left out on each side."""


def compared(ends: Ends, truth: Truth) -> dict:
    """How many intervals hold, how wide they are, how far the means are off; in percent of the truth."""
    mean, low, high = ends
    energy, allowance = truth.energy_j, truth.half_j
    given = np.isfinite(mean) & np.isfinite(energy)
    mean, low, high, energy, allowance = (one[given] for one in (mean, low, high, energy, allowance))
    half, error = (high - low) / 2, 100 * (mean / energy - 1)
    # An interval may miss the truth by as much as that itself isn't known.
    near = np.abs((high + low) / 2 - energy) <= np.hypot(half, allowance)
    return {
        "n": int(given.sum()),
        "hold": int(((low <= energy) & (energy <= high)).sum()),
        "hold_with_truth": int(near.sum()),
        "half_pct": float(100 * np.median(half / energy)) if given.any() else None,
        "bias_pct": float(error.mean()) if given.any() else None,
        "rms_pct": float(np.sqrt((error**2).mean())) if given.any() else None,
    }


def of_bursts(case: Case, name: str, spans: list[dict], others: list[dict], truth: Truth) -> Iterator[dict]:
    """A row for each length of a program's bursts ``spans``, which run among ``others``."""
    kernels = case.found.kernels.get(name)
    ways = {
        "library": lambda: alone(case, spans, others, None),
        "together": lambda: together(case, spans, others, None),
    }
    if kernels is not None and len(kernels.start_ns):
        ways["timeline"] = lambda: alone(case, spans, others, kernels)
        ways["timeline, together"] = lambda: together(case, spans, others, kernels)
    found, took_s = {}, {}
    for way, estimate in ways.items():
        began = time.perf_counter()
        found[way] = estimate()
        took_s[way] = time.perf_counter() - began
    seconds, wanted_s = np.diff(edges(spans), axis=0)[0] / 1e9, np.array([span["wanted_s"] for span in spans])
    for length_s in np.unique(wanted_s).tolist():
        mine = wanted_s == length_s
        row = {"section": case.found.about["section"], "program": name, "wanted_s": length_s, "n": int(mine.sum())}
        own = Truth(truth.energy_j[mine], truth.half_j[mine])
        row |= {"seconds": float(np.median(seconds[mine])), "truth_j": float(np.nanmedian(own.energy_j))}
        row["truth_pct"] = float(100 * np.nanmedian(own.half_j / own.energy_j))
        row |= {way: compared(tuple(one[mine] for one in ends), own) for way, ends in found.items()}
        yield row | {"took_s": took_s}


def short(case: Case) -> Iterator[dict]:
    """A row for each program and length."""
    steps = steps_of(case.found)
    for wanted_s in _different(case, "wanted_s"):
        cells = {name: _chosen(case, name=name, wanted_s=wanted_s) for name in _different(case, "name")}
        cells = {name: cell for name, cell in cells.items() if len({span["train"] for span in cell}) > 2}
        truths = gpu_truth.of_cells(list(cells.values()), steps)
        for (name, cell), truth in zip(cells.items(), truths, strict=True):
            yield from of_bursts(case, name, [span for span in cell if span["judged"]], cell, truth)


def long(case: Case) -> Iterator[dict]:
    """A row for each program and length; the solve of all bursts is of all lengths."""
    steps = steps_of(case.found)
    for name in _different(case, "name"):
        spans = _chosen(case, name=name)
        yield from of_bursts(case, name, spans, spans, gpu_truth.of_long(spans, steps))


def _different(case: Case, key: str) -> list:
    return list(dict.fromkeys(span[key] for span in case.found.spans))


def _chosen(case: Case, **values: object) -> list[dict]:
    return [span for span in case.found.spans if all(span[key] == value for key, value in values.items())]


def operators_of(case: Case) -> tuple[list[str], np.ndarray]:
    """Operators of the chain, "others" last, and the one of each kernel's name, by what ran when each was alone."""
    chain, apart = case.found.kernels["chain"], case.found.kernels["alone"]
    operators, owner = _different(case, "name")[1:], {}
    for place, name in enumerate(operators):
        (span,) = _chosen(case, name=name)
        mine = (apart.start_ns >= span["start_ns"]) & (apart.start_ns < span["end_ns"])
        owner |= {apart.names[one]: place for one in np.unique(apart.name[mine]).tolist()}
    return [*operators, "others"], np.array([owner.get(name, len(operators)) for name in chain.names])


def chain(case: Case) -> Iterator[dict]:
    """A row for each operator: W while it runs in the chain, by each way, beside itself alone."""
    steps, kernels, apart = steps_of(case.found), case.found.kernels["chain"], case.found.kernels["alone"]
    operators, kind = operators_of(case)
    (whole,) = _chosen(case, name="chain")
    rest_w = gpu_truth.idle_w(steps, whole["start_ns"] - 1_300_000_000, whole["start_ns"])
    new, seconds = _locked(case, kernels, kind, operators)
    for place, name in enumerate(operators):
        if not seconds[place]:
            continue
        row = {"section": "chain", "operator": name, "share_of_time": float(seconds[place] / seconds.sum())}
        row |= {"timeline": new[place]}
        row["ms"] = float(1e3 * seconds[place] / whole["iterations"])
        if name != "others":
            (span,) = _chosen(case, name=name)
            watts, half = gpu_truth.alone_w(steps, span, apart, rest_w)
            mine = (apart.start_ns >= span["start_ns"]) & (apart.start_ns < span["end_ns"])
            busy_s = float((apart.end_ns - apart.start_ns)[mine].sum()) / 1e9
            row |= {"alone_w": watts, "alone_half_w": half, "alone_ms": 1e3 * busy_s / span["iterations"]}
            # What is capped alone, or slower there, doesn't run as it does in the chain.
            row["limited"] = watts > 0.97 * case.found.about["limit_w"]
        yield row


def _locked(case: Case, kernels: Kernels, kind: np.ndarray, operators: list[str]) -> tuple[list[dict], np.ndarray]:
    """W of each operator, and seconds; with the samples' times."""
    since, until = int(kernels.start_ns[0]) - 1_000_000_000, int(kernels.end_ns[-1]) + 1_000_000_000
    record = case.record
    mine = (record.time_ns > since) & (record.time_ns < until)
    origin_ns = int(kernels.start_ns[0] - round(1e9 * record.seconds(kernels.start_ns[:1])[0]))
    # The grid of all stamps: on this host too few of a part lie on one for ``on_grid``
    readings = Readings(record.time_ns[mine], record.value[mine], 0.02, origin_ns=origin_ns, true_s=case.times_s[mine])
    kinds = [Kind(name, operators[one]) for name, one in zip(kernels.names, kind.tolist(), strict=True)]
    activity = activity_of(kernels.start_ns, kernels.end_ns, kernels.name, kinds, readings.origin_ns)
    fit = next(iter(attempts(activity, HOPPER_SENSOR, readings))).fit
    response = Response.sampled(fit.observer.sensor, 0.02, fit.observer.track.rate_hz)
    moment_s = readings.time_s - response.delay_s
    ran = (moment_s > activity.begin_s) & (moment_s < activity.finish_s)
    found = attribute_program(
        readings.time_s[ran], readings.value[ran], [], activity, response=response, sampled=fit.observer
    )
    groups = (kind == np.arange(len(operators))[:, None]).astype(float)
    seconds = groups @ found.seconds
    mean, low, high = (one / np.maximum(seconds, 1e-9) for one in found.energies.interval(found.together(groups)))
    new = [{"watts": float(m), "half_w": float(h)} for m, h in zip(mean, (high - low) / 2, strict=True)]
    return new, seconds


def cap(case: Case) -> Iterator[dict]:
    """A row for each program: the sum of all parts, idle around it among them, over the counter."""
    steps = steps_of(case.found)
    for span in case.found.spans:
        whole, kernels = gpu_truth.around(steps, span), case.found.kernels.get(span["name"])
        since, until = (float(case.record.seconds(one)) for one in (whole.start_ns, whole.end_ns))
        burst = [[float(case.record.seconds(span[key])) for key in ("start_ns", "end_ns")]]
        near, truth_j = case.near(since - BEFORE_S, until + AFTER_S), whole.energy_j
        ways = {"library": attributed(case, near, [(since, until)], burst)}
        if kernels is not None and len(kernels.start_ns):
            ways["timeline"] = attributed(case, near, [(since, until)], burst, kernels)
        row = {"section": "cap", "program": span["name"], "counter_j": truth_j}
        row |= {"mean_w": truth_j / (whole.end_ns - whole.start_ns) * 1e9, "limit_w": case.found.about["limit_w"]}
        for way, (mean, low, high) in ways.items():
            closure, least, most = (float(one[0]) / truth_j for one in (mean, low, high))
            row[way] = {"closure": closure, "half": (most - least) / 2, "holds": bool(least <= 1 <= most)}
        yield row


class Host(NamedTuple):
    """A loop at batch 1, by which ways of separating work from waiting are judged."""

    times_s: np.ndarray  # of the readings, since the record's first stamp, shape (n,)
    values_w: np.ndarray  # shape (n,)
    iterations_s: np.ndarray  # start and end of each of the loop's iterations on the host, shape (i, 2)
    rows: Timeline  # kernels of the loop, their names as kinds
    truth: Truth  # work of an iteration above idle, in J, shape (1,)


def host(case: Case) -> Host:
    """The loop of one process, its readings from a second of idle before it to a second after, and its truth."""
    (loop,) = _chosen(case, name="loop")
    iterations = case.record.seconds(case.found.arrays["iterations"][: loop["iterations"]])
    start, end = float(iterations[0, 0]), float(iterations[-1, 1])
    near = case.near(start - 1.0, end + 1.0)
    rows = case.timeline(case.found.kernels["host"], start, end)
    truth, _ = gpu_truth.of_iteration(_chosen(case, name="block"), steps_of(case.found))
    return Host(case.times_s[near], case.record.value[near], iterations, rows, truth)


def of_host(case: Case) -> Iterator[dict]:
    """A row of what there is to judge."""
    found = host(case)
    busy_s = float((found.rows.end_s - found.rows.start_s).sum()) / len(found.iterations_s)
    row = {"section": case.found.about["section"], "iterations": len(found.iterations_s)}
    row |= {"ms": float(1e3 * np.diff(found.iterations_s).mean()), "busy_ms": 1e3 * busy_s}
    work, half = float(found.truth.energy_j[0]), float(found.truth.half_j[0])
    (loop,) = _chosen(case, name="loop")
    less_idle = gpu_truth.of_loop(loop, REST_NS, steps_of(case.found))
    yield row | {"work_j": work, "work_pct": 100 * half / work, "less_idle_j": less_idle}


SECTIONS = {"short": short, "long": long, "chain": chain, "cap": cap, "host": of_host}


def line(row: dict) -> str:
    """A row in words."""
    parts = []
    for key, value in row.items():
        if not isinstance(value, dict):
            number = f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            parts.append(value if isinstance(value, str) else number)
        elif "hold" in value and value["n"]:
            about = f"{value['hold']} ({value['hold_with_truth']}) of {value['n']} hold, ± {value['half_pct']:.2g} %"
            parts.append(f"{key}: {about}, bias {value['bias_pct']:+.2f}, rms {value['rms_pct']:.2f}")
        elif key == "took_s":
            parts.append("took " + ", ".join(f"{seconds:.1f}" for seconds in value.values()) + " s")
        elif "closure" in value:
            parts.append(
                f"{key}: {value['closure']:.4f} ± {value['half']:.4f}{'' if value['holds'] else ' (misses 1)'}"
            )
        elif value.get("watts") is not None:
            parts.append(f"{key}: {value['watts']:.0f} ± {value['half_w']:.0f} W")
        else:
            parts.append(f"{key}: none")
    return " | ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--sections", nargs="+", choices=tuple(SECTIONS), default=list(SECTIONS))
    parser.add_argument("-o", "--output", type=Path, help="write the rows here, as JSON, after each")
    arguments = parser.parse_args()
    rows = []
    for folder in arguments.folders:
        for path in sorted(folder.glob("*.npz")):
            section = path.stem.split("-")[0]
            if section not in arguments.sections:
                continue
            found = read(path)
            print(f"{path}: {found.about['gpu']}, {found.about.get('trouble', 'no trouble')}", flush=True)
            for row in SECTIONS[section](Case.of(found)):
                rows.append({"recording": folder.name, **row})
                print(line(rows[-1]), flush=True)
                if arguments.output:
                    arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
