"""How often intervals of 95 % must hold the truth: what chance allows for as many trials as there are, and no less."""

from scipy.stats import binom

LEVEL = 0.95
CHANCE = 0.01
"""With which a test of honest intervals would fail, were its seeds not fixed."""


def fewest(trials: int) -> int:
    """Hits of so many independent trials below which intervals don't hold what they say."""
    return int(binom.ppf(CHANCE, trials, LEVEL))


def most(trials: int) -> int:
    """Hits above which intervals are wider than stated; all of them where trials are too few for a verdict."""
    return int(binom.isf(CHANCE, trials, LEVEL))
