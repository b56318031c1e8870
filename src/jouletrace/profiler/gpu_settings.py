"""Temporary changes of a GPU's power limit and SM clock: the earlier state is on disk first, and is always restored."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from jouletrace.analysis.conditions import NOT_TAKEN, SET, capped_share, sm_clock_mhz
from jouletrace.devices import open_device
from jouletrace.devices.nvml.gpu import NvmlGpu
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes.locks import Hold, hold, journal_of
from jouletrace.run import Run, load, save

POWER_LIMIT: Final = "power_limit"
CLOCK: Final = "clock"
NAMES: Final = (POWER_LIMIT, CLOCK)
"""Settings, by their names in the journal and in ``tune --over``."""

WORDS: Final = {POWER_LIMIT: ("power limit", "W"), CLOCK: ("SM clock", "MHz")}

SETTLE_S = 5.0
"""Longest wait, s, until a value that was set is read back, and for which the highest clock must be steady before it is
taken for no clock that is falling. NVIDIA states no time; the slowest simulated driver takes 0.5 s."""

STEADY_S = 0.5
"""Seconds for which a lower clock must be steady."""

OBSERVE_S = 1.0
"""Seconds in which a clock that was locked leaves its value once the lock is released: twice the slowest driver's."""

_EACH_S = 0.02
_SAME = 1.0
"""Difference, W or MHz, of a value from that read back: drivers state whole ones."""


class GpuSettings:
    """The settings of a GPU that a campaign varies; a context, which closes the GPU. Without any it does nothing.

    Args:
        device: The user's name for the GPU.
        asked: Values in W and MHz by name, of ``NAMES``.

    Raises:
        BadInputError: If there is no such GPU, or it doesn't allow a value.
        NotPossibleError: If the driver is missing, or the GPU has no such setting.
    """

    def __init__(self, device: str, asked: Mapping[str, Sequence[float]]) -> None:
        self._device = device
        self._asked = {name: tuple(asked[name]) for name in NAMES if asked.get(name)}
        self._set: dict[str, float] = {}
        self._read: dict[str, float] = {}
        self._before: dict[str, float | None] = {}
        self._gpu = _open(device) if self._asked else None
        self._clocks: list[float] = []
        if self._gpu is not None:
            try:
                self._check(self._gpu)
            except BaseException:
                self._gpu.close()
                raise

    def _check(self, gpu: NvmlGpu) -> None:
        low, high = gpu.info.power_limits_w.get("min"), gpu.info.power_limits_w.get("max")
        ranges = {POWER_LIMIT: (low, high)}
        if CLOCK in self._asked:
            self._clocks = gpu.clocks_mhz()
            ranges[CLOCK] = (self._clocks[0], self._clocks[-1]) if self._clocks else (None, None)
        for name, values in self._asked.items():
            (words, unit), (low, high) = WORDS[name], ranges[name]
            if low is None or high is None:
                raise NotPossibleError(f"{gpu.info.name} has no {words} that can be set")
            for value in values:
                if not low <= value <= high:
                    text = f"{words} of {value:g} {unit}: {gpu.info.name} allows {low:g} to {high:g} {unit}"
                    raise BadInputError(text)

    def plan(self) -> list[str]:
        """The changes of the GPU, with its present values; a line a setting."""
        if (gpu := self._gpu) is None:
            return []
        now = [f"{_value(gpu, name):g} {WORDS[name][1]}" for name in self._asked]
        lines = [f"sets {change}; now {value}" for change, value in zip(self._changes(gpu), now, strict=True)]
        return lines if gpu.info.simulated or os.geteuid() == 0 else [*lines, "setting these needs root (sudo)"]

    def check_permitted(self, permitted: bool) -> None:
        """Refuse changes that the user has not permitted.

        Raises:
            BadInputError: In a line that states them.
        """
        if self._gpu is not None and not permitted:
            changes = " and ".join(self._changes(self._gpu))
            raise BadInputError(f"this would set {changes} in turn: add --yes to permit it")

    def _changes(self, gpu: NvmlGpu) -> list[str]:
        """Each setting with its values in words, and with those asked for that are rounded."""
        changes = []
        for name, values in self._asked.items():
            each = [(value, self.nearest(name, value)) for value in values]
            texts = [f"{near:g}" + (f" (for {value:g})" if near != value else "") for value, near in each]
            words, unit = WORDS[name]
            changes.append(f"the {words} of {gpu.info.name} ({gpu.info.id}) to {', '.join(texts)} {unit}")
        return changes

    def nearest(self, name: str, value: float) -> float:
        """The value that can be set: of a clock, the nearest that the GPU supports."""
        return value if name != CLOCK else min(self._clocks, key=lambda mhz: abs(mhz - value))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Restore the GPU at the end of the context, also after an exception, Ctrl-C and ``kill -9``.

        Changes that an earlier run has left are undone first.

        Raises:
            NotPossibleError: If another jouletrace changes this GPU, the driver refuses changes (without root), or the
                journal can't be written.
            BadInputError: If the journal of an earlier run can't be read.
        """
        gpu = self._gpu
        if gpu is None:
            yield
            return
        by_hand = f"jouletrace sweep --restore --device {self._device}"
        with hold(gpu.info, "changing the settings of") as held:
            _restore(held, gpu)
            with held.watched("jouletrace.profiler.gpu_settings:put_back", by_hand, device=gpu.spec) as watch:
                try:
                    for name in self._asked:
                        self._before[name] = _note(held, gpu, name)
                    yield
                finally:
                    _restore(held, gpu)
                    watch.done()

    def set(self, wanted: Mapping[str, float | None]) -> None:
        """Set values by name, of those asked for; None is the state before. Returns once they are read back, or late.

        Raises:
            NotPossibleError: If the driver refuses.
        """
        if (gpu := self._gpu) is None:
            return
        left = self._set
        self._set = {name: self.nearest(name, value) for name in self._asked if (value := wanted.get(name)) is not None}
        goals = {name: self._set.get(name, self._before[name]) for name in self._asked}
        for name, goal in goals.items():
            _put(gpu, name, goal)
        for name, goal in goals.items():
            if goal is not None:
                _wait_for(gpu, name, goal)
            elif name in left:
                _wait_for(gpu, name, left[name], left=True)
            self._read[name] = _value(gpu, name)

    def record(self, folder: Path) -> str:
        """Add to the Run of a folder what was set and read back; returns why a setting wasn't in force, else "".

        The Run then has a warning.
        """
        if (gpu := self._gpu) is None:
            return ""
        run = load(folder)
        after = {name: _value(gpu, name) for name in self._set}
        facts = {name: {"set": self._set[name], "read": self._read[name], "after": after[name]} for name in self._set}
        of_gpu = next((device for device in run.devices if device.id == gpu.info.id), run.devices[0])
        of_gpu.details[SET] = facts
        why = "; ".join(filter(None, (self._why_not(run, name, **facts[name]) for name in facts)))
        if why:
            run.warn(NOT_TAKEN, why)
        save(run, folder, overwrite=True)
        return why

    def _why_not(self, run: Run, name: str, set: float, read: float, after: float) -> str:
        """Why a value wasn't in force while a Run was measured; "" if it was."""
        words, unit = WORDS[name]
        asked = f"{words} of {set:g} {unit}"
        measured = sm_clock_mhz(run) if name == CLOCK else None
        if measured is None:
            wrong = next((value for value in (read, after) if abs(value - set) > _SAME), None)
            return "" if wrong is None else f"{asked} not in force: the driver reads {wrong:g} {unit}"
        step = min((abs(mhz - set) for mhz in self._clocks if mhz != set), default=_SAME)
        if abs(measured - set) <= step:
            return ""
        why = f"the driver read {read:g} MHz"
        if abs(read - set) <= step:
            if abs(after - set) > step:
                why = "the driver forgot it"
            elif measured < set and capped_share(run) > 0:
                why = "the power cap lowered it"
        return f"{asked} not in force: {why}; measured: {measured:.0f} MHz"

    def command(self, wanted: Mapping[str, Any]) -> str:
        """The command of the driver that sets values, up to "&& "; "" without any."""
        flags = {POWER_LIMIT: "-pl", CLOCK: "-lgc"}
        each = {name: wanted[name] for name in self._asked if wanted.get(name) is not None}
        gpu = "" if self._gpu is None else self._gpu.info.id
        settings = (f"{flags[name]} {self.nearest(name, value):g}" for name, value in each.items())
        return "".join(f"sudo nvidia-smi -i {gpu} {setting} && " for setting in settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._gpu is not None:
            self._gpu.close()


def restore(device: str) -> list[str]:
    """Restore the settings that a killed process has left changed; returns them in words: "power limit is 700 W again".

    Raises:
        BadInputError: If the journal can't be read.
        NotPossibleError: If another jouletrace changes this GPU, or a setting can't be restored: the journal is kept.
    """
    with closing(_open(device)) as gpu, hold(gpu.info, "restoring the settings of") as held:
        return _restore(held, gpu)


def put_back(held: Hold, device: str) -> str | None:
    """Restore the settings of a GPU whose holder has died; for ``watcher``."""
    with closing(_open(device)) as gpu:
        return " and ".join(f"its {restored}" for restored in _restore(held, gpu)) or None


def _open(device: str) -> NvmlGpu:
    """The GPU whose settings are to change.

    Raises:
        BadInputError: If there is no such device, or it has no settings of its own.
        NotPossibleError: If the driver is missing.
    """
    opened = open_device(device)
    if isinstance(opened, NvmlGpu) and opened.info.kind == "gpu":
        return opened
    opened.close()
    raise BadInputError(f"{device}: only a whole GPU has a power limit and a clock that can be set")


def _value(gpu: NvmlGpu, name: str) -> float:
    return gpu.limit_w() if name == POWER_LIMIT else gpu.clock_mhz()


def _put(gpu: NvmlGpu, name: str, value: float | None) -> None:
    if name == CLOCK:
        gpu.lock_clock(value)
    elif value is not None:
        gpu.set_limit(value)


def _note(held: Hold, gpu: NvmlGpu, name: str) -> float | None:
    """Write the state of a setting into the journal, before it is changed; None of a clock that isn't locked.

    No call of NVML reads a lock: an idle GPU that is locked leaves its clock when the lock is released. Until that is
    observed, the journal says "observed": false.

    Raises:
        NotPossibleError: If the driver refuses changes, or a clock isn't steady: nothing is changed.
    """
    if name == POWER_LIMIT:
        now: float | None = gpu.limit_w()
        held.note(name, {"before_w": now})
    else:
        now = _steady_mhz(gpu)
        held.note(name, {"before_mhz": now, "observed": False})
    try:
        _put(gpu, name, now if name == POWER_LIMIT else None)
    except NotPossibleError:
        held.forget(name)
        raise
    if name == CLOCK:
        now = now if _leaves(gpu, now) else None
        held.note(name, {"before_mhz": now, "observed": True})
    return now


def _steady_mhz(gpu: NvmlGpu) -> float:
    """The SM clock, MHz, once it is steady.

    Raises:
        NotPossibleError: If it isn't.
    """
    highest = max(gpu.clocks_mhz(), default=0.0)
    end = time.monotonic() + 3 * SETTLE_S
    mhz = gpu.clock_mhz()
    while time.monotonic() < end:
        if not _wait_for(gpu, CLOCK, mhz, SETTLE_S if mhz >= highest else STEADY_S, left=True):
            return mhz
        mhz = gpu.clock_mhz()
    raise NotPossibleError(
        f"{gpu.info.name}: its SM clock varies, so that a lock of it can't be recognised: end what runs on it"
    )


def _leaves(gpu: NvmlGpu, mhz: float | None) -> bool:
    """True if the SM clock, whose lock was released, leaves a value."""
    return mhz is not None and _wait_for(gpu, CLOCK, mhz, OBSERVE_S, left=True)


def _restore(held: Hold, gpu: NvmlGpu) -> list[str]:
    """Restore what the journal states; returns it in words."""
    return [words for name in NAMES if (entry := held.noted(name)) for words in _restored(held, gpu, name, entry)]


def _restored(held: Hold, gpu: NvmlGpu, name: str, entry: Mapping[str, Any]) -> list[str]:
    (words, unit), observed = WORDS[name], entry.get("observed", True)
    try:
        stated = entry["before_w" if name == POWER_LIMIT else "before_mhz"]
        before = None if stated is None and name == CLOCK else float(stated)
    except (KeyError, TypeError, ValueError):
        path = journal_of(gpu.info)
        raise BadInputError(f"the journal {path} holds no {words}; inspect it, then remove it") from None
    if observed or _leaves(gpu, before):
        _put(gpu, name, before)
    if before is not None and not _wait_for(gpu, name, before):
        reads = f"{_value(gpu, name):g} {unit}"
        raise NotPossibleError(f"{gpu.info.name}: the {words} was set to {before:g} {unit} again, but it reads {reads}")
    held.forget(name)
    if not observed:
        return []
    return [f"{words} is {'unlocked' if before is None else f'{before:g} {unit}'} again"]


def _wait_for(gpu: NvmlGpu, name: str, value: float, seconds: float | None = None, *, left: bool = False) -> bool:
    """Wait, for ``seconds`` or ``SETTLE_S`` at most, until a value is read, or has ``left``; True if it is or has."""
    end = time.monotonic() + (SETTLE_S if seconds is None else seconds)
    while (abs(_value(gpu, name) - value) > _SAME) != left:
        if time.monotonic() >= end:
            return False
        time.sleep(_EACH_S)
    return True
