"""Serves the readings of a monitor: to Prometheus, by ``prometheus_client``, and to people (``live_page``).

Names and units follow https://prometheus.io/docs/practices/naming/: base units, counters end in ``_total``. A quantity
that a device doesn't report is left out, never 0.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Self

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jouletrace.errors import BadInputError
from jouletrace.profiler.monitoring.watch import LiveWork, Reading
from jouletrace.version import __version__
from jouletrace.wings.live.live_page import Answer, History, answers

LOOPBACK = "127.0.0.1"
_PREFIX = "jouletrace_"
_OF_DEVICE = ("gpu", "uuid", "name", "simulated")

_GAUGES: tuple[tuple[str, str, str, float], ...] = (
    ("power_w", "power_watts", "Board power, mean since the last update.", 1.0),
    ("power_memory_w", "memory_power_watts", "Power of the memory.", 1.0),
    ("temperature_c", "temperature_celsius", "Temperature of the die.", 1.0),
    ("temperature_memory_c", "memory_temperature_celsius", "Temperature of the memory.", 1.0),
    ("clock_sm_mhz", "sm_clock_hertz", "Clock of the streaming multiprocessors, or of a CPU's cores.", 1e6),
    ("clock_memory_mhz", "memory_clock_hertz", "Clock of the memory.", 1e6),
    ("utilization_gpu_pct", "utilization_ratio", "Share of time in which any kernel ran.", 0.01),
    ("memory_used_bytes", "memory_used_bytes", "Device memory in use by all processes.", 1.0),
    ("throttle_bits", "throttle_reasons", "Why clocks are reduced: NVML's clocksEventReasons bit mask.", 1.0),
)
"""Channel, metric, help, and the factor from the channel's unit to the metric's."""


@dataclass(frozen=True)
class Address:
    """Address of the exporter."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """From ``HOST:PORT``, ``[IPv6]:PORT``, ``:PORT`` or ``PORT``; without a host only this machine can connect.

        Raises:
            BadInputError: If it is anything else.
        """
        match = re.fullmatch(r"(?:(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:\[\]/]*)):)?([0-9]{1,5})", text.strip())
        if match is None or int(match[3]) > 65535:
            raise BadInputError(f"--serve {text!r}: write 127.0.0.1:PORT, or PORT (0 to 65535, 0 for any that is free)")
        return cls(match[1] or match[2] or LOOPBACK, int(match[3]))


class MetricsPage(Collector):
    """The content of a scrape: one metric per channel, one sample per device that reports it.

    Attributes:
        shown: The latest reading of each device, and the work counted so far (None if no work is counted). Another
            thread replaces both at once, so a scrape never mixes two updates.
    """

    def __init__(self, readings: Sequence[Reading] = (), work: LiveWork | None = None) -> None:
        self.shown = readings, work

    def collect(self) -> Iterator[Metric]:
        """The metrics; those without a sample are left out."""
        readings, work = self.shown
        about = GaugeMetricFamily(f"{_PREFIX}build_info", "Version of jouletrace.", labels=["version"])
        about.add_metric([__version__], 1.0)
        yield about
        yield GaugeMetricFamily(
            f"{_PREFIX}time_seconds", "Unix time on this machine, as this page is made.", time.time()
        )
        yield from (metric for metric in _of_devices(readings) if metric.samples)
        if work is None:
            return
        label = [work.unit, _flag(any(reading.info.simulated for reading in readings))]
        text = "Units of work counted since the monitor began."
        counted = CounterMetricFamily(f"{_PREFIX}work", text, labels=["counter", "simulated"])
        text = "Energy of all devices per unit of work, since the previous reading."
        each = GaugeMetricFamily(f"{_PREFIX}energy_per_work_joules", text, labels=["counter", "simulated"])
        for metric, value in ((counted, work.done), (each, work.j_each)):
            if value is not None:
                metric.add_metric(label, value)
                yield metric


class Exporter:
    """Serves ``/metrics``, and a page for people at ``/``, from separate threads within a ``with`` block.

    ``show`` is a ``watch.Display``; ``command`` is the program that runs. A client that reads slowly or not at all
    holds a thread of its own.

    Attributes:
        url: URL of the page for people; that of the metrics is ``{url}metrics``.
        open_to_others: Whether other machines can connect; there is no password.
        about: Both, in a line.

    Raises:
        BadInputError: If the server can't listen at the address.
    """

    def __init__(self, address: Address, command: str = "") -> None:
        self._page, self._history = MetricsPage(), History(command)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._page)
        try:
            self._server, self._thread = start_http_server(address.port, address.host, registry)
        except OSError as error:
            where = f"{address.host}:{address.port}"
            raise BadInputError(f"--serve: cannot listen at {where}: {error.strerror or error}") from None
        host = f"[{address.host}]" if self._server.address_family == socket.AF_INET6 else address.host
        self.url = f"http://{host}:{self._server.server_port}/"
        self.open_to_others = not ip_address(str(self._server.server_address[0]).partition("%")[0]).is_loopback
        app = answers(self._history, make_wsgi_app(registry))
        self._server.set_app(app if self.open_to_others else _named(app, address.host))

        who = ", open to other machines without a password" if self.open_to_others else ""
        self.about = f"serving {self.url} and {self.url}metrics{who}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def show(self, readings: list[Reading], work: LiveWork | None) -> None:
        """Serve these readings from now on."""
        self._page.shown = readings, work
        self._history.show(readings, work)


def publish(where: str, program: str) -> Exporter:
    """An exporter at an address (``Address.parse``), with the command of the program that is monitored.

    Raises:
        BadInputError: If it is none, or the exporter can't listen there.
    """
    return Exporter(Address.parse(where), program)


def _named(app: Answer, bound: str) -> Answer:
    """Answers to names of this machine alone: another site's name may be led here, to read the page in a browser."""
    own = {"localhost", LOOPBACK, "::1", bound.lower()}

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        name = re.sub(r":\d*$", "", environ.get("HTTP_HOST", LOOPBACK)).strip("[]").lower()
        if name in own:
            return app(environ, start)
        start("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"only this machine may read this page: ask for http://{LOOPBACK}\n".encode()]

    return answer


def _of_devices(readings: Sequence[Reading]) -> Iterator[Metric]:
    text = "Energy of the GPU since the monitor began, summed from its power record."
    yield _filled(readings, CounterMetricFamily, "energy_joules", text, (one.energy_j for one in readings))
    yield _of_holders(readings)
    text = "Unix time until which the energy is summed."
    until = (one.energy_ns / 1e9 if one.energy_j is not None else None for one in readings)
    yield _filled(readings, GaugeMetricFamily, "energy_timestamp_seconds", text, until)
    text = "Time without readings, for which the energy uses the next power reading."
    holes = (one.hole_s if one.energy_j is not None else None for one in readings)
    yield _filled(readings, CounterMetricFamily, "record_hole_seconds", text, holes)
    for channel, name, text, factor in _GAUGES:
        values = (one.values.get(channel) for one in readings)
        scaled = (None if value is None else float(value * factor) for value in values)
        yield _filled(readings, GaugeMetricFamily, name, text, scaled)
    limits = (one.info.power_limit_w for one in readings)
    yield _filled(readings, GaugeMetricFamily, "power_limit_watts", "Enforced power limit.", limits)
    text = "Unix time of the newest reading."
    stamps = (one.time_ns / 1e9 if one.time_ns else None for one in readings)
    yield _filled(readings, GaugeMetricFamily, "last_reading_timestamp_seconds", text, stamps)


def _filled(
    readings: Sequence[Reading],
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    text: str,
    values: Iterable[float | None],
) -> Metric:
    # Counters run on while others get the device: with labels of these each would seem to have drawn all before it.
    held = [{} if kind is CounterMetricFamily else dict(reading.labels) for reading in readings]
    more = sorted({label for labels in held for label in labels})
    metric = kind(f"{_PREFIX}{name}", text, labels=(*_OF_DEVICE, *more))
    for place, (reading, value) in enumerate(zip(readings, values, strict=True)):
        if value is not None:
            metric.add_metric([*_device(place, reading), *(held[place].get(label, "") for label in more)], value)
    return metric


def _of_holders(readings: Sequence[Reading]) -> Metric:
    text = "Energy of the GPU while all who are named held it; without names, while no pod was known to."
    more = sorted({label for reading in readings for labels, _ in reading.energies for label in labels})
    metric = CounterMetricFamily(f"{_PREFIX}pod_energy_joules", text, labels=(*_OF_DEVICE, *more))
    for place, reading in enumerate(readings):
        for labels, joules in reading.energies:
            metric.add_metric([*_device(place, reading), *(labels.get(label, "") for label in more)], joules)
    return metric


def _device(place: int, reading: Reading) -> list[str]:
    """Values of ``_OF_DEVICE``."""
    info = reading.info
    # Simulated GPUs have no index: their place is what --monitor URL#0 names.
    return [str(place if info.index is None else info.index), info.id, info.name, _flag(info.simulated)]


def _flag(value: bool) -> str:
    return "true" if value else "false"
