"""Bills and joules per token of recorded loads of a server: what docs/results/serving-h200.md states of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jouletrace.run import Run
from jouletrace.run.parts import Parts

KINDS = {"short": (100, 32), "long": (600, 96)}
"""Tokens of prompt and answer."""


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


def alone(prefill: Run, whole: Run, steps: Mapping[str, Any], answer: int = 32) -> dict[str, list[float]]:
    """Joules per request of prefill and decode of the steps without a server, with idle power and without it.

    Args:
        prefill: A profile of rounds of steps that read the prompts and no more.
        whole: A profile of rounds with all answers, of which decode is what is left.
        steps: Mean seconds of the steps of both, as ``serving_gpu.py`` states them: what lies between is in no phase.
        answer: Tokens of an answer.
    """
    read, both = ((run, Parts(run).get("baseline_context_idle_w").value or np.nan) for run in (prefill, whole))
    above = [
        (run.result("energy_total_j").value - idle_w * run.result("iteration_time_s").value) / BATCH
        for run, idle_w in (read, both)
    ]
    parts = {"prefill": above[0], "decode": above[1] - above[0]}
    seconds = {"prefill": steps["alone-prefill"]["prefill"], "decode": steps["alone"]["decode"] * (answer - 1)}
    return {name: [one + both[1] * seconds[name] / BATCH, one] for name, one in parts.items()}


def stated(run: Run) -> dict[str, object]:
    """Of the first load: its validity, steps, milliseconds of these, and the sizes of groups of prompts."""
    steps, results = run.steps.to_pydict(), Parts(run)
    load = results.units("load")[0]
    ms = (np.array(steps["end_ns"]) - np.array(steps["start_ns"])) / 1e6
    groups = np.bincount(np.array(steps["prefilling"], int))
    return {
        "J per request": load.get("energy_per_request_j"),
        "steps/whole": load.get("closure_steps"),
        "idle W": results.get("baseline_context_idle_w"),
        "steps": len(ms),
        "ms, quartiles": np.percentile(ms, [0, 25, 50, 75, 99, 100]).round(2).tolist(),
        "prompts in a step": {size: int(count) for size, count in enumerate(groups) if size and count},
        "warnings": [one.code for one in run.warnings],
    }


def mixed(single: Run, mix: Run, lengths: tuple[int, int]) -> list[float]:
    """Mean bills of a kind of requests in its own load and in a mix, J; their ratio, and that above idle power."""
    own, other = (float(np.nanmean(bills(run, *lengths))) for run in (single, mix))
    above = [above_idle(run)[0][lengths[0]] for run in (single, mix)]
    return [own, other, other / own, above[1] / above[0]]


def served(run: Run) -> dict[str, list[float]]:
    """Joules per request of prefill and decode of the first load, with idle power and without it."""
    load = Parts(run).units("load")[0]
    whole, price = (load.get(f"energy_{name}_j").value or np.nan for name in ("total", "per_request"))
    above = above_idle(run)[1]
    return {
        name: [(load.get(f"energy_{name}_j").value or np.nan) * price / whole, above[name]]
        for name in ("prefill", "decode")
    }


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
