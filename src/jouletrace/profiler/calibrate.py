"""``calibrate``: measures the response of a GPU's power sensors to a load that is switched on and off.

The load runs in pulses of many lengths at known times, below the power cap. The response of each power channel is then
fitted: its update times, averaging window and delay. Last, a GPU's best rates are timed, with which profiles compare
the rates of their operators.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from jouletrace.analysis.calibration import calibration_of
from jouletrace.analysis.power import no_power_reason
from jouletrace.arrays import Floats
from jouletrace.devices import open_device
from jouletrace.devices.base import Device, others
from jouletrace.errors import NotPossibleError
from jouletrace.execution.steps.burst import make_burst
from jouletrace.execution.steps.rates import best_rates
from jouletrace.profiler.backends.torch import torch_device_of
from jouletrace.profiler.prepare import check_own_time
from jouletrace.profiler.progress import Progress, start
from jouletrace.recording import calibrations
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.channels import POWER

SHORTEST_S, LONGEST_S = 0.03, 0.6
WARMUP_S = 2.0
REST_S = 1.5
POWER_S = 0.005
"""Seconds between polls of readings that are constant between updates: the time of a change gives their timing."""
RATES_S = 2.0
DEFAULT_S = 16.0
"""As good as 45 s of pulses of up to 1.6 s (docs/results/accuracy-spans.md): it has as many edges per channel."""


def calibrate(
    device_spec: str = "auto",
    *,
    seconds: float = DEFAULT_S,
    seed: int = 0,
    folder: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Run:
    """Calibrate every power sensor of a device, and store the result for later runs.

    The pulses, whose lengths ``seed`` draws, take ``seconds``. ``run.calibration[device]["channels"]`` of the returned
    Run holds the responses by channel, ``["rates"]`` the best rates of a GPU.

    Raises:
        NotPossibleError: If the device has no power sensor that can be read.
    """
    progress = progress or Progress()
    device = open_device(device_spec)
    try:
        session = record_pulses(
            device, device_spec, seconds=seconds, seed=seed, folder=folder, command=command, progress=progress
        )
        run = session.run
        calibration = calibration_of(run, device.info.id)
        if device.info.kind != "cpu":
            progress.begin("best rates of products and copies", RATES_S, at_most=True)
            calibration["rates"] = best_rates(device, _torch_device(device))
        calibrations.apply(run, device.info.id, calibration)
        # The host's clock dates the calibration, since a simulated GPU has virtual time.
        if not calibrations.store_calibration(device, {**calibration, "time_ns": time.time_ns()}):
            run.warn(
                "not_stored", "the calibration could not be written to the cache folder; only this Run contains it"
            )
    finally:
        device.close()
    session.save()
    return run


def record_pulses(
    device: Device, spec: str, *, seconds: float, seed: int, folder: Path | None, command: str, progress: Progress
) -> Session:
    """The ended recording of a load in pulses, with all channels of a device as they are read.

    Raises:
        NotPossibleError: If the device has no power sensor that can be read.
    """
    check_own_time(device)
    start(progress, device, spec)
    session = Session(
        "calibrate",
        [device],
        folder=folder,
        command=command,
        workload={"name": "calibration"},
        settings={"seconds": seconds, "seed": seed},
        calibrated=False,
        power_s=POWER_S,
    )
    with session:
        if not any(channel.name == POWER for channel in session.recorder.channels):
            reason = device.info.details.get("no_power_note") or no_power_reason(session.run, device.info.id)
            raise NotPossibleError(
                f"{device.info.name}: it can't be calibrated, since it has no readable power sensor ({reason})"
            )
        session.warn_of_others(others([device]))
        burst = make_burst(device, _torch_device(device))
        try:
            session.run.workload["load"] = burst.describe()
            progress.begin("warm-up", WARMUP_S)
            with session.phase("warm-up"):
                burst.run(WARMUP_S)
            _rest(session, "context idle before")
            progress.begin("pulses", seconds)
            for on_s, off_s in pulse_train(seconds, seed):
                pulse = burst.run(on_s)
                session.add_span("range", "pulse", pulse.start_ns, pulse.end_ns, "load")
                session.clock.sleep(off_s)
                progress.advance(on_s + off_s)
                session.recorder.check()
            _rest(session, "context idle after")
        finally:
            burst.close()
        session.warn_of_others(others([device], used_here=True))
        session.finish()
    return session


def _torch_device(device: Device) -> str | None:
    """Where torch runs the load; None of a simulated GPU."""
    return None if device.info.simulated else torch_device_of(device)


def pulse_train(seconds: float, seed: int) -> Floats:
    """Lengths (on, off) of pulses in seconds, shape (n, 2), log-uniform between 30 ms and 0.6 s.

    A sensor of 20 ms follows the shortest; one that means over a second sees the density of pulses vary. Irregular
    lengths prevent aliasing with any update period.
    """
    rng = np.random.default_rng(seed)
    lengths: list[tuple[float, float]] = []
    total = 0.0
    while total < seconds:
        on, off = np.exp(rng.uniform(np.log(SHORTEST_S), np.log(LONGEST_S), 2))
        lengths.append((float(on), float(off)))
        total += on + off
    return np.array(lengths)


def _rest(session: Session, name: str) -> None:
    with session.phase(name):
        session.clock.sleep(REST_S)
