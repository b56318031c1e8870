"""Figures of docs/results/serving-h200.md: energy of recorded loads of a server beside others."""

from collections.abc import Callable

import numpy as np

from jouletrace.analysis.power import energies
from jouletrace.attribution.prior import MOVING
from jouletrace.run import Estimate, Run
from jouletrace.run.parts import Parts
from jouletrace.stats.interval import difference, ratio, total

BATCH = 16
"""Requests at once, and of a round."""


def served(run: Run) -> dict[str, Estimate]:
    """Joules per request of the first load: bills by tokens of the prompt, these above idle power, and phases above it.

    Raises:
        ValueError: The Run has no steps or no power record.
    """
    # of a wing, which may not be here
    from jouletrace.wings.serving.analysis.measured import Record
    from jouletrace.wings.serving.analysis.steady import Steady, requests_of, steady_window
    from jouletrace.wings.serving.analysis.steps import PARTS, amounts_of, factors_of, steps_in

    steps, requests, load = steps_in(run), requests_of(run, 0), Parts(run).units("load")[0]
    extent = np.array([[requests.sent[0], np.nanmax(requests.last)]])
    record = Record.from_run(run, requests.origin_ns, extent)
    if steps is None or isinstance(record, str):
        raise ValueError("a load needs a log of steps and a power record")
    energy = load.get("energy_total_j")
    level = Steady(load.id, {"name": ""}, requests, steady_window(requests)[:2], energy, ())
    amounts, factors = amounts_of(level, steps), factors_of(run, steps.since(requests.origin_ns), record)
    rows, beside_idle = {}, np.arange(6) > 0
    for prompt in np.unique(requests.input_tokens):
        of_kind = amounts.requests[(amounts.share == 1) & (requests.input_tokens == prompt)].mean(axis=0)
        rows |= {f"{prompt:.0f}": of_kind, f"{prompt:.0f} above idle": of_kind * beside_idle}
    phases = [amounts.parts[name] * beside_idle / amounts.share.sum() for name in PARTS[:2]]
    rows |= {"prefill above idle": phases[0], "decode above idle": phases[1], "whole above idle": sum(phases)}
    found = zip(*factors.parts(np.array([*rows.values()]), amounts.whole, energy), strict=True)
    return {name: factors.stated(*one) for name, one in zip(rows, found, strict=True)}


def windows(run: Run) -> tuple[Estimate, float]:
    """Energy in J of an iteration and its seconds as ``profile`` states them, by its windows."""
    results = Parts(run)
    return results.get("energy_total_j"), results.get("iteration_time_s").value or np.nan


def iterations(run: Run) -> tuple[Estimate, float]:
    """The same by the iterations of a profile whose latency was taken, which follow one another without a pause."""
    spans = {kind: [one for one in run.spans.to_pylist() if one["kind"] == kind] for kind in ("iteration", "phase")}
    start, end = spans["iteration"][0]["start_ns"], spans["iteration"][-1]["end_ns"]
    work = [(one["start_ns"], one["end_ns"]) for one in spans["phase"] if one["name"] in ("warm-up", "energy")]
    energy = energies(run, run.devices[0].id, [start], [end], work, prior=MOVING).estimate(
        np.array([True]), method="span"
    )
    count = len(spans["iteration"])
    return energy.scaled(1 / count), (end - start) / 1e9 / count


def against_alone(
    run: Run, few: Run, whole: Run, tokens: tuple[int, int], by: Callable[[Run], tuple[Estimate, float]]
) -> dict[str, list[Estimate]]:
    """J of a request served, without a server, and their ratio: of the whole, and of phases above idle and with it.

    Phases with idle power have it for the time from one step's beginning to the next.

    Args:
        run: A load of one kind of requests.
        few: A profile of rounds of these requests with short answers.
        whole: A profile of rounds with all answers.
        tokens: Of an answer of both profiles.
        by: ``windows`` or ``iterations``.
    """
    first, last = tokens
    (few_j, few_s), (whole_j, whole_s) = by(few), by(whole)
    idle_w = [Parts(one).get("baseline_context_idle_w") for one in (run, few, whole)]
    above_few, above = (
        difference(energy, power.scaled(seconds)).scaled(1 / BATCH)
        for energy, seconds, power in ((few_j, few_s, idle_w[1]), (whole_j, whole_s, idle_w[2]))
    )
    step_s = float(np.median(np.diff(run.steps["start_ns"].to_numpy())) / 1e9), (whole_s - few_s) / (last - first)
    later = (last - 1) / (last - first)  # decoding steps over those by which the profiles differ
    alone = {
        "whole above idle": above,
        "prefill above idle": total([above_few.scaled(later), above.scaled(later - 1)], signs=[1, -1]),
        "decode above idle": difference(above, above_few).scaled(later),
    }
    load, of_load = Parts(run).units("load")[0], served(run)
    pairs = {
        "whole": (load.get("energy_per_request_j"), whole_j.scaled(1 / BATCH)),
        "ms from step to step": (Estimate(step_s[0] * 1e3), Estimate(step_s[1] * 1e3)),
        **{name: (of_load[name], one) for name, one in alone.items()},
    }
    for phase, steps in (("prefill", 1), ("decode", last - 1)):
        sides = zip(pairs[f"{phase} above idle"], idle_w[::2], step_s, strict=True)
        a, b = (total([one, power.scaled(step * steps / BATCH)]) for one, power, step in sides)
        pairs[phase] = a, b
    return {name: [a, b, ratio(a, b)] for name, (a, b) in pairs.items()}


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


def mixed(single: Run, mix: Run, prompt: int) -> list[Estimate]:
    """Mean bills of requests of a prompt's length in their own load and in a mix, J; their ratio, and above idle power.

    Returns:
        Both bills, their ratio, both above idle power, and their ratio.
    """
    own, other = served(single), served(mix)
    pairs = [(own[name], other[name]) for name in (str(prompt), f"{prompt} above idle")]
    return [one for a, b in pairs for one in (a, b, ratio(b, a))]
