"""Programs in several processes: each rank records its own device, and their Runs become one."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import jouletrace as jt
from commands import FOREVER_S, command, wait_for
from jouletrace.devices import cuda_order
from jouletrace.errors import BadInputError
from jouletrace.profiler.record import merged, ranks
from jouletrace.profiler.record.ranks import Rank, device_of, this_rank
from jouletrace.run import SPOOL, DeviceInfo, read_spool
from records import DEVICE, channel, make_run, ns, phases, readings

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")


@pytest.fixture
def as_rank(monkeypatch):
    """Be a rank, as a launcher says it."""

    def be(rank, world=2, restart=0):
        for name, value in zip(VARIABLES, (rank, rank, world, restart), strict=True):
            monkeypatch.setenv(name, str(value))

    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return be


def board(rank):
    return f"sim:h100?realtime=1&seed={rank + 1}&noise=0&load=0.5:{300 + 100 * rank}"


def unit(run, name):
    return next(row["id"] for row in run.units.to_pylist() if row["name"] == name)


def energy(run, name):
    return run.result("energy_each_j", unit(run, name))


def total(run, name):
    """That of all steps together: on a busy machine these may differ too much for a mean."""
    return run.result("energy_total_j", unit(run, name))


def loop(rank, place, steps=5):
    with jt.record("ddp", device=board(rank), save_to=place) as recording:
        for _ in range(steps):
            with jt.range("forward"):
                time.sleep(0.06)
            jt.step()
    return recording.run


# --- which rank, and which device ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, None),
        ({"RANK": "x", "WORLD_SIZE": "2"}, None),
        ({"RANK": "2", "WORLD_SIZE": "2"}, None),
        ({"RANK": "3", "WORLD_SIZE": "4"}, Rank(3, 4)),
        (
            {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TORCHELASTIC_RESTART_COUNT": "2"},
            Rank(3, 4, local=1, restart=2),
        ),
    ],
)
def test_the_launcher_says_which_rank_this_is(stated, found):
    assert this_rank(stated) == found


def test_a_rank_records_the_gpu_of_its_local_number(monkeypatch):
    monkeypatch.setattr(ranks, "cuda_uuids", lambda: ["GPU-a", "GPU-b"])
    assert [device_of(Rank(2 + local, 4, local)) for local in (0, 1)] == ["GPU-a", "GPU-b"]
    assert device_of(Rank(1, 2)) == "visible", "a launcher that doesn't report it"
    with pytest.raises(BadInputError, match="LOCAL_RANK is 2, and CUDA shows 2 GPUs"):
        device_of(Rank(2, 4, 2))


def test_a_rank_that_sees_one_gpu_records_it_whatever_its_number(monkeypatch):
    monkeypatch.setattr(ranks, "cuda_uuids", lambda: ["GPU-b"])
    assert device_of(Rank(1, 2, 1)) == "GPU-b"
    monkeypatch.setattr(ranks, "cuda_uuids", lambda: None)
    assert device_of(Rank(1, 2, 1)) == "visible"
    assert cuda_order.cuda_uuids is not ranks.cuda_uuids


# --- recording and merging -------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_first_rank_merges_all_when_it_ends(as_rank, tmp_path):
    place = tmp_path / "run"
    as_rank(1)
    own = loop(1, place)
    assert (own.workload["rank"], own.workload["world_size"]) == (1, 2)
    assert not (place / "run.json").exists()
    as_rank(0)
    run = loop(0, place)
    assert run.complete
    assert not [w for w in run.warnings if w.code.startswith("rank")]
    assert [device.id for device in run.devices] == ["SIM-h100-80-1", "SIM-h100-80-2"]
    for rank in (0, 1):
        seconds = run.result("time_s", unit(run, f"rank {rank}/step")).value
        assert total(run, f"rank {rank}/step").value == pytest.approx((300 + 100 * rank) * seconds, rel=0.02)
        own = jt.load(place / f"rank-{rank}")
        assert energy(run, f"rank {rank}").value == pytest.approx(own.result("energy_total_j", 1).value, rel=0.02)
    parts = [total(run, f"rank {rank}/step").value for rank in (0, 1)]
    assert total(run, "all ranks/step").value == pytest.approx(sum(parts))
    assert run.result("energy_total_j").value == pytest.approx(
        sum(run.result("energy_total_j", i).value for i in (1, 2))
    )
    saved = jt.load(place)
    assert saved.results.equals(run.results)
    assert {path.name for path in place.glob("rank-*")} == {"rank-0", "rank-1"}, "parts stay"


@pytest.mark.slow  # as the folder above
def test_a_zip_has_its_parts_beside_it(as_rank, tmp_path):
    for rank in (1, 0):
        as_rank(rank)
        run = loop(rank, tmp_path / "run.zip", steps=1)
    assert len(run.devices) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"run.zip", "run.ranks"}
    assert jt.load(tmp_path / "run.zip").complete


@pytest.mark.thorough
def test_a_run_in_memory_stays_that_of_its_rank(as_rank):
    as_rank(0)
    run = loop(0, None, steps=1)
    assert run.workload["rank"] == 0
    assert len(run.devices) == 1


@pytest.mark.thorough
def test_a_rank_that_records_nothing_is_named_and_not_waited_for_long(as_rank, tmp_path, monkeypatch):
    """As where the program records in its first rank alone."""
    monkeypatch.setattr(ranks, "ABSENT_S", 0.3)
    as_rank(0)
    run = loop(0, tmp_path / "run", steps=1)
    assert not run.complete
    (warning,) = [w for w in run.warnings if w.code == "rank_missing"]
    assert "of 2 ranks, no part exists of rank 1" in warning.message
    as_rank(1)
    with pytest.raises(BadInputError, match="results are never overwritten"):
        loop(1, tmp_path / "run", steps=1)


@pytest.mark.thorough
def test_a_rank_that_still_records_is_waited_for(as_rank, tmp_path, monkeypatch):
    """And merged as far as it had come, if that takes too long."""
    place = tmp_path / "run"
    as_rank(1)
    other = jt.record("ddp", device=board(1), save_to=place)
    other.__enter__()
    try:
        wait_for(lambda: len(read_spool(place / "rank-1" / SPOOL, "samples")) > 20)
        began = time.monotonic()
        run, _ = ranks.merge_when_all_ended(place, Rank(0, 2), wait_s=1.0)
        assert time.monotonic() - began >= 1.0
        assert not run.complete
    finally:
        other.__exit__(None, None, None)
    assert jt.load(place / "rank-1").complete
    assert ranks._others(place, Rank(0, 2)) == (0, 1)


@pytest.mark.thorough
def test_a_restart_has_a_part_of_its_own(as_rank, tmp_path):
    place = tmp_path / "run"
    as_rank(1)
    loop(1, place, steps=2)
    for rank in (1, 0):
        as_rank(rank, restart=1)
        run = loop(rank, place, steps=3)
    names = [member["name"] for member in run.settings["ranks"]]
    assert names == ["rank 0 (restart 1)", "rank 1", "rank 1 (restart 1)"]
    assert total(run, "all ranks/step").value == pytest.approx(
        sum(total(run, f"rank {rank} (restart 1)/step").value for rank in (0, 1))
    )


@pytest.mark.thorough
def test_a_killed_rank_leaves_its_part_and_is_named(as_rank, tmp_path, capsys, monkeypatch):
    """Killed in the middle: what had reached the disk is merged, and no one waits for the dead."""
    monkeypatch.setattr(ranks.merge_when_all_ended, "__defaults__", (FOREVER_S,))
    place = tmp_path / "run"
    body = (
        "import time, jouletrace as jt\n"
        f"with jt.record('ddp', device={board(1)!r}, save_to={str(place)!r}):\n"
        "    while True:\n"
        "        time.sleep(0.02); jt.step()\n"
    )
    stated = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    process = subprocess.Popen([sys.executable, "-c", body], env={**os.environ, **stated})
    spool = place / "rank-1" / SPOOL
    wait_for(lambda: spool.exists() and len(read_spool(spool, "spans")) > 40)
    process.kill()
    process.communicate()
    as_rank(0)
    run = loop(0, place, steps=3)
    (warning,) = [w for w in run.warnings if w.code == "rank_incomplete"]
    assert "rank 1 ended early" in warning.message
    assert not run.complete
    assert run.result("energy_total_j", unit(run, "rank 1/step")).value > 0
    found = command(capsys, "merge", str(place))
    assert found.code == 0, found.err
    assert "SIMULATED" in found.out


# --- merging, by hand ------------------------------------------------------------------------------


def part(rank, device, watts, seconds=10.0, world=2, **changes):
    rows = [*phases(("monitor", 0.5, seconds - 0.5))]
    steps = np.arange(1.0, seconds - 1.5, 0.5)
    for i, start in enumerate(steps, start=1):
        facts = {"id": 2 * i, "kind": "range", "name": "epoch", "lane": "main", "parent": None}
        inner = {"id": 2 * i + 1, "kind": "iteration", "name": "step", "lane": "main", "parent": 2 * i}
        edges = {"start_ns": ns(start), "end_ns": ns(start + 0.4)}
        rows += [{**facts, **edges}, {**inner, **edges}]
    rows = [{**row, "device": device} for row in rows]
    run = make_run(
        readings(watts, seconds, noise=0.3, device=device), kind="record", spans=rows, channels=[channel(device=device)]
    )
    run.devices = [DeviceInfo(device, "GPU by hand")]
    run.workload = {"name": "x", "rank": rank, "world_size": world, "restart": 0, **changes}
    run.clock_pairs = []
    return run


@pytest.mark.thorough
def test_each_rank_has_the_energy_of_its_own_device():
    run = merged([part(0, "GPU-a", 100.0), part(1, "GPU-b", 400.0)])
    assert energy(run, "rank 0/epoch").value == pytest.approx(40, rel=0.01)
    assert energy(run, "rank 1/epoch").value == pytest.approx(160, rel=0.01)
    assert energy(run, "rank 1/epoch/step").value == pytest.approx(160, rel=0.01)
    both = energy(run, "all ranks/epoch/step")
    assert both.low <= 200 <= both.high
    ids = run.spans["id"].to_pylist()
    assert len(set(ids)) == len(ids)


@pytest.mark.thorough
def test_ranks_on_one_device_are_recorded_once_and_share_it():
    run = merged([part(0, DEVICE, 300.0), part(1, DEVICE, 300.0)])
    assert len(run.samples) == len(part(0, DEVICE, 300.0).samples)
    assert energy(run, "rank 1/epoch").value == pytest.approx(120, rel=0.01)
    assert energy(run, "all ranks/epoch").reason == "ranks_share_device"


@pytest.mark.thorough
def test_ranks_that_made_different_numbers_of_steps_say_so():
    run = merged([part(0, "GPU-a", 100.0), part(1, "GPU-b", 100.0, seconds=8.0)])
    assert "counts_differ" in run.result("energy_total_j", unit(run, "all ranks/epoch")).flags


@pytest.mark.thorough
def test_parts_that_cannot_be_read_are_named(tmp_path):
    part(0, "GPU-a", 100.0).save(str(tmp_path / "rank-0"))
    part(1, "GPU-b", 100.0).save(str(tmp_path / "rank-1"))
    (tmp_path / "rank-1" / "samples.parquet").write_bytes(b"x")
    run = ranks.merge_ranks(tmp_path)
    (warning,) = [w for w in run.warnings if w.code == "rank_lost"]
    assert "rank-1" in warning.message
    assert not run.complete
    (tmp_path / "rank-0" / "samples.parquet").write_bytes(b"x")
    with pytest.raises(BadInputError, match="no part of any rank can be read"):
        ranks.merge_ranks(tmp_path)


@pytest.mark.thorough
def test_where_nothing_can_be_merged_it_is_reported(tmp_path, capsys):
    assert "no parts of ranks" in command(capsys, "merge", str(tmp_path)).complaint
    part(0, "GPU-a", 100.0).save(str(tmp_path / "rank-0"))
    part(1, "GPU-b", 100.0).save(str(tmp_path / "rank-1"))
    assert f"jouletrace merge {tmp_path}" in command(capsys, "show", str(tmp_path)).complaint
    assert command(capsys, "merge", str(tmp_path)).code == 0
    assert "holds the merged Run already" in command(capsys, "merge", str(tmp_path)).complaint


@pytest.mark.slow  # recording and merging as such are tested above, in this process
def test_torchrun_with_two_ranks_and_gloo_makes_one_run(tmp_path):
    """As a user runs it: two processes that wait for one another in every step."""
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    script = tmp_path / "train.py"
    script.write_text(
        "import os, time, torch, torch.distributed as dist\n"
        "import jouletrace as jt\n"
        "rank = int(os.environ['RANK'])\n"
        "dist.init_process_group('gloo')\n"
        "GPU = f'sim:h100?realtime=1&seed={rank + 1}&noise=0&load=0.5:{300 + 100 * rank}'\n"
        f"with jt.record('ddp', device=GPU, save_to={str(tmp_path / 'run')!r}) as recording:\n"
        "    for i in range(10):\n"
        "        with torch.profiler.record_function('work'):\n"
        "            time.sleep(0.04)\n"
        "        dist.all_reduce(torch.ones(10))\n"
        "        jt.step()\n"
        "print(rank, len(recording.run.devices))\n"
        "dist.destroy_process_group()\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    found = subprocess.run(launch, capture_output=True, text=True, check=False, env=environment)
    assert found.returncode == 0, found.stderr
    assert sorted(found.stdout.split("\n"))[1:] == ["0 2", "1 1"]
    run = jt.load(tmp_path / "run")
    assert run.complete
    assert len(run.devices) == 2
    joules = [
        watts * run.result("time_s", unit(run, f"rank {rank}/step")).value for rank, watts in ((0, 300), (1, 400))
    ]
    whole = run.result("energy_total_j", unit(run, "all ranks/step"))
    assert whole.value == pytest.approx(sum(joules), rel=0.05)
    assert {row["name"] for row in run.spans.to_pylist() if row["kind"] == "range"} == {"rank 0", "rank 1", "work"}
    assert Path(tmp_path / "run" / "rank-1" / "run.json").exists()


def test_a_profile_is_no_part_of_a_program(tmp_path):
    run = part(0, "GPU-a", 100.0)
    run.kind = "profile"
    run.save(str(tmp_path / "rank-0"))
    with pytest.raises(BadInputError, match="a Run of kind profile is not a rank's part"):
        ranks.merge_ranks(tmp_path)
    assert not (tmp_path / "run.json").exists()


def two_parts(place):
    for rank, gpu in enumerate(("GPU-a", "GPU-b")):
        part(rank, gpu, 100.0).save(str(place / f"rank-{rank}"))


def test_the_same_rank_twice_is_refused_and_never_counted_twice(tmp_path, capsys):
    two_parts(tmp_path)
    shutil.copytree(tmp_path / "rank-0", tmp_path / "rank-0-copy")
    said = command(capsys, "merge", str(tmp_path)).complaint
    assert f"{tmp_path / 'rank-0'} and {tmp_path / 'rank-0-copy'} are both of rank 0" in said
    assert not (tmp_path / "run.json").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda header: header.update(devices=[]), "it doesn't state its device"),
        (lambda header: header["workload"].update(rank="x"), "got `str` - at `$.rank`"),
        (lambda header: header["workload"].update(rank=-1), "Expected `int` >= 0 - at `$.rank`"),
        (lambda header: header["workload"].update(world_size="many"), "got `str` - at `$.world_size`"),
    ],
)
def test_a_part_that_does_not_say_what_it_is_of_is_left_out_and_named(tmp_path, damage, what):
    two_parts(tmp_path)
    path = tmp_path / "rank-1" / "run.json"
    header = json.loads(path.read_text())
    damage(header)
    path.write_text(json.dumps(header))
    run = ranks.merge_ranks(tmp_path)
    (warning,) = [w for w in run.warnings if w.code == "rank_lost"]
    assert "rank-1 (" in warning.message
    assert f"{what})" in warning.message
    assert [member["rank"] for member in run.settings["ranks"]] == [0]
    assert not run.complete


@pytest.mark.thorough
def test_of_a_great_many_missing_ranks_some_are_named_and_the_rest_counted(tmp_path):
    two_parts(tmp_path)
    path = tmp_path / "rank-0" / "run.json"
    header = json.loads(path.read_text())
    header["workload"]["world_size"] = 10**9
    path.write_text(json.dumps(header))
    (warning,) = [w for w in ranks.merge_ranks(tmp_path).warnings if w.code == "rank_missing"]
    assert "no part exists of rank 2, 3, 4" in warning.message
    assert "21 and 999999978 more" in warning.message


def test_what_stands_in_the_place_of_the_merged_run_is_named(tmp_path, capsys):
    two_parts(tmp_path)
    (tmp_path / "run.json").mkdir()
    assert f"cannot read {tmp_path / 'run.json'}: Is a directory" in command(capsys, "merge", str(tmp_path)).complaint
