"""How often intervals of what a step and a token cost hold the truth, on simulated servers, without a GPU.

PYTHONPATH=src python benchmarks/serving_factors.py --first 1000 --seeds 120
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from jouletrace.analysis import analyse
from jouletrace.run.parts import Parts

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from scheduled_runs import Law, drawn, scheduled_level, scheduled_run
from serving_runs import Truth, level_of, serving_run

LAW, TRUTH = Law(), Truth()
ABOVE = LAW.above_idle()
OF_STEPS = {
    "baseline_context_idle_w": LAW.idle_w,
    "energy_step_j": ABOVE.step_j,
    "energy_new_token_j": ABOVE.new_j,
    "energy_sequence_j": ABOVE.sequence_j,
    "energy_context_token_j": LAW.context_j,
}
OF_REQUESTS = {
    "baseline_context_idle_w": TRUTH.idle_w,
    "power_busy_w": TRUTH.busy_w,
    "energy_prompt_token_j": TRUTH.prompt_j,
    "energy_output_token_j": TRUTH.output_j,
}


def by_steps(seed: int, noise_w: float):
    """A Run whose scheduler's steps are logged."""
    rng = np.random.default_rng(seed)
    levels = [scheduled_level(LAW, *drawn(rng, rate, 20, (50, 1500), (20, 200))) for rate in (2, 4)]
    return scheduled_run(LAW, levels, seed=seed, noise_w=noise_w)[0]


def by_requests(seed: int, noise_w: float):
    """A Run with requests alone."""
    rng = np.random.default_rng(seed)
    levels = [level_of(TRUTH, rate, 30, (50, 2000), (20, 200), rng) for rate in (2, 5)]
    return serving_run(TRUTH, levels, seed=seed, noise_w=noise_w)[0]


def main() -> None:
    """Print a line for each kind of server, noise and factor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=120)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument(
        "--noise", type=float, nargs="+", default=[1.0, 5.0, 30.0], help="W; above 5 the sensor states it"
    )
    options = parser.parse_args()
    print("| by | noise | factor | n | holds | RMS error | median half-width |\n" + 7 * "|---" + "|")
    for made, truths in ((by_steps, OF_STEPS), (by_requests, OF_REQUESTS)):
        for noise_w in options.noise:
            found = defaultdict(list)
            for seed in range(options.first, options.first + options.seeds):
                results = Parts(analyse(made(seed, noise_w)))
                for metric, truth in truths.items():
                    if (one := results.get(metric)).value is not None:
                        found[metric].append(
                            (one.low <= truth <= one.high, one.value / truth - 1, one.half_width / truth)
                        )
            for metric, rows in found.items():
                held, error, half = np.array(rows, float).T
                rms = np.sqrt((error**2).mean())
                line = f"{len(rows)} | {held.mean():.1%} | {rms:.2%} | {np.median(half):.2%}"
                print(f"| {made.__name__[3:]} | {noise_w:g} W | {metric} | {line} |", flush=True)


if __name__ == "__main__":
    main()
