"""Servers among the targets of ``tune``: what it asks of each wing's before it measures (``MoreTargets``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jouletrace.campaign.limits import Limit
from jouletrace.devices import is_simulated
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.wings.serving.request_options import LOADS, SHARES, RequestOptions

if TYPE_CHECKING:
    from jouletrace.wings.serving.target import ServerTarget

__all__ = ["SHARES", "RequestOptions", "takes", "target_of"]


def takes(words: Sequence[str], over: Mapping[str, Any], device: str) -> bool:
    """See ``MoreTargets``: a server by its address, or a workload on a simulated GPU under loads in ``over``."""
    return "://" in words[0] or (len(words) == 1 and is_simulated(device) and any(name in LOADS for name in over))


def target_of(
    words: Sequence[str],
    settings: ProfileSettings,
    limits: Sequence[Limit],
    limit_s: float,
    requests: Mapping[str, Any],
) -> ServerTarget:
    """See ``MoreTargets``."""
    from jouletrace.wings.serving.target import ServerTarget

    return ServerTarget(words[0], words[1:], settings, limit_s, RequestOptions(**requests), limits)
