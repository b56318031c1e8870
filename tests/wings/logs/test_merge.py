"""Several logs of nvidia-smi as one Run: times of day, and GPUs without a UUID."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from import_logs import codes, smi
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, read_files


@pytest.mark.parametrize(("date", "starts", "zone"), [
    ("2026-11-20", "10:00:30", None), ("2026-11-20", "10:00:30", "Europe/Berlin"), ("2026-11-21", "00:00:05", None),
])  # fmt: skip
def test_times_of_day_are_put_on_the_day_of_a_file_with_dates(tmp_path, date, starts, zone):
    """The log of the other GPU begins at the stated time; the one with dates 30 s or 10 s before it."""
    begin = datetime.fromisoformat(f"{date}T{starts}").replace(tzinfo=ZoneInfo(zone) if zone else UTC)
    first = begin - timedelta(seconds=30 if starts.startswith("10") else 10)
    dated, daily = tmp_path / "dated.csv", tmp_path / "daily.log"
    rows = [f"{first + timedelta(seconds=k):%Y/%m/%d %H:%M:%S}.000, 0, {100 + k}.00 W\n" for k in range(120)]
    dated.write_text("timestamp, index, power.draw [W]\n" + "".join(rows))
    rows = [f" {begin + timedelta(seconds=k):%H:%M:%S} 1 {200 + k % 50}\n" for k in range(60)]
    daily.write_text("#Time gpu pwr\n#HH:MM:SS Idx W\n" + "".join(rows))
    run = read_files([str(dated), str(daily)], options=ImportOptions(time_zone=zone))
    starts_ns = [run.series(device.id, "power_w")[0][0] for device in run.devices]
    assert starts_ns == [round(one.timestamp() * 1e9) for one in (first, begin)]
    assert "clock_assumed" not in codes(run)


@pytest.mark.thorough
def test_two_files_with_times_of_day_alone_are_aligned_by_their_starts(tmp_path):
    paths = []
    for gpu, begins in ((0, "10:00:00"), (1, "10:00:30")):
        first = datetime.fromisoformat(f"2026-11-20T{begins}")
        rows = [f" {first + timedelta(seconds=k):%H:%M:%S} {gpu} {200 + k % 50}\n" for k in range(7200)]
        paths.append(tmp_path / f"{gpu}.log")
        paths[-1].write_text("#Time gpu pwr\n#HH:MM:SS Idx W\n" + "".join(rows))
    run = read_files(paths, options=ImportOptions(time_zone="Europe/Berlin"))
    one, other = (run.series(device.id, "power_w")[0][0] for device in run.devices)
    assert one == other
    assert "clock_assumed" in codes(run)


@pytest.mark.parametrize("columns", ["index, name", "name"])
def test_logs_of_two_hosts_that_number_their_gpus_alike_are_never_one(tmp_path, columns):
    files = [smi(tmp_path / f"node{k}.csv", 300 + 40 * k, columns=columns) for k in range(2)]
    with pytest.raises(BadInputError, match=r"node0.csv and .*node1.csv have other readings of GPU 0 at the same time"):
        read_files(files)
    known = smi(tmp_path / "known.csv", 300, columns="index, uuid, name")
    with pytest.raises(BadInputError, match="no UUID in both"):
        read_files([known, files[1]])


@pytest.mark.parametrize("since", [0, 600])
def test_logs_that_name_a_gpu_otherwise_are_never_one(tmp_path, since):
    files = [smi(tmp_path / "a.csv", 300), smi(tmp_path / "b.csv", 300, since, name="NVIDIA A100")]
    with pytest.raises(BadInputError, match="name GPU 0 NVIDIA H100 and NVIDIA A100: are they of two GPUs"):
        read_files(files)
