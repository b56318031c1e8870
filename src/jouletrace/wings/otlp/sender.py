"""Figures of devices as OpenTelemetry's metrics, sent by its SDK's exporter for OTLP over HTTP.

Names, units and instruments are those of https://opentelemetry.io/docs/specs/semconv/hardware. What a device doesn't
report is left out, never 0. A simulated one has the attribute ``jouletrace.simulated``.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any, Self
from urllib.parse import urlsplit

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.profiler.monitoring.watch import LiveWork, Reading
from jouletrace.run import DeviceInfo
from jouletrace.version import __version__

_PATH = "/v1/metrics"
_CHANNELS = {
    "power_w": ("hw.power", 1.0),
    "temperature_c": ("hw.temperature", 1.0),
    "utilization_gpu_pct": ("hw.gpu.utilization", 0.01),
    "memory_used_bytes": ("hw.gpu.memory.usage", 1.0),
}
"""Metric of a channel, and the factor from the channel's unit to the metric's."""

METRICS = {
    "hw.energy": ("J", "counter"),
    "hw.power": ("W", "gauge"),
    "hw.temperature": ("Cel", "gauge"),
    "hw.gpu.utilization": ("1", "gauge"),
    "hw.gpu.memory.usage": ("By", "updowncounter"),
    "hw.gpu.memory.limit": ("By", "updowncounter"),
}
"""Unit and instrument of each metric."""


@dataclass(frozen=True)
class State:
    """What is sent of a device: values by metric, of ``time_ns``; its energy since ``start_ns``."""

    info: DeviceInfo
    start_ns: int
    time_ns: int
    values: Mapping[str, float]


class Sender:
    """Sends states to a collector.

    Args:
        url: Of the collector; without a path ``/v1/metrics`` is added. Headers, certificates and the time limit are
            those of the variables ``OTEL_EXPORTER_OTLP_...``, names of the resource those of ``OTEL_...``.

    Raises:
        BadInputError: If the URL isn't one of http or https.
        NotPossibleError: If the exporter isn't installed.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInputError(f"{url!r}: write the URL of a collector, such as http://127.0.0.1:4318")
        self._url = url if parts.path.strip("/") else f"{url.rstrip('/')}{_PATH}"
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        except ImportError:
            raise NotPossibleError("otlp needs OpenTelemetry's exporter: pip install 'jouletrace[otel]'") from None
        self._exporter: Any = OTLPMetricExporter(endpoint=self._url)
        self.about = f"sending to {parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def send(self, states: Iterable[State]) -> bool:
        """Send these states; True if the collector took them. The exporter logs why it didn't."""
        from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        resource = Resource({"service.name": "jouletrace", "host.name": socket.gethostname()})
        scope = ScopeMetrics(InstrumentationScope("jouletrace", __version__), _metrics(list(states)), "")
        sent = self._exporter.export(MetricsData([ResourceMetrics(resource, [scope], "")]))
        return bool(sent == MetricExportResult.SUCCESS)


class LiveSender(Sender):
    """Sends the latest readings of a monitor from a thread, and the last ones at the end of its ``with`` block."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        every_ms = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "60000")  # of OpenTelemetry's SDKs, with its default
        if not every_ms.isdecimal() or not int(every_ms):
            raise BadInputError(f"OTEL_METRIC_EXPORT_INTERVAL={every_ms}: must be a number of milliseconds")
        self._every_s = int(every_ms) / 1000
        self.about += f" each {self._every_s:g} s"
        self._start_ns, self._states, self._ended = time.time_ns(), list[State](), Event()
        self._thread = Thread(target=self._run, name="jouletrace-otlp", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def show(self, readings: list[Reading], _work: LiveWork | None) -> None:
        """Send these readings next; a ``watch.Display``."""
        self._states = [self._state(reading) for reading in readings if reading.time_ns]

    def _state(self, reading: Reading) -> State:
        values = {
            name: reading.values[channel] * by for channel, (name, by) in _CHANNELS.items() if channel in reading.values
        }
        if reading.energy_j is not None:
            values["hw.energy"] = reading.energy_j
        if reading.info.memory_bytes:
            values["hw.gpu.memory.limit"] = float(reading.info.memory_bytes)
        return State(reading.info, min(self._start_ns, reading.time_ns), reading.time_ns, values)

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            self._send_latest()
        self._send_latest()

    def _send_latest(self) -> None:
        if states := self._states:
            self.send(states)


def publish(where: str, program: str) -> LiveSender:
    """See ``watch.Publisher``; ``where`` is the URL of a collector.

    Raises:
        BadInputError: If it isn't a URL.
        NotPossibleError: If the exporter isn't installed.
    """
    return LiveSender(where)


def _metrics(states: list[State]) -> list[Any]:
    """OpenTelemetry's metrics of states, a data point a device."""
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum

    metrics = []
    for name, (unit, instrument) in METRICS.items():
        points = [
            NumberDataPoint(_attributes(state.info), state.start_ns, state.time_ns, state.values[name])
            for state in states
            if name in state.values
        ]
        data = (
            Gauge(points)
            if instrument == "gauge"
            else Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=instrument == "counter")
        )
        metrics += [Metric(name, "", unit, data)] if points else []
    return metrics


def _attributes(info: DeviceInfo) -> dict[str, Any]:
    """Attributes of a device by the conventions; those that aren't stated are left out."""
    stated = {
        "hw.id": info.id,
        "hw.type": info.kind,
        "hw.name": info.name,
        "hw.serial_number": info.serial,
        "hw.driver_version": info.driver,
        "jouletrace.simulated": info.simulated or None,
    }
    return {name: value for name, value in stated.items() if value}
