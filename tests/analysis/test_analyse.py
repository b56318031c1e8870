"""The analysis of a Run: what it returns, and what it leaves as it was."""

from copy import deepcopy
from dataclasses import fields

import pytest

from import_logs import SAMPLES, read
from jouletrace.analysis.analyse import analysed
from jouletrace.run import Run, load, tables
from places import REPOSITORY

STORED = {
    "program": "tests/frozen/programs/lora_accum.zip",
    "profile": "src/jouletrace/bundled/deit-b-64-graph-h100.zip",
}


READ = [name for name in ("meter", "dmon", "nvprof trace csv") if name in SAMPLES]


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*STORED, *READ])
def test_figures_come_with_their_warnings_and_leave_the_run_as_it_was(name, tmp_path):
    run = load(REPOSITORY / STORED[name]) if name in STORED else read(tmp_path, *SAMPLES[name])
    whole = {one.name: getattr(run, one.name) for one in fields(Run) if one.init}
    facts = deepcopy({name: value for name, value in whole.items() if name not in tables.TABLES})
    found = analysed(run)
    assert {name: getattr(run, name) for name in facts} == facts
    assert all(getattr(run, name) is whole[name] for name in tables.TABLES)
    assert found.warnings is not run.warnings
    assert len(found.results)
    assert found.results is not run.results
