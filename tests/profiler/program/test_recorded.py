"""A program on two GPUs is one Run: what it took on each, as every command shows it."""

import csv
import json
from math import hypot

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import jouletrace as jt
import two_gpus
from commands import command, done
from jouletrace.analysis import analyse
from jouletrace.run import tables
from printed_sums import sums_of
from shown import leaves, name_of, rows

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The place of the program's Run, and the truth of each GPU."""
    folder = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOULETRACE_CACHE", str(folder / "cache"))
        return folder / "run" / "kernels", two_gpus.record(folder / "run")


@pytest.fixture(scope="module")
def place(recorded):
    return recorded[0]


@pytest.fixture(scope="module")
def shown(place):
    return json.loads(done("show", str(place), "--json").out)


def sum_of(rows):
    """Energies that are known, added: the value, and the half-width if they were independent."""
    energies = [row["energy_j"] for row in rows if row["energy_j"]["value"] is not None]
    return sum(one["value"] for one in energies), hypot(*((one["high"] - one["low"]) / 2 for one in energies))


def test_no_other_run_lies_in_its_folder(place):
    assert [path.parent for path in place.rglob("run.json")] == [place]


def test_all_of_a_gpu_lies_below_its_device(place):
    run = jt.load(place)
    rows = {row["id"]: row for row in run.units.to_pylist()}
    devices = {id: row["module"] for id, row in rows.items() if row["level"] == "device"}
    assert sorted(devices.values()) == ["GPU-0", "GPU-1"]

    def device(id):
        while id not in devices:
            id = rows[id]["parent"]
        return devices[id]

    assert {device(id) for id in rows if id} == {"GPU-0", "GPU-1"}, "nothing else is below the whole"
    for row in run.activity.select(["unit", "device"]).group_by(["unit", "device"]).aggregate([]).to_pylist():
        assert device(row["unit"]) == row["device"]
    facts = {one["device"]: one for one in run.workload["recordings"]}
    for id, one in facts.items():
        assert one["kernels"] == len(run.activity.filter(pc.equal(run.activity["device"], id)))
    assert [(one["name"], one["rank"]) for one in facts.values()] == [("rank-0", 0), ("rank-1", 1)]


def test_energies_of_operators_are_those_that_the_gpus_drew(shown, recorded):
    checked = 0
    for rank, (device, truth) in enumerate(recorded[1].items()):
        for row in rows(shown, "code", "op"):
            energy = row["energy_j"]
            if name_of(row, "device") == f"rank-{rank}" and energy["value"] is not None:
                half = (energy["high"] - energy["low"]) / 2
                assert energy["value"] == pytest.approx(truth.operator_j[name_of(row)], abs=1.6 * half), (device, row)
                checked += 1
    assert checked >= 8


def test_parts_make_the_whole_and_each_gpu(shown):
    closure = shown["checks"]["closure_kernels"]
    assert closure["low"] < 1 < closure["high"]
    whole = shown["model"]["energy_j"]["total"]
    parts, _ = sum_of(leaves(shown, "code"))
    assert parts == pytest.approx(whole["value"], rel=0.01)
    for device in rows(shown, "whole", "device"):
        rank = name_of(device)
        of_rank = [row for row in leaves(shown, "code") if name_of(row, "device") == rank]
        assert sum_of(of_rank)[0] == pytest.approx(device["energy_j"]["value"], rel=0.015)
        assert device["other"]["closure_kernels"]["low"] < 1 < device["other"]["closure_kernels"]["high"]
        phases = [row for row in rows(shown, "phase") if name_of(row, "device") == rank]
        assert {name_of(row) for row in phases} == {"compute", "communication", "idle", "before the first kernel"}
        assert sum_of(phases)[0] == pytest.approx(device["energy_j"]["value"], rel=0.015)
    assert sum_of(leaves(shown, "whole"))[0] == pytest.approx(whole["value"], rel=1e-6)


def test_a_gpu_of_two_has_the_figures_that_it_has_alone(recorded, shown, tmp_path, monkeypatch):
    monkeypatch.setenv("JOULETRACE_CACHE", str(recorded[0].parent.parent / "cache"))
    two_gpus.record(tmp_path / "run", seeds=(1,))
    alone = json.loads(done("show", str(tmp_path / "run" / "kernels"), "--json").out)
    first = [row for row in rows(shown, "code") if name_of(row, "device") == "rank-0"]
    assert [row["path"][1:] for row in first] == [row["path"] for row in rows(alone, "code")]
    for one, other in zip(first, rows(alone, "code"), strict=True):
        assert (one["energy_j"]["value"] or 0) == pytest.approx(other["energy_j"]["value"] or 0, rel=1e-6)


def test_a_gpu_whose_kernels_have_no_energies_is_named_and_the_other_keeps_its_figures(place, shown, tmp_path):
    run = jt.load(place)
    late, other = run.activity["end_ns"].to_numpy().copy(), pc.equal(run.activity["device"], "GPU-1").to_numpy()
    late[np.flatnonzero(other)[-1]] += 20_000_000_000  # beyond the recording: it is damaged
    run.activity = tables.changed(run.activity, "end_ns", late)
    analyse(run).save(str(tmp_path / "run"))
    found = json.loads(done("show", str(tmp_path / "run"), "--json").out)
    assert found["trust"]["level"] == "with care"  # the energy of the whole is as good as before
    assert any("no energies of kernels of rank-1: " in one["message"] for one in found["trust"]["failed"])
    assert found["checks"]["closure_kernels"]["reason"] == "not_attributed"
    first, before = ([row for row in rows(one, "code") if name_of(row, "device") == "rank-0"] for one in (found, shown))
    assert [row["energy_j"] for row in first] == [row["energy_j"] for row in before]
    other = [row for row in rows(found, "code", "op") if name_of(row, "device") == "rank-1"]
    assert {row["energy_j"]["value"] for row in other} == {None}


def test_printed_rows_make_up_the_row_above_them_and_each_gpu(place):
    assert sums_of(jt.load(place)) == []


@pytest.mark.parametrize("detail", ["phase", "layer", "op", "kernel"])
def test_each_detail_lists_the_parts_of_both(place, detail):
    lines = done("show", str(place), "--detail", detail).out.splitlines()
    heading = next(line for line in lines if line.startswith("device "))
    assert "power" in heading or "energy" in heading
    assert {line.split()[0] for line in lines[lines.index(heading) + 2 :] if line.startswith("rank-")} == {
        "rank-0",
        "rank-1",
    }


def test_what_waiting_for_the_last_rank_takes_is_what_the_gpu_drew_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setenv("JOULETRACE_CACHE", str(tmp_path / "cache"))
    truths = two_gpus.record_straggler(tmp_path / "run").values()
    kernels = str(tmp_path / "run" / "kernels")
    found = json.loads(done("show", kernels, "--json").out)
    phases = ("compute", "communication", "waiting for other ranks")
    for rank, truth in enumerate(truths):
        for row in rows(found, "phase"):
            if name_of(row, "device") == f"rank-{rank}" and name_of(row) in phases:
                kind = phases.index(name_of(row))
                assert row["time_s"]["value"] == pytest.approx(truth.kind_s[kind], rel=0.003)
                assert row["energy_j"]["low"] < truth.kind_j[kind] < row["energy_j"]["high"], (rank, row)
                assert row["energy_j"]["high"] - row["energy_j"]["low"] < 0.1 * truth.kind_j[kind]
    assert f"where its energy went: jouletrace show {kernels}" in done("show", str(tmp_path / "run")).err
    said = " ".join(done("show", kernels).out.split())
    assert "rank-1 comes last in 100 % of" in said
    assert "rank-0 waits longest, 1.626 s in all, which takes 34" in said
    assert said.count("waiting for other ranks") == 2, "among the causes, and the first rank's row alone"


def test_energy_is_divided_by_gpu_and_across_them(place, shown):
    def divided(kinds):
        own = rows(json.loads(done("show", str(place), "--by", kinds, "--json").out), kinds)
        return {tuple(step["name"] for step in row["path"]): row["energy_j"] for row in own}

    by_gpu, by_op, by_both = (divided(kinds) for kinds in ("device", "op", "device,op"))
    for device in rows(shown, "whole", "device"):
        rank = name_of(device)
        assert {path[1:] for path in by_gpu if path[0] == rank} == {(), ("idle",), ("before the first kernel",)}
        of_gpu = sum(energy["value"] for path, energy in by_gpu.items() if path[0] == rank)
        assert of_gpu == pytest.approx(device["energy_j"]["value"], rel=0.015)
        rest = ("idle", "before the first kernel")
        own = [row for row in leaves(shown, "code") if name_of(row, "device") == rank]
        kernels = [row for row in own if name_of(row, "idle") not in rest]
        assert by_gpu[rank,]["value"] == pytest.approx(sum_of(kernels)[0], rel=0.01)
    for path, energy in by_op.items():
        op = "".join(path)
        if op and ("rank-0", op) in by_both and ("rank-1", op) in by_both:
            each = [by_both[rank, op] for rank in ("rank-0", "rank-1")]
            assert energy["value"] == pytest.approx(sum(one["value"] for one in each), rel=1e-6)
            apart = [(one["high"] - one["low"]) / 2 for one in each]
            shared = [one["budget"].get("response of the sensor", 0.0) for one in each]  # equal GPUs have one response
            common = 1.96 * (2 * shared[0] * shared[1]) ** 0.5
            assert (energy["high"] - energy["low"]) / 2 == pytest.approx(hypot(*apart, common), rel=0.02)


def test_a_table_for_spreadsheets_names_the_gpu_of_each_row(place):
    rows = list(csv.DictReader(done("show", str(place), "--format", "csv", "--detail", "kernel").out.splitlines()))
    kernels = [row for row in rows if row["level"] == "kernel"]
    assert {row["device"] for row in kernels} == {"rank-0", "rank-1"}


def test_equal_gpus_are_compared(place):
    found = json.loads(done("compare", str(place), str(place), "--json").out)
    assert found["unmatched"] == {"a": [], "b": []}
    for level in ("phase", "layer", "kernel"):
        rows = [row for row in found["rows"] if row["level"] == level]
        assert {row["where"].split()[0] for row in rows} == {"rank-0", "rank-1"}, level
    gate = done("compare", str(place), str(place), "--fail-if", "phase:rank-1: compute:energy>+50%", "--json").out
    assert "rank-1: compute: energy 0.00" in json.loads(gate)["checks"][0]["says"]


def test_pages_and_pictures_have_the_device_outermost(place, tmp_path):
    done("report", str(place), "-o", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "rank-0: NVIDIA H100" in page
    assert "rank-1: NVIDIA H100" in page
    done("export", str(place), "--format", "collapsed", "--output", str(tmp_path / "stacks"))
    stacks = [line.rpartition(" ") for line in (tmp_path / "stacks").read_text().splitlines()]
    assert {stack.split(";")[1].split(":")[0] for stack, _, _ in stacks} == {"rank-0", "rank-1"}
    drawn_j = sum(int(microjoules) for _, _, microjoules in stacks) / 1e6
    assert drawn_j == pytest.approx(jt.load(place).result("energy_total_j").value, rel=0.01)


@pytest.mark.parametrize("form", ["csv", "chrome", "zip"])
def test_it_is_exported_as_one(place, tmp_path, form):
    done("export", str(place), "--format", form, "--output", str(tmp_path / f"out.{form}"))
    if form == "csv":
        with (tmp_path / "out.csv" / "activity.csv").open() as file:
            assert {row["device"] for row in csv.DictReader(file)} == {"GPU-0", "GPU-1"}
    elif form == "chrome":
        events = json.loads((tmp_path / "out.chrome").read_text())["traceEvents"]
        names = {event["args"].get("name", "") for event in events if event.get("name") == "process_name"}
        assert len([name for name in names if "H100" in name]) == 2
    else:
        lines = [done("show", str(one)).out.splitlines()[:-1] for one in (tmp_path / "out.zip", place)]
        assert lines[0] == lines[1]


def _swap(facts):
    facts[1] = facts[0]


def _without_last(facts):
    facts[0].pop("last", None)
    facts[0]["collectives"] = 7


WRONG = {
    "it has no device": lambda facts: facts[0].pop("device"),
    "the device 'GPU-0' has another": _swap,
    "the name 'rank-0' is that of another": lambda facts: facts[1].update(name="rank-0"),
    "the Run has no device 'GPU-9'": lambda facts: facts[0].update(device="GPU-9"),
    "first kernel and end are in no order": lambda facts: facts[0].update(first_ns=-5),
    "it has no end_ns or iterations": lambda facts: facts[1].pop("iterations"),
    "its seconds have a wrong unit, time or count": lambda facts: facts[0].update(seconds=[[2, 3, -100.0]]),
    "last is not within collectives": lambda facts: facts[0].update(last=9, collectives=1),
    "it has collectives without name or last": lambda facts: (
        facts[0].pop("last", None) or facts[0].update(collectives=7)
    ),
    "some have kernels": lambda facts: facts[1].pop("start_ns"),
    "a recording in run.json has no start_ns": lambda facts: [one.pop("start_ns") for one in facts],
}


@pytest.mark.parametrize("words", WRONG)
def test_facts_of_recordings_that_contradict_one_another_are_refused(place, tmp_path, capsys, words):
    done("export", str(place), "--format", "parquet", "-o", str(tmp_path / "run"))
    path = tmp_path / "run" / "run.json"
    header = json.loads(path.read_text())
    WRONG[words](header["workload"]["recordings"])
    path.write_text(json.dumps(header))
    for arguments in ((), ("--by", "device"), ("--json",)):
        said = command(capsys, "show", str(tmp_path / "run"), *arguments)
        assert said.code == 2
        assert words in said.complaint


def test_kernels_of_a_gpu_without_a_recording_are_refused(place, tmp_path, capsys):
    done("export", str(place), "--format", "parquet", "-o", str(tmp_path / "run"))
    table = pq.read_table(tmp_path / "run" / "activity.parquet")
    wrong = pa.array(["GPU-9"] * len(table), table.schema.field("device").type)
    pq.write_table(
        table.set_column(table.schema.get_field_index("device"), "device", wrong), tmp_path / "run" / "activity.parquet"
    )
    said = command(capsys, "show", str(tmp_path / "run"))
    assert said.code == 2
    assert "row 0: its device has no recording" in said.complaint


def test_a_gpu_without_kernels_is_a_remark_and_a_row(tmp_path, monkeypatch):
    """Half of the energy has no parts: a closure of the other half alone says nothing of it."""
    monkeypatch.setenv("JOULETRACE_CACHE", str(tmp_path / "cache"))
    two_gpus.record(tmp_path / "run")
    run = jt.load(tmp_path / "run" / "kernels")
    run.workload["recordings"] = run.workload["recordings"][:1]
    run.activity = run.activity.filter(pc.equal(run.activity["device"], "GPU-0"))
    analyse(run).save(str(tmp_path / "half"))
    found = json.loads(done("show", str(tmp_path / "half"), "--json").out)
    assert found["trust"]["level"] == "with care"
    assert any("no kernels were recorded of 48 % of the energy" in one["message"] for one in found["trust"]["failed"])
    own = rows(json.loads(done("show", str(tmp_path / "half"), "--by", "op", "--json").out), "op")
    assert "kernels not recorded" in [name_of(row, "idle") for row in own]
    assert sum(row["share"]["value"] or 0 for row in own) == pytest.approx(1, abs=0.02)
