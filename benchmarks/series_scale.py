"""Analysis of a log of many GPUs against one of a single GPU, both with as many rows in all.

    python benchmarks/series_scale.py [--devices N] [--rows N]

Prints seconds of CPU of reading every series, and of the whole analysis, and what they are over those of one GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from jouletrace.analysis import analyse
from records import log_of_gpus


def seconds(devices: int, rows: int, channels: int) -> tuple[float, float]:
    """CPU seconds of reading every series, and of the analysis."""
    run = log_of_gpus(devices, rows, channels)
    began = time.process_time()
    for channel in run.channels:
        run.series(channel.device, channel.name)
    read = time.process_time() - began
    run = log_of_gpus(devices, rows, channels)
    began = time.process_time()
    analyse(run)
    return read, time.process_time() - began


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=256)
    parser.add_argument("--rows", type=int, default=256 * 1800)
    parser.add_argument("--channels", type=int, default=1)
    asked = parser.parse_args()
    print("| GPUs | rows in all | read all series, s | analyse, s |")
    print("|---|---|---|---|")
    found = {}
    for devices in dict.fromkeys((1, 16, asked.devices)):
        found[devices] = seconds(devices, asked.rows, asked.channels)
        print(f"| {devices} | {asked.rows} | {found[devices][0]:.3f} | {found[devices][1]:.3f} |", flush=True)
    read, analysed = (found[asked.devices][i] / found[1][i] for i in (0, 1))
    print(f"\n{asked.devices} GPUs over one: {read:.1f} times the time to read, {analysed:.1f} times that to analyse")


if __name__ == "__main__":
    main()
