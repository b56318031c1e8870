"""Servers as a target of ``tune``: a visit is one load of ``bench``, and flags of the server vary by starting it again.

A server that ``tune`` starts runs in a process group of its own, which ends with the visit, the campaign or ``tune``
itself. One that runs already is the same in all rounds: these are then visits in time.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from jouletrace.analysis.checks import doubts
from jouletrace.arrays import Floats
from jouletrace.campaign.limits import Limit, joint
from jouletrace.campaign.race import MOST_PROCESSES
from jouletrace.campaign.repeats import numbered, run_at
from jouletrace.campaign.targets import ProgramTarget, VisitFigures, filled, names_in, variables
from jouletrace.devices import open_devices
from jouletrace.errors import BadInputError, BrokenOffError, JouletraceError, NotPossibleError
from jouletrace.processes.children import PATIENCE_S, our_child
from jouletrace.profiler.gpu_settings import NAMES
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.report.tune import PER_TOKEN, Setting
from jouletrace.run import Estimate, Run
from jouletrace.run.masking import masked
from jouletrace.run.parts import Parts
from jouletrace.web import page
from jouletrace.wings.serving.analysis.levels import LATENCIES
from jouletrace.wings.serving.analysis.steady import requests_of, steady_window
from jouletrace.wings.serving.client.bench import bench, in_use, refuse
from jouletrace.wings.serving.client.client import key_header
from jouletrace.wings.serving.client.load import BenchSettings, OfferedLoad, load_levels
from jouletrace.wings.serving.client.protocol import base_url
from jouletrace.wings.serving.report import COST
from jouletrace.wings.serving.request_options import LOADS, RequestOptions
from jouletrace.words.reasons import reason

PAUSE_S = 2.0
"""Idle time before and after each load, which shows that the load raises the power: enough for the slowest sensors'
average over a second."""

_OF_CHANCE = ("load_not_steady", "rate_not_reached")
"""Doubts about a load that other arrivals may not have."""

_LOOK_S = 0.2
_MOST_SAID = 400
"""Characters of the end of a server's log that are repeated."""

_SAME_SERVER = (
    "the server ran throughout: its processes are rounds in time here, and what starts of a server differ by isn't in "
    "the intervals"
)


class Started:
    """A server that was started, once it answers.

    Args:
        words: The command.
        environment: Variables beside ours.
        base: Its address, as of ``base_url``.
        limit_s: Seconds within which it must answer.

    Raises:
        BadInputError: If its port is taken.
        BrokenOffError: If it ended before it answered.
        TimeoutError: If it doesn't answer in time; it has been ended.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], base: str, limit_s: float) -> None:
        check_free(base, PATIENCE_S)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the server
        self._process = subprocess.Popen(
            our_child("jouletrace.processes.command", *words),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + limit_s
            while not _answers(base):
                if (ended := self.ended(" before it answered")) is not None:
                    raise BrokenOffError(ended)
                if time.monotonic() > end:
                    raise TimeoutError(f"the server doesn't answer at {base} after {limit_s:g} s{self._said()}")
                time.sleep(_LOOK_S)
        except BaseException:
            self.close()
            raise

    def ended(self, when: str = "") -> str | None:
        """How it ended, with the end of its log; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        hint = "" if code else "; one that goes to the background can't be ended: keep it in the foreground"
        return f"the server {how}{when}{hint}{self._said()}"

    def _said(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - (1 << 16)))
        text = " ".join(masked(self._log.read().decode("utf-8", "replace")).split())
        return f" (its log ends: {text[-_MOST_SAID:]})" if text else ""

    def close(self) -> None:
        """End it with its process group: on request, then by force. Safe to call twice."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
        self._log.close()


def _answers(base: str) -> bool:
    """True if a server is ready: neither its list of models nor its health is an error of its own (503: loading)."""
    try:
        return all(
            page(url, PATIENCE_S, key_header()).status < 500 for url in (f"{base}/models", f"{_root(base)}/health")
        )
    except OSError:
        return False


def check_free(base: str, patience_s: float = 0.0) -> None:
    """Refuse a port that another server has, after so many seconds in which a former one may still be ending.

    Raises:
        BadInputError: If something listens there.
    """
    parts, end = urlsplit(base), time.monotonic() + patience_s
    port = parts.port or (443 if parts.scheme == "https" else 80)
    while True:
        try:
            socket.create_connection((parts.hostname or "", port), 1.0).close()
        except OSError:
            return
        if time.monotonic() >= end:
            raise BadInputError(
                f"another server has the port of {_root(base)} already: end it, or leave the command out to measure it"
            )
        time.sleep(_LOOK_S)


def _root(base: str) -> str:
    return base.removesuffix("/v1")


class ServerTarget(ProgramTarget):
    """A server, which loads of ``bench`` visit; see ``Target``.

    Args:
        url: Its address; on a simulated GPU also a workload, whose server is simulated.
        command: What starts it, with {NAME} for the values of dimensions; others are set in its environment. Empty if
            it runs already.
        settings: Of these, the device.
        limit_s: Seconds within which a server must answer.
        requests: What visits send.
        limits: What requests must meet.
    """

    per, timed, note = PER_TOKEN, True, ""

    def __init__(
        self,
        url: str,
        command: Sequence[str],
        settings: ProfileSettings,
        limit_s: float,
        requests: RequestOptions,
        limits: Sequence[Limit] = (),
    ) -> None:
        self._simulated = "://" not in url
        self._base = url if self._simulated else base_url(url)
        super().__init__(command, settings.device, limit_s)
        self._settings = settings
        self._requests, self._limits = requests, limits
        self._server: Started | None = None
        self._started_with: tuple[list[str], dict[str, str]] = [], {}
        self._not_started: list[tuple[object, str]] = []
        self.name = self._base if self._simulated else _root(self._base)
        self.note = "" if self._words or self._simulated else _SAME_SERVER

    def check(self, settings: Sequence[Setting]) -> None:
        """See ``Target``."""
        names = set(settings[0])
        if len(loads := names.intersection(LOADS)) != 1:
            raise BadInputError(f"tune: name {'a' if not loads else 'one'} load: --over concurrency=1,4,16 or rate=1,2")
        if not self._words and (flags := sorted(names - loads)):
            raise BadInputError(f"--over {flags[0]}: a server's flags vary by starting it: add -- SERVER COMMAND")
        if unknown := sorted(names_in(self._words) - names):
            raise BadInputError(f"tune: the command has {{{unknown[0]}}}, which no --over names")
        if not 0 < self._requests.duration_s < math.inf:
            raise BadInputError(f"--duration {self._requests.duration_s:g}: must be more than 0 s")
        self.start_of(settings[0])
        for setting in settings:
            self._level(setting, 0)
        with ExitStack() as stack:
            devices = open_devices([self._spec(0)], real_time=not self._simulated)
            for device in devices:
                stack.callback(device.close)
            if not self._simulated:
                refuse(self._base, devices)
        if self._words:
            first = filled(self._words, settings[0])[0]
            if shutil.which(first) is None:
                raise BadInputError(f"{first}: there is no such program")
            check_free(self._base)
        elif not self._simulated:
            try:
                page(f"{self._base}/models", PATIENCE_S, key_header())
            except OSError as error:
                raise NotPossibleError(f"{error}; with -- SERVER COMMAND tune starts it") from None

    def limit(self, limits: Sequence[Limit]) -> Limit | None:
        """See ``Target``: all of them, for each request."""
        return joint(limits)

    def claim(self) -> dict[str, Any]:
        """See ``Target``."""
        asked = {"device": self.device, **asdict(self._requests)}
        return {"server": self._base, "command": self._words, **asked}

    def start_of(self, setting: Setting) -> tuple[list[str], dict[str, str]]:
        """See ``Target``: the command with its values, and the environment."""
        return filled(self._words, setting), variables(self._words, setting, (*LOADS, *NAMES))

    def is_there(self, setting: Setting, place: Path) -> bool:
        """See ``Target``."""
        run = run_at(place)
        return run is not None and run.complete and _cost(run).value is not None

    def measure(self, setting: Setting, seconds: float, place: Path, process: int) -> None:
        """See ``Target``; loads all have the same length, and one that isn't valid, by chance perhaps, is repeated."""
        try:
            self._ensure(setting)
            place.parent.mkdir(parents=True, exist_ok=True)
            run = self._measured(setting, place, process, process)
            if set(doubts(run, _name(run))).intersection(_OF_CHANCE):
                shutil.rmtree(place)
                self._measured(setting, place, process, process + MOST_PROCESSES)
        except BaseException as error:
            ended = self._server.ended() if self._server is not None else None
            self.end_process()
            if ended is not None and isinstance(error, JouletraceError):
                raise BrokenOffError(ended) from error
            raise
        if self._server is not None and (ended := self._server.ended()) is not None:
            self.end_process()
            raise BrokenOffError(ended)

    def _ensure(self, setting: Setting) -> None:
        """Start the server with these values, unless it runs with them."""
        if not self._words or (self._server is not None and self._started_with == self.start_of(setting)):
            return
        self.end_process()
        words, environment = self._started_with = self.start_of(setting)
        for start, why in self._not_started:  # at another load it would end in the same way, after minutes perhaps
            if start == self._started_with:
                raise BrokenOffError(why)
        try:
            self._server = Started(words, environment, self._base, self._limit_s)
        except BrokenOffError as error:
            self._not_started.append((self._started_with, str(error)))
            raise

    def _measured(self, setting: Setting, place: Path, process: int, seed: int) -> Run:
        """The Run of one load; those of a round have the same seed, so that arrivals and lengths don't differ."""
        level = self._level(setting, seed)
        slo = {limit.quantity: limit.bound for limit in self._limits}
        url, name = self.name, self._requests.model
        asked = BenchSettings(url, [level], name, slo_s=slo, pause_s=PAUSE_S, seed=seed)
        with ExitStack() as stack:
            devices = open_devices([self._spec(process)], real_time=not self._simulated)
            for device in devices:
                stack.callback(device.close)
            used = in_use(devices) if self.device == "auto" else devices
            return bench(asked, used, folder=place)

    def _spec(self, process: int) -> str:
        spec = numbered(self._settings, process + 1).device
        return "visible" if spec == "auto" else spec

    def _level(self, setting: Setting, seed: int) -> OfferedLoad:
        """The load of a setting.

        Raises:
            BadInputError: If its value is no rate or number of requests.
        """
        asked, loads = self._requests, {name: setting[name] for name in LOADS if name in setting}
        rate, concurrency = (None if name not in loads else str(loads[name]) for name in LOADS)
        lengths = asked.input_tokens, asked.output_tokens
        (level,) = load_levels(rate, concurrency, None, "poisson", asked.duration_s, lengths, seed)
        return level

    def end_process(self) -> None:
        """See ``Target``."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def figures(self, run: Run) -> VisitFigures:
        """See ``Target``: energy and time per output token of the steady state; latencies are of its requests."""
        name, energy = _name(run), _cost(run)
        codes = doubts(run, name)
        if energy.value is None:
            why = [one.message for one in run.warnings if one.code in codes] or [reason(energy.reason or "")]
            hint = "; a longer --duration may have one" if codes == ["load_not_steady"] else ""
            raise NotPossibleError(f"no energy per token: {'; '.join(why)}{hint}")
        (unit,) = Parts(run).units("load")
        asked = requests_of(run, 0)
        start, end, _ = steady_window(asked)
        inside = (asked.sent >= start) & (asked.sent <= end) & asked.ok
        latencies = {name: np.asarray(getattr(asked, name)[inside]) for name in LATENCIES}
        took = Estimate(1 / (unit.get("tokens_per_s").value or np.nan))
        judged = self._judged(latencies)
        return VisitFigures(energy, took, end - start, latencies.pop("e2e"), judged=judged, beside=latencies)

    def _judged(self, latencies: Mapping[str, Floats]) -> Floats:
        """Of each request the largest of its limited quantities over their bounds; an answer of a token has no TPOT."""
        over = [np.nan_to_num(latencies[limit.quantity]) / limit.bound for limit in self._limits]
        return np.max(over, axis=0) if over else np.empty(0)

    def command(self, setting: Setting) -> str:
        """See ``Target``: what starts the server; "" if it runs already."""
        own = {name: value for name, value in setting.items() if name not in LOADS or name in names_in(self._words)}
        return super().command(own) if self._words else ""


def _name(run: Run) -> str:
    return str(run.workload["serving"]["levels"][0]["name"])


def _cost(run: Run) -> Estimate:
    """Energy per output token of the one load; of a closed loop with the scatter of its parts, which is apart."""
    units = Parts(run).units("load")
    if len(units) != 1:
        return Estimate.null("no_requests")
    energy, scatter = units[0].get(COST), units[0].get(f"{COST.removesuffix('_j')}_error_pct").value
    if energy.value is None or scatter is None or energy.low is None or energy.high is None:
        return energy
    half = float(np.hypot(energy.half_width or 0.0, 1.96 * scatter / 100 * energy.value))
    return Estimate(energy.value, energy.value - half, energy.value + half, energy.n, energy.method)
