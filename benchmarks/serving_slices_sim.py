"""Energy of servers on slices of simulated GPUs, whose energy is known exactly.

Servers of several models on three slices get loads at once, as by ``jouletrace mig bench``. The energy above idle of
each slice in the window of each load, by the division of the GPU's power, is compared with what the slice caused.

    python benchmarks/serving_slices_sim.py --seeds 8
"""

from contextlib import closing

import numpy as np

from jouletrace.wings.mig.apply import open_backend
from jouletrace.wings.mig.serving import bench_slices, open_servers
from jouletrace.wings.serving.analysis.steady import requests_of
from jouletrace.wings.serving.client.bench import BenchSettings
from jouletrace.wings.serving.client.load import Lengths, open_levels
from judging import Case, judged, options

MODELS = ("llama-1b", "gpt2-large", "gpt2")
GPUS = {"sim:h100": ("3g.40gb", "2g.20gb", "1g.10gb"), "sim:a100-80": ("3g.40gb", "2g.20gb", "1g.10gb")}


def measured(spec: str, profiles: tuple[str, ...], seed: int) -> list[Case]:
    """Energy above idle of each load on each slice, and its truth."""
    rng = np.random.default_rng(seed)
    names = rng.choice(MODELS, len(profiles)).tolist()
    lengths = Lengths(64, 64), Lengths(32, 32)
    own = [open_levels((1, 2), "poisson", 30, 1, lengths, seed * 10 + place) for place in range(len(profiles))]
    levels = [list(load) for load in zip(*own, strict=True)]
    with closing(open_backend(spec)) as backend, closing(open_servers(names, profiles, backend, spec)) as servers:
        run = bench_slices(servers, BenchSettings("", [one for some in levels for one in some], pause_s=3.0), levels)
        history = servers.history
    ids = {unit["name"]: unit["id"] for unit in run.units.to_pylist()}
    found = []
    for number, load in enumerate(run.workload["serving"]["levels"]):
        if load["alone"]:
            continue
        unit, requests = ids[load["name"]], requests_of(run, number)
        start_s = float(requests.sent[0]) + run.result("time_settling_s", unit).value
        begin_ns, queues = history[load["group"]]
        elapsed, _, joules = np.array(queues[load["server"]].reached).T
        at_s = (requests.nanoseconds(start_s) - begin_ns) / 1e9
        first, last = np.interp([at_s, at_s + run.result("time_s", unit).value], elapsed, joules)
        found.append((run.result("energy_active_j", unit), float(last - first)))
    return found


def main() -> None:
    """Print a line for each GPU."""
    asked = options(__doc__, seeds=8, first=0).parse_args()
    print(
        "| GPU | loads on a slice | covered | median error | largest error | median half-width |\n" + 6 * "|---" + "|"
    )
    for gpu, profiles in GPUS.items():
        seeds = range(asked.first, asked.first + asked.seeds)
        found = judged([case for seed in seeds for case in measured(f"{gpu}?seed={seed}", profiles, seed)])
        errors, half = np.abs(found.error), np.median(found.half * found.truth / found.value)
        cells = f"{found.held.mean():.0%} | {np.median(errors):.1%} | {errors.max():.1%} | {half:.1%}"
        print(f"| `{gpu}` | {found.n} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
