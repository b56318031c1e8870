"""The page of a monitor in a browser: the last five minutes of each device, which the page asks for again and again.

``/`` is the page, ``/history`` is JSON with the points, units and names that it draws.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any
from urllib.parse import parse_qs

from jouletrace.profiler.monitoring.watch import LiveWork, Reading
from jouletrace.version import __version__
from jouletrace.words.text import printable

WINDOW_S = 300.0
"""Seconds that the page looks back."""

APART_S = 0.45
"""Least seconds between two points: 600 a device, how short the interval of the monitor may be."""

SHOWN = (
    ("power_w", "power", "W", 1.0, 1),
    ("clock_sm_mhz", "SM clock", "MHz", 1.0, 0),
    ("clock_memory_mhz", "memory clock", "MHz", 1.0, 0),
    ("memory_used_bytes", "memory in use", "GiB", 2.0**-30, 2),
    ("utilization_gpu_pct", "utilisation", "%", 1.0, 0),
    ("temperature_c", "temperature", "°C", 1.0, 0),
)
"""Channel, name, unit, factor from the channel's unit, and digits after the point, as the page has them."""

_CHANNELS = tuple(channel for channel, *_ in SHOWN)

Answer = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""A WSGI application."""


@dataclass
class _Track:
    """The points of a device: Unix time in s, then a value (or None) for each of ``SHOWN``."""

    points: deque[tuple[float | None, ...]] = field(default_factory=deque)
    energy: tuple[float, int] | None = None
    """Energy in J and the time in ns until which it was summed, at the last point."""


class History:
    """Points of the last ``WINDOW_S``; one thread adds them by ``show``, a ``watch.Display``, any other reads them.

    Args:
        command: The program that the monitor runs; "" for none.
    """

    def __init__(self, command: str = "") -> None:
        self._command = printable(command)
        self._tracks: dict[str, _Track] = {}
        self._shown: tuple[list[Reading], LiveWork | None] = [], None
        self._lock = Lock()

    def show(self, readings: list[Reading], work: LiveWork | None) -> None:
        """Add the latest readings."""
        with self._lock:
            self._shown = readings, work
            for reading in readings:
                self._add(reading)

    def _add(self, reading: Reading) -> None:
        track, now_s = self._tracks.setdefault(reading.device, _Track()), reading.time_ns / 1e9
        last = track.points[-1][0] if track.points else None
        if not reading.time_ns or (last is not None and now_s - last < APART_S):
            return
        values = [_number(reading.values.get(channel), factor) for channel, _, _, factor, _ in SHOWN]
        if reading.energy_j is not None:
            if track.energy is not None and reading.energy_ns > track.energy[1]:
                apart_s = (reading.energy_ns - track.energy[1]) / 1e9
                values[0] = _number((reading.energy_j - track.energy[0]) / apart_s)  # the mean since the point before
            track.energy = reading.energy_j, reading.energy_ns
        track.points.append((now_s, *values))
        while track.points[0][0] is not None and track.points[0][0] < now_s - WINDOW_S:
            track.points.popleft()

    def to_dict(self, after_s: float = 0.0) -> dict[str, Any]:
        """What the page draws: names, units, and the points later than ``after_s``, a Unix time in s."""
        with self._lock:
            readings, work = self._shown
            devices = [self._device(place, reading, after_s) for place, reading in enumerate(readings)]
        counted = None
        if work is not None:
            counted = {"unit": work.unit, "done": work.done, "per_s": work.per_s, "j_each": work.j_each}
            counted["problem"] = work.problem
        return {
            "version": __version__,
            "time_s": time.time(),
            "window_s": WINDOW_S,
            "simulated": any(one["simulated"] for one in devices),
            "command": self._command,
            "channels": [{"key": key, "name": name, "unit": unit, "digits": n} for key, name, unit, _, n in SHOWN],
            "devices": devices,
            "work": counted,
        }

    def _device(self, place: int, reading: Reading, after_s: float) -> dict[str, Any]:
        info = reading.info
        points = [point for point in self._tracks[reading.device].points if (point[0] or 0.0) > after_s]
        columns = list(zip(*points, strict=True)) or [()] * (1 + len(SHOWN))
        return {
            "id": printable(info.id),
            "index": place if info.index is None else info.index,
            "name": printable(reading.name),
            "simulated": info.simulated,
            "power_limit_w": info.power_limit_w,
            "energy_j": reading.energy_j,
            "hole_s": reading.hole_s,
            "processes": [
                {"pid": p.pid, "name": printable(p.name), "memory_bytes": p.memory_bytes} for p in reading.processes
            ],
            "time_s": [round(at or 0.0, 3) for at in columns[0]],
            "values": dict(zip(_CHANNELS, columns[1:], strict=True)),
        }


def _number(value: float | None, factor: float = 1.0) -> float | None:
    return None if value is None else float(f"{value * factor:.6g}")


def answers(history: History, metrics: Answer) -> Answer:
    """The server's answers: the page at ``/``, its points at ``/history``, and by ``metrics`` anything else."""

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path, body = environ.get("PATH_INFO"), b""
        if environ.get("REQUEST_METHOD") != "GET" or path not in ("", "/", "/history"):
            return metrics(environ, start)
        if path == "/history":
            kind, body = "application/json", json.dumps(history.to_dict(_after(environ)), allow_nan=False).encode()
        else:
            kind, body = "text/html; charset=utf-8", page()
        length = ("Content-Length", str(len(body)))
        never = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]
        start("200 OK", [("Content-Type", kind), length, *never])
        return [body]

    return answer


def _after(environ: dict[str, Any]) -> float:
    """The time of ``?after=``; 0 for none, or what is none."""
    (text,) = parse_qs(environ.get("QUERY_STRING", "")).get("after", ["0"])[:1]
    try:
        return float(text)
    except ValueError:
        return 0.0


@cache
def page() -> bytes:
    """The page, which holds no data."""
    from importlib.resources import files

    from markupsafe import Markup

    from jouletrace.report.html import assets  # slow to import, and only who looks needs it

    own = (files("jouletrace.wings.live") / "live_page.js").read_text(encoding="utf-8")
    script = "\n".join([assets.text("base.js"), assets.text("pens.js"), assets.text("theme.js"), own])
    return (
        assets.template("live_page.html.j2", "jouletrace.wings.live")
        .render(
            version=__version__,
            style=Markup(assets.text("style.css")),
            script=Markup(script),
            policy=f"{assets.policy(assets.fingerprint(script.encode()))}; connect-src 'self'",
        )
        .encode()
    )
