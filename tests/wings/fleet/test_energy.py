"""Energies of a fleet by a dataset of readings, against the integral of powers that are drawn here."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from commands import command, done
from shipped import ABSENT

BEGIN_S, PERIOD_S = 1_795_996_800, 30  # 2026-11-30 00:00 UTC


def readings(gpus=8, hours=36, seed=3, hole=None):
    """Rows of a dataset in order of time, and the true joules of each GPU and of each user's time.

    Power changes every second: a job's level for hours, with noise; a reading is that of an instant.
    """
    random = np.random.default_rng(seed)
    seconds = hours * 3600
    job = np.arange(seconds) // 5400
    levels = random.choice([70.0, 300.0, 640.0], (gpus, job[-1] + 1))
    watts = levels[:, job] * (1 + 0.1 * random.standard_normal((gpus, seconds)))
    users = (np.arange(gpus)[:, None] + job) % 3
    at = np.arange(0, seconds, PERIOD_S)
    if hole:
        at = at[(at < hole[0]) | (at >= hole[1])]
    last = at[-1]
    table = pa.table(
        {
            "timestamp": np.repeat(BEGIN_S + at, gpus),
            "hostname": [f"node{k // 4}" for k in range(gpus)] * len(at),
            "gpu": np.tile(np.arange(gpus) % 4, len(at)),
            "user": [f"u{number}" for number in users[:, at].T.ravel()],
            "power_w": watts[:, at].T.ravel(),
        }
    )
    by_gpu = {f"node{k // 4} {k % 4}": watts[k, :last].sum() for k in range(gpus)}
    by_user = {f"u{number}": watts[:, :last][users[:, :last] == number].sum() for number in range(3)}
    return table, by_gpu, by_user


def energy(*words):
    return json.loads(done("fleet", "energy", *map(str, words), "--json").out)


def covers(estimate, truth):
    return estimate["low"] <= truth <= estimate["high"]


def test_hosts_that_are_read_at_other_times_are_read_as_often(tmp_path):
    rows = sorted((BEGIN_S + 10 * n + 0.37 * k, f"node{k}", 0, 300) for k in range(20) for n in range(100))
    names = ("time", "host", "gpu", "power_w")
    pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), tmp_path / "a.parquet")
    result = energy(tmp_path / "a.parquet")
    assert result["period_s"] == pytest.approx(10)
    assert result["all"]["energy_j"]["value"] == pytest.approx(300 * 20 * 990)
    assert result["all"]["co2e_g"] is None


def test_energies_hold_by_gpu_user_and_day_and_add_up(tmp_path):
    held = []
    for seed in range(6):
        table, by_gpu, by_user = readings(seed=seed)
        pq.write_table(table, tmp_path / f"{seed}.parquet")
        result = energy(tmp_path / f"{seed}.parquet", "--by", "gpu", "--by", "user", "--by", "day")
        held += [covers(line["energy_j"], by_gpu[line["name"]]) for line in result["by_gpu"]]
        held += [covers(line["energy_j"], by_user[line["name"]]) for line in result["by_user"]]
        assert covers(result["all"]["energy_j"], sum(by_gpu.values()))
        for by in ("by_gpu", "by_user", "by_day"):
            assert sum(line["energy_j"]["value"] for line in result[by]) == pytest.approx(
                result["all"]["energy_j"]["value"], rel=1e-9
            )
        assert [line["name"] for line in result["by_day"]] == ["2026-11-30", "2026-12-01"]
        widths = [(one["high"] - one["low"]) / one["value"] for one in (line["energy_j"] for line in result["by_gpu"])]
        assert max(widths) < 0.06
    assert sum(held) >= 0.9 * len(held)


def test_sampling_is_in_the_interval(tmp_path):
    """A load of ± 80 % within a period is known worse than a steady one, and its interval still holds."""
    random, seconds = np.random.default_rng(5), 6 * 3600
    held, halves = [], []
    for swing in (0.0, 0.8):
        for _ in range(12):
            watts = 400 * (1 + swing * np.sign(random.standard_normal(seconds)))
            at = np.arange(0, seconds, PERIOD_S)
            pq.write_table(
                pa.table({"time": BEGIN_S + at, "gpu": [0] * len(at), "power": watts[at]}), tmp_path / "a.parquet"
            )
            found = energy(tmp_path / "a.parquet")["all"]["energy_j"]
            held.append(covers(found, watts[: at[-1]].sum()))
            halves.append((found["high"] - found["low"]) / 2 / found["value"])
    assert sum(held) >= 0.9 * len(held)
    assert max(halves[:12]) < 1e-6
    assert min(halves[12:]) > 0.01


def test_files_of_any_form_and_order_have_the_same_energies(tmp_path):
    table, *_ = readings()
    pq.write_table(table, tmp_path / "whole.parquet")
    whole = energy(tmp_path / "whole.parquet", "--by", "gpu")
    parts = tmp_path / "parts"
    parts.mkdir()
    half = table.num_rows // 2
    pq.write_table(table.slice(half).sort_by("gpu"), parts / "a.parquet")
    pq.write_table(table.slice(0, half), parts / "b.parquet")
    in_parts = energy(parts, "--by", "gpu")
    for line, same in zip(in_parts["by_gpu"], whole["by_gpu"], strict=True):
        assert line["name"] == same["name"]
        assert line["energy_j"]["value"] == pytest.approx(same["energy_j"]["value"], rel=1e-12)
        assert line["energy_j"]["high"] == pytest.approx(same["energy_j"]["high"], rel=1e-12)
    pa_csv.write_csv(table, tmp_path / "rows.csv")
    assert energy(tmp_path / "rows.csv", "--by", "gpu")["all"]["energy_j"]["value"] == pytest.approx(
        whole["all"]["energy_j"]["value"]
    )


@pytest.mark.skipif("jobs" in ABSENT, reason="bills are the wing's")
def test_it_agrees_with_the_bill_of_the_same_log(tmp_path):
    table, *_ = readings(gpus=2, hours=5)
    log = table.select(["timestamp", "gpu", "power_w"])
    pa_csv.write_csv(log.rename_columns(["timestamp", "index", "power.draw [W]"]), tmp_path / "node0.csv")
    mine = energy(tmp_path / "node0.csv")["all"]["energy_j"]
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(f"name,user,host,gpu_ids,start,end\na,ada,node0,0-1,{BEGIN_S},{BEGIN_S + 5 * 3600}\n")
    billed = done("jobs", str(tmp_path / "node0.csv"), "--jobs", str(jobs), "--json").out
    bill = json.loads(billed)["all"]["energy_j"]
    assert mine["low"] <= bill["high"]
    assert bill["low"] <= mine["high"]
    assert mine["value"] == pytest.approx(bill["value"], rel=0.01)


def test_holes_are_named_and_in_no_figure(tmp_path):
    table, *_ = readings(hole=(7200, 10_800))
    pq.write_table(table, tmp_path / "a.parquet")
    result = energy(tmp_path / "a.parquet")
    assert result["not_recorded_gpu_s"] == pytest.approx(8 * 3630, abs=8 * 30)
    assert "lie in holes of more than 3 readings" in done("fleet", "energy", str(tmp_path / "a.parquet")).out


def test_a_price_and_rows_without_power(tmp_path):
    table, *_ = readings(hours=2)
    power = table["power_w"].to_numpy().copy()
    power[::50] = np.nan
    times = table["timestamp"].to_pylist()
    times[7] = None
    table = table.set_column(0, "timestamp", pa.array(times, pa.int64()))
    pq.write_table(table.set_column(4, "power_w", pa.array(power)), tmp_path / "a.parquet")
    text = done("fleet", "energy", str(tmp_path / "a.parquet"), "--price", "0.30EUR/kWh", "--by", "host").out
    assert "cost (EUR)" in text
    assert "rows have no time or no power" in text
    rows = done("fleet", "energy", str(tmp_path / "a.parquet"), "-f", "csv", "--by", "user").out
    assert "u2" in rows


@pytest.mark.parametrize(
    ("columns", "words", "said"),
    [
        ({"power_w": "draw"}, [], "no column of power in timestamp, hostname, gpu, user, draw: --map power=COLUMN"),
        ({"timestamp": "at"}, ["--map", "time=when"], "--map when: time|power|gpu|host=COLUMN, one of"),
        ({}, ["--by", "team"], "--by team: host, gpu, day and one column of the dataset"),
        ({"user": "power", "power_w": "watt"}, [], "power: string is no number of watts"),
    ],
)
def test_what_is_missing_is_one_line(tmp_path, capsys, columns, words, said):
    table, *_ = readings(hours=1)
    names = [columns.get(name, name) for name in table.column_names]
    pq.write_table(table.rename_columns(names), tmp_path / "a.parquet")
    refused = command(capsys, "fleet", "energy", str(tmp_path / "a.parquet"), *words)
    assert refused.code == 2
    assert said in refused.complaint


def test_rows_given_twice_milliwatts_and_no_data_are_refused(tmp_path, capsys):
    table, *_ = readings(hours=1)
    for name in ("a", "b"):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    refused = command(capsys, "fleet", "energy", str(tmp_path))
    assert refused.code == 2
    assert "are rows given twice" in refused.err
    milli = table.set_column(4, "power_w", pa.array(table["power_w"].to_numpy() * 1e3))
    pq.write_table(milli, tmp_path / "a.parquet")
    assert "a column of mW ends in _mw" in command(capsys, "fleet", "energy", str(tmp_path / "a.parquet")).err
    pq.write_table(milli.rename_columns([*table.column_names[:4], "power_mw"]), tmp_path / "a.parquet")
    pq.write_table(table, tmp_path / "b.parquet")
    assert energy(tmp_path / "a.parquet")["all"]["energy_j"]["value"] == pytest.approx(
        energy(tmp_path / "b.parquet")["all"]["energy_j"]["value"]
    )
    (tmp_path / "c.parquet").write_bytes(b"PAR1 not really")
    broken = command(capsys, "fleet", "energy", str(tmp_path / "c.parquet"))
    assert broken.code == 2
    assert "Traceback" not in broken.err
    assert command(capsys, "fleet", "energy", str(tmp_path / "none")).code == 2
    pq.write_table(table.slice(0, 0), tmp_path / "d.parquet")
    assert "no rows" in command(capsys, "fleet", "energy", str(tmp_path / "d.parquet")).err
