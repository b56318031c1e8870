"""How timelines and counters are shown: kernels first, lists that end, nothing said that wasn't measured."""

import re
from pathlib import Path

import pytest

import import_timelines as make
from commands import command
from import_logs import TRTEXEC_LOG, TRTEXEC_PROFILE
from jouletrace import report
from jouletrace.analysis import analyse
from jouletrace.formats.importers import read_files
from jouletrace.run import Parts


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


def lines_of(text, title):
    """Lines of a table, its heading and ruler left out."""
    _, _, rest = text.partition(f"{title}\n")
    return rest.split("\n\n")[0].splitlines()[2:]


def test_kernels_are_listed_and_not_every_frame(tmp_path):
    run = trace(tmp_path)
    assert report.default_detail(run) == "kernel"
    text = report.render([run], detail="kernel", verbose=True)
    assert any("vectorized_elementwise" in row for row in lines_of(text, "Operators and kernels"))
    assert "module.py" not in text
    assert len(text.splitlines()) < 40
    assert "Not listed" in text
    assert "ranges (--detail range)" in text
    assert "operators (--detail op)" in text


@pytest.mark.parametrize("detail", ["kernel", "range"])
def test_lists_end_with_how_many_more_there_are(tmp_path, detail):
    run = trace(tmp_path, more=40)
    count = len([unit for unit in run.units.to_pylist() if unit["level"] == detail])
    text = report.render([run], detail=detail, verbose=True)
    assert f"{count - 20} more, together" in text
    assert "--top lists more" in text
    every = report.render([run], detail=detail, top=1000, verbose=True)
    assert " more, together" not in every


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_an_import_leads_with_what_its_file_was_made_for(workspace, capsys):
    files = {
        "trace.json": make.native(make.kineto_events(2) + kernels(4)),
        "trtexec.log": TRTEXEC_LOG,
    }
    for name, text in files.items():
        Path(name).write_text(text)
    make.ncu_details(Path("ncu.csv"), [("gemm", "(8, 1, 1)")] * 3)
    words = {name: " ".join(command(capsys, "import", name).out.split()) for name in (*files, "ncu.csv")}
    assert re.search(r"busy [\d.]+ % of it \([\d.]+ µs\): \d+ kernels and copies trust: yes", words["trace.json"])
    assert "share of time" in words["trace.json"]
    assert "queries/s" in words["trtexec.log"]
    assert "Latency, p99" in words["trtexec.log"]
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
