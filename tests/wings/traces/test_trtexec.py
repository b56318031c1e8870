"""The log and the exported files of trtexec."""

import json
import random
import re

import pytest

from commands import command
from damaged import carry_through
from import_logs import (
    SAMPLES,
    TRTEXEC_LOG,
    TRTEXEC_PROFILE,
    codes,
    left_out,
    read,
    real,
    real_files,
)
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, importer
from jouletrace.run import load, save
from places import DATA


def test_the_summary_of_a_log_becomes_figures_with_the_tool_named(tmp_path):
    run = read(tmp_path, "trtexec", TRTEXEC_LOG)
    stated = {"latency_s": 0.0425, "latency_min_s": 0.041, "latency_p90_s": 0.043, "gpu_compute_time_mean_s": 0.032}
    stated |= {"queries_per_s": 31.25, "host_walltime_s": 3.125, "gpu_compute_time_total_s": 3.0}
    assert {name: run.result(name).value for name in stated} == pytest.approx(stated)
    assert run.result("latency_s").method == "stated by trtexec"
    assert run.result("latency_s").low is None
    assert run.devices[0].name == "NVIDIA A100-SXM4-40GB"
    assert run.workload["name"] == "gpt2.onnx"
    assert run.created_ns > 0


@pytest.mark.parametrize(("batch", "facts"), [("8", {"batch": 8}), ("Explicit", {"batch_stated": "Explicit"})])
def test_the_batch_of_a_log_is_a_number_or_kept_as_stated(tmp_path, batch, facts):
    line = f"[03/07/2024-10:00:00] [I] Batch: {batch}\n"
    run = read(tmp_path, "trtexec", line + TRTEXEC_LOG)
    again = load(save(run, tmp_path / "run"))
    assert {name: value for name, value in again.workload.items() if "batch" in name} == facts


def test_averages_of_a_log_are_windows_without_a_place_in_time(tmp_path):
    rows = read(tmp_path, "trtexec", TRTEXEC_LOG).windows.to_pylist()
    assert [(r["variant"], r["replays"], r["time_s"], r["start_ns"]) for r in rows[:2]] == [
        ("GPU latency", 10, pytest.approx(0.31), None),
        ("host latency", 10, pytest.approx(0.41), None),
    ]
    assert len(rows) == 6


def test_a_profile_with_names_that_are_not_escaped_is_read(tmp_path):
    run = read(tmp_path, "trtexec", TRTEXEC_PROFILE)
    layers = [row["name"] for row in run.units.to_pylist() if row["level"] == "layer"]
    assert layers == ["Conv_0 + Relu_1", 'say "hi" \\ there', "reshape"]
    assert run.result("time_s", 1).value == pytest.approx(1e-3)
    assert run.result("time_s", 1).n == 4
    assert run.result("time_s", 3).value == 0.0
    assert run.result("share", 2).value == pytest.approx(0.2)
    assert run.result("time_s").value == pytest.approx(1.25e-3)


def layers(run):
    """Name, mean, total, median in ms and share of each layer, and the mean of all, in ms."""
    rows = [row for row in run.units.to_pylist() if row["level"] == "layer"]
    metrics = ("time_s", "time_total_s", "time_median_s", "share")
    figures = [[run.result(metric, row["id"]).value for metric in metrics] for row in rows]
    return [[row["name"], *(1e3 * one for one in some)] for row, some in zip(rows, figures, strict=True)], (
        1e3 * run.result("time_s").value
    )


def written(profile, rng):
    """The same JSON with other white space, line breaks, byte order mark, and order of keys."""

    def space():
        return "".join(rng.choice(" \t\r\n") for _ in range(rng.choice([0, 0, 1, 3])))

    entries = []
    for entry in profile:
        keys = rng.sample(list(entry), len(entry))
        pairs = [f"{space()}{json.dumps(key)}{space()}:{space()}{json.dumps(entry[key])}{space()}" for key in keys]
        entries.append("{" + ",".join(pairs) + "}")
    return rng.choice(["", "\ufeff"]) + space() + "[" + f"{space()},{space()}".join(entries) + space() + "]" + space()


@pytest.mark.parametrize("seed", range(40))
def test_the_layout_of_a_profile_changes_no_figure(tmp_path, seed):
    rng = random.Random(seed)
    names = ["Conv_0 + Relu_1", 'say "hi", "timeMs": 3', "line\nbreak {x}", "Übertragung \\ 层", "Total"]
    profile = [{"count": 4}]
    for name in names:
        ms = rng.randint(1, 10**6) / 1000
        profile.append({"name": name, "timeMs": 4 * ms, "averageMs": ms, "medianMs": 0.9 * ms, "percentage": 20.0})
    expected = [[one["name"], one["averageMs"], one["timeMs"], one["medianMs"], 200] for one in profile[1:]]
    found, whole = layers(read(tmp_path, "trtexec", written(profile, rng)))
    assert [row[0] for row in found] == names
    assert [row[1:4] for row in found] == [pytest.approx(row[1:4]) for row in expected]
    assert whole == pytest.approx(sum(one["averageMs"] for one in profile[1:]))


@pytest.mark.parametrize("change", [lambda text: text.replace("\n", " "), lambda text: text.replace("\n", "\r\n")])
def test_names_that_are_not_escaped_are_read_in_any_layout(tmp_path, change):
    run = read(tmp_path, "trtexec", change(TRTEXEC_PROFILE))
    assert [row["name"] for row in run.units.to_pylist()][1:] == ["Conv_0 + Relu_1", 'say "hi" \\ there', "reshape"]
    assert not left_out(run).get("broken_layers")
    assert layers(run)[1] == pytest.approx(1.25)


def test_a_damaged_layer_on_one_line_costs_itself_alone(tmp_path):
    text = TRTEXEC_PROFILE.replace("\n", " ").replace('"timeMs" : 1,', '"timeMs" : oops,')
    run = read(tmp_path, "trtexec", text)
    assert [row["name"] for row in run.units.to_pylist()][1:] == ["Conv_0 + Relu_1", "reshape"]
    assert left_out(run)["broken_layers"] == 1


_TABLE_10 = """[I] === Profile (682 iterations ) ===
[I]    Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer
[I]     1500.00       2.1994       2.1990      50.7   conv1 + relu  [Conv]
[I]     1460.00       2.1408       2.1400      49.3   fc1
[I]     2960.00       4.3402       4.3390     100.0   Total
[I]
[I] Throughput: 226.5 qps
"""
_TABLE_8 = """[11/25/2022-20:30:00] [I] === Profile (682 iterations ) ===
[11/25/2022-20:30:00] [I]               Layer   Time (ms)   Avg. Time (ms)   Median Time (ms)   Time %
[11/25/2022-20:30:00] [I] conv1 + relu  [Conv]     1500.00           2.1994             2.1990     50.7
[11/25/2022-20:30:00] [I]                 fc1     1460.00           2.1408             2.1400     49.3
[11/25/2022-20:30:00] [I]               Total     2960.00           4.3402             4.3390    100.0
"""
_TABLE_7 = """[I] === Profile (682 iterations ) ===
[I]               Layer   Time (ms)   Avg. Time (ms)   Time %
[I] conv1 + relu  [Conv]     1500.00           2.1994     50.7
[I]                 fc1     1460.00           2.1408     49.3
[I]               Total     2960.00           4.3402    100.0
"""


@pytest.mark.parametrize("table", [_TABLE_10, _TABLE_8, _TABLE_7, re.sub(r"(?m)^(\[\S+\] )*", "", _TABLE_10)])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_table_of_layers_in_a_log_is_read(tmp_path, table, end):
    run = read(tmp_path, "trtexec", (TRTEXEC_LOG + table).replace("\n", end))
    rows = [row for row in run.units.to_pylist() if row["level"] == "layer"]
    assert [row["name"] for row in rows] == ["conv1 + relu  [Conv]", "fc1"]
    assert [run.result("time_s", row["id"]).value for row in rows] == pytest.approx([2.1994e-3, 2.1408e-3])
    assert [run.result("time_total_s", row["id"]).value for row in rows] == pytest.approx([1.5, 1.46])
    assert run.result("time_s").value == pytest.approx(4.3402e-3)
    assert run.result("time_s").n == 682
    assert run.result("queries_per_s").value == pytest.approx(31.25)
    assert not {code for code in codes(run) if "layers" in code}


def test_a_table_of_layers_that_breaks_off_or_lacks_a_row_is_warned_of(tmp_path):
    for damaged in (
        _TABLE_10[: _TABLE_10.index("[I]     2960")],
        _TABLE_10.replace("1460.00       2", "1460.00      x2"),
    ):
        run = read(tmp_path, "trtexec", TRTEXEC_LOG + damaged)
        assert "layers_missing" in codes(run)
        assert run.result("time_s").value is None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("trex_oneline.json", [["Conv_0 + Relu_1", "111.6"], ["MaxPool_2", "62.46"], ["Conv_3 + Relu_4", "53.25"]]),
        ("Q1_trtexec_dump.log", [["conv1", "2.199"], ["fc1", "2.141"]]),
    ],
)
def test_layers_are_shown_by_the_command_line(workspace, capsys, name, shown):
    command(capsys, "import", str(DATA / "faults" / name), "-o", "run")
    lines = command(capsys, "show", "run", "-v").out.splitlines()
    for layer, time in shown:
        line = next(line for line in lines if line.startswith(f"{layer} "))
        assert line.removeprefix(layer).split()[0] == time


@pytest.mark.parametrize(
    "text",
    [
        "[I] === Performance summary ===\n",
        '[{"count": 1}, {"timeMs": 1, "averageMs": 2}]',
    ],
)
def test_a_file_without_a_figure_is_refused_in_one_line(tmp_path, text):
    with pytest.raises(BadInputError, match=r"log\.txt") as error:
        read(tmp_path, "trtexec", text)
    assert "\n" not in str(error.value)


@pytest.mark.samples
@real_files
def test_real_profiles_hold_as_many_layers_as_their_json():
    for path in real("trex/examples/*/*/*/*/*.profile.json"):
        layers = json.loads(path.read_text())[1:]
        run = importer("trtexec").read(path, ImportOptions())
        assert run.result("time_s").value == pytest.approx(sum(layer["averageMs"] for layer in layers) / 1e3)
        assert run.units["name"].to_pylist()[1:] == [layer["name"] for layer in layers]


@pytest.mark.samples
@real_files
def test_a_real_log_has_its_nine_averages_and_its_medians():
    run = importer("trtexec").read(real("profiling_gpt2/*.log")[0], ImportOptions())
    assert len(run.windows) == 27
    assert run.result("latency_s").value == pytest.approx(0.0412759)
    assert run.result("gpu_compute_time_p99_s").value == pytest.approx(0.0311133)


def test_averages_without_a_place_in_time_come_through_to_the_report(tmp_path):
    run = read(tmp_path, *SAMPLES["trtexec log"])
    assert run.windows["start_ns"].null_count == len(run.windows) > 0
    assert carry_through(run, "log.txt", tmp_path) is None


@pytest.mark.parametrize("digits", ["9" * 19, "9" * 20, "1e29"])
def test_a_count_that_no_table_holds_is_no_count(tmp_path, digits):
    form, text = SAMPLES["trtexec log"]
    run = read(tmp_path, form, text.replace("on 10 runs", f"on {digits} runs"))
    assert carry_through(run, "log.txt", tmp_path) is None


def test_what_a_file_lacks_is_not_claimed(workspace, capsys):
    said = command(capsys, "import", str(DATA / "faults" / "Q1_trtexec_dump.log"), "-o", "q").out
    assert "energy unknown" not in said
