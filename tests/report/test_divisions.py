"""``parts`` of the JSON of committed Runs: each division by itself states each joule once, by paths."""

import json
import shutil
import subprocess
from collections import defaultdict

import pytest
from jsonschema import Draft202012Validator

from commands import done
from documented import blocks
from frozen import PROGRAMS, STORED
from jouletrace.report import json_schema
from jouletrace.run import Estimate, Run, load, save, tables
from make_runs import result
from places import REPOSITORY
from shown import leaves, name_of, rows
from thinned import thinned

VALIDATOR = Draft202012Validator(json.loads(json_schema()))

TWO_GPUS = REPOSITORY / "tests" / "data" / "fsdp-two-h200.zip"

RUNS = [*STORED, *PROGRAMS, TWO_GPUS]

MADE_OF_PARTS = ("whole", "code", "phase", "module", "operator")
"""Divisions whose leaves make the whole; samples, calls, ranges and loads don't."""


def shown(path, *more):
    return json.loads(done("show", str(path), "--json", *more).out)


def path_of(row):
    return tuple((step["kind"], step["name"]) for step in row["path"])


def half(energy):
    return 0.0 if energy["low"] is None else (energy["high"] - energy["low"]) / 2


def children(found, division):
    """Rows by the path of the row that they lie below: the longest with which their own begins, here or in whole."""
    own = {path_of(row): row for row in rows(found, division)}
    above = {path_of(row): row for row in rows(found, "whole")} | own
    below = defaultdict(list)
    for path, row in own.items():
        if path:
            below[next(path[:n] for n in reversed(range(len(path))) if path[:n] in above)].append(row)
    return [(above[path], inside) for path, inside in below.items()]


@pytest.mark.thorough
@pytest.mark.parametrize("path", thinned(RUNS, 3), ids=lambda path: path.stem)
def test_rows_of_a_committed_run_are_described_and_add_up(path):
    found = shown(path)
    assert [f"{one.json_path}: {one.message}" for one in VALIDATOR.iter_errors(found)] == []
    assert path_of(found["parts"]["whole"][0]) == ()
    for division, own in found["parts"].items():
        paths = [path_of(row) for row in own]
        assert len(set(paths)) == len(paths), division
        if division not in MADE_OF_PARTS:
            continue
        for above, below in children(found, division):
            energies = [row["energy_j"] for row in below]
            known = [one for one in energies if one["value"] is not None]
            if above["energy_j"]["value"] is None or not known:
                continue
            rest = above["energy_j"]["value"] - sum(one["value"] for one in known)
            within = half(above["energy_j"]) + sum(map(half, known))
            assert rest >= -within, (division, above["path"], "rows below are more than the row")
            if len(known) == len(energies):
                assert rest <= within, (division, above["path"], "rows below are less than the row")


@pytest.mark.thorough
def test_what_a_module_runs_itself_is_a_leaf_beside_those_in_it():
    found = shown(REPOSITORY / "tests" / "data" / "runs" / "deit-run-h100.zip")
    own = [row for row in rows(found, "module", "own") if row["energy_j"]["value"]]
    assert own
    assert all(row in leaves(found, "module") for row in own)
    assert sum(row["energy_j"]["value"] or 0 for row in leaves(found, "module")) == pytest.approx(
        found["model"]["energy_j"]["total"]["value"], rel=0.03
    )


@pytest.mark.thorough
def test_a_run_of_two_gpus_names_both_and_each_part_its_own():
    found = shown(TWO_GPUS)
    whole = rows(found, "whole", "device")
    assert [row["device"] for row in whole] == [one["id"] for one in found["devices"]]
    assert [name_of(row) for row in whole] == ["rank-0", "rank-1"]
    assert {name_of(row, "device") for row in rows(found, "code")} == {"rank-0", "rank-1"}


@pytest.mark.thorough
@pytest.mark.parametrize("path", [TWO_GPUS, REPOSITORY / "tests" / "data" / "runs" / "deit-run-h100.zip"])
def test_a_phase_stands_before_the_operator_unless_its_kernels_run_in_several(path):
    kinds = [[step["kind"] for step in row["path"]] for row in rows(shown(path), "code", "kernel")]
    behind = [own for own in kinds if {"op", "phase"} <= set(own) and own.index("phase") > own.index("op")]
    assert len(behind) == (16 if path == TWO_GPUS else 0)  # of all-gathers, reduce-scatters and all-reduces of two GPUs
    assert all(own[-2:] == ["phase", "kernel"] for own in behind)


def test_calls_of_modules_are_a_division_of_their_own(tmp_path):
    units = [
        {"id": 1, "level": "layer", "name": "mlp", "module": "mlp", "count": 2},
        {"id": 2, "parent": 1, "level": "layer", "name": "mlp (call 1)", "module": "mlp", "count": 1},
        {"id": 3, "parent": 1, "level": "layer", "name": "mlp (call 2)", "module": "mlp", "count": 1},
    ]
    times = tables.from_rows([result(number, "time_s", Estimate(1.0)) for number in (1, 2, 3)], "results")
    run = Run(kind="profile", workload={"name": "x"}, units=tables.from_rows(units, "units"), results=times)
    found = shown(save(run, tmp_path / "run"))
    assert [name_of(row) for row in rows(found, "module")] == ["mlp"]
    assert [row["path"] for row in rows(found, "call")] == [
        [{"kind": "module", "name": "mlp"}, {"kind": "call", "name": f"call {number}"}] for number in (1, 2)
    ]


JQ = blocks(REPOSITORY / "docs" / "reference" / "json.md", "jq")


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize(
    ("program", "path", "says"),
    [
        (JQ[1], "tests/data/runs/deit-run-h100.zip", "idle: waiting for the host\t18.79"),
        (JQ[2], "tests/data/fsdp-two-h200.zip", "whole\trank-1\t3693"),
    ],
    ids=["idle", "two GPUs"],
)
def test_examples_of_the_documentation_answer(program, path, says):
    assert says in jq(program, "show", str(REPOSITORY / path), "--json")


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("src/jouletrace/bundled/deit-b-64-layers-h200.zip", "addmm\t2.909"),
        ("tests/data/runs/deit-run-h100.zip", "addmm\t179.066"),
        pytest.param("tests/data/fsdp-two-h200.zip", "mm\t1053.37", marks=pytest.mark.slow),
    ],
)
def test_the_example_of_operators_misses_no_energy(path, says):
    """Operators that are pooled or null by themselves are in the sum."""
    answer = jq(JQ[0], "show", str(REPOSITORY / path), "--json", "--by", "op")
    assert says in answer
    whole = load(REPOSITORY / path).result("energy_total_j").value
    assert sum(float(line.split("\t")[1]) for line in answer.splitlines()) == pytest.approx(whole, rel=5e-3)


def jq(program, *words):
    """The answer of a program to the JSON of a command."""
    return subprocess.run(
        ["jq", "-r", program], input=done(*words).out, capture_output=True, text=True, check=True
    ).stdout


def test_names_of_very_many_words_are_few_steps(tmp_path):
    """A file of some kilobytes must not become gigabytes of JSON."""
    name = "/".join(f"r{n}" for n in range(10_000))
    units = [{"id": 0, "level": "model", "name": "x"}, {"id": 1, "parent": 0, "level": "range", "name": name}]
    units.append({"id": 2, "parent": 0, "level": "layer", "name": name.replace("/", ".")})
    figures = tables.from_rows([{"unit": 0, "metric": "energy_total_j", "value": 1.0}], "results")
    save(Run(units=tables.from_rows(units, "units"), results=figures), tmp_path / "run")
    found = shown(tmp_path / "run")
    for division, separator in (("range", "/"), ("module", ".")):
        (row,) = found["parts"][division]
        assert len(row["path"]) == 128
        assert separator.join(step["name"] for step in row["path"]) == name.replace("/", separator)


def test_paths_are_unique_whatever_parts_are_called(tmp_path):
    names = ["x", "x (2)", "x", "x", "y", "y"]
    units = [{"id": n, "parent": 0, "level": "range", "name": name} for n, name in enumerate(names, 1)]
    units.insert(0, {"id": 0, "level": "model", "name": "m"})
    figures = tables.from_rows([{"unit": 0, "metric": "energy_total_j", "value": 1.0}], "results")
    save(Run(units=tables.from_rows(units, "units"), results=figures), tmp_path / "run")
    found = [name_of(row) for row in shown(tmp_path / "run")["parts"]["range"]]
    assert found == ["x", "x (2)", "x (3)", "x (4)", "y", "y (2)"]
