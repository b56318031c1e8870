"""Figures of generating tokens: time to the first, and what prefill, decode and the rest take.

Each piece of an iteration was measured by itself, round by round beside the whole. A forward of one token was
measured at some lengths of the cache; the sum over all lengths is interpolated linearly between them, by the
weights that the Run states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from jouletrace.analysis import latency
from jouletrace.analysis.iterations import SEGMENT, Load, Solved, by_run, powers
from jouletrace.analysis.model import inverse
from jouletrace.analysis.power import METHOD
from jouletrace.arrays import Floats, Ints
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.estimate import widened
from jouletrace.run.figures import Figures
from jouletrace.run.forms import GenerationFacts, SegmentFacts
from jouletrace.run.lazily import compute as pc
from jouletrace.run.readings import ALIASED
from jouletrace.stats.interval import Z95, difference, mean_estimate

FIRST_TOKEN = "first token"  # no secret
"""Lane of the iterations that end with the first token."""

FIRST_UNIT = 1_000_000
"""Unit of the first piece: far above those of operators and layers."""

_FIRST_PHASE = FIRST_UNIT + 1000

FIRST_CONTEXT = FIRST_UNIT + 2000
"""Unit of the first piece of a grid of contexts."""

PHASES = ("prefill", "decode", "between forwards")


_WHOLE = -1
_TIME, _ENERGY = 0, 1


@dataclass(frozen=True)
class _Rounds:
    """Time and energy per iteration of the whole and of each piece, in each round; NaN where there is none."""

    each: dict[int, Floats]  # by unit, each of shape (2, rounds): s and J
    block: Ints  # process of each round, shape (rounds,)

    def sum(self, pieces: list[SegmentFacts]) -> Floats:
        """Of pieces as often as they count in an iteration, shape (2, rounds)."""
        return np.asarray(
            np.sum([piece["weight"] / piece["times"] * self.each[piece["unit"]] for piece in pieces], axis=0)
        )

    def mean(self, values: Floats) -> Estimate:
        """Mean of rounds; of processes, where there are several."""
        finite = np.isfinite(values)
        if not finite.any():
            return Estimate.null("no_windows", METHOD)
        runs = by_run(values[finite], self.block[finite])
        return (
            mean_estimate([values.mean() for values in runs], method="runs")
            if len(runs) > 1
            else mean_estimate(runs[0])
        )


def add_generation(run: Run, figures: Figures, energies: dict[Load, Solved]) -> None:
    """Add phases, lengths and figures a token; nothing where nothing was generated."""
    stated = run.workload.get("generation")
    if not stated:
        return
    figures.add(MODEL_UNIT, "time_to_first_token_s", latency.median(run, FIRST_TOKEN))
    tokens = stated["tokens"]
    time, energy = (figures.get(MODEL_UNIT, name) for name in ("iteration_time_s", "energy_total_j"))
    figures.add(MODEL_UNIT, "tokens_per_s", inverse(time).scaled(tokens))
    figures.add(MODEL_UNIT, "energy_per_token_j", energy.scaled(1 / tokens), energy.flags)
    rounds = _rounds(run, stated)
    if not len(rounds.block):
        return
    closure = rounds.sum(stated["segments"]) / rounds.each[_WHOLE]
    figures.add(MODEL_UNIT, "closure_phases", rounds.mean(closure[_ENERGY]))
    figures.add(MODEL_UNIT, "closure_phases_time", rounds.mean(closure[_TIME]))
    costs = _Costs(figures, rounds, energies)
    batch = run.workload.get("items") or 1
    made = {"prefill": batch * stated["prompt"], "decode": tokens - batch}
    cache = f"{stated['cache']} cache"
    for i, phase in enumerate(PHASES):
        pieces = [piece for piece in stated["segments"] if piece["phase"] == phase]
        if not pieces:
            continue
        unit, count = _FIRST_PHASE + i, round(sum(piece["weight"] for piece in pieces))
        lengths = _span([piece["length"] for piece in pieces if piece["length"] is not None])
        shapes = f"{lengths}, {cache}" if phase == "decode" else lengths
        figures.units.add("phase", phase, id=unit, count=count, phase=phase, shapes=shapes)
        costs.add(unit, pieces, made.get(phase), share=True)
        for piece in pieces if phase == "decode" else []:
            name = f"one token, {piece['length']} in the {cache}"
            figures.units.add("length", name, unit, id=piece["unit"], count=1, phase=phase)
            costs.add(piece["unit"], [{**piece, "weight": 1.0}], batch)
    for piece in stated.get("contexts", []):
        context, prompt = piece.get("context") or 0, piece["phase"] == "prefill"
        name = f"prompt of {context} tokens" if prompt else f"one token at a context of {context}"
        figures.units.add("context", name, id=piece["unit"], phase=piece["phase"])
        costs.add(piece["unit"], [{**piece, "weight": 1.0}], batch * context if prompt else batch)


class _Costs:
    """Adds what pieces take."""

    def __init__(self, figures: Figures, rounds: _Rounds, energies: dict[Load, Solved]) -> None:
        self._figures, self._rounds, self._energies = figures, rounds, energies
        self._idle = figures.get(MODEL_UNIT, "baseline_context_idle_w")
        self._time, self._energy = (figures.get(MODEL_UNIT, name) for name in ("iteration_time_s", "energy_total_j"))

    def add(self, unit: int, pieces: list[SegmentFacts], tokens: float | None, *, share: bool = False) -> None:
        """Add the figures of a sum of pieces."""
        each = self._rounds.sum(pieces)
        time, energy = (self._rounds.mean(values) for values in each)
        solved = [load for piece in pieces if (load := self._energies.get((SEGMENT, piece["unit"]))) is not None]
        power = self._rounds.mean(powers(each[_ENERGY], each[_TIME])) if self._energies else energy
        if self._energies:
            shared_j = self._shared_j(pieces)
            energy = widened(energy, Z95 * shared_j)
            power = widened(power, Z95 * shared_j / (time.value or math.inf))
        else:
            energy = power = Estimate.null(self._energy.reason or "not_measured", METHOD)
        # What the whole aliases with, pieces that are run by themselves needn't.
        flags = [
            *(code for code in self._energy.flags if code != ALIASED),
            *(flag for load in solved for flag in load.flags),
        ]
        self._figures.add(unit, "time_s", time)
        figures = {"energy_total_j": energy, "energy_active_j": self._active(energy, time)}
        self._figures.add_each(unit, figures | {"power_w": power}, flags)
        if tokens:
            self._figures.add(unit, "tokens_per_s", inverse(time).scaled(tokens))
            self._figures.add(unit, "energy_per_token_j", energy.scaled(1 / tokens), flags)
        of, whole = (energy, self._energy) if energy.value is not None else (time, self._time)
        if share and of.value is not None and whole.value:
            self._figures.add(unit, "share", of.scaled(1 / whole.value))

    def _shared_j(self, pieces: list[SegmentFacts]) -> float:
        """Standard uncertainty that the windows of a sum of pieces share, J; pieces are alike in how they err."""
        relative = [math.hypot(*self._energies[SEGMENT, piece["unit"]].sources().values()) for piece in pieces]
        joules = [float(np.nanmean(self._rounds.sum([piece])[_ENERGY])) for piece in pieces]
        return sum(u * energy for u, energy in zip(relative, joules, strict=True))

    def _active(self, energy: Estimate, time: Estimate) -> Estimate:
        if energy.value is None or time.value is None or self._idle.value is None:
            return Estimate.null(energy.reason or time.reason or self._idle.reason or "not_measured", METHOD)
        return difference(energy, self._idle.scaled(time.value), METHOD)


def _rounds(run: Run, stated: GenerationFacts) -> _Rounds:
    """The n-th window of the whole and of each piece in a process make its n-th round."""
    windows = run.windows.sort_by("order")
    values = np.stack([windows[name].to_numpy().astype(np.float64) for name in ("time_s", "energy_j")])
    values /= windows["replays"].to_numpy()
    who = np.array(
        [
            _WHOLE if variant == "untouched" else unit if variant == SEGMENT else -2
            for variant, unit in zip(windows["variant"].to_pylist(), windows["unit"].to_pylist(), strict=True)
        ]
    )
    units = [_WHOLE, *(piece["unit"] for piece in (*stated["segments"], *stated.get("contexts", [])))]
    process, rounds, block = (
        pc.fill_null(windows["block"], 0).to_numpy(),
        {unit: [np.empty((2, 0))] for unit in units},
        list[int](),
    )
    for number in np.unique(process):
        of_process = {unit: values[:, (process == number) & (who == unit)] for unit in units}
        count = min(some.shape[1] for some in of_process.values())  # a run that was cut short ends within a round
        for unit, some in of_process.items():
            rounds[unit].append(some[:, :count])
        block += [int(number)] * count
    return _Rounds({unit: np.hstack(parts) for unit, parts in rounds.items()}, np.array(block, np.int64))


def _span(lengths: list[int]) -> str | None:
    """``"129–191 tokens"``."""
    if not lengths:
        return None
    low, high = min(lengths), max(lengths)
    return f"{low}–{high} tokens" if low != high else f"{low} tokens"
