"""Load on servers on several slices of one GPU at once: a server by URL each, or on a simulated GPU a simulated one.

The highest load runs on each server alone for a moment, which shows the division of the GPU's power what that server
draws; then each load runs on all of them at once.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace import analysis
from jouletrace.devices import open_device
from jouletrace.devices.base import Device, Samples
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.recording.session import Session
from jouletrace.run import ChannelInfo, Run
from jouletrace.run.channels import CHANNEL_UNITS
from jouletrace.run.forms import LoadFacts, Server
from jouletrace.simulator.boards import SimulatedGpu
from jouletrace.wings.mig.activity import ActivityRecorder
from jouletrace.wings.mig.bench import activity_sources, slices_of
from jouletrace.wings.mig.divide import ACTIVITY
from jouletrace.wings.mig.jobs import Slice
from jouletrace.wings.mig.partition import MigBackend, Profile
from jouletrace.wings.mig.plan import make_plan
from jouletrace.wings.mig.slices import SimulatedSlice, open_board
from jouletrace.wings.serving.client.bench import ClientProcess, pause, refuse, requests_of
from jouletrace.wings.serving.client.load import BenchSettings, OfferedLoad
from jouletrace.wings.serving.client.protocol import base_url
from jouletrace.wings.serving.client.queues import Queue
from jouletrace.wings.serving.client.simulated import SimulatedServer, serve

ALONE = 0.4
"""Length of a load on one server alone, over that of the load on all."""

_EVERY_S = 0.1
"""Between readings of activity of a simulated slice."""

Rows = list[dict[str, Any]]


class Servers(ABC):
    """A server on each of some slices of one GPU (``board``, whose power is measured), and the slices' activity."""

    board: Device
    slices: Sequence[Slice]
    activity: ActivityRecorder
    names: Sequence[str]

    @abstractmethod
    def start(self, settings: BenchSettings) -> list[str]:
        """Reach each server; the names of their models.

        Raises:
            BadInputError, NotPossibleError: As of ``wings.serving.client.bench.bench``.
        """

    @abstractmethod
    def run(
        self, first: int, loads: Mapping[int, OfferedLoad], store: Callable[[Rows], None], check: Callable[[], object]
    ) -> dict[int, dict[str, Any]]:
        """Send loads at once, by place of the server; the facts of each.

        Args:
            first: Number of the load of the first of these servers; others follow.
            loads: By place.
            store: Takes rows of requests.
            check: Called now and then.
        """

    def close(self) -> None:
        """End what was started, and release the GPU."""
        self.activity.stop()
        self.board.close()


class HttpServers(Servers):
    """Servers by URL on slices of a real GPU: a client's process each."""

    def __init__(self, board: Device, slices: Sequence[Slice], activity: ActivityRecorder, urls: Sequence[str]) -> None:
        self.board, self.slices, self.activity = board, slices, activity
        self.names = [base_url(url) for url in urls]
        self._clients: list[ClientProcess] = []
        self._ending = ExitStack()

    def start(self, settings: BenchSettings) -> list[str]:
        """See ``Servers.start``."""
        found = []
        for place, base in enumerate(self.names):
            refuse(base, [self.board])
            self._clients.append(self._ending.enter_context(closing(ClientProcess())))
            taken = self._clients[-1].start(base, replace(settings, url=base, seed=settings.seed + place))
            found.append(str(taken["model"]))
        return found

    def run(
        self, first: int, loads: Mapping[int, OfferedLoad], store: Callable[[Rows], None], check: Callable[[], object]
    ) -> dict[int, dict[str, Any]]:
        """See ``Servers.run``; a thread reads each client, so that none of them waits for another."""
        events: queue.Queue[tuple[int, Any]] = queue.Queue()
        numbers = {place: first + n for n, place in enumerate(loads)}

        def read(place: int) -> None:
            try:
                for event in self._clients[place].level(numbers[place], loads[place], lambda: None):
                    events.put((place, event))
            except BaseException as error:  # the main thread raises it
                events.put((place, error))

        for place in loads:
            threading.Thread(target=read, args=(place,), daemon=True, name=f"client-{place}").start()
        done: dict[int, dict[str, Any]] = {}
        while len(done) < len(loads):
            check()
            try:
                place, event = events.get(timeout=0.5)
            except queue.Empty:
                continue
            if isinstance(event, BaseException):
                raise event
            if "rows" in event:
                store(requests_of(event["rows"]))
            if "done" in event:
                done[place] = event["done"]
        return done

    def close(self) -> None:
        """See ``Servers.close``."""
        self._ending.close()
        super().close()


class SimulatedServers(Servers):
    """Servers of a workload on slices of a simulated GPU, in virtual time: each answers one request after the other.

    Attributes:
        history: Start in nanoseconds of each ``run`` and its queues by place: the truth, for tests.
    """

    def __init__(self, board: SimulatedGpu, slices: Sequence[Slice], workloads: Sequence[str], task: str) -> None:
        self.board: SimulatedGpu = board
        self.slices, self.names, self._task = slices, list(workloads), task
        self.activity = ActivityRecorder([])
        self.history: list[tuple[int, dict[int, Queue]]] = []
        self._served: list[SimulatedServer] = []

    def start(self, settings: BenchSettings) -> list[str]:
        """Count an answer of each server; ``settings`` has the lengths, which a simulated server takes as fixed."""

        @cache  # counting takes seconds, and slices of one profile often have one model
        def server(name: str, profile: Profile) -> SimulatedServer:
            own = SimulatedSlice(self.board, profile, f"MIG-{self.board.info.id}-{profile.name}")
            return SimulatedServer(own, name, settings.levels, self._task)

        self._served = [server(name, own.profile) for name, own in zip(self.names, self.slices, strict=True)]
        return list(self.names)

    def run(
        self, first: int, loads: Mapping[int, OfferedLoad], store: Callable[[Rows], None], check: Callable[[], object]
    ) -> dict[int, dict[str, Any]]:
        """See ``Servers.run``."""
        start_ns, end_ns, queues = serve(self.board, self._served, loads)
        self.history.append((start_ns, queues))
        for place, own in enumerate(self.slices):
            self._add_activity(own, queues.get(place), start_ns, end_ns)
        for number, (place, level) in enumerate(loads.items(), first):
            store(requests_of(self._served[place].rows(number, level, queues[place], start_ns)))
        return {place: {"start_ns": start_ns} for place in loads}

    def _add_activity(self, own: Slice, served: Queue | None, start_ns: int, end_ns: int) -> None:
        ends_s = np.arange(_EVERY_S, (end_ns - start_ns) / 1e9, _EVERY_S)
        elapsed, busy, _ = np.array(served.reached if served is not None else [(0.0, 0.0, 0.0)]).T
        share = np.diff(np.interp(ends_s, elapsed, busy), prepend=0.0) / _EVERY_S
        stamps = start_ns + np.round(ends_s * 1e9).astype(np.int64)
        self.activity.add(own.uuid, Samples(ACTIVITY, stamps, np.clip(share, 0.0, 1.0)))


def bench_slices(
    servers: Servers,
    settings: BenchSettings,
    levels: Sequence[Sequence[OfferedLoad]],
    *,
    folder: Path | None = None,
    command: str = "",
    say: Callable[[str], object] = lambda text: None,
) -> Run:
    """Send loads to servers on slices, first to each alone, then to all at once; energy is divided by activity.

    Args:
        servers: The servers.
        settings: What to send but the loads and the address.
        levels: For each load those of the servers, in their order.
        folder: Folder of the Run; None keeps it in memory.
        command: For ``Run.command``.
        say: Takes lines about the progress.

    Raises:
        BadInputError: If a server refuses, or isn't on this machine.
        NotPossibleError: If one can't be reached.
        RecorderDiedError: If the recorder failed.
    """
    models = servers.start(settings)
    labels = _labels(servers.slices)
    about: list[Server] = [
        {"url": url, "slice": own.uuid, "profile": own.profile.name, "slices": own.profile.slices}
        for url, own in zip(servers.names, servers.slices, strict=True)
    ]
    name = ", ".join(dict.fromkeys(models))
    serving: Any = {
        "url": ", ".join(servers.names),
        "model": name,
        "servers": about,
        "slices": servers.slices[0].board_slices,
        "levels": [],
        "slo_s": settings.slo_s,
    }
    session = Session(
        "bench",
        [servers.board],
        folder=folder,
        command=command,
        workload={"name": name, "model": name, "serving": serving},
        settings={"seed": settings.seed, "seconds": settings.pause_s, "devices": [servers.board.spec]},
    )
    everyone = range(len(servers.slices))
    with session:
        servers.activity.start()
        pause(session, settings.pause_s)
        highest = max(levels, key=lambda load: load[0].rate_per_s or load[0].concurrency or 0.0)
        groups = [({place: _shortened(highest[place])}, " alone") for place in everyone if len(everyone) > 1]
        groups += [(dict(zip(everyone, load, strict=True)), "") for load in levels]
        for group, (loads, alone) in enumerate(groups):
            names = {place: f"{level.name} on {labels[place]}{alone}" for place, level in loads.items()}
            say(f"{next(iter(loads.values())).name} on {', '.join(labels[place] for place in loads)}")
            first = len(serving["levels"])
            about_loads = [_facts(level, names[place], place, group) for place, level in loads.items()]
            serving["levels"] += [{**one, "alone": bool(alone)} for one in about_loads]
            session.save_header()
            with session.phase(", ".join(names.values()), "bench"):
                done = servers.run(first, loads, session.add_requests, session.recorder.check)
            for number, place in enumerate(loads, first):
                serving["levels"][number].update(done[place])
            pause(session, settings.pause_s)
        _add_activity(session, servers)
        run = session.finish()
    for failure in servers.activity.failures:
        run.warn("activity_lost", f"activity of a slice was no longer read: {failure}")
    analysis.analyse_recorded(run)
    session.save()
    return run


def _labels(slices: Sequence[Slice]) -> list[str]:
    """Profiles, numbered where several slices are of one."""
    names = [one.profile.name for one in slices]
    return [f"{name} #{names[:i].count(name) + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _shortened(level: OfferedLoad) -> OfferedLoad:
    seconds = ALONE * level.seconds
    if level.kind != "open":
        return replace(level, seconds=seconds)
    return replace(level, seconds=seconds, requests=[one for one in level.requests if one.at_s < seconds])


def _facts(level: OfferedLoad, name: str, place: int, group: int) -> LoadFacts:
    return {
        "name": name,
        "server": place,
        "group": group,
        "kind": level.kind,
        "arrivals": level.arrivals,
        "rate_per_s": level.rate_per_s,
        "concurrency": level.concurrency,
        "seconds": level.seconds,
    }


def _add_activity(session: Session, servers: Servers) -> None:
    """Store the slices' activity as samples."""
    for own in servers.slices:
        stamps, values = servers.activity.series(own.uuid, ACTIVITY)
        if not len(stamps):
            continue
        rows = [
            {"time_ns": int(t), "device": own.uuid, "channel": ACTIVITY, "value": float(v)}
            for t, v in zip(stamps, values, strict=True)
        ]
        session.add_samples(list(rows))
        session.run.channels.append(ChannelInfo(own.uuid, ACTIVITY, CHANNEL_UNITS[ACTIVITY][0], "activity of slices"))


def open_servers(
    names: Sequence[str],
    wanted: Sequence[str],
    backend: MigBackend,
    device: str,
    *,
    task: str = "generate",
    dcgm_url: str | None = None,
) -> Servers:
    """Servers on slices, in the order of both.

    Args:
        names: URLs; on a simulated GPU workloads.
        wanted: Slices by UUID or profile; on a simulated GPU by profile.
        backend: The GPU's partitioning, which is only read.
        device: The user's name of the GPU.
        task: Of simulated servers: "generate" or "infer".
        dcgm_url: A dcgm-exporter for activity; None for GPM.

    Raises:
        BadInputError: If there aren't as many slices as servers, or one isn't there.
        NotPossibleError: If activity can't be read, without which the GPU's power can't be divided.
    """
    if len(names) != len(wanted):
        raise BadInputError(
            f"--slices names {len(wanted)} slices for {len(names)} servers: give one for each, in order"
        )
    if backend.info.simulated:
        if web := [name for name in names if "://" in name]:
            raise BadInputError(f"{web[0]}: a simulated GPU runs simulated servers; name a workload such as llama-1b")
        plan = make_plan(wanted, backend)
        whole = max(profile.slices for profile in backend.profiles())
        found = [
            Slice(f"MIG-{backend.info.id}-{i}", request.profile, i, whole) for i, request in enumerate(plan.requests)
        ]
        return SimulatedServers(open_board(device), found, names, task)
    found = _chosen(wanted, slices_of(backend), backend.info.name)
    sources = activity_sources(backend, found, dcgm_url)
    if not sources:
        raise NotPossibleError(f"{backend.info.name} has no counters of slices' activity: give --dcgm-url")
    return HttpServers(open_device(backend.info.id), found, ActivityRecorder(sources), names)


def _chosen(wanted: Sequence[str], there: Sequence[Slice], gpu: str) -> list[Slice]:
    """The slices of these UUIDs or profiles, each once."""
    left, found = list(there), []
    for text in wanted:
        exact = [slice for slice in left if text in (slice.uuid, slice.profile.name)]
        begun = [slice for slice in left if slice.profile.name.startswith(f"{text}.")]  # as in a plan
        one = next(iter(exact or begun), None)
        if one is None:
            said = ", ".join(f"{slice.profile.name} ({slice.uuid})" for slice in left) or "none"
            raise BadInputError(f"--slices {text}: {gpu} has no such slice left; there are: {said}")
        left.remove(one)
        found.append(one)
    return found
