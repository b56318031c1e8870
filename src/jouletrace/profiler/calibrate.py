"""``calibrate``: measures the response of a GPU's power sensors to a load that is switched on and off.

The load runs in pulses of many lengths at known times, below the power cap. The response of each power channel is then
fitted: its update times, averaging window and delay. Last, a GPU's best rates are timed, with which profiles compare
the rates of their operators.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jouletrace.analysis.calibration import calibration_of
from jouletrace.analysis.meter import LEVEL, Accuracy, against_meter, is_of_more
from jouletrace.analysis.power import no_power_reason
from jouletrace.arrays import Floats
from jouletrace.devices import open_device
from jouletrace.devices.base import Device, others
from jouletrace.errors import BadInputError, BrokenOffError, NotPossibleError
from jouletrace.execution.steps.burst import make_burst
from jouletrace.execution.steps.rates import best_rates
from jouletrace.profiler.backends.torch import torch_device_of
from jouletrace.profiler.prepare import check_own_time
from jouletrace.profiler.progress import Progress, start
from jouletrace.recording import calibrations
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.channels import POWER
from jouletrace.run.forms import Calibration

SHORTEST_S, LONGEST_S = 0.03, 0.6
WARMUP_S = 2.0
REST_S = 1.5
POWER_S = 0.005
"""Seconds between polls of readings that are constant between updates: the time of a change gives their timing."""
RATES_S = 2.0
LEVEL_S, PULSE_S = 10.0, (0.008, 0.016)
"""Of a level, and of the pulses and pauses by which it is held: slow for a GPU, fast for a meter."""
DUTIES = (0, 1 / 4, 1 / 2, 3 / 4, 1, 7 / 8, 5 / 8, 3 / 8, 1 / 8)
"""Shares of the full load: up and down, so that drift isn't taken for gain, and none twice, so that a bend is seen."""
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
    meter: LoggedMeter | None = None,
) -> Run:
    """Calibrate every power sensor of a device, and store the result for later runs.

    The pulses, whose lengths ``seed`` draws, take ``seconds``. ``run.calibration[device]["channels"]`` of the returned
    Run holds the responses by channel, ``["rates"]`` the best rates of a GPU, ``["meter"]`` gain and offset against a
    ``meter``, for which the load also holds several levels.

    Raises:
        NotPossibleError: If the device has no power sensor that can be read.
        BrokenOffError: If the log of the meter can't be used; the Run is kept.
    """
    progress = progress or Progress()
    device = open_device(device_spec)
    try:
        session = record_pulses(
            device,
            device_spec,
            seconds=seconds,
            seed=seed,
            folder=folder,
            command=command,
            progress=progress,
            levels=meter is not None,
        )
        run = session.run
        calibration = calibration_of(run, device.info.id)
        if device.info.kind != "cpu":
            progress.begin("best rates of products and copies", RATES_S, at_most=True)
            calibration["rates"] = best_rates(device, _torch_device(device))
        calibrations.apply(run, device.info.id, calibration)  # the power of levels is by its response
        failure: BadInputError | None = None
        try:
            if meter is not None:
                _add_meter(run, calibration, meter)
        except BadInputError as error:
            failure = error
        _put_in_force(run, calibration, device)
    finally:
        device.close()
    session.save()
    if failure is not None:
        raise BrokenOffError(f"{failure.text}; then: jouletrace calibrate --run RUN --meter FILE --meter-accuracy ...")
    return run


@dataclass(frozen=True)
class LoggedMeter:
    """A meter of the supply of one GPU.

    Attributes:
        name: Of the file that it logs to.
        read: Imports that file; called after the recording.
        accuracy: Its own, as its data sheet states it.
        shift_s: Seconds to add to its stamps; None to determine them.
    """

    name: str
    read: Callable[[], Run]
    accuracy: Accuracy
    shift_s: float | None = None


def calibrate_recorded(run: Run, meter: LoggedMeter) -> Run:
    """The calibration of a Run that ``calibrate`` recorded with levels, against a meter whose log came later.

    Raises:
        BadInputError: If it is another Run, or the two can't be compared.
    """
    if run.kind != "calibrate" or not run.calibration:
        raise BadInputError(f"--run: this is a {run.kind}, and none of `calibrate --meter`")
    for channel in run.channels:
        channel.gain, channel.offset_w = 1.0, 0.0
    calibration = run.calibration[run.devices[0].id]
    calibration.pop("meter", None)
    run.warnings = [warning for warning in run.warnings if warning.code != "meter_of_more"]
    _add_meter(run, calibration, meter)
    _put_in_force(run, calibration, calibrations.RecordedBoard(run.devices[0], run.settings.get("device", "")))
    return run


def _add_meter(run: Run, calibration: Calibration, meter: LoggedMeter) -> None:
    """Add gain and offset to a calibration, or warn of a meter that measures something else."""
    against = against_meter(run, meter.read(), meter.name, meter.accuracy, meter.shift_s)
    if is_of_more(against):
        text = f"by {meter.name} the gain is {against['gain']:.3f} and the offset {against['offset_w']:.0f} W"
        run.warn("meter_of_more", f"{text}: no GPU's sensor errs so; the meter likely measures more than this GPU")
        return
    calibration["meter"] = against


def _put_in_force(run: Run, calibration: Calibration, device: Device | calibrations.RecordedBoard) -> None:
    """Use a calibration in its Run, and store it for later ones."""
    calibrations.apply(run, device.info.id, calibration)
    # The host's clock dates the calibration, since a simulated GPU has virtual time.
    dated: Calibration = {**calibration, "time_ns": time.time_ns()}
    if not calibrations.store_calibration(device, dated):
        run.warn("not_stored", "the calibration could not be written to the cache folder; only this Run contains it")


def record_pulses(
    device: Device,
    spec: str,
    *,
    seconds: float,
    seed: int,
    folder: Path | None,
    command: str,
    progress: Progress,
    levels: bool = False,
) -> Session:
    """The ended recording of a load in pulses, with all channels of a device as they are read; then its ``levels``.

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
        settings={"seconds": seconds, "seed": seed, "device": device.spec},
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
        if levels:
            _hold_levels(session, device, seed, progress)
        session.warn_of_others(others([device], used_here=True))
        session.finish()
    return session


def _hold_levels(session: Session, device: Device, seed: int, progress: Progress) -> None:
    """Hold each of ``DUTIES`` of the full load for ``LEVEL_S``, in pulses that meters average.

    Their lengths are uneven, so that no meter meets one phase of them.
    """
    rng, burst = np.random.default_rng(seed), make_burst(device, _torch_device(device), full=True)
    progress.begin("levels of load", LEVEL_S * len(DUTIES))
    try:
        for number, duty in enumerate(DUTIES, 1):
            with session.phase(f"{LEVEL} {number}: {100 * duty:.3g} % of {burst.describe()}"):
                until_ns = session.clock.time_ns() + round(1e9 * LEVEL_S)
                while (left_s := (until_ns - session.clock.time_ns()) / 1e9) > 0:
                    both_s = min(float(np.exp(rng.uniform(*np.log(PULSE_S)))), left_s)
                    if duty:
                        burst.run(max(duty * both_s, 1e-3))
                    if duty < 1:
                        session.clock.sleep((1 - duty) * both_s)
                session.recorder.check()
            progress.advance(LEVEL_S)
    finally:
        burst.close()
    _rest(session, "context idle after levels")


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
