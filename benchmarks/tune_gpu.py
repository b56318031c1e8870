"""Does ``tune`` choose on a GPU what a full grid finds right after it, and is its promise true?

    python benchmarks/tune_gpu.py deit-b -o out          # one case: DeiT-B, by batch, mode and dtype
    python benchmarks/tune_gpu.py bert-l -o out          # BERT-L, by batch, mode and attention
    python benchmarks/tune_gpu.py llama-1b -o out        # Llama-1B, generating tokens, by batch, mode and dtype
    python benchmarks/tune_gpu.py served -o out          # examples/serve_reference.py, by concurrency
    python benchmarks/tune_gpu.py deit-b -o b --then out/deit-b.json   # its grid on another GPU: are savings equal?
    python benchmarks/tune_gpu.py deit-b -o try -d sim:h100 --small    # try the script without a GPU

A case takes up to 5 min of ``tune`` (``--budget``) and about 10 s a setting of the grid, which measures each of the
same settings to ± 1 % in a process of its own, in another order; of a server, loads of 20 s on one that isn't started
again. After ``--seconds`` (500) nothing begins: the same call goes on where it ended, if its folder is still there.
Prints the result and writes it to OUT/CASE.json, as does a call that isn't complete.
"""

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.campaign.limits import Limit, joint, parse_limits
from jouletrace.campaign.targets import Target, WorkloadTarget, applied, parse_over, words_of
from jouletrace.campaign.tune import run_tune, shares_of, target_of
from jouletrace.campaign.worker import last_line
from jouletrace.profiler.progress import reported
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import Estimate, load
from jouletrace.wings.serving.request_options import RequestOptions
from jouletrace.wings.serving.target import ServerTarget


@dataclass(frozen=True)
class Case:
    """A target of ``tune`` with its dimensions; the first value of each is the reference's."""

    over: list[str]
    limit: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    server: tuple[str, ...] = ()

    def words(self, name: str, device: str) -> list[str]:
        """The target of ``tune``: a workload, or a server with the command that starts it."""
        if not self.server:
            return [name]
        small = {"1b": "tiny", "cuda": "cpu"} if device.startswith("sim:") else {}
        return [small.get(word, word) for word in self.server]


CASES = {
    "deit-b": Case(["batch=16,64,256", "mode=eager,graph", "dtype=fp16,bf16"], "p99<40ms"),
    "bert-l": Case(["batch=8,32,128", "mode=eager,graph", "attention=sdpa,eager"], "p99<100ms"),
    "llama-1b": Case(
        ["batch=1,8,32", "mode=eager,graph", "dtype=bf16,fp16"],
        options={"task": "generate", "seq_len": 128, "max_new_tokens": 32},
    ),
    "served": Case(
        ["concurrency=1,2,4,8,16,32"],
        "ttft<200ms,tpot<20ms",
        server=(
            *("http://127.0.0.1:8000", sys.executable, "examples/serve_reference.py"),
            *("--size", "1b", "--device", "cuda"),
        ),
    ),
}
"""By name; those without a server are workloads of that name."""

VISIT_S, GRID_S, TOKENS = 12.0, 20.0, ("256", "32")
"""Seconds of a load of a server, in visits and in the grid, and tokens of its prompts and answers."""

GOAL = 0.01
"""The choice is to be within that share of the least."""

AT_LEAST_S = 25.0
"""Time left below which no point of the grid begins: one that loads a large model takes that long."""


class Grid(WorkloadTarget):
    """Measures each setting to ± 1 %, as a profile alone does."""

    def measure(self, setting, seconds, place, process):
        """See ``Target``; ``seconds`` are what it takes."""
        settings = replace(applied(setting, self._settings), detail="model", first_token=False, target_ci=GOAL)
        self._order({"do": "profile", "settings": asdict(settings), "folder": str(place)}, place)


def grid_target(name: str, settings: ProfileSettings, limits: Sequence[Limit]) -> Target:
    """The target that measures a case's settings one by one."""
    case = CASES[name]
    if not case.server:
        return Grid(name, settings, 120.0)
    url, *command = case.words(name, settings.device)
    return ServerTarget(url, command, settings, 120.0, RequestOptions(GRID_S, *TOKENS), limits)


def grid_of(target: Target, settings: list[dict], folder: Path, limit: Limit | None, until_s: float) -> list[dict]:
    """A row a setting that could be measured: its figures, whether it meets the limit, or why it failed."""
    rows = []
    order = list(range(len(settings)))
    random.Random(1).shuffle(order)  # drift of the GPU is no setting's
    try:
        for number in order:
            setting, place = settings[number], folder / f"{number:02d}"
            row = {"setting": setting}
            try:
                if not (place / "run.json").exists():
                    if time.monotonic() > until_s - AT_LEAST_S:
                        continue
                    target.measure(setting, 0.0, place, 0)
                figures = target.figures(load(place))
                over = float(np.mean(figures.limited > limit.bound)) if limit and limit.share else None
                row |= {"energy": figures.energy.to_dict(), "time": figures.time.to_dict(), "over": over}
                row["meets"] = over is None or over <= limit.share
                print(f"grid: {words_of(setting)}: {figures.energy.value:.4g} J", file=sys.stderr)
            except Exception as error:  # out of memory is a result
                row["failed"] = last_line(error)
                print(f"grid: {words_of(setting)}: {row['failed']}", file=sys.stderr)
            if isinstance(target, Grid):
                target.end_process()
            rows.append(row)
    finally:
        target.close()
    return rows


def relative(rows: list[dict], one: dict, other: dict) -> tuple[float, float]:
    """Energy of a setting over that of another by a grid, and the half-width of its 95 % interval."""
    energies = [Estimate(**row["energy"]) for x in (one, other) for row in rows if row["setting"] == x]
    ratio = energies[0].value / energies[1].value
    return ratio, ratio * math.hypot(*(energy.half_width / energy.value for energy in energies))


def judged(result: dict) -> dict:
    """What the grid says of the choice: how far over the least, and whether the saving is in the promised interval."""
    rows = [row for row in result["grid"] if "energy" in row]
    known = [row["setting"] for row in rows]
    choice, reference = result["choice"], result["reference"]
    feasible = [row for row in rows if row["meets"]]
    if not feasible or choice not in known or reference not in known:
        return {}
    least = min(feasible, key=lambda row: row["energy"]["value"])["setting"]
    over, over_half = relative(rows, choice, least)
    ratio, half = relative(rows, choice, reference)
    low, high = result["promise"] or (0.0, 0.0)
    return {
        "least": least,
        "choice_over_least": [over - 1, over_half if choice != least else 0.0],
        "choice_within_goal": choice == least or over - 1 <= GOAL + over_half,
        "choice_meets_limit": next(row["meets"] for row in rows if row["setting"] == choice),
        "saving": [1 - ratio, half],
        "promise_holds": low - half <= 1 - ratio <= high + half,
    }


def compared(here: dict, there: dict) -> dict:
    """Energies over the reference's on two GPUs: the largest difference, and of how many it is beyond both errors."""
    rows = [[row for row in result["grid"] if "energy" in row] for result in (here, there)]
    both = [row["setting"] for row in rows[0] if row["setting"] in [other["setting"] for other in rows[1]]]
    if here["reference"] not in both:
        return {"why_not": "the grids have no reference in common"}
    differ = []
    for setting in both:
        (a, a_half), (b, b_half) = (relative(grid, setting, here["reference"]) for grid in rows)
        differ.append({"setting": setting, "here": a, "there": b, "half": math.hypot(a_half, b_half)})
    return {
        "device": there["device"],
        "largest_difference": max(abs(row["here"] - row["there"]) for row in differ),
        "beyond_errors": sum(abs(row["here"] - row["there"]) > row["half"] for row in differ),
        "settings": differ,
    }


def tuned(name: str, device: str, over: dict, limits: Sequence[Limit], folder: Path, budget_s: float) -> dict:
    """The result of ``tune`` for a case."""
    case, began_s = CASES[name], time.monotonic()
    settings = ProfileSettings(device=device, **case.options)
    with reported(True) as progress:
        target = target_of(
            case.words(name, device), settings, limits, 120.0, over, asdict(RequestOptions(VISIT_S, *TOKENS))
        )
        first = {} if case.server else {dimension: str(values[0]) for dimension, values in over.items()}
        tuning, ended_by = run_tune(
            target, over, folder, limits=limits, against=first, budget_s=budget_s, progress=progress
        )
    if ended_by is not None:
        raise ended_by
    return {
        "case": name,
        "device": tuning.device,
        "simulated": bool(tuning.simulated),
        "over": case.over,
        "limit": case.limit,
        "options": dict(case.options),
        "outcome": tuning.outcome,
        "stopped": tuning.stopped or None,
        "verdict": str(tuning).splitlines(),
        "processes": tuning.processes,
        "choice": tuning.rows[tuning.best].setting if tuning.best is not None else None,
        "reference": tuning.rows[tuning.reference].setting,
        "promise": tuning.saving,
        "within": tuning.within,
        "tuned": [{"setting": row.setting, "energy": row.cost.to_dict()} for row in tuning.rows],
        "seconds": {"tune": time.monotonic() - began_s, "grid": 0.0},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("-d", "--device", default="auto")
    parser.add_argument("-o", "--output", type=Path, default=Path("tune-gpu"))
    parser.add_argument("--budget", type=float, default=300.0, help="seconds after which tune begins no visit")
    parser.add_argument("--seconds", type=float, default=500.0, help="of this call, after which nothing begins")
    parser.add_argument("--small", action="store_true", help="at most two values a dimension, to try it")
    parser.add_argument("--then", type=Path, help="the result of another GPU, whose choice the grid judges here")
    given = parser.parse_args()
    began_s, case = time.monotonic(), CASES[given.case]
    over = {name: values[: 2 if given.small else None] for name, values in parse_over(case.over).items()}
    words = case.words(given.case, given.device)
    limits = parse_limits(case.limit, shares=shares_of(words, over, given.device)) if case.limit else ()
    folder, path = given.output / given.case, given.output / f"{given.case}.json"
    if path.exists():  # from a call before: another would give tune more time
        result = json.loads(path.read_text())
    elif given.then is not None:
        result = json.loads(given.then.read_text()) | {"seconds": {"tune": 0.0, "grid": 0.0}}
    else:
        budget_s = min(given.budget, given.seconds)
        result = tuned(given.case, given.device, over, limits, folder / "tune", budget_s)
        path.write_text(json.dumps(result, indent=1) + "\n")
    grid_began_s = time.monotonic()
    all_settings = [row["setting"] for row in result["tuned"]]
    settings = ProfileSettings(device=given.device, **case.options)
    target, limit = (
        grid_target(given.case, settings, limits),
        joint(limits) if case.server else next(iter(limits), None),
    )
    rows = grid_of(target, all_settings, folder / "grid", limit, began_s + given.seconds)
    result |= {"grid": rows, "complete": len(rows) == len(all_settings)}
    result["seconds"]["grid"] += time.monotonic() - grid_began_s
    result["judged"] = judged(result)
    if given.then is not None:
        result["then"] = compared(result, json.loads(given.then.read_text()))
    given.output.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    shown = ("device", "choice", "promise", "within", "stopped", "judged", "seconds", "complete", "then")
    print(json.dumps({name: result[name] for name in shown if name in result}, indent=1))


if __name__ == "__main__":
    main()
