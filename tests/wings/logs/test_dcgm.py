"""Reports of DCGM: scrapes of its exporter, answers of Prometheus, dcgmi dmon, and CSV."""

import csv
import json

import numpy as np
import pytest

from import_logs import codes, dcgm_csv, left_out, read, real, real_files, scrape, write
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, importer


@pytest.mark.thorough
def test_scrapes_with_stamps_are_on_the_clock_of_the_world(tmp_path):
    run = read(tmp_path, "dcgm", "".join(scrape(60 + i, stamp=f" {1657289505000 + 500 * i}") for i in range(4)))
    time, watts = run.series("GPU-abcd", "power_w")
    assert list(watts) == [60, 61, 62, 63]
    assert list(time) == [1657289505 * 10**9 + i * 500_000_000 for i in range(4)]
    assert run.series("GPU-abcd", "energy_counter_j")[1][1] == 61.0
    assert run.series("GPU-abcd", "memory_used_bytes")[1][0] == 2**30
    assert run.channel("GPU-abcd", "power_w").window_s == 0.025
    assert run.devices[0].host == "node{1}"


def test_scrapes_without_stamps_are_distinguished_by_what_comes_back(tmp_path):
    run = read(tmp_path, "dcgm", scrape(60) * 3)
    assert list(run.series("GPU-abcd", "power_w")[1]) == [60] * 3
    assert "interval_assumed" in codes(run)


def test_a_date_between_scrapes_is_the_time_of_the_next(tmp_path):
    text = "".join(f"# 2024-03-01T12:00:{5 * i:02d}Z\n{scrape(60 + i)}" for i in range(3))
    time, watts = read(tmp_path, "dcgm", text).series("GPU-abcd", "power_w")
    assert list(watts) == [60, 61, 62]
    assert list(np.diff(time)) == [5 * 10**9] * 2


def test_under_mig_power_is_the_gpus_and_counted_once(tmp_path):
    run = read(tmp_path, "dcgm", "".join(scrape(60 + i, mig=True) for i in range(3)))
    assert list(run.series("GPU-abcd", "power_w")[1]) == [60, 61, 62]
    assert [(d.id, d.kind) for d in run.devices] == [("GPU-abcd", "gpu"), ("GPU-abcd/7", "mig"), ("GPU-abcd/8", "mig")]
    assert list(run.series("GPU-abcd/8", "graphics_active")[1]) == [0.5] * 3
    assert run.channel("GPU-abcd/7", "power_w") is None


def test_the_instant_field_is_not_taken_for_the_mean_over_a_second(tmp_path):
    rows = "".join(f"1657289{505 + i},0,{60 + i},{70 + i}\n" for i in range(10))
    text = "Timestamp,EntityId,DCGM_FI_DEV_POWER_USAGE,DCGM_FI_DEV_POWER_USAGE_INSTANT\n" + rows
    run = importer("dcgm").read(write(tmp_path, text), ImportOptions(device="NVIDIA H100 80GB HBM3"))
    assert run.channel("imported:0", "power_w").window_s == 1.0
    assert run.channel("imported:0", "power_instant_w").window_s is None


def test_csv_has_a_time_in_each_row(tmp_path):
    run = read(tmp_path, "dcgm", dcgm_csv(10))
    time, watts = run.series("imported:0", "power_w")
    assert list(watts) == [60.5 + i for i in range(10)]
    assert time[0] == 1657289505 * 10**9
    assert run.series("imported:0", "memory_used_bytes")[1][0] == 4 * 2**20


def test_damaged_metrics_are_counted(tmp_path):
    text = scrape(60) + scrape(61).replace("} 61\n", "} many\n") + "half a li"
    run = read(tmp_path, "dcgm", text)
    assert list(run.series("GPU-abcd", "power_w")[1]) == [60]
    assert left_out(run) == {"not_a_number": 1, "broken_rows": 1, "unfinished_line": 1}


@pytest.mark.parametrize("text", ['DCGM_FI_DEV_POWER_USAGE{gpu="0"} x\n', "EntityId,POWER,TimeStamp\n"])
def test_a_log_without_a_reading_is_refused(tmp_path, text):
    with pytest.raises(BadInputError, match=r"log\.txt"):
        read(tmp_path, "dcgm", text)


@pytest.mark.samples
@real_files
def test_real_csv_holds_every_cell():
    for path in real("MIGProfiler/*/data/*/*/dcgm.csv"):
        run = importer("dcgm").read(path, ImportOptions())
        with path.open() as file:
            rows = list(csv.DictReader(file))
        good = [float(row["GRACT"]) for row in rows if row["GRACT"] != "N/A"]
        found = np.sort(run.series("imported:0", "graphics_active")[1])
        assert found == pytest.approx(np.sort(good))
        assert left_out(run).get("missing_cells", 0) == sum(list(row.values()).count("N/A") for row in rows)


def test_the_power_limit_is_that_of_the_gpu(tmp_path):
    text = scrape(60).replace("DCGM_FI_DEV_FB_USED{", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT{").replace(" 1024", " 400")
    assert read(tmp_path, "dcgm", text).devices[0].power_limit_w == 400


def test_gpus_of_two_hosts_without_uuids_are_two(tmp_path):
    text = scrape(60).replace('UUID="GPU-abcd",', "")
    run = read(tmp_path, "dcgm", text + text.replace("node{1}", "other").replace(" 60", " 70"))
    assert [device.host for device in run.devices] == ["node{1}", "other"]
    assert [list(run.series(device.id, "power_w")[1]) for device in run.devices] == [[60], [70]]


def test_instances_of_a_table_are_devices_of_their_own(tmp_path):
    text = "EntityId,mig_profile,GRACT,FBUSD,TimeStamp\n"
    text += "".join(f"0,{name},0.{k},4,{1657289505 + k}\n" for k in range(3) for name in ("1g.5gb", "3g.20gb"))
    run = read(tmp_path, "dcgm", text)
    names = [device.name for device in run.devices if device.kind == "mig"]
    assert names == ["device 0 MIG 1g.5gb", "device 0 MIG 3g.20gb"]
    assert list(run.series("imported:0/3g.20gb", "graphics_active")[1]) == [0.0, 0.1, 0.2]


def test_columns_of_text_are_labels_and_name_the_gpu(tmp_path):
    """No cell of them is broken, and the model says which sensor was read."""
    rows = [f"0,GPU-1234,NVIDIA H100 80GB HBM3,node1,prod,{300 + k}.5,{1657289505 + 60 * k}" for k in range(20)]
    text = "\n".join(["EntityId,UUID,modelName,Hostname,cluster,POWER,TimeStamp", *rows]) + "\n"
    run = read(tmp_path, "dcgm", text)
    (device,) = run.devices
    assert (device.id, device.name, device.host) == ("GPU-1234", "NVIDIA H100 80GB HBM3", "node1")
    assert left_out(run) == {"unknown_columns": 1}
    assert "sensor_unknown" not in codes(run)
    (sparse,) = [one.message for one in run.warnings if one.code == "sparse_readings"]
    assert sparse == "a reading every 60 s is a mean over 1 s: 1.7 % of the time was seen"


def answer(*series) -> str:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(series)}})


def test_an_answer_of_prometheus_has_each_series_on_its_gpu_and_host(tmp_path):
    labels = {"__name__": "DCGM_FI_DEV_POWER_USAGE", "gpu": "0", "modelName": "NVIDIA H100 80GB HBM3"}
    series = [
        {"metric": labels | {"Hostname": "n1"}, "values": [[1786553852.5, "200"], [1786553867.5, "210"]]},
        {"metric": labels | {"Hostname": "n2"}, "values": [[1786553852.5, "300"], [1786553867.5, "NaN"]]},
        {
            "metric": labels | {"Hostname": "n1", "__name__": "DCGM_FI_DEV_GPU_TEMP"},
            "values": [[1786553852.5, "61"], [1786553867.5, "62"]],
        },
    ]
    run = read(tmp_path, "dcgm", answer(*series))
    one, two = run.devices
    assert [(device.name, device.host) for device in run.devices] == [
        (labels["modelName"], host) for host in ("n1", "n2")
    ]
    time, watts = run.series(one.id, "power_w")
    assert (list(watts), list(run.series(one.id, "temperature_c")[1])) == ([200, 210], [61, 62])
    assert list(time) == [1786553852500000000, 1786553867500000000]
    assert list(run.series(two.id, "power_w")[1]) == [300]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (answer({"metric": {"gpu": "0"}, "values": [[1, "2"]]}), "a series without a name"),
        (answer({"metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE"}, "values": [1, 2]}), "not a whole answer"),
        (answer({"values": []}), "not a whole answer"),
        (answer()[:-3], "not a whole answer"),
        (
            '{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution"}',
            "exceeded maximum resolution",
        ),
    ],
)
def test_a_damaged_answer_is_refused_in_one_line(tmp_path, text, said):
    with pytest.raises(BadInputError, match=said):
        read(tmp_path, "dcgm", text)


def test_cells_of_dcgm_may_state_their_unit(tmp_path):
    rows = "".join(f"{1657289505 + k},0,{300 + k} W,{200 + k} mJ,30 %\n" for k in range(10))
    run = read(tmp_path, "dcgm", "Timestamp,EntityId,POWER,TOTEC,GPUTL\n" + rows)
    assert run.series("imported:0", "power_w")[1].tolist() == [300 + k for k in range(10)]
    assert run.series("imported:0", "energy_counter_j")[1][0] == 0.2
    assert run.series("imported:0", "utilization_gpu_pct")[1].tolist() == [30] * 10
