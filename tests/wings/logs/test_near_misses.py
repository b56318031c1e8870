"""Logs of nvidia-smi, DCGM and CodeCarbon with columns of a user's own, or without power."""

import random

import pytest

from commands import command
from import_logs import EMISSIONS
from jouletrace.formats.importers import read_files, recognise
from places import DATA

FAULTS = DATA / "faults"

ROWS = [
    {
        "timestamp": f"2026/03/05 11:00:{i // 10:02d}.{i % 10}00",
        "index": "0",
        "name": "NVIDIA A100-SXM4-40GB",
        "power.draw [W]": f"{300 + i % 3}.00 W",
        "utilization.gpu [%]": "97 %",
    }
    for i in range(100)
]


def query(columns, own, case=str, before=""):
    """A log of nvidia-smi with these columns, and others of a user's own: heading -> cell."""
    rows = [", ".join(map(case, columns))]
    rows += [", ".join(own.get(name, row.get(name, "")) for name in columns) for row in ROWS]
    return before + "\n".join(rows) + "\n"


@pytest.mark.parametrize("seed", range(16))
def test_a_log_of_nvidia_smi_stays_one_whatever_a_user_adds(tmp_path, seed):
    draw = random.Random(seed)
    own = {"hostname": "node7", "note": "a b", "job id": "4711", "": "3", "Phase": "training"}
    added = draw.sample(list(own), draw.randint(1, 4))
    columns = [
        "timestamp",
        "power.draw [W]",
        *draw.sample(["index", "name", "utilization.gpu [%]"], draw.randint(1, 3)),
    ]
    columns += added
    draw.shuffle(columns)
    case = draw.choice([str, str.upper, str.title])
    before = draw.choice(["", "# measured on Tuesday\n", "\n\n"])
    (tmp_path / "smi.csv").write_text(query(columns, own, case, before))
    assert recognise(tmp_path / "smi.csv") == "nvidia_smi"
    run = read_files([tmp_path / "smi.csv"])
    (device,) = run.devices
    assert run.series(device.id, "power_w")[1].tolist() == [300 + i % 3 for i in range(100)]
    assert run.channel(device.id, "power_w").gain_pct == 5.0
    known = {"long_average", "sensor_unknown"} & {warning.code for warning in run.warnings}
    assert bool(known) == ("name" not in columns)  # an A100 averages over 25 ms
    assert "not_a_number" not in run.settings["imported"][0]["left_out"]
    assert device.host == ("node7" if "hostname" in added else "")


def test_a_mapping_that_nothing_uses_is_refused(capsys, tmp_path):
    (tmp_path / "smi.csv").write_text(query(["timestamp", "index", "power.draw [W]"], {}))
    asked = ("import", str(tmp_path / "smi.csv"), "-o", str(tmp_path / "r"), "--map", "power_w=index")
    assert "is read as nvidia_smi" in command(capsys, *asked).complaint


@pytest.mark.parametrize(
    "header",
    [
        "gpu,pwr,gtemp,sm",
        "time gpu pwr sm mem",
        "# host gpu pwr gtemp sm",
        "#GPU PWR GTEMP SM",
        '"gpu","pwr","sm","mem"',
    ],
)
def test_dmon_is_known_by_its_columns(tmp_path, header):
    sign = "," if "," in header else " "
    cells = {"gpu": "0", "pwr": "61", "time": "10:00:0{}", "host": "node7"}
    names = header.lstrip("# ").replace('"', "").lower().split(sign)
    rows = [sign.join(cells.get(name, "40") for name in names).format(i) for i in range(5)]
    (tmp_path / "dmon.log").write_text("\n".join([header, *rows]) + "\n")
    assert recognise(tmp_path / "dmon.log") == "nvidia_smi"
    run = read_files([tmp_path / "dmon.log"])
    assert run.series("imported:0", "power_w")[1].tolist() == [61] * 5
    assert run.channel("imported:0", "power_w").source == "nvidia-smi dmon, pwr"


def test_fields_of_dcgm_are_known_without_an_entity(tmp_path):
    rows = [f"node7,{1_786_553_852 + i},{200 + i}" for i in range(10)]
    (tmp_path / "dcgm.csv").write_text("\n".join(["Hostname,Time,DCGM_FI_DEV_POWER_USAGE", *rows]) + "\n")
    assert recognise(tmp_path / "dcgm.csv") == "dcgm"
    run = read_files([tmp_path / "dcgm.csv"])
    assert run.series(run.devices[0].id, "power_w")[1].tolist() == [200 + i for i in range(10)]


def test_rows_of_codecarbon_are_runs_with_its_own_figures(capsys, tmp_path):
    source = str(FAULTS / "P1_emissions.csv")
    made = command(capsys, "import", source, "-o", str(tmp_path / "r"))
    assert "energy stated by codecarbon unknown: rows overlap in time" in made.out.replace(
        "\xa0", " "
    )  # 60 s each, 10 s apart
    run = read_files([source])
    assert len(run.samples) == 0
    stated = {"energy_gpu_j": 15001.2, "energy_total_j": 18000, "time_s": 60, "co2_g": 1}
    assert {name: run.result(name, 1).value for name in stated} == pytest.approx(stated)
    assert {run.result(name, 1).method for name in stated} == {"stated by codecarbon"}
    refused = command(capsys, "import", source, "-o", str(tmp_path / "q"), "--map", "power_w=gpu_power").complaint
    assert "is read as codecarbon" in refused


def test_power_that_was_measured_stands_beside_what_codecarbon_states(capsys, tmp_path):
    (tmp_path / "smi.csv").write_text(query(list(ROWS[0]), {}))
    source = str(FAULTS / "P1_emissions.csv")
    made = command(capsys, "import", source, str(tmp_path / "smi.csv"), "-o", str(tmp_path / "r"))
    said = " ".join(made.out.split())
    assert "energy stated by codecarbon unknown: rows overlap in time" in said
    assert "2.9798 ± 0.0058 kJ (± 5 % absolute) in 9.9 s, 300.99 ± 0.59 W on average" in said


@pytest.mark.parametrize("columns", ["timestamp, index, utilization.gpu [%]", "EntityId,GRACT,FBUSD,TimeStamp"])
def test_a_log_without_power_says_that_it_has_none(capsys, tmp_path, columns):
    first = columns.startswith("timestamp")
    rows = [f"2026/03/05 11:00:{i:02d}.000, 0, 97 %" if first else f"0,0.5,3,{1656761213 + i}" for i in range(20)]
    (tmp_path / "log.csv").write_text("\n".join([columns, *rows]) + "\n")
    made = command(capsys, "import", str(tmp_path / "log.csv"), "-o", str(tmp_path / "r"))
    assert made.code == 0, made.err
    for said in (made.out, command(capsys, "show", str(tmp_path / "r")).out):
        assert "no figure, 1 remark" in said
        assert "none of the columns is a power or an energy counter" in said


def test_the_last_row_of_a_run_of_codecarbon_counts(tmp_path):
    rows = ["00,a,30,1,0.5", "30,a,60,2,1", "50,b,10,1,0.25"]
    cells = [row.split(",") for row in rows]
    lines = [f"2026-01-01T00:00:{at},p,{id},{s},{kg},0,{kwh},{kwh},A100,1.0" for at, id, s, kg, kwh in cells]
    (tmp_path / "e.csv").write_text(EMISSIONS + "\n".join(lines) + "\n")
    run = read_files([tmp_path / "e.csv"])
    assert run.result("energy_gpu_j").value == pytest.approx(1.25 * 3.6e6)
    assert run.result("time_s").value == 70
    assert run.settings["imported"][0]["left_out"]["earlier_rows"] == 1


def test_a_figure_that_codecarbon_lacks_is_none(tmp_path):
    lines = ["2026-01-01T00:00:00,p,a,60,1,0,,0.5,,1.0", "2026-01-01T00:01:00,p,b,60,1,0,0.25,0.5,,1.0"]
    (tmp_path / "e.csv").write_text(EMISSIONS + "\n".join(lines) + "\n")
    run = read_files([tmp_path / "e.csv"])
    assert run.result("energy_gpu_j").value is None
    assert run.result("energy_total_j").value == pytest.approx(3.6e6)
