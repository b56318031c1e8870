"""Energies as stacks, for flame graphs of other programs."""

import json
from pathlib import Path

import pytest

from frozen import PROGRAMS, STORED
from jouletrace import bundled
from jouletrace.errors import BadInputError
from jouletrace.formats.exporters import export
from jouletrace.run import Run, load, tables
from places import REPOSITORY
from shown import nodes_of
from thinned import thinned

RUNS = [*STORED, *PROGRAMS, REPOSITORY / "tests" / "data" / "fsdp-two-h200.zip"]


@pytest.fixture(scope="module")
def run():
    return load(Path(bundled.__file__).with_name("deit-b-64-layers-h200.zip"))


def test_collapsed_stacks_sum_to_the_whole(run, tmp_path):
    export(run, "collapsed", tmp_path / "out.txt")
    lines = (tmp_path / "out.txt").read_text().splitlines()
    microjoules = sum(int(line.rpartition(" ")[2]) for line in lines)
    assert microjoules == pytest.approx(1e6 * run.result("energy_total_j").value, rel=0.02)
    assert any(line.count(";") > 3 for line in lines)
    assert all(";;" not in line for line in lines)


def taken(nodes, above=()):
    """Joules of each node and all in it: its own, or what the nodes in it take where that is more."""
    inside = [node for node in nodes if node.parent == above]
    return sum(max(node.energy.value or 0.0, taken(nodes, node.path)) for node in inside)


@pytest.mark.thorough
@pytest.mark.parametrize("path", thinned(RUNS, 3), ids=lambda path: path.stem)
def test_stacks_of_a_committed_run_sum_to_the_whole_or_to_its_parts_if_these_are_more(path, tmp_path):
    run = load(path)
    nodes = nodes_of(run)
    if not taken(nodes):
        with pytest.raises(BadInputError, match="no energies"):
            export(run, "collapsed", tmp_path / "out.txt")
        return
    export(run, "collapsed", tmp_path / "out.txt")
    stacks = [int(line.rpartition(" ")[2]) for line in (tmp_path / "out.txt").read_text().splitlines()]
    assert sum(stacks) == pytest.approx(1e6 * taken(nodes), abs=0.5 * len(nodes))
    assert taken(nodes) == pytest.approx(nodes[0].energy.value, rel=0.015)


def test_speedscope_has_the_same_stacks(run, tmp_path):
    export(run, "speedscope", tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text())
    (profile,) = found["profiles"]
    assert sum(profile["weights"]) == pytest.approx(profile["endValue"])
    assert profile["endValue"] == pytest.approx(1e3 * run.result("energy_total_j").value, rel=0.02)
    assert len(profile["samples"]) == len(profile["weights"])
    assert max(max(sample) for sample in profile["samples"]) < len(found["shared"]["frames"])


def test_names_of_stacks_hold_no_control_characters(tmp_path):
    """Whoever prints the file gets no escape of a terminal, and no mark of direction."""
    rows = [{"id": 0, "level": "model", "name": "a\x1b[31m;b\x07\u202ec\nd"}]
    figures = [{"unit": 0, "metric": "energy_total_j", "value": 2.0}]
    run = Run(units=tables.from_rows(rows, "units"), results=tables.from_rows(figures, "results"))
    export(run, "collapsed", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "a\\x1b[31m:b\\x07\\u202ec d 2000000\n"


def test_a_run_without_energies_is_refused_in_one_line(tmp_path):
    with pytest.raises(BadInputError, match="no energies"):
        export(Run(kind="profile"), "collapsed", tmp_path / "out.txt")
