"""Figures of devices as OpenTelemetry's metrics, sent by its SDK's exporter for OTLP over HTTP.

Names, units and instruments are those of https://opentelemetry.io/docs/specs/semconv/hardware. What a device doesn't
report is left out, never 0. A simulated one has the attribute ``jouletrace.simulated``.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import Any, Self
from urllib.parse import urlsplit

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.known_secrets import MASK
from jouletrace.profiler.monitoring.watch import LiveWork, Reading
from jouletrace.run import DeviceInfo
from jouletrace.version import __version__

_LOGGER = logging.getLogger(__name__)
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

    Raises:
        BadInputError: If the URL isn't one of http or https, or a variable isn't a time limit.
        NotPossibleError: If the exporter isn't installed.
    """

    def __init__(self, url: str) -> None:
        self.where = self.about = _masked(url)
        try:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
                raise ValueError
        except ValueError:
            example = "write the URL of a collector, such as http://127.0.0.1:4318"
            raise BadInputError(f"{self.where!r}: {example}") from None
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from requests import Session
        except ImportError:
            raise NotPossibleError("otlp needs OpenTelemetry's exporter: pip install 'jouletrace[otel]'") from None
        variables = ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
        limit = next(filter(None, map(os.environ.get, variables)), "10")  # the exporter's default
        if not re.fullmatch(r"\d{1,6}(\.\d+)?", limit):
            raise BadInputError(f"{variables[1]}={limit}: must be a number of seconds")
        self._limit_s = float(limit)
        logging.getLogger(OTLPMetricExporter.__module__).addFilter(_mask_record)
        session = Session()
        session.hooks["response"].append(_refuse_redirect)
        path = parts.path if parts.path.strip("/") else _PATH
        endpoint = parts._replace(path=path, fragment="").geturl()
        self._exporter: Any = OTLPMetricExporter(endpoint=endpoint, session=session, timeout=self._limit_s)
        self._sending: Thread | None = None
        self.about = f"sending to {self.where}"

    def send(self, states: Iterable[State]) -> bool:
        """Send these states; True if the collector took them. The exporter logs why it didn't.

        A collector that answers byte by byte keeps the exporter beyond its time limit: a thread waits for it then,
        and nothing is sent until it has ended.
        """
        from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        if self._sending is not None and self._sending.is_alive():
            return False
        by_host: dict[str, list[State]] = {}
        for state in states:
            by_host.setdefault(state.info.host, []).append(state)
        data, answers = [], list[Any]()
        for host, some in by_host.items():
            resource = Resource({"service.name": "jouletrace"} | ({"host.name": host} if host else {}))
            scope = ScopeMetrics(InstrumentationScope("jouletrace", __version__), _metrics(some), "")
            data.append(ResourceMetrics(resource, [scope], ""))
        self._sending = Thread(target=lambda: answers.append(self._exporter.export(MetricsData(data))), daemon=True)
        self._sending.start()
        self._sending.join(self._limit_s + 1)  # a second for the exporter to log what it met at its limit
        if not answers:
            _LOGGER.error("no whole answer of %s in %g s", self.where, self._limit_s)
        return answers == [MetricExportResult.SUCCESS]


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


def _refuse_redirect(answer: Any, **_: Any) -> None:
    """A hook of requests: the exporter takes a redirect for success, or follows it to another server with its headers.

    Raises:
        TooManyRedirects: If the answer is one.
    """
    from requests import TooManyRedirects

    if answer.is_redirect:
        raise TooManyRedirects("it redirects: write the URL to which it does")
