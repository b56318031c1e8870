"""``measure``: energy of any block of code, from a recorder in a separate process.

    with jt.measure("epoch") as m:
        train()
    print(m.energy_j, m.power_w, m.time_s)

The block is synchronised only at its two edges. Figures are computed on access, since the sensor's record of the
block's end arrives later.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from jouletrace import analysis, higher
from jouletrace.analysis.analyse import check_record
from jouletrace.analysis.budget import absolute
from jouletrace.analysis.power import tail_s
from jouletrace.devices import one_or_several, open_devices
from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError, RecorderDiedError
from jouletrace.recording.session import Session, ended_by
from jouletrace.run import MODEL_UNIT, Estimate, Run, tables
from jouletrace.run.parts import Parts
from jouletrace.run.shown import Shown
from jouletrace.stats.interval import total

PATIENCE_S = 2.0
"""Longest wait for the GPU at an end: a collective whose peer has died never ends."""


class _Recording:
    """The process-wide recorder of one set of devices; it starts at first use and ends with the process."""

    def __init__(self, devices: tuple[str, ...]) -> None:
        self._owner = os.getpid()
        self.devices = open_devices(list(devices), real_time=True)
        try:
            for device in self.devices:
                if device.clock.virtual:
                    raise BadInputError(f"measure: {device.spec}: a block takes real time; leave out realtime=0")
            self.session = Session("measure", self.devices, settings={"devices": list(devices)})
            self.session.__enter__()
        except BaseException:
            self._close_devices()
            raise
        self._tail_s = max(map(tail_s, self.session.recorder.channels), default=0.0)
        atexit.register(self.close)

    def energy_j(self, device: str, start_ns: int, end_ns: int) -> Estimate:
        """Energy of an ended block in joules; waits for the record of its end."""
        self.session.recorder.wait_until(end_ns + int(self._tail_s * 1e9))
        return analysis.window_estimate(self.session.snapshot(), device, start_ns, end_ns)

    def close(self) -> None:
        """End the recorder and drop its data; a no-op in a fork of its process."""
        if os.getpid() != self._owner:
            return
        with suppress(RecorderDiedError):  # each access to a figure has raised it
            self.session.finish()
        self._close_devices()

    def _close_devices(self) -> None:
        for device in self.devices:
            device.close()


_recordings: dict[tuple[str, ...], _Recording] = {}
_lock = threading.Lock()


def _recording(devices: tuple[str, ...]) -> _Recording:
    with _lock:
        recording = _recordings.get(devices)
        if recording is None:
            recording = _recordings[devices] = _Recording(devices)
        return recording


def _forget_parent() -> None:
    """Drop the recorders in a fork: they belong to the parent."""
    global _lock  # noqa: PLW0603  # the parent may hold it at the fork
    _lock = threading.Lock()
    _recordings.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)


class Measurement(Shown):
    """One measured block; see the module. Reading an energy waits for the sensor, 0.4 s: read it after the loop.

    Attributes:
        label: The block's name.
        start_ns, end_ns: Its edges in nanoseconds since the Unix epoch; ``end_ns`` is None inside the block.
    """

    def __init__(self, label: str, devices: Sequence[str]) -> None:
        self.label = label
        self._recording = _recording(tuple(devices))
        self.start_ns = 0
        self.end_ns: int | None = None
        self._energies: dict[str, Estimate] = {}
        self._ended_by = ""

    def __enter__(self) -> Self:
        """Begin the block; after its end it begins again, and the figures are those of the last block.

        Raises:
            BadInputError: If it hasn't ended.
        """
        if self.start_ns and self.end_ns is None:
            raise BadInputError(
                f"measure: {self.label!r} has not ended; measure a block within it by another jt.measure()"
            )
        synchronize()
        self.end_ns, self._energies = None, {}
        self.start_ns = self._recording.session.clock.time_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        synchronize()
        self.end_ns = self._recording.session.clock.time_ns()
        self._ended_by = ended_by(error) if error is not None else ""

    @property
    def time_s(self) -> Estimate:
        """Duration of the block in seconds."""
        if self.end_ns is None:
            return Estimate.null("block_not_ended", "clock")
        seconds = (self.end_ns - self.start_ns) / 1e9
        return Estimate(seconds, seconds, seconds, 1, "clock", unit="s")

    @property
    def energy_j(self) -> Estimate:
        """Energy of the block in joules, summed over its devices."""
        parts = [self.device_energy_j(device.info.id) for device in self._recording.devices]
        return (parts[0] if len(parts) == 1 else total(parts)).in_unit("J")

    @property
    def power_w(self) -> Estimate:
        """Mean power over the block in watts."""
        seconds = self.time_s.value
        if not seconds:
            return Estimate.null("block_not_ended" if seconds is None else "block_too_short", "window")
        return self.energy_j.scaled(1 / seconds).in_unit("W")

    @property
    def absolute_j(self) -> float | None:
        """Half-width in joules of the 95 % interval of what an ideal meter would read; None without an interval."""
        run = self._block()
        return absolute(run, Parts(run).whole, "energy_total_j", self.energy_j)

    def _block(self) -> Run:
        """The block as a Run, its figures those of the whole, with what is wrong with its record as warnings."""
        shared = self._recording.session.snapshot()
        edges = {"start_ns": self.start_ns, "end_ns": self.end_ns or self.start_ns}
        figures = {"iteration_time_s": self.time_s, "energy_total_j": self.energy_j, "power_w": self.power_w}
        rows = [{"unit": MODEL_UNIT, "metric": name, **figure.to_dict()} for name, figure in figures.items()]
        run = replace(shared, warnings=list(shared.warnings), complete=True, workload={"name": self.label})
        run.spans = tables.from_rows([{"id": 0, "kind": "phase", "name": "block", **edges}], "spans")
        run.results = tables.from_rows(rows, "results")
        if self._ended_by:
            run.complete = False
            run.warn("interrupted", self._ended_by)
        check_record(run)
        warn_of_idle(run, self._recording.devices)
        return run

    def device_energy_j(self, device: str) -> Estimate:
        """Energy of one device in joules, by its id.

        Raises:
            BadInputError: If the block doesn't measure it.
        """
        ids = [measured.info.id for measured in self._recording.devices]
        if device not in ids:
            raise BadInputError(f"measure: {self.label!r} doesn't measure {device!r}; it measures {', '.join(ids)}")
        if self.end_ns is None:
            return Estimate.null("block_not_ended", "window")
        if device not in self._energies:
            self._energies[device] = self._recording.energy_j(device, self.start_ns, self.end_ns).in_unit("J")
        return self._energies[device]

    def __str__(self) -> str:
        """The verdict: energy with its absolute uncertainty, time and mean power, and how far to trust them."""
        return higher.summary(self._block())

    def __repr__(self) -> str:
        return f"Measurement({str(self).partition(chr(10))[0]})"


def measure(
    label: str = "block",
    *,
    device: str | Sequence[str] | None = None,
) -> Measurement:
    """Measure the energy of a block of code; use it in a ``with`` statement. Blocks may nest.

    Both edges wait for torch's GPUs; work of JAX or CuPy must have ended before the block does.
    Read its figures after the loop: reading waits for the sensor, 0.4 s, and an outer block counts that.

    Args:
        label: The block's name.
        device: A name as for ``--device``, or several; "visible" is every GPU that CUDA shows this process, and the
            CPU if there is none. None means "visible". Simulated GPUs run in real time.

    Raises:
        BadInputError: If a device doesn't exist, or is a simulated GPU with ``realtime=0``.
        NotPossibleError: If no device can be recorded.
    """
    return Measurement(label, one_or_several("measure", device, label))


def idle_simulated(device: Device) -> str:
    """The objection to the energy of a program on a device that no program can run on; "" for others.

    A simulated GPU beside a program is idle unless its name gives it a load.
    """
    if not device.info.simulated or "load=" in device.spec:
        return ""
    name, _, keys = device.spec.partition("?")
    given = [key for key in keys.split("&") if key and key != "realtime=1"]  # beside a program it is in any case
    loaded = f"{name}?{'&'.join([*given, 'load=1:300'])}"
    return (
        "the program did not run on this simulated GPU: this is its idle power; "
        f"--device '{loaded}' (device= in Python) gives it a load of 300 W"
    )


def warn_of_idle(run: Run, devices: Sequence[Device]) -> None:
    """Warn in a Run of simulated GPUs that were idle beside the program."""
    for device in devices:
        if text := idle_simulated(device):
            run.warn("simulated_idle", text, device.info.id)


def synchronize() -> None:
    """Synchronise with all GPUs on which this process has a context; without torch this does nothing."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            # Synchronising a device without a context would create one and raise its power.
            if torch._C._cuda_hasPrimaryContext(index):
                torch.cuda.synchronize(index)


def settle() -> None:
    """Wait for the GPU, but not for ever."""

    def wait() -> None:
        with suppress(Exception):  # a fault of the program that shows now
            synchronize()

    waiting = threading.Thread(target=wait, name="jouletrace-settle", daemon=True)
    with suppress(RuntimeError):  # the interpreter shuts down
        waiting.start()
        waiting.join(PATIENCE_S)
