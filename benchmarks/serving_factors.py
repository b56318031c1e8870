"""How often intervals of what a step and a token cost hold the truth, on simulated servers, without a GPU.

PYTHONPATH=src python benchmarks/serving_factors.py --first 1000 --seeds 120
"""

import numpy as np

from jouletrace.analysis import analyse
from jouletrace.run.parts import Parts
from judging import judged, options
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
    """Print a line for each kind of server, noise and factor; above 5 W the sensor states the noise."""
    asked = options(__doc__, seeds=120, first=1000, noise=[1.0, 5.0, 30.0]).parse_args()
    print("| by | noise | factor | n | holds | RMS error | median half-width |\n" + 7 * "|---" + "|")
    for made, truths in ((by_steps, OF_STEPS), (by_requests, OF_REQUESTS)):
        for noise_w in asked.noise:
            seeds = range(asked.first, asked.first + asked.seeds)
            runs = [Parts(analyse(made(seed, noise_w))) for seed in seeds]
            for metric, truth in truths.items():
                found = judged([(run.get(metric), truth) for run in runs])
                line = f"{found.n} | {found.held.mean():.1%} | {found.rms:.2%} | {np.median(found.half):.2%}"
                print(f"| {made.__name__[3:]} | {noise_w:g} W | {metric} | {line} |", flush=True)


if __name__ == "__main__":
    main()
