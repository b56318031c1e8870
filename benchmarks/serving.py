"""Bills and joules per token of recorded loads of a server: what docs/results/serving-h200.md states of them."""

import numpy as np

from jouletrace.run import Run
from jouletrace.run.parts import Parts

KINDS = {"short": (100, 32), "long": (600, 96)}
"""Tokens of prompt and answer."""


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
