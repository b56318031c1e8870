"""Figures that other tools state are checked before they are believed: overlaps, zeros, factors."""

import json
from datetime import datetime, timedelta

import pytest

from commands import command
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import read_files

KWH = 3.6e6

MACHINE = {
    "country_name": "X",
    "os": "Linux",
    "codecarbon_version": "2.8.0",
    "cpu_count": "64",
    "cpu_model": "CPU",
    "gpu_count": "4",
    "gpu_model": "4 x NVIDIA A100",
    "ram_total_size": "503.5",
    "tracking_mode": "machine",
    "pue": "1.0",
}

OTHER = {"cpu_model": "Other CPU", "gpu_model": "8 x NVIDIA H100", "gpu_count": "8"}


def tracked(start, seconds, gpu=1200.0, cpu=200.0, ram=40.0, **facts):
    """A row of CodeCarbon: its powers are in W; energies are multiplied by the PUE, as CodeCarbon does."""
    facts = {**MACHINE, **facts}
    end = datetime(2026, 3, 3, 10) + timedelta(seconds=start + seconds)
    kwh = [seconds * watts * float(facts.get("pue") or 1) / KWH for watts in (cpu, gpu, ram)]
    energies = dict(zip(("cpu_energy", "gpu_energy", "ram_energy"), kwh, strict=True))
    own = {"timestamp": end.strftime("%Y-%m-%dT%H:%M:%S"), "project_name": "job", "duration": seconds}
    return own | {"emissions": 0.4 * sum(kwh), "energy_consumed": sum(kwh)} | energies | facts


def write(path, *rows, without=()):
    names = [name for name in {"run_id": ""} | rows[0] if name not in without]
    cells = [{"run_id": f"r{i}"} | row for i, row in enumerate(rows)]
    lines = [",".join(str(row[name]) for name in names) for row in cells]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    return path


def codes(run):
    return {warning.code for warning in run.warnings}


@pytest.mark.thorough
@pytest.mark.parametrize("version", ["2.8.0", "3.0.4"])
def test_trackers_of_one_machine_at_one_time_are_one_measurement(tmp_path, capsys, version):
    ranks = [tracked(i % 2, 600 + i / 10, codecarbon_version=version) for i in range(4)]
    run = read_files([write(tmp_path / "e.csv", *ranks)])
    stated = {"energy_total_j": 864e3, "energy_gpu_j": 720e3, "energy_cpu_j": 120e3, "time_s": 600, "co2_g": 96}
    assert {name: run.result(name).value for name in stated} == pytest.approx(stated)
    assert len(run.units) == 5
    said = " ".join(command(capsys, "import", str(tmp_path / "e.csv"), "-o", str(tmp_path / "run")).out.split())
    assert "864.0 kJ in 600 s, stated by codecarbon trust: with care" in said
    assert "3 rows repeat another one of the same time, machine and power: one measurement counts once" in said
    pair = read_files([write(tmp_path / "two.csv", *ranks[:2])])
    assert "1 row repeats another one of the same time" in " ".join(one.message for one in pair.warnings)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "rows",
    [
        [tracked(0, 600, tracking_mode="process") for _ in range(2)],
        [tracked(0, 600), tracked(300, 600)],
        [tracked(0, 600), tracked(200, 200)],
        [tracked(0, 600), tracked(0, 600, gpu=1100)],
        [tracked(0, 600), tracked(0, 600, ram_total_size="251.2")],
        [tracked(0, 600, gpu_count="1"), tracked(0, 600, gpu_count="1")],
        [tracked(0, 600, tracking_mode=""), tracked(0, 600, tracking_mode="")],
        [*(tracked(0, 0.9) for _ in range(3)), tracked(0, 0.8, gpu=900)],
        [tracked(0, 600), {**tracked(700, 600), "timestamp": ""}],
    ],
    ids=["process", "partly", "within", "power", "memory", "some GPUs", "unsaid mode", "short", "no time"],
)
def test_rows_that_may_share_devices_have_no_sum(tmp_path, capsys, rows):
    source = write(tmp_path / "e.csv", *rows)
    run = read_files([source])
    for metric in ("energy_total_j", "energy_gpu_j", "time_s", "co2_g"):
        assert (run.result(metric).value, run.result(metric).reason) == (None, "rows_overlap")
    assert run.result("energy_total_j", 1).value == pytest.approx(1440 * rows[0]["duration"])
    made = command(capsys, "import", str(source), "-o", str(tmp_path / "run"))
    said = " ".join(made.out.split())
    assert (
        "energy stated by codecarbon unknown: rows overlap in time, and may be of the same devices trust: with care"
        in said
    )
    assert "Each has figures of its own; to count one alone, remove the others" in said
    alone = read_files([write(tmp_path / "alone.csv", rows[0])])
    assert alone.result("energy_total_j").value == pytest.approx(1440 * rows[0]["duration"])
    shown = json.loads(command(capsys, "show", str(tmp_path / "run"), "--json").out)
    assert shown["model"]["energy_j"]["total"]["value"] is None
    assert shown["headline"] is None


def test_rows_one_after_another_are_summed(tmp_path):
    rows = [tracked(601 * i, 600.4, gpu=1000 + 100 * i, tracking_mode="process") for i in range(3)]
    short = [tracked(2000 + 0.3 * i, 0.3) for i in range(9)]
    run = read_files([write(tmp_path / "e.csv", *rows, *short)])
    assert run.result("energy_gpu_j").value == pytest.approx(3300 * 600.4 + 1200 * 2.7)
    assert run.result("time_s").value == pytest.approx(3 * 600.4 + 2.7)
    assert not codes(run) & {"rows_overlap", "rows_repeat"}


def test_energies_of_several_machines_are_summed_and_their_time_if_they_ran_together(tmp_path):
    ranks = [tracked(0, 600), tracked(1, 600)]
    together = read_files([write(tmp_path / "a.csv", *ranks, *(row | OTHER for row in ranks))])
    assert together.result("energy_total_j").value == pytest.approx(2 * 864e3)
    assert together.result("time_s").value == pytest.approx(600)
    apart = read_files([write(tmp_path / "b.csv", tracked(0, 600), tracked(300, 600) | OTHER)])
    assert apart.result("energy_total_j").value == pytest.approx(2 * 864e3)
    assert apart.result("time_s").reason == "times_differ"
    in_turn = read_files([write(tmp_path / "c.csv", tracked(0, 600), tracked(700, 600) | OTHER)])
    assert in_turn.result("time_s").value == pytest.approx(1200)


def test_zero_joules_of_a_device_that_is_named_leave_totals_unknown(tmp_path, capsys):
    source = write(tmp_path / "e.csv", tracked(0, 600), tracked(700, 600, gpu=0))
    run = read_files([source])
    assert run.result("energy_gpu_j").reason == run.result("energy_gpu_j", 2).reason == "not_measured"
    assert run.result("energy_total_j").reason == run.result("co2_g", 2).reason == "part_not_measured"
    assert run.result("energy_cpu_j").value == pytest.approx(2 * 120e3)
    assert run.result("energy_total_j", 1).value == pytest.approx(864e3)
    said = " ".join(command(capsys, "import", str(source), "-o", str(tmp_path / "run")).out.split())
    assert "1200 s; energy stated by codecarbon unknown: the file states 0 J of a part of it, or none" in said
    assert "trust: with care" in said


@pytest.mark.parametrize("count", ["0", "0.0", ""])
def test_a_machine_without_a_gpu_has_a_total_without_one(tmp_path, count):
    rows = [tracked(0, 600, gpu=0, gpu_count=count, gpu_model=""), tracked(700, 600)]
    run = read_files([write(tmp_path / "e.csv", *rows)])
    assert run.result("energy_total_j").value == pytest.approx(1680 * 600)
    assert run.result("energy_gpu_j", 1).value is None
    assert run.result("energy_gpu_j").value == pytest.approx(720e3)


def test_the_factor_of_the_data_centre_is_taken_out_of_energies(tmp_path, capsys):
    source = write(tmp_path / "e.csv", tracked(0, 600, gpu=300, cpu=40, ram=10, pue="1.5"))
    run = read_files([source])
    stated = {"energy_gpu_j": 180e3, "energy_cpu_j": 24e3, "energy_total_j": 210e3, "co2_g": 35}
    assert {name: run.result(name).value for name in stated} == pytest.approx(stated)
    said = " ".join(command(capsys, "import", str(source), "-o", str(tmp_path / "run"), "-v").out.split())
    assert "210.0 kJ in 600 s, stated by codecarbon, without its PUE of 1.5" in said
    assert "CodeCarbon multiplied energies by a PUE of 1.5: they are divided by it, and CO2 contains it" in said
    several = read_files([write(tmp_path / "f.csv", tracked(0, 600, pue="1.5"), tracked(700, 600, pue="1.2"))])
    assert several.result("energy_total_j").value == pytest.approx(2 * 864e3)
    plain = read_files([write(tmp_path / "g.csv", tracked(0, 600), without=("pue", "ram_total_size"))])
    assert plain.result("energy_total_j").value == pytest.approx(864e3)


def test_tasks_of_one_run_are_rows_of_their_own(tmp_path):
    tasks = [tracked(100 * i, 60, task_name=f"task {i}", run_id="r") for i in range(3)]
    run = read_files([write(tmp_path / "e.csv", *tasks)])
    assert run.result("energy_total_j").value == pytest.approx(3 * 1440 * 60)


def figures_of(run):
    """Values and reasons of all figures, by the name of their row and metric."""
    names = dict(zip(run.units["id"].to_pylist(), run.units["name"].to_pylist(), strict=True))
    whole = {row["unit"]: names[row["unit"]] if row["unit"] else "" for row in run.results.to_pylist()}
    return {(whole[row["unit"]], row["metric"]): (row["value"], row["reason"]) for row in run.results.to_pylist()}


@pytest.mark.parametrize(
    ("rows", "joules"),
    [
        ([tracked(0, 600), tracked(0, 600) | OTHER], 2 * 864e3),
        ([tracked(0, 600), tracked(700, 600, gpu=600)], 864e3 + 504e3),
        ([tracked(0, 600), tracked(1, 600.4)], 864e3),
        ([tracked(0, 600), tracked(0, 600, gpu=600)], None),
        ([tracked(0, 600) | {"run_id": "same"}, tracked(0, 300) | {"run_id": "same"}], None),
        ([tracked(0, 600) | {"run_id": "same"}, tracked(0, 600) | {"run_id": "same"} | OTHER], 2 * 864e3),
        ([tracked(0, 600, pue="1.5"), tracked(700, 600)], 2 * 864e3),
    ],
    ids=["machines", "in turn", "trackers", "overlap", "one run", "one number", "pue"],
)
def test_files_imported_together_are_as_one_whatever_their_order(tmp_path, rows, joules):
    paths = [write(tmp_path / f"{k}.csv", {"run_id": f"r{k}"} | row) for k, row in enumerate(rows)]
    both, turned = (read_files(order) for order in (paths, paths[::-1]))
    assert both.result("energy_total_j").value == (joules and pytest.approx(joules))
    assert figures_of(both) == figures_of(turned)
    assert codes(both) == codes(turned)
    one = write(tmp_path / "one.csv", *({"run_id": f"r{k}"} | row for k, row in enumerate(rows)))
    if "run_id" not in rows[0]:  # within a file later rows of a run are later states of it
        assert figures_of(read_files([one])) == figures_of(both)
    assert [file["path"] for file in turned.settings["imported"]] == ["1.csv", "0.csv"]


def test_a_row_in_several_files_counts_once_with_a_word(tmp_path):
    (tmp_path / "a").mkdir()
    paths = [write(tmp_path / name, tracked(0, 600)) for name in ("e.csv", "a/e.csv")]
    run = read_files(paths)
    assert run.result("energy_total_j").value == pytest.approx(864e3)
    assert [one.message for one in run.warnings] == ["1 row repeats one of another file: each counts once"]
    apart = [write(tmp_path / name, tracked(700 * k, 600)) for k, name in enumerate(("e.csv", "a/e.csv"))]
    assert read_files(apart).result("energy_total_j").value == pytest.approx(2 * 864e3)


def test_rows_without_an_id_in_several_files_are_rows_of_their_own(tmp_path):
    paths = [write(tmp_path / f"{k}.csv", tracked(700 * k, 600), without=("run_id",)) for k in range(2)]
    assert read_files(paths).result("energy_total_j").value == pytest.approx(2 * 864e3)


@pytest.mark.parametrize("share", [0.5, 0.97, 1.5])
def test_a_total_that_is_not_the_sum_of_its_parts_is_unknown(tmp_path, capsys, share):
    row = tracked(0, 600)
    source = write(tmp_path / "e.csv", row | {"energy_consumed": share * row["energy_consumed"]})
    run = read_files([source])
    assert run.result("energy_total_j").reason == run.result("co2_g").reason == "parts_differ"
    assert run.result("energy_gpu_j").value == pytest.approx(720e3)
    said = " ".join(command(capsys, "import", str(source), "-o", str(tmp_path / "run")).out.split())
    assert "unknown: the total that the file states isn't the sum of its parts trust: no" in said


def test_a_blank_energy_of_a_gpu_that_is_named_leaves_totals_unknown(tmp_path):
    row = tracked(0, 600, gpu=0) | {"gpu_energy": ""}
    run = read_files([write(tmp_path / "e.csv", row)])
    assert run.result("energy_gpu_j").reason == "not_measured"
    assert run.result("energy_total_j").reason == run.result("co2_g").reason == "part_not_measured"
    without = read_files([write(tmp_path / "f.csv", row | {"gpu_count": "", "gpu_model": ""})])
    assert without.result("energy_total_j").value == pytest.approx(240 * 600)


@pytest.mark.parametrize("pue", ["0", "-1", ""])
def test_a_factor_that_is_none_is_reported(tmp_path, capsys, pue):
    source = write(tmp_path / "e.csv", tracked(0, 600) | {"pue": pue})
    said = " ".join(command(capsys, "import", str(source), "-o", str(tmp_path / "run")).out.split())
    assert "864.0 kJ in 600 s" in said
    assert "trust: with care" in said
    assert "1 row has no PUE above 0: energies may contain one" in said


def test_tasks_state_no_pue_which_their_energies_may_contain(tmp_path):
    rows = [tracked(100 * i, 60, task_name=f"task {i}", codecarbon_version="3.3.2") for i in range(2)]
    run = read_files([write(tmp_path / "tasks.csv", *rows, without=("pue",))])
    assert "pue_unknown" in codes(run)
    assert "pue_unknown" not in codes(read_files([write(tmp_path / "whole.csv", *rows)]))


def test_commas_of_a_spreadsheet_are_refused(tmp_path):
    path = write(tmp_path / "e.csv", tracked(0, 600.5))
    path.write_text(path.read_text().replace(",", ";").replace(".", ","))
    with pytest.raises(BadInputError, match="numbers with commas, which CodeCarbon doesn't write"):
        read_files([path])
