"""The atlas's script on a simulated GPU: it measures, goes on where it ended, and writes the data set and its page."""

import csv
import json
import os
import re
import sys

import pyarrow.parquet as pq
import pytest

import jouletrace as jt
from places import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import atlas
from atlas_data import group_of, page, read, table

TINY = """
from torch import nn, randn

def wide(batch):
    return nn.Sequential(nn.Linear(2048, 2048), nn.GELU(), nn.LayerNorm(2048)), (randn(batch, 2048),)

def narrow(batch):
    return nn.Sequential(nn.Linear(1024, 1024), nn.Softmax(-1)), (randn(batch, 1024),)
"""
QUICK = {"detail_time": 1.5, "warmup": 0.5, "latency_s": 0.1, "idle_s": 0.3, "max_time": 1.0}
DEVICE = "sim:h100?seed=3"


class Crash:
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return os._exit, (3,)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with the Runs of two models; one crashed, and the GPU refused to compile another."""
    out = tmp_path_factory.mktemp("atlas")
    (out / "tiny.py").write_text(TINY)
    names = [("wide", 4096, "eager"), ("narrow", 8192, "eager"), ("narrow", 8192, "compile")]
    todo = [atlas.Configuration(f"{m}-{b}-{mode}", f"{out}/tiny.py:{m}", b, mode) for m, b, mode in names]
    todo.insert(0, atlas.Configuration("crash-512-eager", Crash(), 512, "eager"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOULETRACE_CACHE", str(out / "cache"))
        assert atlas.measure(out, todo, DEVICE, 60.0, **QUICK) == 4, "two minutes are allowed for the first"
        assert not list(out.glob("*.txt"))
        assert atlas.measure(out, todo, DEVICE, **QUICK) == 0
    return out, todo


@pytest.mark.thorough
def test_one_that_fails_does_not_keep_others_from_being_measured(measured):
    out, _ = measured
    assert sorted(path.name for path in out.glob("*.zip")) == ["narrow-8192-eager.zip", "wide-4096-eager.zip"]
    reasons = {path.name: path.read_text() for path in out.glob("*.txt")}
    assert reasons.pop("crash-512-eager.failed.txt") == "the process ended with code 3\n"
    assert "a simulated GPU runs eager or graph" in reasons.pop("narrow-8192-compile.failed.txt")
    assert not reasons
    assert sorted(json.loads((out / "seconds.json").read_text())) == ["narrow-8192-eager", "wide-4096-eager"]


@pytest.mark.thorough
def test_what_is_there_is_not_measured_again(measured, monkeypatch):
    out, todo = measured
    monkeypatch.setattr(atlas.Worker, "profile", lambda *_: pytest.fail("measured again"))
    assert atlas.measure(out, todo, DEVICE) == 0
    (out / "narrow-8192-eager.zip").rename(out / "elsewhere")  # seconds.json has it
    assert atlas.measure(out, todo, DEVICE) == 0
    (out / "elsewhere").rename(out / "narrow-8192-eager.zip")


@pytest.mark.thorough
def test_the_data_set_has_the_figures_of_the_runs(measured, tmp_path):
    out, _ = measured
    table([out], tmp_path)
    found = pq.read_table(tmp_path / "atlas.parquet")
    run = jt.load(str(out / "narrow-8192-eager.zip"))
    row = found.to_pylist()[0]
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
    parts = [part for part in stored.to_pylist() if part["model"] == "narrow"]
    assert {part["group"] for part in parts} >= {"matrix product", "normalisation, softmax", "no kernel running"}
    assert sum(part["time_share"] for part in parts) == pytest.approx(1.0, abs=0.05)
    assert all((part["energy_j"] is None) == bool(part["reason"]) for part in parts)
    assert "crash-512-eager: the process ended with code 3" in (tmp_path / "README.md").read_text()


def test_shares_of_a_real_recording_make_up_its_energy(tmp_path):
    place = tmp_path / "runs"
    place.mkdir()
    (place / "one.zip").symlink_to(REPOSITORY / "docs" / "results" / "runs" / "segformer-kernels-h200.zip")
    table([place], tmp_path)
    parts = pq.read_table(tmp_path / "atlas-operators.parquet").to_pylist()
    whole = pq.read_table(tmp_path / "atlas.parquet").to_pylist()[0]
    assert sum(part["energy_share"] or 0.0 for part in parts) == pytest.approx(whole["parts_by_whole"], abs=0.005)
    assert sum(part["time_share"] for part in parts) == pytest.approx(1.0)


@pytest.mark.thorough
def test_no_name_breaks_out_of_the_page_or_the_csv(measured, tmp_path):
    out, _ = measured
    run = jt.load(str(out / "wide-4096-eager.zip"))
    run.workload["name"] = "=<img src=x onerror=alert(1)></script>"
    place = tmp_path / "runs"
    place.mkdir()
    run.save(str(place / "one.zip"))
    table([place], tmp_path)
    page(tmp_path, tmp_path / "atlas.html")
    text = (tmp_path / "atlas.html").read_text()
    assert "<img" not in text
    assert "&lt;img src=x" in text
    assert "'=<img" in (tmp_path / "atlas.csv").read_text()
    assert not re.search(r"(src|href)=[\"']?https?:", text)


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
    ("arguments", "said"),
    [
        (["page", "nowhere"], "FileNotFoundError: nowhere/atlas.parquet"),
        (["table", "nowhere", "-o", "data"], "nowhere: no such folder"),
        (["table", ".", "-o", "data"], ".: no Runs (*.zip) in it"),
        (["table", str(REPOSITORY / "docs" / "results" / "runs"), "-o", "data"], "a Run of measure, not of profile"),
        (["measure", "out", "--device", "nope"], "unknown device 'nope'"),
        (["measure", "out", "--device", "sim:h100", "--detail-time", "-1"], "must be more than 0 s"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(arguments, said, workspace, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["atlas.py", *arguments])
    assert atlas.main() == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not list(workspace.iterdir())


def test_names_of_models_and_modes_are_checked(monkeypatch, capsys):
    for option, known in (("--models", "minilm"), ("--modes", "eager")):
        monkeypatch.setattr(sys, "argv", ["atlas.py", "measure", "out", option, f"{known},foo"])
        with pytest.raises(SystemExit):
            atlas.main()
        assert "no 'foo': there are" in capsys.readouterr().err


def test_a_run_counts_once_and_the_latest_of_a_configuration_is_marked(tmp_path):
    run = jt.load(str(REPOSITORY / "docs" / "results" / "runs" / "segformer-kernels-h200.zip"))
    run.activity = run.activity[:0]
    run.save(str(tmp_path / "one.zip"))
    run.save(str(tmp_path / "same.zip"))
    run.id, run.created_ns = "later", run.created_ns + 10**12
    run.save(str(tmp_path / "zero.zip"))
    table([tmp_path], tmp_path)
    found = pq.read_table(tmp_path / "atlas.parquet").to_pylist()
    assert [(one["run"] == "later", one["latest"]) for one in found] == [(False, False), (True, True)]


def test_a_data_set_keeps_what_it_has(tmp_path):
    """New Runs join those of a data set; the same Run takes the place of its former rows."""
    run = jt.load(str(REPOSITORY / "docs" / "results" / "runs" / "segformer-kernels-h200.zip"))
    run.activity = run.activity[:0]
    data, first = tmp_path / "data", tmp_path / "first"
    data.mkdir()
    first.mkdir()
    for path in (REPOSITORY / "docs" / "results" / "atlas").iterdir():
        (data / path.name).write_bytes(path.read_bytes())
    before = read(data)
    run.save(str(first / "one.zip"))
    for _ in range(2):
        table([first], data)
        found = read(data)
        assert found[0].num_rows == before[0].num_rows + 1
        new = [part for part in found[1].to_pylist() if part["run"] == run.id]
        assert found[1].num_rows == before[1].num_rows + len(new) > before[1].num_rows
    kept = [row for row in found[0].to_pylist() if row["run"] != run.id]
    assert kept == before[0].to_pylist()
