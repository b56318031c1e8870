"""How often profiles are flagged "readings do not fit the sensor's response": of sound GPUs, and of 20 % wider sensors.

Each GPU is drawn at random within its preset, calibrated as a real one would be, and profiled through
``jouletrace.profile``: as it was calibrated, and with a sensor whose times are all 20 % longer than when it was
calibrated; both also without the calibration. Loads take turns. A profile is flagged if one of its windows is.

    python benchmarks/response_sim.py                                # all presets, 24 seeds: a quarter of an hour
    python benchmarks/response_sim.py --presets h100-80 --seeds 8
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator

from scipy.stats import binomtest

import jouletrace as jt
from jouletrace.profiler.calibrate import calibrate
from jouletrace.simulator.boards.presets import draw, find

LOADS = ("memcpy", "gemm", "sgemm")
SENSORS = {
    "h100-80": ("modelled", "sampled"),
    "h200-141": ("modelled", "sampled"),
    "v100": ("modelled",),
    "a100-80": ("modelled",),
    "a100-40": ("modelled",),
}
WIDER = 1.2
SOUND, OFF = "sound", "20 % wider"


def given(preset: str, sensor: str, seed: int, factor: float) -> str:
    """The part of a GPU's specification that makes times of its sensor ``factor`` times as long."""
    hidden = draw(find(preset), seed)
    if sensor == "sampled":
        return f"&given=sample_rate_hz:{hidden.sample_rate_hz / factor}"
    return f"&given=record_window_s:{factor * hidden.record_window_s},record_rise_s:{factor * hidden.record_rise_s}"


def profiles(preset: str, sensor: str, seed: int) -> Iterator[tuple[str, bool, bool]]:
    """Truth of each profile of a GPU, whether it was calibrated, and whether a window is flagged."""
    device = f"sim:{preset}?seed={seed}&sensor={sensor}"
    calibrate(device, seed=seed)
    for run, (truth, factor) in enumerate(((SOUND, 1.0), (OFF, WIDER)), 1):
        for calibrated in (True, False):
            found = jt.profile(
                LOADS[seed % len(LOADS)],
                device=f"{device}&run={run}{given(preset, sensor, seed, factor)}",
                detail="model",
                calibrated=calibrated,
            )
            yield truth, calibrated, any("unmodelled" in (flags or "") for flags in found.windows["flags"].to_pylist())


def share(flagged: int, profiles: int) -> str:
    """A cell: how many are flagged, in percent with the 95 % interval of Clopper and Pearson."""
    low, high = binomtest(flagged, profiles).proportion_ci()
    return f"{flagged} of {profiles}: {100 * flagged / profiles:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=list(SENSORS), choices=list(SENSORS))
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    asked = parser.parse_args()
    os.environ["JOULETRACE_PROGRESS"] = "0"
    begun = time.monotonic()
    number: Counter[tuple[str, str, str, bool]] = Counter()
    flagged: Counter[tuple[str, str, str, bool]] = Counter()
    print(f"seeds {asked.first} to {asked.first + asked.seeds - 1}\n")
    print("| preset | sensor | response | sound | 20 % wider |\n|---|---|---|---|---|")
    for preset in asked.presets:
        for sensor in SENSORS[preset]:
            with tempfile.TemporaryDirectory() as cache:
                os.environ["JOULETRACE_CACHE"] = cache
                for seed in range(asked.first, asked.first + asked.seeds):
                    for truth, calibrated, doubted in profiles(preset, sensor, seed):
                        number[preset, sensor, truth, calibrated] += 1
                        flagged[preset, sensor, truth, calibrated] += doubted
            for calibrated in (True, False):
                cells = [
                    share(flagged[key], number[key])
                    for key in ((preset, sensor, truth, calibrated) for truth in (SOUND, OFF))
                ]
                response = "calibrated" if calibrated else "nominal"
                print(f"| {preset} | {sensor} | {response} | {' | '.join(cells)} |", flush=True)
    sound = [key for key in number if key[2] == SOUND]
    print(f"\nAll sound ones: {share(sum(flagged[key] for key in sound), sum(number[key] for key in sound))}.")
    hopper = [key for key in number if key[2] == OFF and key[3] and key[0].startswith("h")]
    if hopper:
        found = share(sum(flagged[key] for key in hopper), sum(number[key] for key in hopper))
        print(f"Calibrated H100s and H200s that are 20 % wider: {found}.")
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
