"""Names of profiles and models steer neither a terminal nor a spreadsheet."""

import csv
import io

import pytest

from jouletrace.wings.mig import SimulatedMig
from jouletrace.wings.mig.sweep import to_csv
from jouletrace.wings.mig.tables import listing, render
from steering import ESC, FORMULAS, controls, formulas


def test_tables_spell_control_characters_out():
    found = listing(SimulatedMig("sim:a100-80"))
    found["profiles"][0]["name"] = f"GPU-{ESC}"
    assert "GPU-\\x1b]0;owned" in render(found)
    assert not controls(render(found))


@pytest.mark.parametrize("name", FORMULAS)
def test_no_cell_of_a_name_is_a_formula(name):
    text = to_csv([{"model": name, "profile": name}])
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert cells
    assert not formulas(cells)
