"""Sweeps over slices of a simulated GPU: what rows say, what fails, what resumes."""

import csv
import json
import math
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from commands import command
from jouletrace.campaign.loop import PointObserver
from jouletrace.errors import BadInputError
from jouletrace.wings.mig import Layout, SimulatedMig, layout_of, make_plan, written_down
from jouletrace.wings.mig import sweep as mig_sweep
from jouletrace.wings.mig.apply import apply
from jouletrace.wings.mig.jobs import JobFailedError, read_jobs
from jouletrace.wings.mig.point import PointSettings
from jouletrace.wings.mig.sweep import COLUMNS, RowStore, SweepSettings, sweep
from jouletrace.wings.mig.tables import summary

pytestmark = pytest.mark.thorough

pytest.importorskip("torch")

DEVICE = "sim:a100-40"
QUICK = PointSettings(seconds=1, solo_s=0.6, warmup_s=0.2, idle_s=0.9)


TOY = """
def toy(batch=1):
    import torch
    return torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)), torch.randn(batch, 1024)
"""


@pytest.fixture(autouse=True)
def toy(tmp_path, monkeypatch):
    """A small model, which is counted at once."""
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.chdir(tmp_path)


def settings(*names, models=("toy.py:toy",), batches=(1,), together=(1,), **more):
    return SweepSettings(names, tuple(read_jobs(models, batches=batches, **more)), together, QUICK)


def swept(tmp_path, wanted, backend=None, **how):
    return sweep(DEVICE, backend or SimulatedMig(DEVICE), wanted, tmp_path / "sweep", **how)[0]


class Begun(PointObserver):
    """The points that were begun; Ctrl-C comes at one of them."""

    def __init__(self, interrupted_at=None):
        super().__init__()
        self.points, self._at = [], interrupted_at

    def group(self, points):
        if len(self.points) == self._at:
            raise KeyboardInterrupt
        self.points += map(str, points)


def test_a_row_has_every_figure_and_they_agree(tmp_path):
    (row,) = swept(tmp_path, settings("2g.10gb", batches=(1024,))).rows
    assert row["status"] == "done"
    assert row["samples_per_s"] == pytest.approx(1024 * row["requests_per_s"])
    assert row["requests_per_s"] == pytest.approx(1 / row["latency_mean_s"], rel=0.01)
    assert row["latency_p50_s"] <= row["latency_p95_s"] <= row["latency_p99_s"]
    assert row["energy_per_sample_j"] == pytest.approx(row["power_w"] / row["samples_per_s"])
    assert row["power_w"] == pytest.approx(row["power_active_w"] + row["idle_power_w"] * 2 / 7)
    assert row["power_active_w"] == pytest.approx(row["board_power_w"] - row["idle_power_w"]), "it was alone"
    assert row["board_energy_per_sample_j"] == pytest.approx(row["board_power_w"] / row["samples_per_s"])
    assert row["power_w_low"] < row["power_w"] < row["power_w_high"]
    assert 0.5 < row["graphics_active"] <= 1
    assert row["fb_used_bytes"] > 480 << 20
    assert row["flags"] == "modelled"
    assert row["latency_quantiles_s"] == sorted(row["latency_quantiles_s"])


def test_larger_slices_are_faster_and_larger_batches_take_less_energy_a_sample(tmp_path):
    rows = swept(tmp_path, settings("1g.5gb", "7g.40gb", batches=(64, 4096), mode="graph")).rows
    by = {(row["profile"], row["batch"]): row for row in rows}
    assert by["7g.40gb", 4096]["samples_per_s"] > 4 * by["1g.5gb", 4096]["samples_per_s"]
    for name in ("1g.5gb", "7g.40gb"):
        assert by[name, 4096]["energy_per_sample_j"] < by[name, 64]["energy_per_sample_j"]


def test_slices_together_have_a_row_each_and_add_up_to_the_gpu(tmp_path):
    rows = swept(tmp_path, settings("2g.10gb", batches=(1024,), together=(0,))).rows
    assert [row["together"] for row in rows] == [3, 3, 3]
    assert len({row["device"] for row in rows}) == 3
    parts = sum(row["power_active_w"] for row in rows) + rows[0]["unattributed_w"]
    assert parts == pytest.approx(rows[0]["board_power_w"] - rows[0]["idle_power_w"], rel=1e-12)
    rate = sum(row["samples_per_s"] for row in rows)
    assert [row["board_energy_per_sample_j"] for row in rows] == pytest.approx([rows[0]["board_power_w"] / rate] * 3)


def row_of(profile, slice_j, gpu_j):
    how = {"profile": profile, "together": 1, "batch": 8, "dtype": "fp16", "mode": "eager"}
    about = {"model": "vit", "task": "infer", "seq_len": None, "status": "done", "power_w": 100.0}
    energies = {"energy_per_sample_j": slice_j, "board_energy_per_sample_j": gpu_j}
    for name, value in [*energies.items()]:
        energies |= {f"{name}_low": value and value * 0.999, f"{name}_high": value and value * 1.001}
    return {**dict.fromkeys(COLUMNS), **how, **about, **energies}


def test_the_least_energy_is_that_of_the_meter_and_what_a_slice_is_charged_says_on_what_it_depends():
    rows = [row_of("1g.10gb", 0.0398, 0.1008), row_of("3g.40gb", 0.0482, 0.0636), row_of("7g.80gb", 0.0680, 0.0680)]
    lines = summary(rows).splitlines()
    assert "least energy, whole GPU: 1 × 3g.40gb, batch 8: 63.600 ± 0.064 mJ/sample" in lines
    assert "lowest charge (modelled): 1 × 1g.10gb, batch 8: 39.800 ± 0.040 mJ/sample;" in lines
    assert "only if the other slices work too" in "\n".join(lines)
    rule = next(n for n, line in enumerate(lines) if line.startswith("───"))
    heads = " ".join(" ".join(lines[rule - 2 : rule]).split())
    assert heads.count("(mJ)") == 2, "energies of a column are in one unit, which its heading states"
    assert lines[0] == "trust: yes, all 2 checks passed; slices are modelled, the GPU is measured"
    assert max(map(len, lines)) <= 80
    assert "lowest charge" not in summary(rows[1:]), "one line where the same slices are best by both"


def test_a_mean_latency_and_its_spread_have_one_unit():
    known = {"latency_mean_s": 4.645e-3, "latency_std_s": 912.6e-9}
    rows = [row_of("1g.10gb", 0.04, 0.04) | known, row_of("3g.40gb", 0.05, 0.05) | known | {"latency_std_s": None}]
    text = summary(rows, verbose=True)
    assert "latency, mean ± sd (ms)" in text
    assert "4.64500 ± 0.00092" in " ".join(text.split())
    assert "4.645\n" in text


def test_rows_of_an_earlier_version_without_the_energy_of_the_gpu_are_shown():
    rows = [row_of("1g.10gb", 0.04, None), row_of("3g.40gb", 0.05, None)]
    for row in rows:
        del row["board_energy_per_sample_j"]
    assert "lowest charge (modelled): 1 × 1g.10gb" in summary(rows)


def test_out_of_memory_is_a_failed_row_without_figures(tmp_path):
    rows = swept(tmp_path, settings("1g.5gb", "7g.40gb", batches=(1_000_000,))).rows
    failed, done = rows
    assert (failed["status"], failed["reason"]) == ("failed", "out_of_memory")
    assert done["status"] == "done"
    figures = [name for name in COLUMNS if name.endswith(("_s", "_w", "_j", "_bytes", "_per_s", "requests"))]
    assert all(failed[name] is None for name in figures), "never zeros"
    text = summary(rows)
    assert "out of memory" in text


def test_a_sweep_resumes_where_it_was_cut_off(tmp_path):
    wanted = settings("1g.5gb", "3g.20gb", batches=(1, 2))

    backend = SimulatedMig(DEVICE)
    place = tmp_path / "sweep"
    _, tally = sweep(DEVICE, backend, wanted, place, watch=Begun(3))
    assert isinstance(tally.ended_by, KeyboardInterrupt)
    assert layout_of(backend) == Layout(False), "the GPU is as before"
    assert written_down(backend.info) is None
    about = json.loads((place / "sweep.json").read_text())
    (place / "sweep.json").write_text(json.dumps(about["settings"]))  # as earlier versions wrote it
    begun = Begun()
    store = swept(tmp_path, wanted, backend, watch=begun)
    assert begun.points == ["toy.py:toy infer batch 2 on 1 × 3g.20gb"]
    assert [(row["profile"], row["batch"]) for row in store.rows] == [
        (profile, batch) for profile in ("1g.5gb", "3g.20gb") for batch in (1, 2)
    ]


def test_a_line_that_a_crash_cut_off_is_measured_again(tmp_path):
    wanted = settings("1g.5gb", batches=(1, 2))
    store = swept(tmp_path, wanted)
    path = tmp_path / "sweep" / "rows.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    begun = Begun()
    again = swept(tmp_path, wanted, watch=begun)
    assert begun.points == ["toy.py:toy infer batch 2 on 1 × 1g.5gb"]
    assert len(again.rows) == len(store.rows)
    assert len(path.read_bytes().splitlines()) == 2


def test_rows_that_are_damaged_in_the_middle_are_not_dropped_in_silence(tmp_path):
    swept(tmp_path, settings("1g.5gb", batches=(1, 2)))
    path = tmp_path / "sweep" / "rows.jsonl"
    path.write_bytes(b"{" + path.read_bytes()[1:])
    with pytest.raises(BadInputError, match="damaged in line 1"):
        swept(tmp_path, settings("1g.5gb"))


def test_a_folder_of_another_sweep_is_refused(tmp_path):
    swept(tmp_path, settings("1g.5gb"))
    other = replace(settings("1g.5gb"), point=replace(QUICK, seconds=2))
    with pytest.raises(BadInputError, match=r"holds a sweep with other settings .point seconds: 1, not 2"):
        swept(tmp_path, other)


def test_a_job_that_failed_is_tried_again_unless_it_takes_too_much_memory(tmp_path, monkeypatch):
    wanted, inner = settings("1g.5gb", batches=(1, 2, 1_000_000)), mig_sweep.measure_point

    def vanishes(bench, jobs, how):
        if jobs[0].batch == 2:
            raise JobFailedError("vanished", "the process was killed by signal 9")
        return inner(bench, jobs, how)

    monkeypatch.setattr(mig_sweep, "measure_point", vanishes)
    store, tally = sweep(DEVICE, SimulatedMig(DEVICE), wanted, tmp_path / "sweep")
    assert [row["reason"] for row in store.rows] == [None, "vanished", "out_of_memory"]
    assert [found.reason for found in tally.missing] == ["vanished", "out_of_memory"]
    monkeypatch.setattr(mig_sweep, "measure_point", inner)
    begun = Begun()
    again = swept(tmp_path, wanted, watch=begun)
    assert begun.points == ["toy.py:toy infer batch 2 on 1 × 1g.5gb"]
    assert [(row["batch"], row["status"]) for row in again.rows] == [(1, "done"), (2, "done"), (10**6, "failed")]
    assert RowStore(tmp_path / "sweep").rows == again.rows


def test_the_command_prints_the_rows_so_far_when_it_is_interrupted(capsys, monkeypatch):
    inner = mig_sweep.measure_point

    def interrupted(bench, jobs, how):
        if jobs[0].batch == 2:
            raise KeyboardInterrupt
        return inner(bench, jobs, how)

    monkeypatch.setattr(mig_sweep, "measure_point", interrupted)
    arguments = ["--device", DEVICE, "--profiles", "1g.5gb", "--models", "toy.py:toy", "--batch", "1,2", "-o", "out"]
    said = command(capsys, "mig", "sweep", *arguments, "--seconds", "1")
    assert said.code == 130
    assert "1g.5gb" in said.out
    assert "1 of 2 points are measured; the same command with -o out goes on" in said.err


def test_the_gpu_is_as_the_user_had_divided_it(tmp_path):
    backend = SimulatedMig(DEVICE)
    apply(make_plan(["4g.20gb", "3g.20gb"], backend), backend, DEVICE)
    before = layout_of(backend)
    swept(tmp_path, settings("1g.5gb"), backend)
    assert layout_of(backend) == before
    assert written_down(backend.info) == Layout(False), "mig restore still goes back to where it began"


def test_csv_and_parquet_say_the_same_with_units(tmp_path):
    store = swept(tmp_path, settings("1g.5gb", batches=(1, 10_000_000)))
    with (tmp_path / "sweep" / "sweep.csv").open() as file:
        lines = list(csv.DictReader(file))
    table = pq.ParquetFile(tmp_path / "sweep" / "sweep.parquet").read()
    assert table.to_pylist() == store.rows
    assert float(lines[0]["power_w"]) == store.rows[0]["power_w"]
    assert lines[1]["latency_mean_s"] == "", "a failed row has empty cells"
    assert table.schema.field("power_w").metadata[b"unit"] == b"W"
    assert set(table.column_names) == set(COLUMNS)


@pytest.mark.parametrize(
    ("names", "how", "says"),
    [
        (("9g.90gb",), {}, "no such profile"),
        (("1c.3g.20gb",), {}, "whole GPU instances"),
        (("3g.20gb",), {"together": (3,)}, "takes 2 3g.20gb"),
        (("3g.20gb",), {"together": (-1,)}, "a number of slices"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_anything_changes(tmp_path, names, how, says):
    backend = SimulatedMig(DEVICE)
    backend.failures.refuse_after = 0
    with pytest.raises(BadInputError, match=says):
        swept(tmp_path, settings(*names, **how), backend)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"tasks": ["dance"]}, "must be one of"),
        ({"batches": [0]}, "--batch 0"),
        ({"models": ["resnet51"]}, "resnet50"),
        ({"models": []}, "--models"),
        ({"mode": "compile"}, "eager or graph"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(how, says):
    with pytest.raises(BadInputError, match=says):
        read_jobs(**{"models": ["vit"], **how})


def test_names_of_other_mig_profilers_are_known():
    jobs = read_jobs(["vision_transformer", "swin_transformer", "vit"], ["cv_infer", "nlp_infer"])
    assert [job.workload for job in jobs] == ["vit-base", "swin-tiny", "vit-base"]
    assert {job.task for job in jobs} == {"infer"}
    assert [job.task for job in read_jobs(["vit"], ["cv_infer", "cv_train", "nlp_train"])] == ["infer", "train"]


def test_the_command_sweeps(capsys):
    arguments = ["--device", DEVICE, "--profiles", "1g.5gb,3g.20gb", "--models", "toy.py:toy", "--batch", "1,8"]
    said = command(capsys, "mig", "sweep", *arguments, "--seconds", "2", "-o", "out")
    assert said.code == 0, said.err
    assert said.out.startswith("SIMULATED")
    assert "samples/s" in said.out
    said = command(capsys, "mig", "sweep", *arguments, "--seconds", "2", "-o", "out", "--json")
    data = json.loads(said.out)
    assert data["simulated"] is True
    assert len(data["rows"]) == 4
    assert all(math.isfinite(row["power_w"]) for row in data["rows"])


def test_the_commands_list_plan_apply_and_restore(capsys):
    assert "1g.10gb+me" in command(capsys, "mig", "list", "--device", "sim:h100").out
    plan = json.loads(
        command(capsys, "mig", "plan", "3g.40gb", "2g.20gb", "1g.10gb", "--device", "sim:h100", "--json").out
    )
    assert [one["start"] for one in plan["instances"]] == [4, 0, 2]
    said = command(capsys, "mig", "apply", "3g.40gb", "--device", "sim:h100")
    assert said.code == 2
    assert "--yes" in said.err
    assert command(capsys, "mig", "apply", "3g.40gb", "2x1c.2g", "--device", "sim:h100", "--yes").code == 0
    found = json.loads(command(capsys, "mig", "list", "--device", "sim:h100", "--json").out)
    assert [len(one["compute_instances"]) for one in found["instances"]] == [2, 1]
    assert command(capsys, "mig", "restore", "--device", "sim:h100", "--json").code == 0
    assert json.loads(command(capsys, "mig", "list", "--device", "sim:h100", "--json").out)["instances"] == []
    assert command(capsys, "mig", "plan", "4g.40gb", "4g.40gb", "--device", "sim:h100").code == 2
    assert command(capsys, "mig", "list", "--device", "sim:v100").code == 3
