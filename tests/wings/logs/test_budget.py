"""Budgets of logs of nvidia-smi, whose sensor is known."""

import math
from dataclasses import replace

import pytest

from import_logs import query, write
from jouletrace.analysis import OFFSET_W, analyse, budgets
from jouletrace.formats.importers import read_files
from jouletrace.run import tables
from jouletrace.stats import Z95


@pytest.mark.thorough
def test_the_budget_of_a_log_of_another_tool_is_that_of_its_device(tmp_path):
    """The whole has no energy of its own."""
    run = analyse(read_files([write(tmp_path, query([61.0] * 50 + [87.0] * 50))]))
    (found,) = budgets(run)
    assert found.unit == next(row["id"] for row in run.units.to_pylist() if row["level"] == "device")
    stated = math.sqrt(sum(term.u**2 for term in found.terms if term.stated))
    assert stated == pytest.approx(found.figure.half_width / Z95, rel=2e-3)  # not normal: several windows
    assert all(term.u > 0 for term in found.terms)
    (offset,) = (term.u for term in found.terms if term.source.startswith("offset"))
    assert offset == pytest.approx(OFFSET_W * run.result("time_s", found.unit).value / math.sqrt(3))


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_each_device_has_the_gain_of_its_own_sensor(tmp_path, kind):
    run = analyse(read_files([write(tmp_path, query([61.0] * 50 + [87.0] * 50))]))
    other = replace(run.devices[0], id="other", kind=kind)
    rows = [{**row, "device": other.id} for row in run.samples.to_pylist()]
    run.samples = tables.concat([run.samples, tables.from_rows(rows, "samples")], "samples")
    run.devices.append(other)
    run.channels += [replace(one, device=other.id, gain_pct=1.0) for one in run.channels]
    one, two = budgets(analyse(run))
    gains = [next(term.u for term in each.terms if term.source.startswith("gain")) for each in (one, two)]
    assert gains[0] == pytest.approx(5 * gains[1])
