"""How often the check of the sensor's memory finds one that is 20 % off, and how often it fails a right one.

    python benchmarks/estimator/response_check.py [--n 240]

Programs of 6 s with a timeline, kernels of 0.1 to 5 ms in irregular order, on a sampler at 1215 to 1254 Hz whose phase
is unknown. The memory is known to 2 %: as after calibration.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

sys.path += [str(Path(__file__).parents[2] / "tests" / one) for one in ("support", "attribution")]
from test_program import estimated, program

from jouletrace.attribution.rows import check_response


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=240)
    options = parser.parse_args()
    print("| memory | n | flagged | estimate of the excess, % (median) |\n|---|---|---|---|")
    for wrong in (1.0, 1.05, 1.2, 1 / 1.2):
        outcomes = []
        for seed in range(options.n if wrong == 1.0 else options.n // 4):
            rng = np.random.default_rng([seed, 9])
            load, activity = program(rng, 6.0, scatter=rng.uniform(0.0, 0.06))
            outcomes.append(check_response(estimated(load, activity, rng, wrong=wrong)))
        flagged = np.mean([not one.passed for one in outcomes])
        off = 100 * np.expm1(-np.median([one.estimate[0] for one in outcomes]))
        print(f"| {100 * (wrong - 1):+.0f} % | {len(outcomes)} | {100 * flagged:.1f} % | {off:+.1f} |", flush=True)


if __name__ == "__main__":
    main()
