"""Tables that are read once the user says which column is what, and those with one metric in each row."""

import pytest

from commands import command
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, read_files


def table(header, row, n=10):
    return "\n".join([header, *(row.format(i) for i in range(10, 10 + n))]) + "\n"


METRICS = [("POWER_USAGE", "GPU_UTIL"), ("POWER_USAGE", "TOTAL_ENERGY_CONSUMPTION"), ("power", "power_limit")]


def metric_rows(names, header="timestamp,metric_name,gpu_id,value,labels_raw"):
    rows = [f"2026-03-03T10:00:{i},{name},0,{300 + i + k},x" for i in range(10, 20) for k, name in enumerate(names)]
    return "\n".join([header, *rows]) + "\n"


@pytest.mark.parametrize("metrics", METRICS)
def test_one_metric_in_each_row_is_a_column_of_each(tmp_path, metrics):
    (tmp_path / "t.csv").write_text(metric_rows(metrics))
    for mapping in ({}, {"power_w": metrics[0]}, {"time": "timestamp", "device": "gpu_id"}):
        run = read_files([tmp_path / "t.csv"], ImportOptions(map=mapping))
        assert run.series("imported:0", "power_w")[1].tolist() == list(range(310, 320))


@pytest.mark.parametrize("metrics", METRICS)
def test_the_values_of_several_metrics_are_no_power(tmp_path, metrics):
    (tmp_path / "t.csv").write_text(metric_rows(metrics))
    with pytest.raises(BadInputError, match=f"one metric in each row, named in 'metric_name'.*power_w={metrics[0]}"):
        read_files([tmp_path / "t.csv"], ImportOptions(map={"power_w": "value"}))


def test_one_metric_alone_is_read_by_its_name_or_by_its_values(tmp_path):
    (tmp_path / "t.csv").write_text(metric_rows(["power"]))
    for mapping in ({}, {"power_w": "value"}):
        run = read_files([tmp_path / "t.csv"], ImportOptions(map=mapping))
        assert run.series("imported:0", "power_w")[1].tolist() == list(range(310, 320))


def test_a_unit_in_each_row_is_that_of_its_metric(tmp_path):
    (tmp_path / "t.csv").write_text(metric_rows(["power"], "time,metric,gpu,value,unit").replace(",x\n", ",mW\n"))
    run = read_files([tmp_path / "t.csv"])
    assert run.series("imported:0", "power_w")[1].tolist() == pytest.approx([i / 1e3 for i in range(310, 320)])


def test_a_value_of_each_device_is_no_metric_of_each_row(tmp_path):
    rows = [f"2026-03-03T10:00:{i},GPU {gpu} power,{100 + gpu}" for i in range(10, 20) for gpu in range(2)]
    (tmp_path / "t.csv").write_text("\n".join(["time,series,value", *rows]) + "\n")
    run = read_files([tmp_path / "t.csv"], ImportOptions(map={"power_w": "value", "device": "series"}))
    assert sorted(run.samples["value"].to_pylist()) == [100] * 10 + [101] * 10


@pytest.mark.parametrize("heading", ["power_raw", "power_now", "power_low", "ConsumedPowerRaw", "new power"])
def test_a_word_that_ends_in_w_is_no_unit(tmp_path, heading):
    (tmp_path / "t.csv").write_text(table(f"time_s,{heading}", "17725320{},120.5"))
    run = read_files([tmp_path / "t.csv"])
    assert run.series("imported:0", "power_w")[1].tolist() == [120.5] * 10


def test_cells_in_watts_are_asked_for_with_a_mapping(tmp_path):
    (tmp_path / "t.csv").write_text(table("Time,GPU 0,GPU 1", "2026-03-03 10:00:{},300 W,400 W"))
    with pytest.raises(BadInputError, match="Give --map power_w=COLUMN"):
        read_files([tmp_path / "t.csv"])


def test_columns_without_headings_are_given_by_number(capsys, tmp_path):
    (tmp_path / "t.csv").write_text("\n".join(f"2026-03-03 10:00:{i},0.2,{i},1.3" for i in range(10, 20)) + "\n")
    asked = command(capsys, "import", str(tmp_path / "t.csv"), "-o", str(tmp_path / "r"))
    assert "--map time=1 --map power=2" in asked.complaint
    for power in ("power", "power_w"):
        run = read_files([tmp_path / "t.csv"], ImportOptions(map={"time": "1", power: "3"}))
        assert run.series("imported:0", "power_w")[1].tolist() == list(range(10, 20))
