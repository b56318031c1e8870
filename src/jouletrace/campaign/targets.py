"""Targets of ``tune``, which it measures in different settings: a workload of ours, or a program of the user."""

from __future__ import annotations

import math
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from jouletrace.analysis.latency import latencies_s
from jouletrace.arrays import Floats
from jouletrace.campaign.limits import Limit, only
from jouletrace.campaign.repeats import is_measured, merge, numbered, run_at
from jouletrace.campaign.worker import Worker, check_done, last_line, listen, reason_of
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, BrokenOffError, JouletraceError, NotPossibleError
from jouletrace.option import flag_of, whole
from jouletrace.processes.children import our_child
from jouletrace.profiler.gpu_settings import NAMES
from jouletrace.profiler.passes import LEAST_WINDOW_S
from jouletrace.profiler.profile import finish
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.report.headline import ENERGY
from jouletrace.report.tune import Setting, SettingRow
from jouletrace.run import Estimate, Run, load
from jouletrace.run.masking import masked, masked_arguments
from jouletrace.run.parts import Parts
from jouletrace.words.reasons import reason
from jouletrace.workloads import resolve

_FIELDS: Final = {"batch": int, "threads": int, "streams": int, "mode": str, "dtype": str, "backend": str, "hint": str}
"""Dimensions that are options of a profile, and how their values are read; ``attention`` and others are of the
configuration."""

_READ: Final = {**_FIELDS, **dict.fromkeys(NAMES, int)}
"""How values are read; settings of the GPU, ``NAMES``, are set from outside."""

_ATTENTION, _ATTENTION_KEY = "attention", "attn_implementation"

_SAME_OUTPUTS = ("batch", "mode", "threads", "streams", "hint", "backend", *NAMES)
"""Dimensions that don't change what is computed, but for rounding."""

_OTHER_WORK = ("seq_len", "prompt_len", "max_new_tokens", "task")
"""Options whose values are other work: their energies per sample say nothing of each other."""

FIRST_S, WARM_S, LATENCY_S = 1.0, 2.0, 0.5
"""Lengths, s: of a first visit, four windows of a fast sensor; of its warm-up, at most; of timed iterations where no
limit is on a percentile."""

MOST_ITERATIONS = 20_000
"""Iterations that are timed one by one where a percentile is limited."""

MOST_WINDOWS = 16
"""Windows of energy in a visit, 4 s: beyond, processes differ by more than windows."""

AHEAD = 4
"""Processes that import their libraries at once, as many as there are CPUs at most: importing takes a CPU some seconds
and half a GB, and campaigns take two processes at least, six in the median (docs/results/tune-sim.md)."""

_NAMED = re.compile(r"\{([\w-]+)\}")
"""Where a word of a program has the value of a dimension."""


@dataclass(frozen=True)
class VisitFigures:
    """Figures of a visit.

    Attributes:
        energy: J per unit of work.
        time: Seconds per unit of work.
        seconds: Measured time.
        latencies_s: Seconds of iterations that were timed one by one, shape (n,).
        host_bound: True if the GPU waits for the host.
        judged: What a limit is on, shape (n,), where it isn't on ``latencies_s``.
        beside: Further latencies by name, s, of which 95 % are stated.
    """

    energy: Estimate
    time: Estimate
    seconds: float
    latencies_s: Floats
    host_bound: bool = False
    judged: Floats | None = None
    beside: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def limited(self) -> Floats:
        """The values that a limit on a share bounds."""
        return self.latencies_s if self.judged is None else self.judged


class Target(Protocol):
    """Something that can be measured in different settings.

    Attributes:
        name: In words.
        per: Of what unit of work figures are.
        timed: Whether single iterations are timed, of which a percentile may be limited.
        note: A line for the result; "" for none.
        device: The user's name for the GPU.
    """

    name: str
    per: str
    timed: bool
    note: str
    device: str

    def check(self, settings: Sequence[Setting]) -> None:
        """Refuse invalid settings before anything is measured.

        Raises:
            BadInputError: With the first.
        """

    def limit(self, limits: Sequence[Limit]) -> Limit | None:
        """The limit that settings must meet, of those that the user gave; None for none.

        Raises:
            BadInputError: If they can't be limits of this.
        """

    def claim(self) -> dict[str, Any]:
        """The facts that a resumed campaign must have in common with the one before."""

    def reference(self, over: Mapping[str, Sequence[Any]], against: Mapping[str, str]) -> Setting:
        """The setting that the user has; None for a default."""

    def stated(self, setting: Setting, run: Run) -> Setting:
        """The setting with the defaults that its Run states."""

    def start_of(self, setting: Setting) -> object:
        """The start of a process that a setting needs; in a round, those with an equal one follow each other."""

    def is_there(self, setting: Setting, place: Path) -> bool:
        """True if a folder holds the whole Run of a setting.

        Raises:
            DamagedError: If it can't be read.
        """

    def measure(self, setting: Setting, seconds: float, place: Path, process: int) -> None:
        """Measure a setting in this process, for about ``seconds``; its Run goes to ``place``.

        Raises:
            JouletraceError, TimeoutError, RuntimeError: If that fails.
        """

    def end_process(self) -> None:
        """End the process: the next visit is in another."""

    def close(self) -> None:
        """End all processes."""

    def figures(self, run: Run) -> VisitFigures:
        """The figures of a visit.

        Raises:
            NotPossibleError: If its energy or time isn't known.
        """

    def outputs(self, reference: Setting, settings: Sequence[Setting]) -> tuple[list[float | None], str]:
        """How far the outputs of each setting differ from the reference's, relative; or why that isn't known."""

    def keep(self, places: Sequence[Path], target: Path) -> None:
        """Save the Runs of several visits as one."""

    def command(self, setting: Setting) -> str:
        """The command that applies a setting."""


class MoreTargets(Protocol):
    """The interface of a module of ``Wing.targets``.

    Attributes:
        SHARES: Quantities that may be limited, with the share that may exceed it, as of ``limits``.
        RequestOptions: Dataclass of what visits send, whose fields (``option.option``) are options of ``tune``.
    """

    SHARES: Mapping[str, float | None]
    RequestOptions: type

    def takes(self, words: Sequence[str], over: Mapping[str, Any], device: str) -> bool:
        """True if words name a target of this module; ``over`` has what varies."""

    def target_of(
        self,
        words: Sequence[str],
        settings: ProfileSettings,
        limits: Sequence[Limit],
        limit_s: float,
        requests: Mapping[str, Any],
    ) -> Target:
        """The target; ``requests`` are values of fields of ``RequestOptions``."""


class WorkloadTarget:
    """A workload, profiled in a child process that visits several settings; see ``Target``.

    Args:
        workload: Its name.
        settings: The options of all profiles.
        limit_s: Seconds after which a visit is ended.
        long: Whether a visit times iterations for all of its seconds: of these a percentile is limited.
        first_token: Whether a visit times the first token, too: a limit on tokens needs it.
        start: Starts a child process.
    """

    per, timed, note = "per sample", True, ""

    def __init__(
        self,
        workload: str,
        settings: ProfileSettings,
        limit_s: float,
        *,
        long: bool = False,
        first_token: bool = False,
        start: Callable[[str], Worker] = Worker,
    ) -> None:
        self._workload, self._settings, self._limit_s = workload, settings, limit_s
        self._long, self._first_token = long, first_token
        self._start = start
        self._worker: Worker | None = None
        self._ready: list[Worker] = []
        self.name, self.device = resolve(workload).name, settings.device

    def check(self, settings: Sequence[Setting]) -> None:
        """See ``Target``."""
        for setting in settings:
            applied(setting, self._settings)
        open_device(self._settings.device).close()

    def limit(self, limits: Sequence[Limit]) -> Limit | None:
        """See ``Target``."""
        return only(limits, timed=self.timed)

    def claim(self) -> dict[str, Any]:
        """See ``Target``."""
        return {**self._settings.to_dict(), "workload": self._workload}

    def reference(self, over: Mapping[str, Sequence[Any]], against: Mapping[str, str]) -> Setting:
        """See ``Target``: an option's value, or what ``against`` states."""
        return setting_of(self._settings, over, against)

    def stated(self, setting: Setting, run: Run) -> Setting:
        """See ``Target``."""
        facts: Mapping[str, Any] = run.workload
        return {name: facts.get(name) if value is None else value for name, value in setting.items()}

    def start_of(self, setting: Setting) -> object:
        """See ``Target``: one process for all."""
        return None

    def is_there(self, setting: Setting, place: Path) -> bool:
        """See ``Target``."""
        return is_measured(place, self._workload, applied(setting, self._settings))

    def measure(self, setting: Setting, seconds: float, place: Path, process: int) -> None:
        """See ``Target``: windows for that time, and iterations for a limit on a percentile."""
        settings = applied(setting, self._settings)
        settings = replace(
            settings,
            detail="model",
            first_token=self._first_token,
            first_stage=min(max(4, math.ceil(seconds / LEAST_WINDOW_S)), MOST_WINDOWS),
            target_ci=0.5,  # one stage: the race decides what needs more
            warmup_s=min(settings.warmup_s, WARM_S),
            latency_s=seconds if self._long else LATENCY_S,
            latency_iterations=MOST_ITERATIONS if self._long else settings.latency_iterations,
        )
        order = {"do": "profile", "settings": asdict(numbered(settings, process + 1)), "folder": str(place)}
        self._order(order, place)

    def _order(self, order: dict[str, Any], place: Path) -> dict[str, Any]:
        """The answer of the worker of this process to an order.

        Raises:
            JouletraceError, TimeoutError, RuntimeError: As ``worker.check_done``.
        """
        if self._worker is None:
            self._worker = self._next()
        try:
            self._worker.begin({**order, "workload": self._workload})
            listen([self._worker], limit_s=self._limit_s)
            check_done(self._worker, self._workload, place)
        except BaseException as error:
            if not isinstance(error, JouletraceError) or reason_of(error) != "out_of_memory":
                self.end_process()  # its context may be broken
            raise
        return self._worker.said

    def _next(self) -> Worker:
        """A new process, with its libraries imported; several import theirs at once, while none measures."""
        if not self._ready:
            self._ready = [self._start(self._workload) for _ in range(min(AHEAD, os.cpu_count() or 1))]
            order = {"do": "libraries", "workload": self._workload, "settings": asdict(self._settings)}
            for worker in self._ready:
                worker.begin(order)
            listen(self._ready, limit_s=self._limit_s)
            for failed in [worker for worker in self._ready if worker.said["is"] == "failed"]:
                self._ready.remove(failed)
                failed.close(now=True)
        return self._ready.pop() if self._ready else self._start(self._workload)  # which says what fails

    def end_process(self) -> None:
        """See ``Target``."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def close(self) -> None:
        """See ``Target``."""
        self.end_process()
        while self._ready:
            self._ready.pop().close()

    def figures(self, run: Run) -> VisitFigures:
        """See ``Target``."""
        parts, items = Parts(run), run.workload.get("items") or 1
        energy, took = parts.get(ENERGY), parts.get("iteration_time_s")
        if energy.value is None or took.value is None:
            raise NotPossibleError(f"no energy per sample: {reason(energy.reason or took.reason or '')}")
        of_host = parts.get("energy_work_j").value is not None
        seconds = float(np.sum(run.windows["time_s"].to_numpy())) if len(run.windows) else 1.0
        return VisitFigures(energy.scaled(1 / items), took.scaled(1 / items), seconds, latencies_s(run), of_host)

    def outputs(self, reference: Setting, settings: Sequence[Setting]) -> tuple[list[float | None], str]:
        """See ``Target``: of each combination of what may change them, with all else as in the reference."""
        changing = [name for name in reference if name not in _SAME_OUTPUTS]
        keys = [tuple(setting[name] for name in changing) for setting in (reference, *settings)]
        unlike = list(dict.fromkeys(keys))
        if len(unlike) < 2:
            return [None] * len(settings), ""
        variants = [{**reference, **dict(zip(changing, key, strict=True))} for key in unlike]
        order = {"do": "outputs", "settings": [asdict(applied(variant, self._settings)) for variant in variants]}
        try:
            said = self._order(order, Path())
        except (JouletraceError, TimeoutError, RuntimeError) as error:
            return [None] * len(settings), last_line(error)
        differ = dict(zip(unlike, said["differ"] or [None] * len(unlike), strict=True))
        return [differ[key] for key in keys[1:]], said["why"]

    def keep(self, places: Sequence[Path], target: Path) -> None:
        """See ``Target``."""
        run = merge([load(place) for place in places])
        run.settings["repeats"] = len(places)
        finish(run, target)

    def command(self, setting: Setting) -> str:
        """See ``Target``."""
        words = ["jouletrace", "profile", self._workload]
        settings, usual = applied(setting, self._settings), ProfileSettings()
        for one in fields(ProfileSettings):
            value = getattr(settings, one.name)
            if value == getattr(usual, one.name) or one.name in ("detail", "config") or not one.metadata["shown"]:
                continue
            values = [",".join(map(str, value))] if isinstance(value, tuple) else [str(value)]
            words += [flag_of(one), *([] if value is True else values)]
        words += [word for key, value in settings.config.items() for word in ("--config", f"{key}={value}")]
        return shlex.join(words)


class ProgramTarget:
    """A program of the user, run as a whole under ``jouletrace monitor`` in each visit; see ``Target``.

    Args:
        words: The program and its arguments, in which {NAME} stands for the value of a dimension; others are set in
            its environment.
        device: Of the monitor.
        limit_s: Seconds after which a visit is ended.
    """

    per, timed, note = "of the program", False, ""

    def __init__(self, words: Sequence[str], device: str, limit_s: float) -> None:
        self._words, self.device, self._limit_s = list(words), device, limit_s
        self.name = shlex.join(masked_arguments(words))

    def check(self, settings: Sequence[Setting]) -> None:
        """See ``Target``."""
        open_device(self.device).close()
        for name in names_in(self._words) - set(settings[0]):
            raise BadInputError(f"tune: the program has {{{name}}}, which no --over names")
        variables(self._words, settings[0], NAMES)

    def limit(self, limits: Sequence[Limit]) -> Limit | None:
        """See ``Target``."""
        return only(limits, timed=self.timed)

    def claim(self) -> dict[str, Any]:
        """See ``Target``."""
        return {"program": self._words, "device": self.device}

    def reference(self, over: Mapping[str, Sequence[Any]], against: Mapping[str, str]) -> Setting:
        """See ``Target``: of each dimension what ``against`` states, else its first value."""
        first = {name: None if name in NAMES else values[0] for name, values in over.items()}
        return {**first, **stated_by(over, against)}

    def stated(self, setting: Setting, run: Run) -> Setting:
        """See ``Target``: there are no defaults."""
        return setting

    def start_of(self, setting: Setting) -> object:
        """See ``Target``: each visit is a process."""
        return None

    def is_there(self, setting: Setting, place: Path) -> bool:
        """See ``Target``."""
        run = run_at(place)
        return run is not None and run.complete and all(one.code != "program_failed" for one in run.warnings)

    def measure(self, setting: Setting, seconds: float, place: Path, process: int) -> None:
        """See ``Target``; it takes as long as the program does."""
        device = ["--device", self.device] if self.device != "auto" else []
        command = our_child("jouletrace", "monitor", "--interval", "3600", "-o", str(place), *device)
        place.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **variables(self._words, setting, NAMES)}
        with subprocess.Popen(
            [*command, "--", *filled(self._words, setting)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as monitor:
            try:
                said, _ = monitor.communicate(timeout=self._limit_s)
            except BaseException as error:
                with suppress(ProcessLookupError):
                    os.killpg(monitor.pid, signal.SIGKILL)  # the program, too
                if isinstance(error, subprocess.TimeoutExpired):
                    raise TimeoutError(f"{self.name}: no result after {self._limit_s:g} s") from None
                raise
        if monitor.returncode:
            lines = [line for line in said.splitlines() if line.strip()]
            raise BrokenOffError(f"exit code {monitor.returncode}: {masked(lines[-1]) if lines else 'no message'}")

    def end_process(self) -> None:
        """See ``Target``: each visit is a process."""

    def close(self) -> None:
        """See ``Target``."""
        self.end_process()

    def figures(self, run: Run) -> VisitFigures:
        """See ``Target``."""
        whole = Parts(run).stated
        energy, took = whole.get("energy_total_j"), whole.get("time_s")
        if energy.value is None or took.value is None:
            raise NotPossibleError(f"no energy of the program: {reason(energy.reason or took.reason or '')}")
        return VisitFigures(energy, took, took.value, np.empty(0))

    def outputs(self, reference: Setting, settings: Sequence[Setting]) -> tuple[list[float | None], str]:
        """See ``Target``."""
        return [None] * len(settings), ""

    def keep(self, places: Sequence[Path], target: Path) -> None:
        """See ``Target``: the Runs of programs aren't joined."""

    def command(self, setting: Setting) -> str:
        """See ``Target``; it has no secrets."""
        assigned = [f"{name}={shlex.quote(value)}" for name, value in variables(self._words, setting, NAMES).items()]
        return " ".join([*map(masked, assigned), shlex.join(masked_arguments(filled(self._words, setting)))])


def names_in(words: Sequence[str]) -> set[str]:
    """Names of the dimensions that a command has as {NAME}."""
    return {_dimension(name) for word in words for name in _NAMED.findall(word)}


def filled(words: Sequence[str], setting: Setting) -> list[str]:
    """The words of a command with the values of a setting."""
    return [_NAMED.sub(lambda match: str(setting[_dimension(match[1])]), word) for word in words]


def variables(words: Sequence[str], setting: Setting, but: Sequence[str] = ()) -> dict[str, str]:
    """Variables of the environment of a command: the dimensions that no word names, ``but`` for some.

    Raises:
        BadInputError: If a name is none of a variable, which no shell could set.
    """
    named = names_in(words).union(but)
    if wrong := [name for name in setting if name not in named and not (name.isascii() and name.isidentifier())]:
        raise BadInputError(f"--over {wrong[0]}: neither {{{wrong[0]}}} in the command nor the name of a variable")
    return {name: str(value) for name, value in setting.items() if name not in named}


def _dimension(name: str) -> str:
    return name.strip().replace("-", "_")


def parse_over(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Values by dimension, of ``NAME=A,B,...``; ``NAME=1..256`` are the powers of two from 1 to 256, and the ends.

    Raises:
        BadInputError: If a text has another form, or a dimension occurs twice.
    """
    over: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = _dimension(name)
        if not (name and equals and values.strip()):
            raise BadInputError(f"--over {text!r}: write NAME=A,B,... or NAME=1..256")
        if name in _OTHER_WORK:
            raise BadInputError(f"--over {text!r}: another {name} is other work, whose energy can't be compared")
        if name in over:
            raise BadInputError(f"--over names {name} twice")
        over[name] = tuple(_values(name, values, f"--over {text!r}"))
    if not over:
        raise BadInputError("tune: name what may vary, such as --over batch=1..256 --over mode=eager,graph")
    return over


def _values(name: str, values: str, said: str) -> Iterator[Any]:
    read = _READ.get(name, str)
    low, dots, high = values.partition("..")
    try:
        if dots and (read is int or (_is_whole(low) and _is_whole(high))):  # else paths, perhaps
            first, last = whole(low), whole(high)
            if not 1 <= first <= last:
                raise BadInputError(f"{said}: write the smaller number first, at least 1")
            powers = [2**n for n in range(last.bit_length()) if first < 2**n < last]
            yield from dict.fromkeys([first, *powers, last])
            return
        parts = [part.strip() for part in values.split(",")]
        if "" in parts:
            raise BadInputError(f"{said}: a value is missing between commas")
        yield from dict.fromkeys(whole(part) if read is int else part for part in parts)
    except ValueError:
        raise BadInputError(f"{said}: write whole numbers, such as {name}=1,8,64 or {name}=1..64") from None


def _is_whole(text: str) -> bool:
    try:
        whole(text)
    except ValueError:
        return False
    return True


def applied(setting: Setting, settings: ProfileSettings) -> ProfileSettings:
    """The options of a profile with those of a setting; None leaves what is there.

    Raises:
        BadInputError: If a value is invalid.
    """
    given = {name: value for name, value in setting.items() if value is not None and name not in NAMES}
    options: dict[str, Any] = {name: given.pop(name) for name in list(given) if name in _FIELDS}
    config = {_ATTENTION_KEY if name == _ATTENTION else name: str(value) for name, value in given.items()}
    return replace(settings, **options, config={**settings.config, **config})


def setting_of(settings: ProfileSettings, over: Mapping[str, Sequence[Any]], against: Mapping[str, str]) -> Setting:
    """The reference: what the options are without ``--over``, but for what ``--against`` states; None for a default.

    Raises:
        BadInputError: If ``--against`` names no dimension, or a value is no number where one is needed.
    """
    reference: Setting = {}
    for name in over:
        if name in NAMES:
            reference[name] = None
        elif name in _FIELDS:
            reference[name] = getattr(settings, name)
        else:
            reference[name] = settings.config.get(_ATTENTION_KEY if name == _ATTENTION else name)
    return {**reference, **stated_by(over, against)}


def stated_by(over: Mapping[str, Sequence[Any]], against: Mapping[str, str]) -> Setting:
    """The values that ``--against`` states.

    Raises:
        BadInputError: If it names no dimension, or a value is no number where one is needed.
    """
    against = {name.replace("-", "_"): value for name, value in against.items()}
    if unknown := [name for name in against if name not in over]:
        raise BadInputError(f"--against {unknown[0]}: names no dimension of --over ({', '.join(over)})")
    stated = {}
    for name, value in against.items():
        said = f"--against '{name}={value}'"
        stated[name], *others = _values(name, value, said)
        if others:
            raise BadInputError(f"{said}: the reference has one value")
    return stated


def words_of(setting: Setting) -> str:
    """A setting in words, which is also the name of its visits' folders."""
    return SettingRow(setting).words
