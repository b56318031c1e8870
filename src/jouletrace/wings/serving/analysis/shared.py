"""A GPU that several servers share: its energy is divided between them by a wing (``Wing.divisions``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol, cast

from jouletrace.run import Estimate, Run
from jouletrace.run.forms import LoadFacts, Serving
from jouletrace.wing import registered
from jouletrace.wings.serving.analysis.steady import Requests, steady_window

Found = tuple[int, LoadFacts, Requests]
"""A load's number, what was offered, and its requests."""


@dataclass(frozen=True)
class LoadDivision:
    """The energy of a load on one of several servers, in its window.

    Attributes:
        window: Start and end in seconds, of its requests' origin.
        is_steady: Whether all loads of that time are steady.
        total: Energy with its share of idle, J.
        active: Energy above idle, J.
        beside: Other figures of that time, by metric.
    """

    window: tuple[float, float]
    is_steady: bool
    total: Estimate
    active: Estimate
    beside: dict[str, Estimate] = field(default_factory=dict)


class Divider(Protocol):
    """The interface of a module of ``Wing.divisions``."""

    def divide(self, run: Run, serving: Serving, found: Sequence[Found]) -> list[LoadDivision]:
        """The part of each load in the energy of the Run's devices; loads of one ``group`` ran at the same time."""


def divided(run: Run, serving: Serving, found: Sequence[Found]) -> list[LoadDivision] | None:
    """The parts of loads in the energy of a Run's devices; None for those of one server, which has all of it.

    Without the wing that divides it, the parts are null.
    """
    servers = serving.get("servers")
    if not run.devices or not servers:
        return None
    module = next((module for key, module in registered("divisions").items() if key in servers[0]), None)
    if module is not None:
        return cast(Divider, import_module(module)).divide(run, serving, found)
    unknown = Estimate.null("not_divided")
    windows = [steady_window(requests) for *_, requests in found]
    return [LoadDivision((start, end), is_steady, unknown, unknown) for start, end, is_steady in windows]
