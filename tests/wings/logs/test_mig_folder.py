"""Folders of MIG profilers: activity joined to each row's window, failed rows and N/A missing."""

import csv
import math
import re
import statistics

import pytest

from commands import command
from jouletrace import report
from jouletrace.analysis import analyse
from jouletrace.analysis.facts import facts_of
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import read_files, recognise
from jouletrace.run import Parts, load
from places import SAMPLES

SHARED = SAMPLES / "MIGProfiler" / "history_98cdb472" / "data" / "A100-40g"
HEAD = "model_name,batch_size,latency,latency_std,throughput,start_timestamp,end_timestamp\n"
T = 1_657_289_500


def log_line(second, active, used):
    return f"0,{active},{used},{T + second}\n"


@pytest.fixture
def folder(tmp_path):
    """Two rows a second; readings 10 s to 19 s belong to the first run, 30 s to 39 s to the second."""
    place = tmp_path / "A100-40g"
    (place / "vit").mkdir(parents=True)
    lines = ["EntityId,GRACT,FBUSD,TimeStamp\n"]
    for second in range(50):
        for half in (0, 1):
            active = 0.5 + 0.01 * second if 10 <= second <= 39 else 0.0
            cell = "N/A" if second == 12 and half else f"{active:.3f}"
            lines.append(log_line(second, cell, 1000 + second))
    (place / "dcgm.csv").write_text("".join(lines))
    rows = [
        f"vit,8,100.0,0.5,80.0,{T + 10},{T + 19}\n",
        "vit,16,0,0,0,0,0\n",
        f"vit,32,200.0,0.5,15.0,{T + 30},{T + 39}\n",
        f"vit,64,,,,{T + 45},{T + 44}\n",
    ]
    (place / "vit" / "vit_05g_bsz.csv").write_text(HEAD + "".join(rows))
    (place / "vit" / "vit_all.csv").write_text(
        HEAD.replace("\n", ",mig\n") + "".join(row.replace("\n", ",5\n") for row in rows[:3])
    )
    return place


def figures(run):
    names = {unit["id"]: unit["name"] for unit in run.units.to_pylist()}
    found = {}
    for row in run.results.to_pylist():
        found.setdefault(names[row["unit"]], {})[row["metric"]] = row
    return found


@pytest.mark.thorough
def test_activity_is_the_mean_over_the_window_with_both_ends(folder):
    found = figures(read_files([folder]))["vit batch 8 on 5gb"]
    inside = [0.5 + 0.01 * s for s in range(10, 20) for half in (0, 1) if not (s == 12 and half)]
    assert found["graphics_active_mean"]["value"] == pytest.approx(statistics.mean(inside))
    assert found["graphics_active_std"]["value"] == pytest.approx(statistics.stdev(inside))
    assert found["graphics_active_mean"]["n"] == 19, "N/A is missing and not 0"
    assert found["memory_used_mean_bytes"]["value"] == pytest.approx(1014.5 * 2**20)
    assert found["latency_mean_s"]["value"] == pytest.approx(0.1)


def test_a_failed_row_has_no_figures_and_is_counted(folder):
    run = read_files([folder])
    failed = figures(run)["vit batch 16 on 5gb"]
    assert {row["value"] for row in failed.values()} == {None}
    assert {row["reason"] for row in failed.values()} == {"run_failed"}
    assert any(
        w.code == "failed_rows" and w.message.startswith("1 run failed (zeros in the file, mostly for lack")
        for w in run.warnings
    )


def test_the_same_run_in_several_files_is_taken_once(folder):
    run = read_files([folder])
    assert [u["name"] for u in run.units.to_pylist()[1:]] == [
        "vit batch 8 on 5gb",
        "vit batch 32 on 5gb",
        "vit batch 16 on 5gb",
    ]
    assert len(run.spans) == 2


def test_a_throughput_that_cannot_be_is_left_out(folder):
    run = read_files([folder])
    assert figures(run)["vit batch 32 on 5gb"]["throughput_per_s"]["value"] == pytest.approx(160.0)
    assert any(w.code == "throughput_differs" for w in run.warnings)


def test_a_window_that_ends_before_it_begins_is_counted_and_not_used(folder):
    assert any(w.code == "broken_rows" and "line 5" in w.message for w in read_files([folder]).warnings)


def test_one_result_file_finds_the_log_above_it(folder):
    run = read_files([folder / "vit" / "vit_05g_bsz.csv"])
    assert figures(run)["vit batch 8 on 5gb"]["graphics_active_mean"]["value"] == pytest.approx(0.645, abs=0.003)


def test_without_a_log_there_is_no_activity_and_it_says_so(folder):
    (folder / "dcgm.csv").unlink()
    run = read_files([folder])
    assert "graphics_active_mean" not in figures(run)["vit batch 8 on 5gb"]
    assert any(w.code == "no_activity_log" for w in run.warnings)


def test_a_window_outside_the_log_has_no_activity_rather_than_zero(folder):
    log = folder / "dcgm.csv"
    head, *lines = log.read_text().splitlines(keepends=True)
    log.write_text(head + "".join(line for line in lines if int(line.rsplit(",", 1)[1]) < T + 25))
    found = figures(read_files([folder]))["vit batch 32 on 5gb"]["graphics_active_mean"]
    assert (found["value"], found["reason"]) == (None, "no_samples")


def test_an_instance_is_recognised_by_the_profile_id_in_the_name(folder):
    old = folder / "vit" / "vit_05g_bsz.csv"
    old.rename(folder / "vit" / "vit_MIG_profile_9.csv")
    (folder / "vit" / "vit_all.csv").unlink()
    assert "vit batch 8 on 3g" in figures(read_files([folder]))


def test_a_folder_without_results_is_refused(tmp_path):
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadInputError, match="not the folder of a Run, nor of a known format"):
        recognise(tmp_path)


def test_a_file_without_rows_is_refused(tmp_path):
    (tmp_path / "empty.csv").write_text(HEAD)
    with pytest.raises(BadInputError, match="no row of results"):
        read_files([tmp_path])


@pytest.mark.skipif(not SHARED.is_dir(), reason="the example folders are not here")
@pytest.mark.parametrize("name", ["finetune_vit", "infer_seq"])
def test_joined_means_of_real_folders_equal_an_independent_join(name):
    with (SHARED / name / "dcgm.csv").open() as file:
        log = [(int(r["TimeStamp"]), float(r["GRACT"]), float(r["FBUSD"])) for r in csv.DictReader(file)]
    combined = next(p for p in (SHARED / name).rglob("*.csv") if p.name in ("vit_finetune.csv", "mpnet_seq.csv"))
    run = read_files([SHARED / name])
    found = figures(run)
    checked = 0
    with combined.open() as file:
        for row in csv.DictReader(file):
            start, end = int(row["start_timestamp"]), int(row["end_timestamp"])
            if not start:
                continue
            seq = f" seq {row['seq_length']}" if "seq_length" in row else ""
            memory = row.get("mig") or row["instance_memory"]
            mine = next(
                figs
                for unit, figs in found.items()
                if unit.startswith(f"{row['model_name']} batch {row['batch_size']}{seq} on") and f"{memory}gb" in unit
            )
            inside = [(a, m) for t, a, m in log if start <= t <= end]
            active, used = (statistics.mean(column) for column in zip(*inside, strict=True))
            assert mine["graphics_active_mean"]["value"] == pytest.approx(active, abs=5e-4)
            assert mine["memory_used_mean_bytes"]["value"] / 2**20 == pytest.approx(used, abs=5e-4)
            assert round(mine["graphics_active_mean"]["value"], 3) == pytest.approx(
                float(row["gract_mean"]), abs=1.1e-3
            )
            assert math.isclose(mine["latency_mean_s"]["value"], float(row["latency"]) / 1e3)
            checked += 1
    assert checked == {"finetune_vit": 13, "infer_seq": 20}[name]


@pytest.mark.parametrize("cell", ["{}", "MIG {}", "{}+me"])
def test_the_profile_in_a_column_names_the_instance(tmp_path, cell):
    kinds = ["7g.80gb", "1g.10gb", "2g.20gb"]
    rows = [f"vit,8,{100 + k},0.5,80.0,{T + 10},{T + 19},{cell.format(kind)}\n" for k, kind in enumerate(kinds)]
    path = tmp_path / "vit_bsz.csv"
    path.write_text(HEAD.replace("\n", ",mig_profile\n") + "".join(rows))
    run = read_files([path])
    names = [unit["name"] for unit in run.units.to_pylist()[1:]]
    assert sorted(names) == sorted(f"vit batch 8 on {cell.format(kind).removeprefix('MIG ')}" for kind in kinds)
    assert not any(one.code == "not_a_number" for one in run.warnings)


def test_a_row_of_results_is_shown_once_and_its_numbers_whole_on_eighty_columns(folder):
    """A model's name took the room of figures, whose digits then stood in two lines; its window was a second row."""
    for table in (folder / "vit").glob("*.csv"):
        table.write_text(table.read_text().replace("vit,", "google/vit-base-patch16-224-in21k,"))
    run = analyse(read_files([folder]))
    assert len({unit["name"] for unit in run.units.to_pylist()}) == len(run.units)
    text = report.render([run], width=80)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if "100.0" in line or "0.1000" in line)
    assert {"80.00", "0.1000"} <= set(row.split()), "time and rate in one line"
    assert "MiB" in report.render([run], width=200), "bytes have a prefix"
    for width in (40, 60, 80):
        stated = set(re.findall(r"\d+\.\d+", report.render([run], width=width)))
        assert stated <= set(re.findall(r"\d+\.\d+", report.render([run], width=300))), "no number is broken"


def test_results_beside_a_log_without_power_ask_for_it_as_the_log_alone_does(folder):
    for path in (folder, folder / "dcgm.csv"):
        known = facts_of(run := analyse(read_files([path])), Parts(run))
        assert ("no_power_logged", "with care") in [(one.code, one.level) for one in known.checks.failed]


@pytest.mark.thorough
def test_results_that_others_have_are_read_with_the_log_beside_them(workspace, capsys):
    place = workspace / "A100-80g"
    (place / "vit").mkdir(parents=True)
    log = [f"0,{0.5 if 10 <= second < 20 else 0.0},{1000 + second},{T + second}\n" for second in range(30)]
    (place / "dcgm.csv").write_text("EntityId,GRACT,FBUSD,TimeStamp\n" + "".join(log))
    row = f"vit,8,100.0,0.5,80.0,{T + 10},{T + 19}\n"
    (place / "vit" / "vit_10g_bsz.csv").write_text(HEAD + row)
    said = command(capsys, "import", str(place), "-o", "others")
    assert said.code == 0, said.err
    found = {one["metric"]: one["value"] for one in load("others").results.to_pylist()}
    assert found["throughput_per_s"] == 80
    assert 0.5 in found.values(), "activity, over its own window alone"
