"""The data set of many profiles: its figures are those of the Runs, and it keeps what it has."""

import csv
import re
import sys

import pyarrow.parquet as pq
import pytest

import jouletrace as jt
from places import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import atlas
from atlas import group_of, read, table

RUNS = REPOSITORY / "docs" / "results" / "runs"
RECORDED = REPOSITORY / "tests" / "data" / "runs" / "segformer-kernels-h200.zip"
TINY = """
from torch import nn, randn

def narrow(batch):
    return nn.Sequential(nn.Linear(1024, 1024), nn.Softmax(-1)), (randn(batch, 1024),)
"""
QUICK = {"detail": "kernel", "detail_time": 1.5, "warmup": 0.5, "latency_s": 0.1, "idle_s": 0.3, "max_time": 1.0}


@pytest.fixture
def without_kernels():
    """A recorded Run whose tables are small."""
    run = jt.load(str(RECORDED))
    run.activity = run.activity[:0]
    return run


@pytest.mark.thorough
def test_the_data_set_has_the_figures_of_the_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("JOULETRACE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tiny.py").write_text(TINY)
    place = tmp_path / "narrow.zip"
    made = {"device": "sim:h100?seed=3", "batch": 8192, "mode": "eager", "dtype": "bf16", "save_to": str(place)}
    jt.profile(f"{tmp_path}/tiny.py:narrow", progress=False, **QUICK, **made)
    table([place], tmp_path)
    found, run = pq.read_table(tmp_path / "atlas.parquet"), jt.load(str(place))
    (row,) = found.to_pylist()
    energy = run.result("energy_total_j")
    assert (row["model"], row["batch"], row["mode"], row["dtype"]) == ("narrow", 8192, "eager", "bf16")
    assert (row["energy_j"], row["energy_j_low"], row["energy_j_high"]) == (energy.value, energy.low, energy.high)
    assert row["energy_per_sample_j"] == pytest.approx(energy.value / 8192)
    assert row["latency_ms"] == pytest.approx(1e3 * run.result("latency_s").value)
    assert found.schema.field("latency_ms").metadata[b"unit"] == b"ms"
    for name in ("atlas", "atlas-operators"):
        stored = pq.read_table(tmp_path / f"{name}.parquet")
        lines = list(csv.reader((tmp_path / f"{name}.csv").open()))
        assert lines[0] == stored.column_names
        assert len(lines) == 1 + stored.num_rows
        assert set(re.findall(r"^\| (\w+) \|", (tmp_path / "README.md").read_text(), re.M)) >= set(lines[0])
    parts = stored.to_pylist()
    assert {part["group"] for part in parts} >= {"matrix product", "normalisation, softmax", "no kernel running"}
    assert sum(part["time_share"] for part in parts) == pytest.approx(1.0, abs=0.05)
    assert all((part["energy_j"] is None) == bool(part["reason"]) for part in parts)


@pytest.mark.thorough
def test_shares_of_a_real_recording_make_up_its_energy(tmp_path):
    table([RECORDED], tmp_path)
    parts = pq.read_table(tmp_path / "atlas-operators.parquet").to_pylist()
    whole = pq.read_table(tmp_path / "atlas.parquet").to_pylist()[0]
    assert sum(part["energy_share"] or 0.0 for part in parts) == pytest.approx(whole["parts_by_whole"], abs=0.005)
    assert sum(part["time_share"] for part in parts) == pytest.approx(1.0)


@pytest.mark.thorough
def test_no_name_is_a_formula_of_the_csv(without_kernels, tmp_path):
    without_kernels.workload["name"] = "=1+1"
    without_kernels.save(str(tmp_path / "one.zip"))
    table([tmp_path / "one.zip"], tmp_path)
    assert "'=1+1" in (tmp_path / "atlas.csv").read_text()


def test_names_of_operators_and_kernels_have_a_kind():
    kinds = {
        "aten.addmm": "matrix product",
        "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT": "matrix product",
        "aten.convolution": "convolution",
        "aten.convert_element_type": "elementwise, other",
        "aten._scaled_dot_product_flash_attention": "attention",
        "triton_per_fused_add_native_layer_norm_3": "compiler's fused kernel",
        "triton_tem_fused_mm_5": "matrix product",
        "aten.native_layer_norm": "normalisation, softmax",
        "aten.embedding": "embedding, gather",
        "aten.cat": "copy, layout",
        "aten.mean": "reduction, pooling",
        "aten.gelu": "elementwise, other",
    }
    assert {name: group_of(name, False) for name in kinds} == kinds


@pytest.mark.parametrize(
    ("run", "said"),
    [("nowhere", "nowhere"), (str(RUNS / "bursts-h200.zip"), "a Run of measure, not of profile")],
)
def test_bad_input_is_one_line_and_nothing_is_written(run, said, workspace, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["atlas.py", run, "-o", "data"])
    assert atlas.main() == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not list(workspace.iterdir())


@pytest.mark.thorough
def test_a_run_counts_once_and_the_latest_of_a_configuration_is_marked(without_kernels, tmp_path):
    names = [tmp_path / f"{name}.zip" for name in ("one", "same", "later")]
    for name in names[:2]:
        without_kernels.save(str(name))
    without_kernels.id, without_kernels.created_ns = "later", without_kernels.created_ns + 10**12
    without_kernels.save(str(names[2]))
    table(names, tmp_path)
    found = pq.read_table(tmp_path / "atlas.parquet").to_pylist()
    assert [(one["run"] == "later", one["latest"]) for one in found] == [(False, False), (True, True)]


@pytest.mark.thorough
def test_a_data_set_keeps_what_it_has(without_kernels, tmp_path):
    """New Runs join those of a data set; the same Run takes the place of its former rows."""
    data = tmp_path / "data"
    data.mkdir()
    for path in (REPOSITORY / "docs" / "results" / "atlas").iterdir():
        (data / path.name).write_bytes(path.read_bytes())
    before = read(data)
    without_kernels.save(str(tmp_path / "one.zip"))
    for _ in range(2):
        table([tmp_path / "one.zip"], data)
        found = read(data)
        assert found[0].num_rows == before[0].num_rows + 1
        new = [part for part in found[1].to_pylist() if part["run"] == without_kernels.id]
        assert found[1].num_rows == before[1].num_rows + len(new) > before[1].num_rows
    kept = [row for row in found[0].to_pylist() if row["run"] != without_kernels.id]
    assert kept == before[0].to_pylist()
