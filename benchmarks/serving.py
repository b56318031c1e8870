"""Bills and joules per token of recorded loads of a server: what docs/results/serving-h200.md states of them."""

import numpy as np

from jouletrace.run import Run
from jouletrace.run.parts import Parts

BATCH = 16
"""Requests at once, and of a round."""


def bills(run: Run, prompt: int = 0, answer: int = 0) -> np.ndarray:
    """Joules of each request (of these lengths), NaN unless it lies wholly in the steady window."""
    table = run.requests.to_pydict()
    keys = zip(table["input_tokens"], table["output_tokens"], table["billed"], table["energy_j"], strict=True)
    return np.array(
        [e if billed == 1 else np.nan for p, a, billed, e in keys if not prompt or (p, a) == (prompt, answer)], float
    )


def above_idle(run: Run) -> tuple[dict[int, float], dict[str, float]]:
    """Joules per request without idle power, of the first load: of a bill by length of prompt, and by phase."""
    # of a wing, which may not be here
    from jouletrace.wings.serving.analysis.steady import Steady, requests_of, steady_window
    from jouletrace.wings.serving.analysis.steps import FACTORS, amounts_of, steps_in

    steps, requests = steps_in(run), requests_of(run, 0)
    results, window = Parts(run), steady_window(requests)[:2]
    load = results.units("load")[0]
    level = Steady(load.id, {"name": ""}, requests, window, load.get("energy_total_j"), ())
    amounts, x = amounts_of(level, steps), np.array([run.result(name).value or 0.0 for name in FACTORS])
    x = x * level.energy.value / (amounts.whole @ x)
    whole = amounts.share == 1
    of_kind = {
        int(prompt): float((amounts.requests[whole & (requests.input_tokens == prompt)][:, 1:] @ x[1:]).mean())
        for prompt in np.unique(requests.input_tokens[whole])
    }
    phases = {name: amounts.parts[f"energy_{name}_j"] for name in ("prefill", "decode")}
    return of_kind, {name: float(one[1:] @ x[1:] / amounts.share.sum()) for name, one in phases.items()}


def against_alone(run: Run, few: Run, whole: Run, tokens: tuple[int, int]) -> dict[str, list[float]]:
    """J of a request served, without a server, and their ratio: of the whole, and of phases above idle and with it.

    Phases with idle power have it for the time from one step's beginning to the next.

    Args:
        run: A load of one kind of requests.
        few: A profile of rounds of these requests with short answers.
        whole: A profile of rounds with all answers.
        tokens: Of an answer of both profiles.
    """
    first, last = tokens
    more, load = last - first, Parts(run).units("load")[0]
    idle_w = [Parts(one).get("baseline_context_idle_w").value or np.nan for one in (run, few, whole)]
    energy, seconds = (
        [Parts(one).get(name).value or np.nan for one in (few, whole)]
        for name in ("energy_total_j", "iteration_time_s")
    )
    above = (np.array(energy) - np.array(idle_w[1:]) * seconds) / BATCH
    step_s = float(np.median(np.diff(run.steps["start_ns"].to_numpy())) / 1e9), (seconds[1] - seconds[0]) / more
    each = (above[1] - above[0]) / more
    of_phases = {"prefill": (above[0] - (first - 1) * each, 1), "decode": ((last - 1) * each, last - 1)}
    pairs = {
        "whole": (load.get("energy_per_request_j").value or np.nan, energy[1] / BATCH),
        "whole above idle": (sum(above_idle(run)[1].values()), above[1]),
        "ms from step to step": (step_s[0] * 1e3, step_s[1] * 1e3),
    }
    for phase, (alone_j, steps) in of_phases.items():
        served_j = above_idle(run)[1][phase]
        pairs[f"{phase} above idle"] = served_j, alone_j
        idle_j = [power * step * steps / BATCH for power, step in zip(idle_w[::2], step_s, strict=True)]
        pairs[phase] = served_j + idle_j[0], alone_j + idle_j[1]
    return {name: [float(a), float(b), float(a / b)] for name, (a, b) in pairs.items()}


def stated(run: Run) -> dict[str, object]:
    """Of the first load: its validity, steps, milliseconds of these, and the sizes of groups of prompts."""
    steps, results = run.steps.to_pydict(), Parts(run)
    load = results.units("load")[0]
    ms = (np.array(steps["end_ns"]) - np.array(steps["start_ns"])) / 1e6
    apart = np.diff(steps["start_ns"]) / 1e6
    groups = np.bincount(np.array(steps["prefilling"], int))
    return {
        "J per request": load.get("energy_per_request_j"),
        "steps/whole": load.get("closure_steps"),
        "idle W": results.get("baseline_context_idle_w"),
        "steps": len(ms),
        "ms, quartiles": np.percentile(ms, [0, 25, 50, 75, 99, 100]).round(2).tolist(),
        "ms from step to step": np.percentile(apart, [0, 25, 50, 75, 99, 100]).round(2).tolist(),
        "sequences in a step": round(float(np.add(steps["prefilling"], steps["decoding"]).mean()), 2),
        "prompts in a step": {size: int(count) for size, count in enumerate(groups) if size and count},
        "warnings": [one.code for one in run.warnings],
    }


def mixed(single: Run, mix: Run, lengths: tuple[int, int]) -> list[float]:
    """Mean bills of a kind of requests in its own load and in a mix, J; their ratio, and that above idle power."""
    own, other = (float(np.nanmean(bills(run, *lengths))) for run in (single, mix))
    above = [above_idle(run)[0][lengths[0]] for run in (single, mix)]
    return [own, other, other / own, above[1] / above[0]]


def phase_ratios(served: Run, profiled: Run, phase: str, batch: int = 16) -> list[float]:
    """Joules per request of a phase served, by ``profile``, and their ratio; then all three above idle power."""
    results, alone = Parts(served), Parts(profiled)
    load = results.units("load")[0]
    whole, price, part = (load.get(f"energy_{name}_j").value or np.nan for name in ("total", "per_request", phase))
    one = next(part for part in alone.units("phase") if part.name == phase)
    energy, seconds = (one.get(metric).value for metric in ("energy_total_j", "time_s"))
    idle_w = alone.get("baseline_context_idle_w").value
    pairs = (part * price / whole, energy / batch), (above_idle(served)[1][phase], (energy - idle_w * seconds) / batch)
    return [value for a, b in pairs for value in (a, b, a / b)]
