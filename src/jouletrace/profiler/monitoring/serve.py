"""The latest readings of a monitor for Prometheus to scrape.

Text format 0.0.4: https://prometheus.io/docs/instrumenting/exposition_formats/. Names and units
follow https://prometheus.io/docs/practices/naming/: base units, counters end in ``_total``. What a
device doesn't report is left out, never 0.
"""

from __future__ import annotations

import re
import socket
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socketserver import TCPServer
from types import TracebackType
from typing import Any, Self

from jouletrace.errors import BadInputError
from jouletrace.profiler.monitoring.watch import LiveWork, Reading

LOOPBACK = "127.0.0.1"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_CLIENTS = 64
_PREFIX = "jouletrace_"

_GAUGES: tuple[tuple[str, str, str, float], ...] = (
    ("power_w", "power_watts", "Board power, mean since the last update.", 1.0),
    ("power_memory_w", "memory_power_watts", "Power of the memory.", 1.0),
    ("temperature_c", "temperature_celsius", "Temperature of the die.", 1.0),
    ("temperature_memory_c", "memory_temperature_celsius", "Temperature of the memory.", 1.0),
    ("clock_sm_mhz", "sm_clock_hertz", "Clock of the streaming multiprocessors, or of a CPU's cores.", 1e6),
    ("clock_memory_mhz", "memory_clock_hertz", "Clock of the memory.", 1e6),
    ("utilization_gpu_pct", "utilization_ratio", "Share of time in which some kernel ran.", 0.01),
    ("memory_used_bytes", "memory_used_bytes", "Device memory in use by everybody.", 1.0),
    ("throttle_bits", "throttle_reasons", "Why clocks are held down: NVML's clocksEventReasons bit mask.", 1.0),
)
"""Channel, metric, help, and its unit in the channel's."""


@dataclass(frozen=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """From ``HOST:PORT``, ``[IPv6]:PORT``, ``:PORT`` or ``PORT``; without a host only this machine can ask.

        Raises:
            BadInputError: If it is anything else.
        """
        match = re.fullmatch(r"(?:(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:\[\]/]*)):)?(\d{1,5})", text.strip())
        if match is None or int(match[3]) > 65535:
            raise BadInputError(f"--serve {text!r}: write 127.0.0.1:PORT, or PORT (0 to 65535, 0 for any that is free)")
        return cls(match[1] or match[2] or LOOPBACK, int(match[3]))


class Exporter:
    """Serves ``/metrics`` from a thread of its own, from ``with`` to its end; a ``monitor_watch.Display``.

    Attributes:
        url: Of the page.
        open_to_others: Whether other machines can ask too; nobody is asked for a password.

    Raises:
        BadInputError: If the address can't be listened at.
    """

    def __init__(self, address: Address) -> None:
        try:
            self._server = _Server(address)
        except OSError as error:
            where = f"{address.host}:{address.port}"
            raise BadInputError(f"--serve: cannot listen at {where}: {error.strerror or error}") from None
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.url = f"http://{host}:{self._server.server_address[1]}/metrics"
        self.open_to_others = not ip_address(str(self._server.server_address[0]).partition("%")[0]).is_loopback
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="exporter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def show(self, readings: list[Reading], work: LiveWork | None) -> None:
        """Make this the page that is served."""
        self._server.page = render(readings, work).encode()


class _Server(ThreadingHTTPServer):
    """Holds the page; a thread a client, so that a slow one keeps nobody waiting.

    When there are more than ``MOST_CLIENTS``, the one that has been there longest must go: clients that say nothing
    can't keep others out.
    """

    daemon_threads = True
    request_queue_size = MOST_CLIENTS

    def __init__(self, address: Address) -> None:
        self.page = render([], None).encode()
        self._clients: deque[socket.socket] = deque()
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        super().__init__((address.host, address.port), _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server who this host is, which http.server does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own."""
        self._clients.append(request)
        if len(self._clients) > MOST_CLIENTS:
            with suppress(OSError):  # gone already
                self._clients.popleft().shutdown(socket.SHUT_RDWR)  # its thread ends by that
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """A client is done."""
        with suppress(ValueError):  # one that had to go
            self._clients.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hangs up in the middle is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10.0
    server: _Server

    def do_GET(self) -> None:
        """Answer ``/metrics``, and say where it is."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, CONTENT_TYPE, self.server.page)
        elif path == "/":
            self._answer(200, "text/html; charset=utf-8", b'<title>jouletrace</title><a href="/metrics">metrics</a>\n')
        else:
            self._answer(404, "text/plain; charset=utf-8", b"there is /metrics only\n")

    do_HEAD = do_GET

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal is the monitor's."""


def render(readings: Sequence[Reading], work: LiveWork | None) -> str:
    """The page: every metric with its HELP and TYPE, a line a device that reports it."""
    labels = [_labels(reading) for reading in readings]
    lines: list[str] = []

    def put(name: str, kind: str, text: str, rows: Iterable[tuple[str, float | None]]) -> None:
        known = [(label, value) for label, value in rows if value is not None]
        if known:
            lines.append(f"# HELP {_PREFIX}{name} {_help(text)}")
            lines.append(f"# TYPE {_PREFIX}{name} {kind}")
            lines.extend(f"{_PREFIX}{name}{label} {value!r}" for label, value in known)

    from jouletrace.version import __version__

    put("build_info", "gauge", "Version of jouletrace.", [(_braces({"version": __version__}), 1.0)])
    pairs = list(zip(labels, readings, strict=True))
    put(
        "energy_joules_total",
        "counter",
        "Energy of the board since the monitor began, summed from its power record.",
        [(label, r.energy_j) for label, r in pairs],
    )
    put(
        "record_hole_seconds_total",
        "counter",
        "Time without readings, for which the energy takes the power read after it.",
        [(label, r.hole_s if r.energy_j is not None else None) for label, r in pairs],
    )
    for channel, name, text, factor in _GAUGES:
        put(name, "gauge", text, [(label, _scaled(r.values.get(channel), factor)) for label, r in pairs])
    put("power_limit_watts", "gauge", "Enforced power limit.", [(label, r.info.power_limit_w) for label, r in pairs])
    stamps = [(label, r.time_ns / 1e9 if r.time_ns else None) for label, r in pairs]
    put("last_reading_timestamp_seconds", "gauge", "When the newest reading was taken, by the Unix clock.", stamps)
    if work is not None:
        label = _braces({"counter": work.unit, "simulated": _flag(any(r.info.simulated for r in readings))})
        put("work_total", "counter", "Units of work counted since the monitor began.", [(label, work.done)])
        text = "Energy of all devices for one unit of work, lately."
        put("energy_per_work_joules", "gauge", text, [(label, work.j_each)])
    return "\n".join(lines) + "\n"


def _labels(reading: Reading) -> str:
    info = reading.info
    gpu = "" if info.index is None else str(info.index)
    return _braces({"gpu": gpu, "uuid": info.id, "name": info.name, "simulated": _flag(info.simulated)})


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else float(value * factor)


def _braces(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
