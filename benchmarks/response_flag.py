"""Profiles of a real GPU before and after ``calibrate``: which are flagged "readings do not fit the sensor's response".

    python benchmarks/response_flag.py OUT                          # on a GPU: three minutes and a half
    python benchmarks/response_flag.py OUT --device sim:h100

Five profiles without a calibration, ``calibrate``, the same five with it, all in one process. The calibration goes to
a cache of its own. Prints a row for each profile as soon as it is done, and stores Runs in the folder OUT; a profile
that wouldn't begin within ``--limit`` seconds is left out, and stated.

"Misfit" is the squared residual of readings over its expectation at the large edges of windows, the worst one: about
1 if the response holds; "–" if no window has one. "Width" is the logarithm of how many times as likely they are under a
response that is 20 % wider or narrower.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

import jouletrace as jt
from jouletrace.analysis.checks import outcomes
from jouletrace.analysis.power import power_record
from jouletrace.analysis.iterations import PHASE
from jouletrace.errors import JouletraceError, NotPossibleError
from jouletrace.profiler.calibrate import calibrate
from jouletrace.run import Run
from jouletrace.run.parts import Parts
from jouletrace.run.spans import spans_of
from jouletrace.sensor.windows.energy import _Edges
from jouletrace.sensor.windows.neighbourhoods import Neighbourhoods
from jouletrace.sensor.windows.varied import stretched

OWN = Path(__file__).resolve().parent / "attribution" / "models.py"
PROFILES = (
    ("deit-b", "deit-b", 64, "eager"),
    ("deit-b", "deit-b", 64, "graph"),
    ("whisper", f"{OWN}:whisper", 4, "eager"),
    ("lstm", f"{OWN}:lstm", None, "eager"),
    ("deit-b", "deit-b", 64, "compile"),
)
"""Name, what ``jouletrace profile`` takes, batch size and mode; the one that compiles last, since it takes longest."""

CALIBRATION_S = 16.0


def fit(run: Run) -> tuple[str, str]:
    """Misfit at the large edges of windows, and the gain by another width."""
    found = power_record(run, run.devices[0].id)
    if found is None or not len(run.windows):
        return "–", "–"
    record, response = found
    start, end = (run.windows[name].to_numpy() for name in ("start_ns", "end_ns"))
    edges = _Edges(record, response, np.concatenate([start, end, spans_of(run, "phase").named(PHASE).start_ns]))
    ends = record.seconds(np.concatenate([start, end]))
    large = [edge for edge in edges.stretches.large_s if np.abs(ends - edge).min() < response.memory_s]
    if not large:
        return "–", "–"
    near = Neighbourhoods(edges.time, edges.time_sd, edges.power, edges.stretches, response)
    (misfit, own), *others = (near.fit(np.array(large), stretched(response, by)) for by in (1.0, 1.2, 1 / 1.2))
    return f"{misfit.max():.2f}", f"{max(likely.sum() for _, likely in others) - own.sum():+.1f}"


def row(name: str, mode: str, run: Run) -> str:
    """The cells of a profile."""
    energy, calibrated = run.result("energy_total_j"), "yes" if run.calibration else "no"
    half = f"{energy.half_width:.3g}" if energy.half_width is not None else "–"
    value = f"{energy.value:.5g} ± {half} J" if energy.value is not None else str(energy.reason)
    flagged = sum("unmodelled" in (flags or "") for flags in run.windows["flags"].to_pylist())
    found = outcomes(run, Parts(run))
    failed = ", ".join(dict.fromkeys(one.code for one in found.failed))
    cells = [name, mode, calibrated, value, *fit(run), f"{flagged} of {len(run.windows)}", found.level, failed]
    return f"| {' | '.join(cells)} |"


def profiled(model: str, batch: int | None, mode: str, device: str, calibrated: bool) -> Run:
    return jt.profile(
        model,
        device=device,
        batch=batch,
        mode=mode,
        dtype="fp16",
        detail="model",
        max_time=4.5,
        warmup=2.5,
        calibrated=calibrated,
        progress=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=float, default=225.0, help="seconds after which no profile begins")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    print("| model | mode | calibrated | energy per iteration | misfit | width | windows flagged | trust | failed |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["JOULETRACE_CACHE"] = cache
        for calibrated in (False, True):
            if calibrated:
                done = calibrate(asked.device, seconds=CALIBRATION_S)
                done.save(str(asked.out / "calibration.zip"), overwrite=True)
                codes = [warning.code for warning in done.warnings]
                print(f"calibrated after {time.monotonic() - begun:.0f} s; warnings: {codes or 'none'}", flush=True)
            for name, model, batch, mode in PROFILES:
                try:
                    if time.monotonic() - begun > asked.limit:
                        raise NotPossibleError(f"left out, {asked.limit:.0f} s are over")
                    run = profiled(model, batch, mode, asked.device, calibrated)
                except JouletraceError as error:
                    print(f"{name}, {mode}, {'' if calibrated else 'not '}calibrated: {error}", flush=True)
                    continue
                place = asked.out / f"{name}-{mode}-{'calibrated' if calibrated else 'nominal'}.zip"
                run.save(str(place), overwrite=True)
                print(row(name, mode, run), flush=True)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
