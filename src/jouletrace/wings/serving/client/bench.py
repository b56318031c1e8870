"""``bench``: a load on a server while the power of its GPUs is recorded."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jouletrace import analysis
from jouletrace.devices import in_real_time
from jouletrace.devices.base import Device, OfAnotherHost, Process, described, used_by
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes.children import Child
from jouletrace.recording.session import Session
from jouletrace.run import Run, tables
from jouletrace.run.forms import LoadFacts
from jouletrace.run.names import cut
from jouletrace.wings.serving.analysis.streams import AnswerStream, add_streams, stream_of
from jouletrace.wings.serving.client.client import Row
from jouletrace.wings.serving.client.load import BenchSettings, OfferedLoad
from jouletrace.wings.serving.client.protocol import base_url
from jouletrace.wings.serving.client.server_metrics import ServerMetrics
from jouletrace.wings.serving.client.simulated import SimulatedClient
from jouletrace.wings.serving.client.steps import NOT_READ, join, read_steps

MODULE = "jouletrace.wings.serving.client.client"
_COLUMNS = [name for name in tables.REQUESTS.names if name not in tables.BILL]
_WAIT_S = 0.5
_MOST_SAID = 300
"""Characters of a server's refusal that are repeated."""


def bench(
    settings: BenchSettings,
    devices: Sequence[Device],
    *,
    folder: Path | None = None,
    command: str = "",
    say: Callable[[str], object] = lambda text: None,
) -> Run:
    """Send each load in turn and relate the energy of the devices to its requests.

    Args:
        settings: What to send.
        devices: The server's GPUs; here, or on the server's machine by a monitor's page.
        folder: Folder of the Run; None keeps it in memory.
        command: For ``Run.command``.
        say: Takes lines about the progress.

    Raises:
        BadInputError: If the server refuses, or the devices can't be the server's.
        NotPossibleError: If the server can't be reached, or aiohttp is missing.
        RecorderDiedError: If the recorder failed.
    """
    client: ClientProcess | SimulatedClient
    if "://" not in settings.url and all(device.info.simulated for device in devices):
        base, client = settings.url, SimulatedClient(settings.url, devices)
    else:
        base = base_url(settings.url)
        refuse(base, devices)
        client = ClientProcess()
    with closing(client):
        server = client.start(base, settings)
        serving: Any = {"url": base, **server, "levels": [], "slo_s": settings.slo_s, "processes": _processes(devices)}
        name = server["model"] or urlsplit(base).netloc
        session = Session(
            "bench",
            devices,
            folder=folder,
            command=command,
            workload={"name": name, "model": name, "serving": serving},
            settings={"seed": settings.seed, "seconds": settings.pause_s, "devices": [d.spec for d in devices]},
        )
        seen = dict[str, dict[int, Process]]()
        with session:
            for device in devices:
                seen[device.info.id] = {each.pid: each for each in device.processes()}
            metrics, streams = ServerMetrics(base, devices[0].info.id), list[AnswerStream]()
            with metrics:
                pause(session, settings.pause_s)
                for number, level in enumerate(settings.levels):
                    say(f"{level.name}: {level.seconds:g} s")
                    done = _level(session, client, number, level, streams)
                    pause(session, settings.pause_s)
                    if done.get("given_up") and number + 1 < len(settings.levels):
                        message = f"the server stopped answering at {level.name}: later loads were left out"
                        session.run.warn("given_up", message, level.name)
                        break
            session.add_samples(metrics.rows)
            session.run.channels += metrics.channels()
            run = session.finish()
    for device in devices:
        there = seen[device.info.id] | {each.pid: each for each in device.processes()}
        if len(there) > 1:
            run.warn("other_processes", used_by(there.values(), "several processes use it"), device.info.id)
        if isinstance(device, OfAnotherHost) and (moved := device.clock_moved()):
            run.warn("clock_moved", moved, device.info.id)
    add_streams(run, streams)
    if settings.steps is not None:
        _add_steps(run, settings.steps)
    analysis.analyse_recorded(run)
    session.save()
    return run


def _add_steps(run: Run, log: Path) -> None:
    """Add the server's steps; a log that can't be used costs the bills by steps, not the recording."""
    try:
        join(run, read_steps(log))
    except BadInputError as error:
        run.warn(NOT_READ, f"{error}; jouletrace bill can join a log later")


def refuse(base: str, devices: Sequence[Device]) -> None:
    """Refuse devices that can't be the server's, before anything is sent."""
    for device in devices:
        if device.clock.virtual:
            raise BadInputError(f"{device.spec}: a server takes real time; write {in_real_time(device.spec)}")
    host = urlsplit(base).hostname or ""
    if not any(isinstance(device, OfAnotherHost) for device in devices) and not _is_here(host):
        raise BadInputError(
            f"the server is on {host}, but the GPU to record is here: run jouletrace monitor --serve 0.0.0.0:9400 "
            f"there, and add --device http://{host}:9400/metrics"
        )
    if find_spec("aiohttp") is None:
        raise NotPossibleError("bench needs aiohttp: pip install 'jouletrace[serving]'")


def _is_here(host: str) -> bool:
    """True if an address is one of this machine's: only those can be listened at. True if it can't be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return True  # the client says so
    for family, kind, protocol, _, address in found:
        with suppress(OSError, ValueError):
            if ip_address(str(address[0]).partition("%")[0]).is_loopback:
                return True
            with socket.socket(family, kind, protocol) as tried:
                tried.bind((address[0], 0, *address[2:]))
                return True
    return False


def _processes(devices: Sequence[Device]) -> list[str]:
    return [described(each) for device in devices for each in device.processes()]


def in_use(devices: list[Device], say: Callable[[str], object] = lambda text: None) -> list[Device]:
    """The GPUs on which processes run, where some of several are idle: the server's are among them."""
    busy = [one for one in devices if one.processes()]
    if not 0 < len(busy) < len(devices):
        return devices
    names = ", ".join(one.spec for one in busy)
    say(f"recording {names}: no process runs on the other {len(devices) - len(busy)} GPUs; --device chooses others")
    return busy


def pause(session: Session, seconds: float) -> None:
    """A time without requests, in which idle power is seen."""
    with session.phase("idle", "bench"):
        session.clock.sleep(seconds)


def requests_of(rows: Iterable[Row]) -> list[dict[str, object]]:
    """The ``requests`` in rows of the client, without the times of chunks."""
    return [dict(zip(_COLUMNS, row[:-1], strict=True)) for row in rows]


def _level(
    session: Session,
    client: ClientProcess | SimulatedClient,
    number: int,
    level: OfferedLoad,
    streams: list[AnswerStream],
) -> LoadFacts:
    """Send a load, store its requests, and add their answers to ``streams``; its facts."""
    facts: LoadFacts = {
        "name": level.name,
        "kind": level.kind,
        "arrivals": level.arrivals,
        "rate_per_s": level.rate_per_s,
        "concurrency": level.concurrency,
        "seconds": level.seconds,
        "mean_input_tokens": level.mean_tokens[0] if level.mean_tokens else None,
        "mean_output_tokens": level.mean_tokens[1] if level.mean_tokens else None,
    }
    session.run.workload["serving"]["levels"].append(facts)
    session.save_header()
    with session.phase(level.name, "bench"):
        for event in client.level(number, level, session.recorder.check):
            if "rows" in event:
                requests = requests_of(event["rows"])
                session.add_requests(requests)
                streams += filter(None, map(stream_of, requests, [row[-1] for row in event["rows"]]))
            facts.update(event.get("done", {}))
    return facts


class ClientProcess:
    """The client's process."""

    def __init__(self) -> None:
        self._child = Child(MODULE)

    def close(self) -> None:
        """End it."""
        self._child.close(now=True)

    def start(self, base: str, settings: BenchSettings) -> dict[str, Any]:
        """Connect; what the server takes."""
        order = {"base": base, "model": settings.model, "timeout_s": settings.timeout_s}
        self._child.tell({"start": {**order, "api": settings.api}})
        for event in self._events():
            if "failed" in event:
                kind = NotPossibleError if event["failed"].startswith("cannot connect") else BadInputError
                raise kind(f"{base}: {cut(event['failed'], _MOST_SAID)}")
            if "ready" in event:
                ready: dict[str, Any] = event["ready"]
                return {**ready, "model": cut(ready["model"])}  # the client keeps the name that the server knows
        raise NotPossibleError("the client ended")  # pragma: no cover  # _events says so itself

    def level(self, number: int, level: OfferedLoad, check: Callable[[], object]) -> Iterator[dict[str, Any]]:
        """Run a level; its events, "done" last. ``check`` is called now and then."""
        requests = [[one.at_s, one.input_tokens, one.output_tokens] for one in level.requests]
        plan = {"kind": level.kind, "seconds": level.seconds, "concurrency": level.concurrency, "requests": requests}
        self._child.tell({"number": number, "level": plan})
        for event in self._events(check):
            yield event
            if "done" in event:
                return

    def _events(self, check: Callable[[], object] = lambda: None) -> Iterator[dict[str, Any]]:
        while True:
            check()
            if self._child.speaks(_WAIT_S):
                heard = self._child.hear()
                if heard is None:
                    raise NotPossibleError(f"the client {self._child.how_it_ended()}")
                yield from heard
