"""Printed measurements of torch.utils.benchmark."""

import pytest

from import_logs import TORCH, left_out, read
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import read_files


def test_a_measurement_is_the_latency_of_the_model(tmp_path):
    run = read(tmp_path, "torch_benchmark", TORCH)
    stated = {"latency_s": 4.37e-3, "latency_iqr_s": 0.06e-3, "latency_p25_s": 4.36e-3, "latency_p75_s": 4.42e-3}
    assert {name: run.result(name).value for name in stated} == pytest.approx(stated)
    assert run.result("latency_s").n == 226
    assert run.workload["runs_per_measurement"] == 100
    assert run.workload["title"].startswith("y = model(x): batch_size 1 method pre-ln")
    assert left_out(run) == {"compare_table": 1}


def test_several_measurements_are_units_of_their_own(tmp_path):
    block = TORCH.split("[---", maxsplit=1)[0]
    run = read(tmp_path, "torch_benchmark", block + block.replace("4.37", "8.5").replace("Base", "Fast"))
    assert run.result("latency_s").value is None
    assert [run.result("latency_s", unit).value for unit in (1, 2)] == pytest.approx([4.37e-3, 8.5e-3])


def test_a_measurement_of_one_block_has_no_spread(tmp_path):
    text = "<torch.utils.benchmark.utils.common.Measurement object at 0x7f>\nf()\n"
    text += "  12.50 us\n  1 measurement, 100 runs , 1 thread\n"
    run = read(tmp_path, "torch_benchmark", text)
    assert run.result("latency_s").value == pytest.approx(12.5e-6)


def test_a_report_without_a_figure_is_refused(tmp_path):
    with pytest.raises(BadInputError, match=r"log\.txt"):
        read(tmp_path, "torch_benchmark", "<torch.utils.benchmark.utils.common.Measurement object at 0x7f>\n")


def test_files_that_state_different_figures_of_the_whole_are_refused_in_any_order(tmp_path):
    (tmp_path / "a.txt").write_text(TORCH)
    (tmp_path / "b.txt").write_text(TORCH.replace("Median: 4.37 ms", "Median: 8.74 ms"))
    for first, second in (("a.txt", "b.txt"), ("b.txt", "a.txt")):
        match = rf"{first} and .*{second} state different figures of the whole \(latency_s: .*: import each alone"
        with pytest.raises(BadInputError, match=match):
            read_files([tmp_path / first, tmp_path / second])
    assert read_files([tmp_path / "a.txt"]).result("latency_s").value == pytest.approx(4.37e-3)
    (tmp_path / "c.txt").write_text(TORCH)
    assert read_files([tmp_path / "a.txt", tmp_path / "c.txt"]).result("latency_s").value == pytest.approx(4.37e-3)
