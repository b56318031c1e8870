"""Mutants of ``sampled.py`` that survive, with the reason: what no test can notice, or need not."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Survivor:
    """One change that goes unnoticed.

    Attributes:
        path: Of the file, below ``src/jouletrace``.
        old: The lines that differ, as they are, without indentation.
        new: The same, as they become.
        why: "Same: ..." if nothing changes, "Slight: ..." if no figure that is stated does, with the reason.
    """

    path: str
    old: str
    new: str
    why: str


SURVIVORS = [
    Survivor(
        "stats/interval.py",
        "size = 2 << n.bit_length()  # a power of two, with as many zeros as values",
        "size = 4 << n.bit_length()  # a power of two, with as many zeros as values",
        "Same: more zeros change no product of values.",
    ),
    Survivor(
        "sensor/calibration/fitter.py",
        "_ROUGH, _FINE = 1e-3, 1e-6",
        "_ROUGH, _FINE = 0.002, 1e-6",
        "Slight: where a start of the search stops; the fit that follows goes on to _FINE.",
    ),
    Survivor(
        "sensor/phases.py",
        "edges = np.append(lags - 0.5, lags[-1] + 0.5) * GRID_S",
        "edges = np.append(lags - 0.5, lags[-1] + 1.0) * GRID_S",
        "Same: the response ends before the last edge.",
    ),
    Survivor(
        "sensor/stamps.py",
        "candidates = frequency + resolution * np.arange(-np.ceil(reach / resolution), np.ceil(reach / resolution) + 1)",  # noqa: E501
        "candidates = frequency - resolution * np.arange(-np.ceil(reach / resolution), np.ceil(reach / resolution) + 1)",  # noqa: E501
        "Same: the candidates lie to both sides alike; they are tried in reverse.",
    ),
    Survivor(
        "sensor/windows/repeated.py",
        "drift = (time - time.mean()) / max(float(np.ptp(time)), 1e-9)",
        "drift = (time + time.mean()) / max(float(np.ptp(time)), 1e-9)",
        "Same: the drift is counted from another moment; the level beside it takes the difference.",
    ),
    Survivor(
        "sensor/windows/segments.py",
        "left = np.clip(last - number, 0, len(bounds) - 1 - number)",
        "left = np.clip(last - number, 0, len(bounds) - 2 - number)",
        "Same: the last bin of a grid that a reading lies behind; a long sum less a short one has no ends.",
    ),
    Survivor(
        "attribution/activity.py",
        "members.append(tuple(sorted(int(k) for k in kind[near][end[near] > middle])))",
        "members.append(tuple(sorted(int(k) for k in kind[near][end[near] >= middle])))",
        "Same: no kernel ends in the middle of an interval, which lies between two ends.",
    ),
    Survivor(
        "attribution/acquire.py",
        "starts = np.linspace(first, last, max(1, round((last - first) / BUSY_STEP_S)))",
        "starts = np.linspace(first, last, max(2, round((last - first) / BUSY_STEP_S)))",
        "Slight: of a recording of 3.5 s a window 0.1 s after the first is looked at too.",
    ),
    Survivor(
        "attribution/contrasts.py",
        "good.sort(key=lambda pool: -(contrasts.row(pool).energy.value or 0.0))",
        "good.sort(key=lambda pool: -(contrasts.row(pool).energy.value or 1))",
        "Same: a row with figures has an energy, and it isn't 0.",
    ),
]
