"""Tables that are read once the user says which column is what: the question names the columns, and the tool."""

import pytest

from commands import command
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, read_files


def table(header, row, n=10):
    return "\n".join([header, *(row.format(i) for i in range(10, 10 + n))]) + "\n"


LHM = ",/gpu-nvidia/0/power/0,/intelcpu/0/power/0\n"

CHART = '"Relative Time (Process)","a - system/gpu.0.powerWatts","a - system/gpu.0.powerWatts__MIN"'

ASKED = {
    "turbostat": (
        table("Time_Of_Day_Seconds\tPackage\tPkgWatt", "17725320{}.5\t0\t120.50"),
        ("time_s=Time_Of_Day_Seconds", "power_w=PkgWatt"),
    ),
    "W&B": (
        table(CHART, '"{}","120.5","110"'),
        ("time_s=Relative Time (Process)", "power_w=a - system/gpu.0.powerWatts"),
    ),
    "HWiNFO": (
        table('Date,Time,"CPU Package Power [W]","GPU Power [W]"', "3.3.2026,10:00:{}.123,45.5,120.5"),
        ("power_w=GPU Power [W]",),
    ),
    "LibreHardwareMonitor": (
        LHM + table('Time,"GPU Package","CPU Package"', "03/03/2026 10:00:{},120.5,45"),
        ("power_w=GPU Package",),
    ),
    "InfluxDB": (
        table(",result,table,_time,_value,_field,_measurement", ",,0,2026-03-03T10:00:{}Z,120.5,power_draw,smi"),
        ("power_w=_value",),
    ),
}
"""Tables of tools that a mapping reads, and the mapping; each draws 120.5 W."""


@pytest.mark.parametrize("tool", ASKED)
def test_a_known_table_is_named_with_the_mapping_that_reads_it(capsys, tmp_path, tool):
    text, targets = ASKED[tool]
    (tmp_path / "t.csv").write_text(text)
    made = command(capsys, "import", str(tmp_path / "t.csv"), "-o", str(tmp_path / "r"))
    said = " ".join((made.out + made.err).split())
    assert tool in said
    for target in targets:
        assert target.replace("a - system", "RUN - system") in said
    run = read_files([tmp_path / "t.csv"], ImportOptions(map=dict(target.split("=", 1) for target in targets)))
    assert set(run.series(run.devices[0].id, "power_w")[1]) == {120.5}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(
    "metrics", [("POWER_USAGE", "GPU_UTIL"), ("POWER_USAGE", "TOTAL_ENERGY_CONSUMPTION"), ("power", "power_limit")]
)
def test_one_metric_in_each_row_is_refused_as_such(tmp_path, metrics, mapped):
    rows = [f"2026-03-03T10:00:{i},{name},0,300,x" for i in range(10, 20) for name in metrics]
    (tmp_path / "t.csv").write_text("\n".join(["timestamp,metric_name,gpu_id,value,labels_raw", *rows]) + "\n")
    with pytest.raises(BadInputError, match="one metric in each row, named in 'metric_name'"):
        read_files([tmp_path / "t.csv"], ImportOptions(map={"power_w": "value"} if mapped else {}))


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
    asked = command(capsys, "import", str(tmp_path / "t.csv"), "-o", str(tmp_path / "r"), "--format", "table")
    assert "--map time=1 --map power_w=3" in asked.complaint
    run = read_files([tmp_path / "t.csv"], ImportOptions(format="table", map={"time": "1", "power_w": "3"}))
    assert run.series("imported:0", "power_w")[1].tolist() == list(range(10, 20))


COUNTER = "timestamp,gpu,total_energy_consumption"

AMD_SMI = "'CTRL' + 'C' to stop watching output:\n"


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("above", [AMD_SMI, ""])
def test_the_counter_of_amd_smi_is_in_joules(capsys, tmp_path, above, repeated):
    rows = [f"{1722959154 + k},0,{20909145.914 + 42.7 * k:.3f}" for k in range(10)]
    lines = [line for row in rows for line in (*([COUNTER] if repeated else []), row, "")]
    (tmp_path / "t.csv").write_text(above + "\n".join([COUNTER, *lines]) + "\n")
    assert command(capsys, "import", str(tmp_path / "t.csv"), "-o", str(tmp_path / "r")).code == 0
    said = " ".join(command(capsys, "show", str(tmp_path / "r"), "-v").out.split())
    assert "384 ± 35 J in 9 s, 42.7 ± 3.8 W on average" in said
    assert ("joules were assumed; if not, give --map energy_counter_mj=" in said) == (above == "")
