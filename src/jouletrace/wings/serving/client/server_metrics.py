"""Figures of a server's ``/metrics`` page: running and waiting requests, use of its cache."""

from __future__ import annotations

import math
import threading
import time
from typing import Self
from urllib.parse import urlsplit

from jouletrace.prometheus import families
from jouletrace.run import ChannelInfo
from jouletrace.run.channels import CHANNEL_UNITS, SERVER_CACHE, SERVER_RUNNING, SERVER_WAITING
from jouletrace.web import fetch

NAMES: dict[str, tuple[str, ...]] = {
    SERVER_RUNNING: (
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "tgi_batch_current_size",
        "llamacpp:requests_processing",
    ),
    SERVER_WAITING: (
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "tgi_queue_size",
        "llamacpp:requests_deferred",
    ),
    SERVER_CACHE: (
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "sglang:token_usage",
        "llamacpp:kv_cache_usage_ratio",
    ),
}
"""Gauges by channel, of vLLM, SGLang, TGI and llama.cpp; all series of one are added up."""

EVERY_S, _TIMEOUT_S = 1.0, 2.0


class ServerMetrics:
    """Reads the page from a thread within a ``with`` block; a server without such a page is fine.

    Attributes:
        rows: Rows of ``samples``.
    """

    def __init__(self, base: str, device: str) -> None:
        parts = urlsplit(base)
        self.url = f"{parts.scheme}://{parts.netloc}/metrics"
        self.rows: list[dict[str, object]] = []
        self._device = device
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="server-metrics", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(2 * _TIMEOUT_S)

    def channels(self) -> list[ChannelInfo]:
        """The channels that occur in ``rows``."""
        there = {str(row["channel"]) for row in self.rows}
        return [ChannelInfo(self._device, name, CHANNEL_UNITS[name][0], self.url) for name in NAMES if name in there]

    def _watch(self) -> None:
        while self._read() and not self._ending.wait(EVERY_S):
            pass

    def _read(self) -> bool:
        """Read once; False if the server has no such page."""
        before_ns = time.time_ns()
        try:
            found = values(fetch(self.url, _TIMEOUT_S))
        except OSError:
            return bool(self.rows)
        stamp = (before_ns + time.time_ns()) // 2
        self.rows += [
            {"time_ns": stamp, "device": self._device, "channel": name, "value": value} for name, value in found.items()
        ]
        return bool(self.rows)


def values(text: str) -> dict[str, float]:
    """Values by channel on a page; empty if it has none of the metrics."""
    found: dict[str, float] = {}
    known = [name for names in NAMES.values() for name in names]
    samples = [one for family in families(text, known) for one in family.samples]
    for channel, names in NAMES.items():
        for name in names:
            series = [one.value for one in samples if one.name == name and math.isfinite(one.value)]
            if series:
                found[channel] = float(sum(series))
                break
    return found
