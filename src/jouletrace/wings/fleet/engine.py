"""Running a fleet: all checks before any measurement, processes on the GPUs of this host, and the missing results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from jouletrace.campaign.cluster import Cluster, Files, filled
from jouletrace.campaign.loop import Note, PointObserver, PointOutcome, Tally, carry_out
from jouletrace.campaign.repeats import numbered
from jouletrace.campaign.worker import Worker, last_line, listen, reason_of
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError
from jouletrace.processes import locks
from jouletrace.profiler.passes import LEAST_PERIODS, LEAST_WINDOW_S
from jouletrace.profiler.prepare import check_has_phases, options_of
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording import board_store
from jouletrace.run import Run, load
from jouletrace.run.channels import POWER
from jouletrace.run.forms import Settings
from jouletrace.run.scratch import Scratch
from jouletrace.wings.fleet.folder import Folder
from jouletrace.wings.fleet.plan import ALL, FleetGpu, FleetSettings, Owner, Task, busy, find_gpus, rounds
from jouletrace.wings.fleet.power_step import in_words, power_step
from jouletrace.workloads import resolve
from jouletrace.workloads.kernels import AUTO, GEMMS, whole

HEAD_START_S = 0.2
"""Time from the readiness of all processes to their common start, within which every process must receive its order."""

Hear = Callable[[FleetGpu, dict[str, Any]], None]
"""Receives a child's reports of progress."""


class FleetWatch(PointObserver[Task]):
    """An observer that also receives a process's reports of its progress."""

    def hear(self, gpu: FleetGpu, message: dict[str, Any]) -> None:
        """Receive a report."""


@dataclass(frozen=True)
class Host:
    """The GPUs of this host: to measure, others on which noise may run, and why GPUs (by id) can't be measured.

    Those of a cluster are of several hosts; ``nodes`` has the engine's name of the node of each GPU.
    """

    gpus: list[FleetGpu]
    others: list[FleetGpu]
    excluded: dict[str, str]
    nodes: Mapping[Owner, str] = field(default_factory=dict)

    def node_of(self, gpu: FleetGpu) -> str:
        """The engine's name of a GPU's node; "" on this host."""
        return self.nodes.get((gpu.node, gpu.id), "")


def open_host(
    settings: FleetSettings,
    device: str = "auto",
    gpus: str = ALL,
    *,
    allow_busy: bool = False,
    on: Cluster | None = None,
) -> Host:
    """Locate the GPUs and refuse impossible requests; ``device`` and ``gpus`` as for ``find_gpus``.

    ``on`` a cluster, ``gpus`` are those of each node.

    Raises:
        BadInputError: If the request makes no sense here.
        NotPossibleError: If no GPU is available, or none on a node of the cluster.
    """
    check_has_phases(resolve(settings.workload), settings.profile)
    for noise in settings.noise:
        resolve(noise.workload)
    for key, text in settings.profile.config.items():
        if settings.workload in (*GEMMS, "memcpy") and key in ("size", "iterations"):
            if text == AUTO and settings.workload in GEMMS:
                advice = f"all GPUs must run the same size; find it by profile {settings.workload} --config size=auto"
                raise BadInputError(f"--config size=auto: {advice}")
            whole(settings.workload, key, text)
    how = settings, device, gpus, allow_busy
    host = look(*how) if on is None else _look_on(on, *how)
    if all(gpu.id in host.excluded for gpu in host.gpus):
        named = "; ".join(host.excluded[gpu.id] for gpu in host.gpus)
        raise NotPossibleError(f"{named}; --allow-busy measures them nevertheless")
    return host


def look(settings: FleetSettings, device: str, gpus: str, allow_busy: bool, number: int = 0) -> Host:
    """The GPUs of this host; ``number`` as for ``find_gpus``, all else as for ``open_host``."""
    measured, others = find_gpus(device, gpus, number)
    present = [*measured, *others]
    for noise in settings.noise:
        there = {gpu.index for gpu in present}
        missing = [place for place in noise.gpus if place not in there]
        if missing:
            raise BadInputError(f"--noise {noise}: {present[0].node} has no GPU {missing[0]}; it has {sorted(there)}")
    users = {} if allow_busy or measured[0].simulated else busy(present)
    for noise in settings.noise:
        for gpu in filter(noise.on, present):
            if gpu.id in users:
                raise NotPossibleError(f"--noise {noise}: {users[gpu.id]}; --allow-busy starts it nevertheless")
    return Host(measured, others, users)


def _look_on(on: Cluster, settings: FleetSettings, device: str, gpus: str, allow_busy: bool) -> Host:
    """The GPUs of all nodes of a cluster, each of which has them to itself while it looks."""
    nodes = on.nodes(device)
    calls = [(settings, device, gpus, allow_busy, number) for number in range(len(nodes))]
    node_of: dict[Owner, str] = {}
    whole_cluster = Host([], [], {}, node_of)
    for number, host in sorted(on.each(look, calls, device, nodes), key=itemgetter(0)):
        if isinstance(host, Exception):
            raise host
        for gpu in (*host.gpus, *host.others):
            if node_of.setdefault((gpu.node, gpu.id), nodes[number]) != nodes[number]:
                raise NotPossibleError(f"{gpu} ({gpu.id}) is on two nodes of the cluster, which would measure it twice")
        whole_cluster.gpus.extend(host.gpus)
        whole_cluster.others.extend(host.others)
        whole_cluster.excluded.update(host.excluded)
    return whole_cluster


def run_fleet(
    settings: FleetSettings,
    host: Host,
    folder: Folder,
    *,
    command: str = "",
    kept: Settings | None = None,
    watch: FleetWatch | None = None,
    on: Cluster | None = None,
) -> Tally[Task]:
    """Measure the missing results of a folder, which a second run into it resumes; failures are stored there too.

    The Runs keep ``kept`` besides their own settings. ``on`` a cluster, a call is a repeat on all GPUs of a node; those
    of a node that is lost have no result.

    Raises:
        BadInputError: If the place holds another fleet's results, or can't be written.
        NotPossibleError: If no result could be measured, or another fleet on this host writes there.
    """
    watch = watch or FleetWatch()
    with folder.held(settings, command, host.gpus):

        def measure(group: Sequence[Task], note: Note[Task]) -> None:
            def stored(found: PointOutcome[Task]) -> None:
                if found.reason:
                    folder.fail(found.point, found.reason, found.text)
                else:
                    folder.succeed(found.point)
                note(found)

            for task in group:
                if task.gpu.id in host.excluded:
                    stored(PointOutcome(task, "busy", host.excluded[task.gpu.id]))
            free = [task for task in group if task.gpu.id not in host.excluded]
            if on is not None:
                for files, outcomes in _repeats_on(on, settings, host, (command, kept), free):
                    folder.receive(files)
                    for found in outcomes:
                        stored(found)
            elif free:
                gpus = [*host.gpus, *host.others]
                FleetHost(settings, gpus, str(folder.root), command, kept).at_once(free, stored, watch.hear)

        done = folder.done()
        groups = groups_of(settings, host)
        return carry_out(groups, lambda task: task.key in done, measure, watch, "results", at_once=on is not None)


def _repeats_on(
    there: Cluster, settings: FleetSettings, host: Host, kept: tuple[str, Settings | None], tasks: Sequence[Task]
) -> Iterator[tuple[Files, list[PointOutcome[Task]]]]:
    """Runs and outcomes of each repeat on all GPUs of a node of a cluster, as it ends.

    ``kept`` are the command and the settings that Runs keep.
    """
    repeats: dict[tuple[str, int], list[Task]] = {}
    for task in tasks:
        repeats.setdefault((host.node_of(task.gpu), task.repeat), []).append(task)
    nodes = [node for node, _ in repeats]
    gpus = {node: [gpu for gpu in (*host.gpus, *host.others) if host.node_of(gpu) == node] for node in nodes}
    fills = [partial(_repeat, settings, gpus[node], kept, of_node) for (node, _), of_node in repeats.items()]
    if not fills:
        return
    calls = [(fill, os.getcwd()) for fill in fills]
    for number, result in there.each(filled, calls, tasks[0].gpu.device, nodes):
        if isinstance(result, JouletraceError):
            reason, text = reason_of(result), last_line(result)
            lost = list(repeats.values())[number]
            yield {}, [PointOutcome(task, reason, f"{task.gpu.node}: {text}") for task in lost]
        elif isinstance(result, Exception):
            raise result
        else:
            yield result


def _repeat(
    settings: FleetSettings,
    gpus: Sequence[FleetGpu],
    kept: tuple[str, Settings | None],
    tasks: Sequence[Task],
    folder: Path,
) -> list[PointOutcome[Task]]:
    """Measure a repeat on a node with these GPUs; a folder receives its Runs."""
    host = FleetHost(settings, gpus, str(folder), *kept)
    outcomes: list[PointOutcome[Task]] = []
    for _, group in groupby(tasks, key=attrgetter("order")):
        host.at_once(list(group), outcomes.append, lambda *_: None)
    return outcomes


def groups_of(settings: FleetSettings, host: Host) -> list[list[Task]]:
    """All tasks, in random order: groups that run at once, and are measured again together; busy GPUs first."""
    repeats = range(settings.repeats)
    left = [[Task(gpu, repeat)] for gpu in host.gpus if gpu.id in host.excluded for repeat in repeats]
    free: dict[str, list[FleetGpu]] = {}
    for gpu in host.gpus:
        if gpu.id not in host.excluded:
            free.setdefault(host.node_of(gpu), []).append(gpu)
    return left + [group for repeat in repeats for gpus in free.values() for group in rounds(gpus, settings, repeat)]


class FleetHost:
    """The host of a fleet: GPUs to measure, and others on which noise may run. Results go to the folder ``store``."""

    def __init__(
        self,
        settings: FleetSettings,
        gpus: Sequence[FleetGpu],
        store: str,
        command: str = "",
        kept: Settings | None = None,
    ) -> None:
        self._settings = settings
        self._gpus = gpus
        self._store = Folder(store)
        self._command = command
        self._kept = kept or {}

    def at_once(self, group: Sequence[Task], note: Note[Task], hear: Hear) -> None:
        """Carry out tasks that run together; ``note`` receives each outcome, ``hear`` the reports of progress.

        Raises:
            BadInputError: If their recordings don't fit on the disk.
        """
        try:
            scratch = Scratch()
        except OSError as error:
            raise BadInputError(f"no temporary folder on {group[0].gpu.node}: {error.strerror}") from None
        noises: list[Worker] = []
        measuring: list[Worker] = []
        with scratch, locks.Guard():  # in our process, since a child that is killed leaves its recording
            try:
                self._make_noise(noises)
                silent = next((one for one in noises if one.over), None)
                if silent is not None:
                    for task in group:
                        note(
                            PointOutcome(task, "no_noise", f"noise on {silent.name} failed: {silent.said.get('text')}")
                        )
                    return
                for task in group:
                    measuring.append(_worker(task.gpu))
                    measuring[-1].begin(self._order(task, scratch.path))
                at_ns = self._run(group, measuring, hear)
                for task, worker in zip(group, measuring, strict=True):
                    note(self._outcome(task, worker, noises, scratch.path, at_ns))
            finally:
                for worker in measuring:
                    if not worker.over:
                        worker.interrupt()
                for worker in [*noises, *measuring]:
                    worker.stop()
                for worker in [*noises, *measuring]:
                    worker.close()

    def _run(self, group: Sequence[Task], measuring: Sequence[Worker], hear: Hear) -> int:
        """Let all begin at once and wait for their ends; returns the common start in ns."""
        gpus = {worker.pid: task.gpu for task, worker in zip(group, measuring, strict=True)}

        def heard(worker: Worker, message: dict[str, Any]) -> None:
            hear(gpus[worker.pid], message)

        listen(measuring, "ready", self._settings.limit_s, heard)
        at_ns = time.time_ns() + round(HEAD_START_S * 1e9)
        for worker in measuring:
            worker.tell({"at_ns": at_ns})
        listen(measuring, "done", self._settings.limit_s, heard)
        return at_ns

    def _make_noise(self, made: list[Worker]) -> None:
        """Start noise on every requested GPU; it runs when this returns."""
        profile = self._settings.noise_profile
        options = asdict(options_of(profile))
        for noise in self._settings.noise:
            for gpu in filter(noise.on, self._gpus):
                if gpu.simulated:
                    continue  # nothing that it changes is simulated
                made.append(_worker(gpu))
                order = {"do": "load", "workload": noise.workload, "options": options, "mode": profile.mode}
                made[-1].begin({**order, "device": "cpu" if gpu.device == "cpu" else "cuda:0"})
        listen(made, limit_s=self._settings.limit_s)
        if not any(worker.said["is"] == "failed" for worker in made):
            for worker in made:
                worker.begin({"do": "run", "at_ns": time.time_ns()})

    def _order(self, task: Task, scratch: Path) -> dict[str, Any]:
        settings = numbered(replace(self._fixed_length(task.gpu), device=task.gpu.device), task.repeat + 1)
        order = {"do": "profile", "workload": self._settings.workload, "settings": asdict(settings), "at_once": True}
        return {**order, "folder": str(scratch / str(task.gpu.index)), "command": self._command}

    def _fixed_length(self, gpu: FleetGpu) -> ProfileSettings:
        """Options of a profile whose energy pass has the same length on every GPU, whatever its spread."""
        settings = self._settings
        with closing(open_device(gpu.device)) as device:
            channels = [channel for source in device.sources() for channel in source.channels]
        period_s = next((channel.period_s or 0.0 for channel in channels if channel.name == POWER), 0.0)
        window_s = min(max(LEAST_WINDOW_S, LEAST_PERIODS * period_s), settings.seconds / 2)
        return replace(
            settings.profile,
            window_s=window_s,
            first_stage=max(2, int(settings.seconds / window_s)),
            max_time_s=settings.seconds,
            latency_s=min(settings.profile.latency_s, settings.seconds / 2),
            target_ci=0.99,  # the length is fixed, whatever the interval
        )

    def _outcome(
        self, task: Task, worker: Worker, noises: Sequence[Worker], scratch: Path, at_ns: int
    ) -> PointOutcome[Task]:
        if worker.said.get("is") != "done":
            return PointOutcome(task, str(worker.said.get("reason", "failed")), str(worker.said.get("text", "")))
        ended = next((noise for noise in noises if not noise.alive), None)
        if ended is not None:
            return PointOutcome(task, "no_noise", f"noise on {ended.name} ended before the measurement did")
        self._keep(task, load(scratch / str(task.gpu.index)), at_ns)
        return PointOutcome(task)

    def _keep(self, task: Task, run: Run, at_ns: int) -> None:
        """Store the Run of a task, with its place in the fleet."""
        run.settings |= self._kept
        run.settings["fleet"] = {
            "node": task.gpu.node,
            "repeat": task.repeat,
            "order": task.order,
            "placement": self._settings.placement,
            "noise": [str(noise) for noise in self._settings.noise],
            "noise_here": not task.gpu.simulated and any(noise.on(task.gpu) for noise in self._settings.noise),
            "at_ns": at_ns,
        }
        if not run.devices[0].host:
            run.devices[0].host = task.gpu.node
        step = power_step(run)
        if step["step_settled_w"] is not None:  # for ``doctor``, which applies no load
            name = run.workload.get("name", "")
            facts = {**step, "load": name, "time_ns": time.time_ns(), "text": in_words(step, name)}
            board_store.remember(run.devices[0].id, power_step=facts)
        self._store.add(task, run)


def _worker(gpu: FleetGpu) -> Worker:
    """A process to which CUDA shows this GPU only, by UUID, whatever the order."""
    return Worker(str(gpu), gpu.id if gpu.id.startswith("GPU-") else None)
