"""Options of requests to servers that ``tune`` and ``bench`` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jouletrace.analysis.latency import MAY_MISS
from jouletrace.campaign.limits import parse_limits
from jouletrace.option import option

SHARES: Mapping[str, float | None] = dict.fromkeys(("ttft", "tpot", "e2e"), MAY_MISS)
"""See ``MoreTargets``: these of a request."""

LOADS = ("rate", "concurrency")
"""Dimensions that are loads; all others are the server's."""


@dataclass(frozen=True)
class RequestOptions:
    """See ``MoreTargets``: what visits send."""

    duration_s: float = option(30.0, "Of each load of a server.", metavar="SECONDS")
    input_tokens: str = option("512", "Length of a server's prompts.", metavar="N|LOW:HIGH")
    output_tokens: str = option("128", "Length of its answers.", metavar="N|LOW:HIGH")
    model: str = option("", "Name of its model. [default: the only one served]")


def slo_of(text: str) -> dict[str, float]:
    """Limits of ``--slo`` in seconds by name.

    Raises:
        BadInputError: As ``parse_limits``.
    """
    return {limit.quantity: limit.bound for limit in parse_limits(text or None, "--slo", SHARES)}
