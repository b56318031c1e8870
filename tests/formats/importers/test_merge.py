"""Several files as one Run: clocks, offsets, devices, ids."""

import pytest

import import_timelines as make
from import_logs import smi
from jouletrace.analysis import analyse
from jouletrace.formats.importers import RELATIVE, UNIX, ImportOptions, block, read_files
from jouletrace.formats.importers.base import NO_CLOCK, new_run
from jouletrace.formats.importers.merge import merge
from jouletrace.run import ChannelInfo, DeviceInfo, tables
from shown import methods_of


def log(path, start_ns, n=10, clock=UNIX, device="imported:0", name="device 0", index=0):
    """A power log of ``n`` seconds."""
    run = new_run(path, "made", clock)
    times = [start_ns + 10**9 * k for k in range(n)]
    run.samples = block("samples", n, time_ns=times, device=device, channel="power_w", value=[100.0] * n)
    run.devices = [DeviceInfo(id=device, name=name, index=index)]
    run.channels = [ChannelInfo(device, "power_w", "W", "made")]
    return run


def kernels(path, start_ns, n=3, clock=UNIX, device="imported:0", rank=None, index=0, name="device 0"):
    run = new_run(path, "made", clock)
    times = [start_ns + 10**8 * k for k in range(n)]
    run.spans = block(
        "spans", n, id=list(range(n)), parent=[0] * n, kind="kernel", name="k", device=device, lane="stream 7",
        start_ns=times, end_ns=[t + 100 for t in times], correlation=[5] * n,
    )  # fmt: skip
    run.devices = [DeviceInfo(id=device, name=name, index=index)]
    run.workload["rank"] = rank
    return run


def merged(tmp_path, *makers, options=None):
    paths = [tmp_path / f"{k}.file" for k in range(len(makers))]
    runs = [maker(path) for maker, path in zip(makers, paths, strict=True)]
    return merge(runs, [str(path) for path in paths], options or ImportOptions())


def said(run):
    return [one["aligned"] for one in run.settings["imported"]]


def codes(run):
    return [warning.code for warning in run.warnings]


def test_files_on_unix_time_keep_their_times(tmp_path):
    run = merged(tmp_path, lambda p: kernels(p, make.BASE_NS), lambda p: log(p, make.BASE_NS - 10**9))
    assert run.spans["start_ns"][0].as_py() == make.BASE_NS
    assert run.samples["time_ns"][0].as_py() == make.BASE_NS - 10**9
    assert said(run) == ["its times are Unix times"] * 2
    assert run.created_ns == make.BASE_NS - 10**9
    assert not run.warnings


def test_a_relative_file_is_put_on_the_start_of_the_reference_and_warned_of(tmp_path):
    run = merged(tmp_path, lambda p: log(p, 5, clock=RELATIVE), lambda p: kernels(p, make.BASE_NS))
    assert run.samples["time_ns"][0].as_py() == make.BASE_NS
    assert said(run)[0] == "its start was aligned with that of 1.file"
    assert codes(run) == ["clock_assumed"]


def test_an_offset_moves_all_files_but_the_first_and_is_no_guess(tmp_path):
    run = merged(
        tmp_path,
        lambda p: kernels(p, make.BASE_NS),
        lambda p: log(p, 5, clock=RELATIVE),
        options=ImportOptions(offset_s=-0.25),
    )
    assert run.spans["start_ns"][0].as_py() == make.BASE_NS
    assert run.samples["time_ns"][0].as_py() == make.BASE_NS - 250_000_000
    assert said(run)[1] == "its start was aligned with that of 0.file; -0.25 s were added"
    assert codes(run) == []


def test_an_offset_by_name_moves_that_file_alone(tmp_path):
    options = ImportOptions(offsets_s={"0.file": 2.0})
    run = merged(tmp_path, lambda p: kernels(p, make.BASE_NS), lambda p: log(p, make.BASE_NS), options=options)
    assert run.spans["end_ns"][0].as_py() == make.BASE_NS + 100 + 2 * 10**9
    assert run.samples["time_ns"][0].as_py() == make.BASE_NS


def test_files_without_a_moment_in_common_are_warned_of(tmp_path):
    run = merged(tmp_path, lambda p: kernels(p, make.BASE_NS), lambda p: log(p, make.BASE_NS + 3600 * 10**9))
    (warning,) = run.warnings  # one line for both
    assert warning.code == "no_common_time"
    assert "2023-11-14 22:13:20.000 UTC to 2023-11-14 22:13:20.200 UTC" in warning.message
    assert "2023-11-14 23:13:20.000 UTC to" in warning.message


def test_a_device_known_by_number_becomes_the_one_whose_uuid_is_known(tmp_path):
    known = {"device": "GPU-1", "name": "NVIDIA H100"}
    run = merged(tmp_path, lambda p: log(p, make.BASE_NS), lambda p: kernels(p, make.BASE_NS, **known))
    assert [device.id for device in run.devices] == ["GPU-1"]
    assert set(run.samples["device"].to_pylist()) == {"GPU-1"}
    assert run.channels[0].device == "GPU-1"


@pytest.mark.parametrize("known", [{"name": "NVIDIA H100", "index": 1}, {"name": "NVIDIA H100", "index": 0}])
def test_a_device_of_another_number_or_name_stays_another(tmp_path, known):
    other = "device 0" if known["index"] == 1 else "NVIDIA A100"
    run = merged(
        tmp_path,
        lambda p: log(p, make.BASE_NS, name=other),
        lambda p: kernels(p, make.BASE_NS, device="GPU-1", **known),
    )
    assert [device.id for device in run.devices] == ["imported:0", "GPU-1"]


def test_ranks_that_call_their_gpu_alike_are_kept_apart(tmp_path):
    run = merged(tmp_path, *(lambda p, r=r: kernels(p, make.BASE_NS, rank=r) for r in (0, 1)))
    assert [device.id for device in run.devices] == ["imported:0@rank0", "imported:0@rank1"]
    assert set(run.spans["device"].to_pylist()) == {"imported:0@rank0", "imported:0@rank1"}


def test_ids_and_correlations_dont_collide(tmp_path):
    run = merged(tmp_path, *(lambda p: kernels(p, make.BASE_NS) for _ in range(3)))
    rows = run.spans.to_pylist()
    assert [row["id"] for row in rows] == list(range(9))
    assert [row["parent"] for row in rows] == [0] * 3 + [3] * 3 + [6] * 3
    assert len({row["correlation"] for row in rows}) == 3


def test_units_go_on_from_file_to_file_and_the_whole_model_is_one(tmp_path):
    def stated(path):
        run = new_run(path, "made", NO_CLOCK)
        units = [{"id": 0, "level": "model", "name": path.name}, {"id": 1, "parent": 0, "level": "layer", "name": "a"}]
        run.units = tables.from_rows(units, "units")
        run.results = tables.from_rows([{"unit": 1, "metric": "time_s", "value": 1.0}], "results")
        return run

    run = merged(tmp_path, stated, stated)
    assert [(row["id"], row["parent"]) for row in run.units.to_pylist()] == [(0, None), (1, 0), (2, 0)]
    assert run.results["unit"].to_pylist() == [1, 2]


def test_the_methods_of_an_import_say_that_others_measured(tmp_path):
    run = merged(tmp_path, lambda p: kernels(p, make.BASE_NS), lambda p: log(p, make.BASE_NS))
    assert "\n\nRecorded with other tools on device 0, and imported with jouletrace" in methods_of(run)
    assert "(made: 0.file; made: 1.file)" in methods_of(run)
    run.kind = "profile"
    assert "\n\nMeasured with jouletrace" in methods_of(run)
    assert "Imported beside it (made: 0.file; made: 1.file)." in methods_of(run)


def test_logs_that_state_their_hosts_are_of_two_gpus(tmp_path):
    files = [smi(tmp_path / f"{k}.csv", 300 + 40 * k, columns="host, index, name", host=f"node{k}") for k in range(2)]
    run = read_files(files)
    assert [device.host for device in run.devices] == ["node0", "node1"]
    assert [run.series(device.id, "power_w")[1][0] for device in run.devices] == [300, 340]


@pytest.mark.parametrize("since", [0, 10, 20])
def test_copies_and_parts_of_a_log_without_a_uuid_are_one_record(tmp_path, since):
    run = read_files([smi(tmp_path / "a.csv", 300), smi(tmp_path / "b.csv", 300, since)])
    assert len(run.samples) == 20 + since
    assert len(run.devices) == 1


def test_files_of_one_reading_each_are_as_one_file_with_all(tmp_path):
    parts = [smi(tmp_path / f"{k}.csv", 300, since=10 * k, rows=1) for k in range(20)]
    rows = [part.read_text().splitlines() for part in parts]
    whole = tmp_path / "whole.csv"
    whole.write_text("\n".join([rows[0][0], *(row[1] for row in rows)]) + "\n")
    one, many = analyse(read_files([whole])), analyse(read_files(parts))
    assert many.result("energy_total_j", 1) == one.result("energy_total_j", 1)
    assert one.result("energy_total_j", 1).value == pytest.approx(301 * 190, rel=0.01)
    assert {each.code for each in many.warnings} == {each.code for each in one.warnings}
