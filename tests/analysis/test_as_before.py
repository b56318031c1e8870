"""Figures of recordings are what they were, to 1e-4: a constant of the estimation that changes shows here.

    PYTHONPATH=src:tests/support python tests/analysis/test_as_before.py

writes ``tests/data/as_before.json`` again, where figures are meant to change; the commit says which and why.
"""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from energy_signals import calibrated
from energy_tables import Rows
from gpu_recordings import load as recording
from jouletrace.analysis import analyse
from jouletrace.attribution.checks import attempts
from jouletrace.run import load
from jouletrace.sensor import HOPPER_SENSOR
from places import REPOSITORY
from thinned import thinned

BEFORE = REPOSITORY / "tests" / "data" / "as_before.json"
RUNS = {
    "deit-b-64-graph-h100": "src/jouletrace/bundled",
    "bursts-h200": "docs/results/runs",
    "fp32-fp16-h100": "docs/results/runs",
    "eager-graph-h100": "docs/results/runs",
    "loader-run-h100": "docs/results/runs",
}
RECORDINGS = {
    "vit-h100": (1223.0, 1226.0),
    "chain-shuffled-h100": (1223.0, 1226.0),
    "jax-h200b": (1232.0, 1236.0),
    "vit-repeats-h200": (1237.0, 1240.0),
    "deit-b-64-repeats-h200": (1237.0, 1240.0),
    "pulses-h200": (1237.0, 1240.0),
    "minilm-repeats-h200c": (1228.0, 1231.0),
}
"""Recordings with kernels, and the sample rates between which to look."""


def of_run(name):
    """Every result of a Run with its interval, and what is known of each window."""
    run = analyse(load(REPOSITORY / RUNS[name] / f"{name}.zip"))
    found = {
        f"{row['unit']} {row['metric']}": [row["value"], row["low"], row["high"]] for row in run.results.to_pylist()
    }
    for column in ("energy_j", "sd_statistical_j", "sd_model_j"):
        if column in run.windows.column_names:
            found[f"windows {column}"] = run.windows[column].to_pylist()
    return found


def of_recording(name):
    """The sampler and the rows of the first fit of a recording."""
    recorded, sensor = recording(name), replace(HOPPER_SENSOR, rates_hz=RECORDINGS[name])
    found = next(iter(attempts(recorded.activity, sensor, recorded.readings)))
    rows = Rows(found.fit, lambda kind: kind.name)
    energies = [rows.row([name]).energy for name in rows.names]
    return {
        "rate": [found.search.rate_hz],
        "evidence": [found.search.evidence],
        "residual": [found.fit.residual_rms_w],
        "energies": [one.value for one in energies],
        "half-widths": [one.half_width for one in energies],
    }


def of_sensor(name):
    """The calibration of a simulated sensor."""
    facts = calibrated(name).to_dict()
    return {key: np.ravel(value).tolist() for key, value in facts.items() if np.asarray(value).dtype.kind in "if"}


TOLERANCE = {"loader-run-h100": 0.05}
"""Relative; of all others 1e-4. Rounding errors of other processors change which of its kernels are stated together."""

CASES = [
    *((of_run, name) for name in RUNS),
    *((of_recording, name) for name in RECORDINGS),
    *((of_sensor, name) for name in ("a100", "average", "tailed")),
]


@cache
def before():
    return json.loads(BEFORE.read_text())


@pytest.mark.thorough
@pytest.mark.parametrize(("what", "name"), thinned([pytest.param(*case, id=case[1]) for case in CASES], 2))
def test_figures_are_what_they_were(what, name):
    found = json.loads(json.dumps(what(name)))
    assert sorted(found) == sorted(before()[name])
    for key, values in before()[name].items():
        was, now = (np.array(some, float) for some in (values, found[key]))  # None is NaN
        np.testing.assert_allclose(
            now, was, TOLERANCE.get(name, 1e-4), 1e-7 * np.nanmax(np.abs(was), initial=0.0), err_msg=key
        )


if __name__ == "__main__":
    BEFORE.write_text(json.dumps({**before(), **{name: what(name) for what, name in CASES}}, indent=0) + "\n")
