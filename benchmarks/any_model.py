"""Texts of docs/results/any-model-h200.md and their figures from the raw data, for ``stated.py``."""

import json
from pathlib import Path

from jouletrace.stats.interval import mean_estimate

PAGE, PAPER = "docs/results/any-model-h200.md", "docs/paper.md"
RAW = Path(__file__).parents[1] / "docs" / "results" / "runs" / "any-model-h200.json"
FINE, LARGE = 0.1, 0.05
"""Half-width of a row that counts as resolved, and the share of the energy from which on an operator is large."""


def resolved(found: dict) -> dict:
    """Figures of a recorded program with how finely it is resolved."""
    known = [row for row in found["energies"] if row[2] is not None]
    total = sum(value for _, _, value, _ in known) or float("nan")
    single = [(value, (half or float("inf")) / value) for _, named, value, half in known if named and value]
    fine, large = (
        [one for one in single if test(*one)] for test in (lambda _, w: w <= FINE, lambda v, _: v >= LARGE * total)
    )
    return found | {
        "rows": (len(fine), sum(named for _, named, _, _ in found["energies"])),
        "fine_share": 100 * sum(value for value, _ in fine) / total,
        "large": (sum(width <= 0.05 for _, width in large), len(large)),
        "holds": abs(found["closure"] - 1) <= found["closure_half_width"],
    }


MODELS = [resolved(one) for one in json.loads(RAW.read_text())]
SHARES = sorted(one["fine_share"] for one in MODELS)
WORST = len(SHARES) - 1, len(SHARES), SHARES[1], SHARES[0]
"""Programs but the worst, all; the least share of the active energy in fine rows of these, and of the worst, %."""

CAPPED, BELOW = ([one for one in MODELS if ("at the cap" in one["title"]) is at] for at in (True, False))
UNTUNED = [one["closure"] for one in MODELS if "(t)" not in one["title"]]
MEAN, MEAN_UNTUNED = mean_estimate([one["closure"] for one in MODELS]), mean_estimate(UNTUNED)
HOLD, HOLD_CAPPED = ((sum(one["holds"] for one in some), len(some)) for some in (BELOW, CAPPED))


def cells(one: dict) -> list[float]:
    """Of a line of the page's table."""
    return [one["kernels"], *one["rows"], one["fine_share"], *one["large"],
            one["closure"], one["closure_half_width"], one["residual_w"]]  # fmt: skip


CLAIMS = [
    *((PAGE, f"| {one['title']} | " + "{} | {} of {} | {} % | {} of {} | {} ± {} | {} W |", cells(one))
      for one in MODELS),
    (PAGE, "{} of {} reach the goal", [sum(one["large"][place] for one in MODELS) for place in (0, 1)]),
    (PAGE, "Mean of 26: {} ± {}, so equal to 1 within 2 % (two one-sided tests, p < 0.001); of the {} untuned: "
           "{} ± {}", [MEAN, len(UNTUNED), MEAN_UNTUNED]),
    (PAGE, "Below the cap {} of {} intervals hold 1 ({} %), goal 90 %. At the cap {} of {} do",
     [*HOLD, 100 * HOLD[0] / HOLD[1], *HOLD_CAPPED]),
    (PAPER, "| {} programs, H200s (by the regression that this estimator replaced) | {} ± {}; {} of {} below the cap, "
            "{} of {} at it", [len(MODELS), MEAN, *HOLD, *HOLD_CAPPED]),
    (PAPER, "| of these {} that nothing was tuned on | {} ± {} |", [len(UNTUNED), MEAN_UNTUNED]),
    (PAPER, "took {} % or more of the energy above idle in {} of the {} programs, and {} % in the other",
     [WORST[2], *WORST[:2], WORST[3]]),
    (PAPER, "parts of four programs were {} to {} % above the whole",
     [100 * (of(one["closure"] for one in CAPPED) - 1) for of in (min, max)]),
]  # fmt: skip
