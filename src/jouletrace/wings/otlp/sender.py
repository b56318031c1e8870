"""Figures of devices as OpenTelemetry's metrics, sent by its SDK's exporter for OTLP over HTTP.

Names, units and instruments are those of https://opentelemetry.io/docs/specs/semconv/hardware. What a device doesn't
report is left out, never 0. A simulated one has the attribute ``jouletrace.simulated``.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import Any, Self
from urllib.parse import urlsplit

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.known_secrets import MASK
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
            those of the variables ``OTEL_EXPORTER_OTLP_...``, names of the resource those of ``OTEL_...``. It isn't
            followed to where it redirects.

    Attributes:
        where: The URL without its secrets.
        limit_s: Seconds in which a collector that is there has answered.

    Raises:
        BadInputError: If the URL isn't one of http or https, or a variable isn't a time limit.
        NotPossibleError: If the exporter isn't installed.
    """

    def __init__(self, url: str) -> None:
        self.where = _masked(url)
        try:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
                raise ValueError
        except ValueError:
            words = "write the URL of a collector, such as http://127.0.0.1:4318"
            raise BadInputError(f"{self.where!r}: {words}") from None
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from requests import Session, TooManyRedirects
        except ImportError:
            raise NotPossibleError("otlp needs OpenTelemetry's exporter: pip install 'jouletrace[otel]'") from None
        limit = os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT", "10")  # the exporter's default
        limit = os.environ.get("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", limit)
        if not re.fullmatch(r"\d{1,6}(\.\d+)?", limit):
            raise BadInputError(f"OTEL_EXPORTER_OTLP_TIMEOUT={limit}: must be a number of seconds")
        self.limit_s = float(limit) + 1  # a second for the exporter to log what it met at its limit

        def refuse_redirect(answer: Any, **_: Any) -> None:
            if answer.is_redirect:  # the exporter takes it for success, or follows it with its headers
                raise TooManyRedirects("it redirects: write the URL to which it does")

        session = Session()
        session.hooks["response"].append(refuse_redirect)
        endpoint = parts._replace(path=parts.path if parts.path.strip("/") else _PATH, fragment="").geturl()
        self._exporter: Any = OTLPMetricExporter(endpoint=endpoint, session=session)
        logging.getLogger(OTLPMetricExporter.__module__).addFilter(_mask_record)
        self.about = f"sending to {self.where}"

    def send(self, states: Sequence[State]) -> bool:
        """Send these states; True if the collector took them. The exporter logs why it didn't.

        A collector that answers byte by byte never ends it, so it is called in threads that are left after ``limit_s``.
        """
        from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        data = []
        for host in dict.fromkeys(state.info.host for state in states):
            resource = Resource({"service.name": "jouletrace"} | ({"host.name": host} if host else {}))
            metrics = _metrics([state for state in states if state.info.host == host])
            scope = ScopeMetrics(InstrumentationScope("jouletrace", __version__), metrics, "")
            data.append(ResourceMetrics(resource.merge(OTELResourceDetector().detect()), [scope], ""))
        return bool(self._exporter.export(MetricsData(data)) == MetricExportResult.SUCCESS)


class LiveSender(Sender):
    """Sends the latest readings of a monitor from a thread, and the last ones at the end of its ``with`` block."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        every_ms = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "60000")  # of OpenTelemetry's SDKs, with its default
        if not every_ms.isdecimal() or not int(every_ms):
            raise BadInputError(f"OTEL_METRIC_EXPORT_INTERVAL={every_ms}: must be a number of milliseconds")
        self._every_s = int(every_ms) / 1000
        self.about += f" each {self._every_s:g} s"
        self._states, self._ended = list[State](), Event()
        self._thread = Thread(target=self._run, name="jouletrace-otlp", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(2 * self.limit_s)  # what is being sent, and the last readings

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
        info = replace(reading.info, host=reading.info.host or socket.gethostname())
        return State(info, reading.start_ns or reading.time_ns, reading.time_ns, values)

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


def _masked(text: str) -> str:
    """A URL, or text that holds some, without users, passwords and queries."""
    return re.sub(r"\?[^\s'\"]+", f"?{MASK}", re.sub(r"(^|//)[^\s/?#]*@", rf"\1{MASK}@", text))


def _mask_record(record: logging.LogRecord) -> bool:
    """A filter of a logger, which masks and passes all."""
    record.msg, record.args = _masked(record.getMessage()), ()
    return True
