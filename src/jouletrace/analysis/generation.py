"""Figures of generating tokens: time to the first, and what prefill, decode and the rest take.

Each piece of an iteration was measured by itself, round by round beside the whole. A forward of one token was
measured at some lengths of the cache; the sum over all lengths is interpolated linearly between them, by the
weights that the Run states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis import latency
from jouletrace.analysis.figures import Figures
from jouletrace.analysis.iterations import SEGMENT, Load, Solved
from jouletrace.analysis.model import inverse
from jouletrace.analysis.power import METHOD
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.estimate import widened
from jouletrace.run.forms import Generation, Segment
from jouletrace.run.readings import ALIASED
from jouletrace.stats.interval import Z95, difference, mean_estimate, ratio

Floats = NDArray[np.float64]

FIRST_TOKEN = "first token"  # no secret
"""Lane of the iterations that end with the first token."""

FIRST_UNIT = 1_000_000
"""Unit of the first piece: far above those of operators and layers."""

_FIRST_PHASE = FIRST_UNIT + 1000

FIRST_CONTEXT = FIRST_UNIT + 2000
"""Unit of the first piece of a grid of contexts."""

PHASES = ("prefill", "decode", "between forwards")


@dataclass(frozen=True)
class _Rounds:
    """A metric per iteration, of the whole and of each piece, in each round; NaN where there is none."""

    whole: Floats  # shape (rounds,)
    pieces: dict[int, Floats]  # by unit, each of shape (rounds,)
    block: NDArray[np.int64]  # process of each round, shape (rounds,)

    def sum(self, weights: dict[int, float]) -> Floats:
        """A sum of pieces, round by round."""
        return np.asarray(np.sum([weight * self.pieces[unit] for unit, weight in weights.items()], axis=0))

    def mean(self, values: Floats) -> Estimate:
        """Mean of rounds; of processes, where there are several."""
        known = np.isfinite(values)
        if not known.any():
            return Estimate.null("no_windows", METHOD)
        values, block = values[known], self.block[known]
        blocks = np.unique(block)
        if len(blocks) > 1:
            return mean_estimate([float(values[block == one].mean()) for one in blocks], method="runs")
        return mean_estimate(values, method=METHOD)


def add_generation(run: Run, figures: Figures, energies: dict[Load, Solved]) -> None:
    """Add phases, lengths and figures a token; nothing where nothing was generated."""
    stated = run.workload.get("generation")
    if not stated:
        return
    figures.add(MODEL_UNIT, "time_to_first_token_s", latency.median(run, FIRST_TOKEN))
    tokens = stated["tokens"]
    time, energy = (figures.get(MODEL_UNIT, name) for name in ("iteration_time_s", "energy_total_j"))
    figures.add(MODEL_UNIT, "tokens_per_s", inverse(time).scaled(tokens))
    flags = figures.get(MODEL_UNIT, "energy_total_j").flags
    figures.add(MODEL_UNIT, "energy_per_token_j", energy.scaled(1 / tokens), flags)
    rounds = {column: _rounds(run, column, stated) for column in ("time_s", "energy_j")}
    if not len(rounds["time_s"].whole):
        return
    for name, column in (("closure_phases", "energy_j"), ("closure_phases_time", "time_s")):
        one = rounds[column]
        everything = one.sum(_weights(stated["segments"]))
        figures.add(MODEL_UNIT, name, one.mean(everything / one.whole))
    costs = _Costs(run, figures, rounds, energies)
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
        costs.add(unit, _weights(pieces), made.get(phase), costs.flags(pieces), share=True)
        for piece in pieces if phase == "decode" else []:
            name = f"one token, {piece['length']} in the {cache}"
            figures.units.add("length", name, unit, id=piece["unit"], count=1, phase=phase)
            costs.add(piece["unit"], {piece["unit"]: 1 / piece["times"]}, batch, costs.flags([piece]))
    for piece in stated.get("contexts", []):
        context = piece.get("context") or 0
        prompt = piece["phase"] == "prefill"
        name = f"prompt of {context} tokens" if prompt else f"one token at a context of {context}"
        figures.units.add("context", name, id=piece["unit"], phase=piece["phase"])
        tokens = batch * context if prompt else batch
        costs.add(piece["unit"], {piece["unit"]: 1 / piece["times"]}, tokens, costs.flags([piece]))


class _Costs:
    """Adds what pieces take."""

    def __init__(self, run: Run, figures: Figures, rounds: dict[str, _Rounds], energies: dict[Load, Solved]) -> None:
        self._run, self._figures, self._rounds, self._energies = run, figures, rounds, energies
        self._idle = figures.get(MODEL_UNIT, "baseline_context_idle_w")
        whole = {"energy_j": "energy_total_j", "time_s": "iteration_time_s"}
        self._whole = {column: figures.get(MODEL_UNIT, metric).value for column, metric in whole.items()}
        # What the whole aliases with, pieces that are run by themselves needn't.
        self._flags = [flag for flag in figures.get(MODEL_UNIT, "energy_total_j").flags if flag != ALIASED]

    def flags(self, pieces: list[Segment]) -> list[str]:
        """Those of the energy of pieces."""
        found = (self._energies.get((SEGMENT, piece["unit"])) for piece in pieces)
        return [*dict.fromkeys([*self._flags, *(flag for one in found if one is not None for flag in one.flags)])]

    def add(
        self, unit: int, weights: dict[int, float], tokens: float | None, flags: list[str], *, share: bool = False
    ) -> None:
        """Add the figures of a sum of pieces."""
        time = self._mean("time_s", weights)
        self._figures.add(unit, "time_s", time)
        energy = self._mean("energy_j", weights)
        if not self._energies:
            energy = Estimate.null(self._figures.get(MODEL_UNIT, "energy_total_j").reason or "not_measured", METHOD)
        else:
            energy = widened(energy, Z95 * self._shared_j(weights))
        self._figures.add(unit, "energy_total_j", energy, flags)
        self._figures.add(unit, "energy_active_j", self._active(energy, time), flags)
        self._figures.add(unit, "power_w", ratio(energy, time, METHOD), flags)
        if tokens:
            self._figures.add(unit, "tokens_per_s", inverse(time).scaled(tokens))
            self._figures.add(unit, "energy_per_token_j", energy.scaled(1 / tokens), flags)
        column, of = ("energy_j", energy) if energy.value is not None else ("time_s", time)
        whole = self._whole[column]
        if share and of.value is not None and whole:
            self._figures.add(unit, "share", of.scaled(1 / whole))

    def _shared_j(self, weights: dict[int, float]) -> float:
        """Standard uncertainty that the windows of a sum of pieces share, J; pieces are alike in how they err."""
        rounds, shared = self._rounds["energy_j"], 0.0
        for unit, weight in weights.items():
            energy = float(np.nanmean(rounds.pieces[unit]))
            shared += weight * energy * math.hypot(*self._energies[SEGMENT, unit].sources().values())
        return shared

    def _mean(self, column: str, weights: dict[int, float]) -> Estimate:
        rounds = self._rounds[column]
        return rounds.mean(rounds.sum(weights))

    def _active(self, energy: Estimate, time: Estimate) -> Estimate:
        if energy.value is None or time.value is None or self._idle.value is None:
            return Estimate.null(energy.reason or time.reason or self._idle.reason or "not_measured", METHOD)
        return difference(energy, self._idle.scaled(time.value), METHOD)


def _rounds(run: Run, column: str, stated: Generation) -> _Rounds:
    """The n-th window of the whole and of each piece in a process make its n-th round."""
    windows = run.windows.sort_by("order")
    variant, unit = (windows[name].to_pylist() for name in ("variant", "unit"))
    values = windows[column].to_numpy().astype(np.float64) / windows["replays"].to_numpy()
    process = windows["block"].to_numpy()
    who = np.array([-1 if v == "untouched" else u if v == SEGMENT else -2 for v, u in zip(variant, unit, strict=True)])
    units = [-1, *(piece["unit"] for piece in (*stated["segments"], *stated.get("contexts", [])))]
    found: dict[int, list[Floats]] = {one: [] for one in units}
    block: list[int] = []
    for number in np.unique(process):
        own = {one: values[(process == number) & (who == one)] for one in units}
        count = min(len(some) for some in own.values())  # a run that was cut short ends within a round
        for one, some in own.items():
            found[one].append(some[:count])
        block += [int(number)] * count
    joined = {one: np.concatenate(parts) if parts else np.empty(0) for one, parts in found.items()}
    return _Rounds(joined.pop(-1), joined, np.array(block, np.int64))


def _weights(pieces: list[Segment]) -> dict[int, float]:
    """How often a call of each piece counts in an iteration, by unit."""
    return {piece["unit"]: piece["weight"] / piece["times"] for piece in pieces}


def _span(lengths: list[int]) -> str | None:
    """``"129–191 tokens"``."""
    if not lengths:
        return None
    low, high = min(lengths), max(lengths)
    return f"{low}–{high} tokens" if low != high else f"{low} tokens"
