"""How Runs of other tools' files are shown: kernels first, lists that end, nothing said that wasn't measured."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

import import_timelines as make
from commands import command
from import_logs import TRTEXEC_LOG, TRTEXEC_PROFILE, dmon
from jouletrace import report
from jouletrace.analysis import analyse
from jouletrace.formats.importers import read_files
from jouletrace.run import load
from jouletrace.run.parts import Parts
from serving_runs import Truth, level_of, serving_run, vllm_object


def frames(n):
    """Python functions, as ``with_stack=True`` has them."""
    return [make.event("python_function", f"module.py({k}): f{k}", 10.0 + 0.5 * k, 0.25) for k in range(n)]


def kernels(n):
    args = [make.kernel_args(500 + k, -1) for k in range(n)]
    return [make.event("kernel", f"kernel_{k}", 5000.0 + 10 * k, 1 + k, 0, 7, **one) for k, one in enumerate(args)]


def trace(folder, functions=300, more=0):
    path = folder / "trace.json"
    path.write_text(make.native(make.kineto_events(2) + frames(functions) + kernels(more)))
    return analyse(read_files([path]))


def rows(text, title):
    """Lines of a table, its heading and ruler left out."""
    _, _, rest = text.partition(f"{title}\n")
    return rest.split("\n\n")[0].splitlines()[2:]


def test_kernels_are_listed_and_not_every_frame(tmp_path):
    run = trace(tmp_path)
    assert report.default_detail(run) == "kernel"
    text = report.render([run], detail="kernel", verbose=True)
    assert any("vectorized_elementwise" in row for row in rows(text, "Operators and kernels"))
    assert "module.py" not in text
    assert len(text.splitlines()) < 40
    assert "Not listed" in text
    assert "ranges (--detail range)" in text
    assert "operators (--detail op)" in text


def test_the_csv_of_several_gpus_begins_with_the_energy_of_all(tmp_path, capsys):
    for number, watts in enumerate((61, 87)):
        (tmp_path / f"gpu{number}.csv").write_text(dmon([watts] * 60).replace("    0  ", f"    {number}  "))
    files = [str(path) for path in sorted(tmp_path.glob("*.csv"))]
    said = command(capsys, "import", *files, "-o", str(tmp_path / "run"))
    assert said.code == 0, said.err
    run = load(tmp_path / "run")
    assert run.workload["name"] == "gpu0.csv and 1 more"
    whole, *parts = csv.DictReader(io.StringIO(report.render([run], form="csv")))
    assert float(whole["energy_total_j"]) == pytest.approx(sum(float(one["energy_total_j"]) for one in parts))


@pytest.mark.parametrize("detail", ["kernel", "range"])
def test_lists_end_with_how_many_more_there_are(tmp_path, detail):
    run = trace(tmp_path, more=40)
    count = len([unit for unit in run.units.to_pylist() if unit["level"] == detail])
    text = report.render([run], detail=detail, verbose=True)
    assert f"{count - 20} more, together" in text
    assert "--top lists more" in text
    every = report.render([run], detail=detail, top=1000, verbose=True)
    assert " more, together" not in every


def test_other_levels_can_be_asked_for(tmp_path, capsys, workspace):
    trace(workspace).save("made")
    assert "aten::mm" in command(capsys, "show", "made", "--detail", "op").out
    assert "module.py(7)" in command(capsys, "show", "made", "--detail", "range", "--top", "400").out
    shown = command(capsys, "show", "made")
    assert "vectorized_elementwise" in shown.out
    assert "module.py" not in shown.out


def test_csv_leaves_nothing_out(tmp_path):
    run = trace(tmp_path)
    text = report.render([run], "csv", detail="kernel")
    assert text.count("module.py") == 300


def test_an_import_leads_with_what_its_file_was_made_for(workspace, capsys):
    rng = np.random.default_rng(0)
    served, _ = serving_run(Truth(), [level_of(Truth(), 4, 60, (50, 500), (20, 100), rng)])
    files = {
        "trace.json": make.native(make.kineto_events(2) + kernels(4)),
        "trtexec.log": TRTEXEC_LOG,
        "load.json": json.dumps(vllm_object(served.requests.to_pylist())),
    }
    for name, text in files.items():
        Path(name).write_text(text)
    make.ncu_details(Path("ncu.csv"), [("gemm", "(8, 1, 1)")] * 3)
    words = {name: " ".join(command(capsys, "import", name).out.split()) for name in (*files, "ncu.csv")}
    assert re.search(r"busy [\d.]+ % of it \([\d.]+ µs\): \d+ kernels and copies trust: yes", words["trace.json"])
    assert "share of time" in words["trace.json"]
    assert "queries/s" in words["trtexec.log"]
    assert "Latency, p99" in words["trtexec.log"]
    assert re.search(r"[\d.]+ requests/s; first token p50 .* p95 .*; end to end p50", words["load.json"])
    assert "energy unknown" not in words["load.json"]
    assert "counters of 3 launches of 1 kernel" in words["ncu.csv"]


def test_shares_of_kernels_and_times_of_their_calls_add_up(tmp_path):
    listed = Parts(trace(tmp_path)).units("kernel")
    assert sum(unit.get("share").value for unit in listed) == pytest.approx(1.0)
    for unit in listed:
        assert unit.get("time_mean_s").value * unit.count == pytest.approx(unit.get("time_s").value)


def test_layers_are_listed_where_there_are_no_kernels(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(TRTEXEC_PROFILE)
    run = analyse(read_files([path]))
    assert report.default_detail(run) == "layer"
    assert "Conv_0 + Relu_1" in report.render([run], detail="layer", verbose=True)


def test_nothing_is_reported_of_a_power_record_where_there_is_none(tmp_path):
    text = report.render([trace(tmp_path)], detail="kernel", verbose=True)
    assert "power record" not in text
    assert "durations of the spans" in text


def test_times_from_zero_have_no_date(tmp_path):
    path = tmp_path / "dmon.log"
    path.write_text(dmon([61] * 10 + [87] * 10))
    run = analyse(read_files([path], None))
    assert "1970" not in report.render([run], verbose=True)
    assert "1970" not in report.render([run], "markdown")
    run.created_ns = 1_709_294_400 * 10**9
    assert "2024-03-01 12:00 UTC" in report.render([run], verbose=True)


def test_a_log_is_imported_with_its_energy_and_one_of_a_single_reading_is_not_trusted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"2026/11/23 08:00:{k:02}.000, {watts}.00 W" for k, watts in enumerate(10 * [70] + 30 * [310] + 10 * [70])]
    for name, lines in (("log.csv", rows), ("one.csv", rows[:1])):
        Path(name).write_text("\n".join(["timestamp, power.draw [W]", *lines]) + "\n")
    printed = command(capsys, "import", "log.csv").out
    assert re.search(r"kJ \(± [\d.]+ % absolute\) in", printed)
    assert "jouletrace calibrate" not in printed  # of a GPU that is elsewhere
    assert max(map(len, printed.splitlines())) <= 80
    printed = command(capsys, "import", "one.csv").out
    assert printed.startswith("1 sample over")
    assert "trust: no" in printed


@pytest.mark.parametrize("step_ms", [50, 100, 1000])
def test_no_part_of_a_log_is_left_out_without_a_word(workspace, capsys, step_ms):
    n, rows = 3600 // min(step_ms, 100) + 1, ["timestamp, power.draw [W]"]
    for k in range(n):
        ms = k * step_ms
        rows.append(
            f"2026/11/23 08:{ms // 60000:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}, {60 + 30 * (k > n // 4)}.00 W"
        )
    Path("log.csv").write_text("\n".join(rows) + "\n")
    words = command(capsys, "import", "log.csv", "-v", "-o", "run").out
    seconds = (n - 1) * step_ms / 1000
    run = load("run")
    device = next(row["id"] for row in run.units.to_pylist() if row["level"] == "device")
    time = run.result("time_s", device).value
    if step_ms >= 100:  # the sensor's own readings
        assert time == pytest.approx(seconds)
        assert "at its ends" not in words
    else:  # polled, so that the ages of the first and the last reading are unknown
        assert seconds - 0.2 < time <= seconds
        assert f"{seconds - time:.3g} s of {seconds:.3g} s, at its ends, is in no figure" in words


def night(folder, name="smi.csv", minutes=480, without=(), offset_s=0, watts=300):
    """A log of a GPU at one reading a minute, which names it."""
    rows = ["timestamp, index, uuid, power.draw [W]"]
    for k in (k for k in range(minutes) if k not in without):
        stamp = f"2026/11/22 {20 + k // 60 - 24 * (k >= 240):02d}:{k % 60:02d}:{offset_s:02d}.000"
        stamp = stamp.replace("11/22", "11/23") if k >= 240 else stamp
        rows.append(f"{stamp}, 0, GPU-1234, {watts + 0.01 * (k % 7):.2f} W")
    (folder / name).write_text("\n".join(rows) + "\n")
    return name


def test_half_an_hour_without_readings_does_not_cost_the_night(workspace, capsys):
    night(workspace, without=range(100, 130))
    words = " ".join(command(capsys, "import", "smi.csv", "-o", "r").out.split())
    assert "energy unknown" not in words
    assert "300.030 ± 0.047 W on average" in words
    assert "a hole of 1800 s, 2026-11-22 21:39:00.000 UTC to 2026-11-22 22:09:00.000 UTC" in words
    assert load("r").result("time_s", 1).value + 1800 == 479 * 60
    assert "without holes and resets" in words
    assert "run it again" not in words
    assert not [line for line in command(capsys, "import", "smi.csv").out.splitlines() if line.endswith("--query-")]


def test_two_logs_of_one_gpu_are_one_record(workspace, capsys):
    night(workspace)
    night(workspace, "other.csv", offset_s=30, watts=310)
    words = " ".join(command(capsys, "import", "smi.csv", "other.csv", "-v", "-o", "both").out.split())
    assert " W on average" in words
    assert "smi.csv and other.csv are logs of one GPU" in words
    assert "clock stepped back" not in words
    single = command(capsys, "import", "smi.csv", "-o", "one").out
    assert single.split("kJ")[0].split()[-1] in words or single.split("MJ")[0].split()[-1] in words


def test_logs_of_one_gpu_may_be_named_in_any_order(workspace, capsys):
    night(workspace, "whole.csv")
    lines = (workspace / "whole.csv").read_text().splitlines(keepends=True)
    (workspace / "first.csv").write_text("".join(lines[:200]))
    (workspace / "second.csv").write_text(lines[0] + "".join(lines[200:]))
    whole = command(capsys, "import", "whole.csv").out.splitlines()
    halves = command(capsys, "import", "second.csv", "first.csv").out.splitlines()
    assert halves[2:] == whole[2:]  # but for the names of the files


def test_a_log_has_kilowatt_hours_and_a_price(workspace, capsys):
    night(workspace)
    words = " ".join(
        command(capsys, "import", "smi.csv", "--device", "NVIDIA H100", "--price", "0.25EUR/kWh").out.split()
    )
    assert "(2.40 kWh, ± 5 % absolute) in" in words
    assert "≈ 2.40 kWh, 0.599 ± 0.03" in words
