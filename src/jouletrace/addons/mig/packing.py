"""The assignment of jobs to slices with the least total energy.

It uses the rows of a sweep: each job, a number of samples of a model and batch, gets one slice of a division
that fits on the GPU; all run at once. The GPU's idle power counts until the last is done, so a slice that is too
small costs idle energy, and one that is too large leaves less to others. All assignments are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jouletrace.addons.mig.plan import MOST, place
from jouletrace.devices.mig import Placement, Profile
from jouletrace.errors import BadInputError, NotPossibleError


@dataclass(frozen=True)
class Order:
    """A job to be packed: a number of samples of a model at a batch size."""

    model: str
    batch: int
    samples: float

    def __str__(self) -> str:
        return f"{self.model}:{self.batch}={self.samples:g}"


@dataclass(frozen=True)
class Option:
    """The figures of a job on a kind of slice."""

    profile: Profile
    samples_per_s: float
    active_j_per_sample: float

    def seconds(self, order: Order) -> float:
        """Duration of the job."""
        return order.samples / self.samples_per_s

    def active_j(self, order: Order) -> float:
        """Energy of the job above idle."""
        return order.samples * self.active_j_per_sample


@dataclass(frozen=True)
class Packing:
    """An assignment.

    Attributes:
        orders: The jobs.
        options: The option of each job.
        placements: Placement of each slice.
        seconds: Time until the last job is done.
        energy_j: Energy of the GPU until then: idle, and above idle of all jobs.
        idle_w: Idle power used for it.
        one_by_one_j: Energy of the same jobs in succession on the largest slice of the sweep; None
            where one of them was not run on it.
    """

    orders: tuple[Order, ...]
    options: tuple[Option, ...]
    placements: tuple[Placement, ...]
    seconds: float
    energy_j: float
    idle_w: float
    one_by_one_j: float | None

    def to_dict(self) -> dict[str, Any]:
        """The packing as ``--json`` prints it."""
        return {
            "schema": 1,
            "jobs": [
                {
                    "job": str(order),
                    "profile": option.profile.name,
                    "placement": str(where),
                    "seconds": option.seconds(order),
                    "energy_active_j": option.active_j(order),
                }
                for order, option, where in zip(self.orders, self.options, self.placements, strict=True)
            ],
            "seconds": self.seconds,
            "energy_j": self.energy_j,
            "idle_w": self.idle_w,
            "one_by_one_j": self.one_by_one_j,
            "method": "modelled",
        }


def read_orders(items: Sequence[str]) -> list[Order]:
    """Read ``MODEL:BATCH=SAMPLES`` for each job.

    Raises:
        BadInputError: If an item has another form.
    """
    found = []
    for item in items:
        job, equals, samples = item.partition("=")
        model, colon, batch = job.rpartition(":")
        try:
            if not (equals and colon and model and int(batch) > 0 and 0 < float(samples) < float("inf")):
                raise ValueError
            found.append(Order(model, int(batch), float(samples)))
        except ValueError:
            raise BadInputError(f"{item}: write MODEL:BATCH=SAMPLES, such as vit:16=10000") from None
    if not found:
        raise BadInputError("no job is named: write MODEL:BATCH=SAMPLES")
    return found


def pack(orders: Sequence[Order], rows: Sequence[dict[str, Any]], profiles: Sequence[Profile]) -> Packing:
    """The assignment with the least energy.

    Args:
        orders: The jobs, at most one per slice.
        rows: Rows of a sweep; those of single slices are used.
        profiles: The profiles of the GPU.

    Raises:
        BadInputError: If a job was not swept, or there are more jobs than slices.
        NotPossibleError: If no division has a slice for each job, or the sweep has no power.
    """
    if len(orders) >= MOST:
        raise BadInputError(f"{len(orders)} jobs: a GPU has at most {MOST - 1} slices")
    idle = [row["idle_power_w"] for row in rows if row["idle_power_w"] is not None]
    if not idle:
        raise NotPossibleError("the sweep has no power, so energy is unknown")
    idle_w = sum(idle) / len(idle)
    options = [_options(order, rows, profiles) for order in orders]
    best = _search(orders, options, profiles, idle_w)
    if best is None:
        raise NotPossibleError("no division of the GPU has a slice for each of these jobs")
    chosen, places = best
    seconds, energy = _cost(orders, chosen, idle_w)
    return Packing(
        tuple(orders), tuple(chosen), tuple(places), seconds, energy, idle_w, _one_by_one(orders, options, idle_w)
    )


def _search(
    orders: Sequence[Order], options: Sequence[Sequence[Option]], profiles: Sequence[Profile], idle_w: float
) -> tuple[list[Option], list[Placement]] | None:
    """All assignments, cut off where a partial one already takes too much energy or doesn't fit."""
    best: tuple[list[Option], list[Placement]] | None = None
    least = float("inf")

    @cache
    def where(names: tuple[str, ...]) -> list[Placement] | None:
        return place([known[name] for name in names], profiles)

    def extend(chosen: list[Option]) -> None:
        nonlocal best, least
        order = sorted(range(len(chosen)), key=lambda i: chosen[i].profile.name)
        energy = _cost(orders, chosen, idle_w)[1]
        places = where(tuple(chosen[i].profile.name for i in order)) if energy < least else None
        if places is None:
            return
        if len(chosen) == len(orders):
            least, best = energy, (chosen, [places[order.index(i)] for i in range(len(chosen))])
            return
        for option in options[len(chosen)]:
            extend([*chosen, option])

    known = {profile.name: profile for profile in profiles}
    extend([])
    return best


def _cost(orders: Sequence[Order], chosen: Sequence[Option], idle_w: float) -> tuple[float, float]:
    """Seconds until the last job with a slice is done, and the GPU's energy until then."""
    pairs = list(zip(orders, chosen, strict=False))
    seconds = max((option.seconds(order) for order, option in pairs), default=0.0)
    return seconds, idle_w * seconds + sum(option.active_j(order) for order, option in pairs)


def _options(order: Order, rows: Sequence[dict[str, Any]], profiles: Sequence[Profile]) -> list[Option]:
    known = {profile.name: profile for profile in profiles}
    found = [
        Option(known[row["profile"]], row["samples_per_s"], max(row["energy_active_per_sample_j"], 0.0))
        for row in rows
        if row["status"] == "done"
        and row["together"] == 1
        and (row["model"], row["batch"]) == (order.model, order.batch)
        and row["profile"] in known
        and row["samples_per_s"]
        and row["energy_active_per_sample_j"] is not None
    ]
    if not found:
        raise BadInputError(f"{order}: the sweep has no such point with an energy on a single slice")
    return sorted(found, key=lambda option: option.active_j_per_sample)


def _one_by_one(orders: Sequence[Order], options: Sequence[Sequence[Option]], idle_w: float) -> float | None:
    largest = max((option.profile for some in options for option in some), key=lambda one: (one.slices, one.memory_mib))
    total = 0.0
    for order, some in zip(orders, options, strict=True):
        on_it = next((option for option in some if option.profile == largest), None)
        if on_it is None:
            return None
        total += on_it.active_j(order) + idle_w * on_it.seconds(order)
    return total
