"""A sharded training on two H200s (FSDP of torch 2.11, 8 s), recorded as one Run: what every command makes of it."""

import csv
import io
import json
import re
import shutil

import pyarrow.compute as pc
import pytest

from commands import done
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError
from jouletrace.run import load, save, tables
from places import REPOSITORY
from shown import leaves, name_of, rows

RUN = REPOSITORY / "tests" / "data" / "fsdp-two-h200.zip"
RANKS = {"rank-0", "rank-1"}

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def shown():
    return json.loads(done("show", str(RUN), "--json").out)


def test_parts_of_both_gpus_make_the_whole(shown):
    closure = shown["checks"]["closure_kernels"]
    assert closure["low"] < 1 < closure["high"]
    assert closure["value"] == pytest.approx(1, abs=0.02)
    assert shown["trust"]["level"] == "yes"
    whole = shown["model"]["energy_j"]["total"]["value"]
    for division in ("whole", "phase"):  # some kernels are too short to have an energy of their own
        assert sum(row["energy_j"]["value"] for row in leaves(shown, division)) == pytest.approx(whole, rel=0.02)
    assert len({row["device"] for row in rows(shown, "whole", "device")} & {one["id"] for one in shown["devices"]}) == 2


def test_operators_and_kernels_of_each_gpu_are_there(shown):
    for division in ("code", "module"):
        assert {name_of(row, "device") for row in rows(shown, division)} == RANKS, division
    for rank in RANKS:
        named = {name_of(row) for row in rows(shown, "code", "op") if name_of(row, "device") == rank}
        assert {"mm", "addmm", "c10d._allgather_base_", "c10d._reduce_scatter_base_"} <= named


@pytest.mark.slow
def test_divisions_make_up_the_whole(shown):
    for kinds in ("op", "device,phase"):
        own = rows(json.loads(done("show", str(RUN), "--by", kinds, "--json").out), kinds)
        assert sum(row["share"]["value"] for row in own) == pytest.approx(1, rel=1e-9)
        assert name_of(own[-1]) == "in no part"
        last = own[-5:-1] if "device" in kinds else own[-3:-1]
        assert [name_of(row) for row in last] == sorted(
            ["idle", "before the first kernel"] * (len(last) // 2), reverse=True
        )
    by_rank = rows(json.loads(done("show", str(RUN), "--by", "device", "--json").out), "device")
    assert {name_of(row, "device") for row in by_rank[:2]} == RANKS


def test_csv_names_a_row_by_its_ranks():
    rows = list(csv.DictReader(io.StringIO(done("show", str(RUN), "--detail", "kernel", "--format", "csv").out)))
    devices = {
        level: {row["device"] for row in rows if row["level"] == level} for level in ("model", "device", "kernel")
    }
    assert devices == {"model": {"rank-0, rank-1"}, "device": RANKS, "kernel": RANKS}
    assert all("NVIDIA H200" in row["name"] for row in rows if row["level"] == "device")


def test_a_citation_names_both(tmp_path):
    done("report", str(RUN), "-o", str(tmp_path / "page.html"))
    cited = (tmp_path / "page.html").read_text().split("How to cite</h3>")[1]
    assert "on 2 × NVIDIA H200 (driver" in cited
    assert "Energy is that of the GPUs" in cited
    (caption,) = re.findall(r"\\caption\{(.*)\}", done("show", str(RUN), "--format", "latex").out)[:1]
    assert "on 2 $\\times$ NVIDIA H200" in caption


def test_an_overview_has_their_total_and_each(tmp_path):
    again = shutil.copy(RUN, tmp_path / "again.zip")
    lines = done("show", str(RUN), str(again)).out.replace("\u00a0", " ").splitlines()
    rows = [re.split(r" {2,}", line)[:2] for line in lines if "NVIDIA H200 " in line]
    devices = ("2 × NVIDIA H200", "NVIDIA H200 #0", "NVIDIA H200 #1")
    assert rows == [[file, device] for file in ("fsdp-two-h200", "again") for device in devices]
    assert all("7.414 ± 0.085" in line for line in lines if "2 × NVIDIA H200" in line)


@pytest.mark.slow
def test_it_is_analysed_again_to_what_is_stored():
    """All of it and each rank; what is pooled below goes by the estimator of its version."""
    run = load(RUN)
    units = [row["id"] for row in run.units.to_pylist() if row["level"] in ("model", "device")]
    stated = [run.result("energy_total_j", id) for id in units]
    analyse(run)
    assert len(units) == 3
    for id, before in zip(units, stated, strict=True):
        found = run.result("energy_total_j", id)
        assert found.value == pytest.approx(before.value, abs=before.half_width + found.half_width), id


def test_it_is_compared_reported_and_exported_as_one(tmp_path):
    found = json.loads(done("compare", str(RUN), str(shutil.copy(RUN, tmp_path / "same.zip")), "--json").out)
    assert all(row["change"]["value"] in (0, None) for row in found["rows"])
    assert {row["where"].split()[0] for row in found["rows"] if row["level"] == "phase"} == RANKS
    done("report", str(RUN), "-o", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "rank-0" in page
    assert "rank-1" in page
    done("export", str(RUN), "--format", "csv", "-o", str(tmp_path / "csv"))
    with (tmp_path / "csv" / "activity.csv").open() as file:
        assert {row["device"] for row in csv.DictReader(file)} == {device.id for device in load(RUN).devices}
    done("export", str(RUN), "--format", "collapsed", "-o", str(tmp_path / "stacks"))
    assert all(any(f";{rank}" in line for line in (tmp_path / "stacks").read_text().splitlines()) for rank in RANKS)


@pytest.mark.slow
def test_a_division_without_one_of_the_gpus_is_refused(tmp_path):
    """Its energy would be counted as not recorded, beside what is known of it."""
    run = analyse(load(RUN))
    folder = save(run, tmp_path / "run")
    lost = run.devices[1].id
    for name in tables.SOLVED:
        table = run.table(name)
        tables.write(table.filter(pc.not_equal(table["device"], lost)), name, folder / f"{name}.parquet")
    with pytest.raises(BadInputError, match=f"has no row of {lost}, whose kernels were recorded"):
        load(folder)


def test_rows_without_an_energy_are_those_of_no_pool_and_say_why():
    text = done("show", str(RUN), "--detail", "op").out.replace("\u00a0", " ")
    lines = [line.split() for line in text.splitlines()]
    assert ["rank-0", "aten.mm,", "not", "resolved", "362.8", "–"] in lines
    assert ["rank-1", "aten.add,", "not", "resolved", "119.4", "–"] in lines
