"""Bills of jobs, against the energy of powers that are drawn here."""

import datetime as dt
import json
import re

import numpy as np
import pytest

from commands import command, done
from covering import fewest
from import_logs import emissions
from jouletrace.stats import expanded

T0 = 1_795_996_800  # 2026-11-30 00:00 UTC
STEP_S = 5


def written(path, watts, every_s, there=None):
    """A log as of nvidia-smi of powers each so many seconds, of one GPU or (g, n) of several; without some rows."""
    lines = ["timestamp, index, name, uuid, power.draw [W]"]
    for number, of_gpus in enumerate(np.atleast_2d(watts).T):
        if there is None or there[number]:
            at = dt.datetime.fromtimestamp(T0 + number * every_s, dt.UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
            lines += [
                f"{at}, {gpu}, NVIDIA H100 80GB HBM3, GPU-{path.stem}-{gpu}, {power_w:.2f} W"
                for gpu, power_w in enumerate(of_gpus)
            ]
    path.write_text("\n".join(lines) + "\n")
    return path


def day_of_gpus(folder, jobs, host="node1", gpus=2, hours=6.0, hole=(0, 0), idle_w=70.0, seed=1):
    """A log as of nvidia-smi every 5 s, a table of jobs, and the joules of each job and of all that is recorded.

    ``jobs`` are (name, user, GPUs, start, end, watts), in seconds; powers at a second are drawn for that second.
    """
    rng, n = np.random.default_rng(seed), round(hours * 3600)
    watts = idle_w + rng.normal(0, 0.5, (gpus, n))
    for _, _, own, start, end, level in jobs:
        for gpu in own:
            watts[gpu, start:end] = level + rng.normal(0, 8, len(watts[gpu, start:end]))
    there = np.ones(n, bool)
    there[hole[0] : hole[1]] = False
    read_s = np.arange(0, n, STEP_S)
    written(folder / f"{host}.csv", watts[:, np.maximum(read_s - 1, 0)], STEP_S, there[read_s])
    joules = {name: float(sum(watts[g, a:b][there[a:b]].sum() for g in own)) for name, _, own, a, b, _ in jobs}
    return folder / f"{host}.csv", joules, float(watts[:, there].sum())


def table_of(path, jobs, host="node1"):
    def stamp(second):
        return dt.datetime.fromtimestamp(T0 + second, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")

    rows = ["JobName|User|NodeList|gpu_ids|Start|End"]
    rows += [
        f"{name}|{user}|{host}|{','.join(map(str, own))}|{stamp(a)}|{stamp(b)}" for name, user, own, a, b, _ in jobs
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


def billed(*words):
    said = done("jobs", *map(str, words), "--time-zone", "UTC", "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


JOBS = [
    ("train", "ada", (0, 1), 3600, 9000, 600.0),
    ("sweep", "bob", (0,), 9600, 14400, 350.0),
    ("eval", "ada", (1,), 10000, 12000, 450.0),
]


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    folder = tmp_path_factory.mktemp("day")
    log, joules, whole = day_of_gpus(folder, JOBS)
    table = table_of(folder / "jobs.txt", JOBS)
    return billed(log, "--jobs", table, "--price", "0.30EUR/kWh", "--carbon", "400g/kWh"), joules, whole, (log, table)


def holds(estimate, truth, most=0.05):
    return estimate["low"] <= truth <= estimate["high"] and estimate["high"] - estimate["low"] < 2 * most * truth


def test_each_job_has_its_energy(day):
    found, joules, _, _ = day
    assert [job["name"] for job in found["jobs"]] == ["train", "sweep", "eval"]
    assert all(holds(job["energy_j"], joules[job["name"]]) for job in found["jobs"])
    assert [job["gpu_s"] for job in found["jobs"]] == [10800, 4800, 2000]


def test_jobs_and_time_without_one_are_the_whole(day):
    found, joules, whole, _ = day
    for by in ("by_user", "by_host", "by_day"):
        assert sum(line["energy_j"]["value"] for line in found[by]) == pytest.approx(found["all"]["energy_j"]["value"])
    assert holds(found["all"]["energy_j"], whole, 0.02)
    users = {line["name"]: line for line in found["by_user"]}
    assert holds(users["ada"]["energy_j"], joules["train"] + joules["eval"])
    assert holds(users["no job"]["energy_j"], whole - sum(joules.values()))
    assert users["no job"]["share_at_rest"] > 0.99
    assert users["ada"]["share_at_rest"] < 0.01


def test_cost_and_co2_are_those_of_a_kwh(day):
    found, joules, _, _ = day
    train = found["jobs"][0]
    assert train["cost"]["value"] == pytest.approx(0.30 * joules["train"] / 3.6e6, rel=0.03)
    assert train["currency"] == "EUR"
    assert train["co2e_g"]["value"] == pytest.approx(400 * joules["train"] / 3.6e6, rel=0.03)


def test_gain_and_offset_of_sensors_are_in_intervals_on_demand(day):
    without, _, _, (log, table) = day
    found = billed(log, "--jobs", table, "--price", "0.30EUR/kWh", "--carbon", "400g/kWh", "--absolute")
    assert (without["absolute"], found["absolute"]) == (False, True)
    for by in ("jobs", "by_user", "by_host", "by_day"):
        for line, wide in zip(without[by], found[by], strict=True):
            energy, co2e = wide["energy_j"], wide["co2e_g"]
            half = (line["energy_j"]["high"] - line["energy_j"]["low"]) / 2
            limits = [0.05 * energy["value"], 3 * line["gpu_s"]]
            assert energy["high"] - energy["value"] == pytest.approx(expanded(half, limits))
            for other, scale in ((co2e, 400 / 3.6e6), (wide["cost"], 0.30 / 3.6e6)):
                assert other["high"] == pytest.approx(energy["high"] * scale, rel=1e-6)
    said = " ".join(done("jobs", str(log), "--jobs", str(table), "--absolute").out.split())
    assert "with gain of the sensors, ± 5 %, and offset, ± 3 W" in said


def test_co2_by_the_hour(day, tmp_path):
    _, joules, _, (log, table) = day
    hours = tmp_path / "hours.csv"
    hours.write_text("time,g/kWh\n2026-11-30T00:00:00,100\n2026-11-30T02:00:00,500\n")
    train = billed(log, "--jobs", table, "--carbon", hours)["jobs"][0]
    # two thirds of 3600 to 9000 s lie before 02:00
    assert train["co2e_g"]["value"] == pytest.approx((100 * 2 + 500) / 3 * joules["train"] / 3.6e6, rel=0.03)


def test_an_edge_may_be_off_by_a_second(tmp_path):
    jobs = [("short", "ada", (0,), 3600, 3900, 600.0)]
    log, _, _ = day_of_gpus(tmp_path, jobs, gpus=1, hours=2)
    late = [("short", "ada", (0,), 3601, 3901, 600.0)]
    found = billed(log, "--jobs", table_of(tmp_path / "late.txt", late))["jobs"][0]["energy_j"]
    assert found["high"] - found["low"] > 2 * 600.0  # one second at either edge, and its own interval


def test_jobs_on_one_gpu_at_a_time_arent_divided(tmp_path):
    jobs = [
        ("a", "ada", (0,), 3600, 7200, 500.0),
        ("b", "bob", (0,), 5400, 9000, 500.0),
        ("c", "eve", (1,), 0, 600, 300.0),
    ]
    log, _, _ = day_of_gpus(tmp_path, jobs, hours=4)
    found = billed(log, "--jobs", table_of(tmp_path / "jobs.txt", jobs))
    notes = {job["name"]: (job["energy_j"]["value"], job["energy_j"]["reason"]) for job in found["jobs"]}
    assert notes["a"] == notes["b"] == (None, "jobs_overlap")
    assert notes["c"][0] is not None
    users = {line["name"]: line["energy_j"]["value"] for line in found["by_user"]}
    assert users["several jobs"] == pytest.approx(500 * 1800, rel=0.05)
    assert sum(users.values()) == pytest.approx(found["all"]["energy_j"]["value"])


def test_a_hole_is_in_no_figure(tmp_path):
    jobs = [("a", "ada", (0,), 3600, 10800, 500.0)]
    log, joules, whole = day_of_gpus(tmp_path, jobs, gpus=1, hours=4, hole=(5400, 7200), seed=3)
    found = billed(log, "--jobs", table_of(tmp_path / "jobs.txt", jobs))
    (job,) = found["jobs"]
    assert job["share_recorded"] == pytest.approx(0.75, abs=0.01)  # up to a reading more at each end of the hole
    assert holds(job["energy_j"], joules["a"] * job["gpu_s"] / 5400)
    assert found["not_recorded_gpu_s"] == pytest.approx(1800, abs=2 * STEP_S)
    assert holds(found["all"]["energy_j"], whole - 500 * (found["not_recorded_gpu_s"] - 1800), 0.02)


@pytest.mark.parametrize(
    ("row", "reason", "note"),
    [
        ("x|ada|node1|0|2026-11-29T08:00:00|2026-11-29T09:00:00", "outside_record", "no reading of its time"),
        ("x|ada|node9|0|2026-11-30T01:00:00|2026-11-30T02:00:00", "gpus_unknown", "no log of node9"),
        ("x|ada|node1|5|2026-11-30T01:00:00|2026-11-30T02:00:00", "gpus_unknown", "lacks its GPU 5"),
    ],
)
def test_jobs_without_a_record_say_why(day, tmp_path, row, reason, note):
    _, _, _, (log, _) = day
    table = tmp_path / "jobs.txt"
    table.write_text(f"JobName|User|NodeList|gpu_ids|Start|End\n{row}\n")
    (job,) = billed(log, "--jobs", table, "--host", f"{log.name}=node1")["jobs"]
    assert job["energy_j"]["reason"] == reason
    assert note in job["note"]


def test_the_energy_of_a_job_doesnt_depend_on_the_table_of_carbon(day, tmp_path):
    _, _, _, (log, table) = day
    hours = tmp_path / "hours.csv"
    hours.write_text("".join(f"2026-11-30T{hour:02d}:00:00,400\n" for hour in range(24)))
    by_hour, constant = (billed(log, "--jobs", table, "--carbon", carbon) for carbon in (hours, "400g/kWh"))
    for a, b in zip(by_hour["jobs"], constant["jobs"], strict=True):
        assert a["energy_j"] == b["energy_j"]
        assert a["co2e_g"]["value"] == pytest.approx(b["co2e_g"]["value"])
        assert a["co2e_g"]["high"] / a["co2e_g"]["value"] == pytest.approx(
            a["energy_j"]["high"] / a["energy_j"]["value"], rel=2e-3
        )


@pytest.mark.parametrize(("row", "says"), [("-50", "no number"), ("nan", "no number"), ("many", "no number")])
def test_a_carbon_table_holds_numbers(day, tmp_path, capsys, row, says):
    _, _, _, (log, table) = day
    hours = tmp_path / "hours.csv"
    hours.write_text(f"2026-11-30T00:00:00,100\n2026-11-30T01:00:00,{row}\n")
    said = command(capsys, "jobs", str(log), "--jobs", str(table), "--carbon", str(hours))
    assert (said.code, says in said.complaint) == (2, True)


def test_work_of_jobs_on_unknown_gpus_isnt_called_no_job(day, tmp_path):
    _, _, whole, (log, _) = day
    table = tmp_path / "jobs.txt"
    table.write_text("JobName|User|AllocTRES|Start|End\na|ada|gres/gpu=1|2026-11-30T00:00:00|2026-11-30T06:00:00\n")
    users = {line["name"]: line["energy_j"]["value"] for line in billed(log, "--jobs", table)["by_user"]}
    assert users["jobs without a figure"] == pytest.approx(whole, rel=0.01)
    assert "no job" not in users or users["no job"] < 0.01 * whole


def test_a_log_of_unknown_host_is_asked_about(day, tmp_path, capsys):
    _, _, _, (log, _) = day
    other = tmp_path / "power.csv"
    other.write_text(log.read_text())
    table = tmp_path / "jobs.txt"
    row = "0|2026-11-30T01:00:00|2026-11-30T02:00:00"
    table.write_text(f"JobName|NodeList|gpu_ids|Start|End\na|n1|{row}\nb|n2|{row}\n")
    said = command(capsys, "jobs", str(other), "--jobs", str(table))
    assert "of which host? Name it with --host power.csv=HOST" in said.complaint


def test_a_log_without_times_of_day_is_refused(tmp_path, capsys):
    log, table = tmp_path / "log.csv", tmp_path / "jobs.txt"
    log.write_text("time_s,power_w\n" + "".join(f"{k},{100 + k % 3}\n" for k in range(200)))
    table.write_text("name,start,end\na,2026-11-30 01:00,2026-11-30 02:00\n")
    assert "no times of day" in command(capsys, "jobs", str(log), "--jobs", str(table)).complaint


def test_figures_without_readings_are_refused(tmp_path, capsys):
    log, table = tmp_path / "emissions.csv", tmp_path / "jobs.txt"
    log.write_text(emissions(3))
    table.write_text("name,start,end\na,2026-11-30 01:00,2026-11-30 02:00\n")
    said = command(capsys, "jobs", str(log), "--jobs", str(table)).complaint
    assert "no readings of power" in said
    assert f"jouletrace import {log}" in said


def test_a_folder_that_is_a_file_is_refused_before(day, tmp_path, capsys):
    _, _, _, (log, table) = day
    (tmp_path / "afile").write_text("")
    said = command(capsys, "jobs", str(log), "--jobs", str(table), "-o", str(tmp_path / "afile"))
    assert "is a file, not a folder" in said.complaint


def test_a_count_of_gpus_says_not_which(day, tmp_path):
    _, _, _, (log, _) = day
    table = tmp_path / "jobs.txt"
    table.write_text("JobName|AllocTRES|Start|End\na|gres/gpu=1|2026-11-30T01:00:00|2026-11-30T02:00:00\n")
    (job,) = billed(log, "--jobs", table)["jobs"]
    assert "doesn't say which" in job["note"]
    table.write_text(table.read_text().replace("gpu=1", "gpu=2"))
    (job,) = billed(log, "--jobs", table)["jobs"]
    assert job["gpus"] == ["0", "1"]


def test_jobs_share_a_note(day, tmp_path, capsys):
    _, _, _, (log, _) = day
    rows = "".join(f"{name}|gres/gpu=1|2026-11-30T01:00:00|2026-11-30T02:00:00\n" for name in "abcde")
    table = tmp_path / "jobs.txt"
    table.write_text(f"JobName|AllocTRES|Start|End\n{rows}")
    said = command(capsys, "jobs", str(log), "--jobs", str(table)).out
    assert said.count("doesn't say which") == 1
    assert "a, b, c, 2 more: it had 1 of 2 GPUs" in said


def test_two_hosts(tmp_path):
    one = [("a", "ada", (0,), 3600, 7200, 500.0)]
    log1, joules1, whole1 = day_of_gpus(tmp_path, one, "node1", gpus=1, hours=3)
    log2, _, whole2 = day_of_gpus(tmp_path, one, "node2", gpus=1, hours=3, seed=2)
    table = table_of(tmp_path / "jobs.txt", one, "node[1-2]")
    found = billed(log1, log2, "--jobs", table)
    assert [line["name"] for line in found["by_host"]] == ["node1", "node2"]
    assert found["jobs"][0]["gpus"] == ["node1:0", "node2:0"]
    assert holds(found["jobs"][0]["energy_j"], 2 * joules1["a"])
    assert holds(found["all"]["energy_j"], whole1 + whole2)


def test_without_a_table_a_job_ends_where_its_gpu_rests(tmp_path):
    log, joules, _ = day_of_gpus(tmp_path, JOBS)
    found = billed(log, "--split-idle", "5min")
    assert len(found["jobs"]) == 4
    work = sorted(job["energy_j"]["value"] for job in found["jobs"])
    truth = sorted([joules["train"] / 2, joules["train"] / 2, joules["sweep"], joules["eval"]])
    assert work == pytest.approx(truth, rel=0.03)


def test_a_host_that_nothing_states_is_unknown(tmp_path, capsys):
    log, _, _ = day_of_gpus(tmp_path, JOBS)
    said = command(capsys, "jobs", str(log), "--split-idle", "5min").out
    assert re.search(r"^by host\n.*\n─+\n\(unknown\)  ", said, re.MULTILINE)
    assert "no reading of power" not in said


def test_it_writes_tables(day, tmp_path):
    _, _, _, (log, table) = day
    said = done("jobs", str(log), "--jobs", str(table), "-o", str(tmp_path / "bill"))
    assert said.code == 0, said.err
    rows = (tmp_path / "bill" / "by_user.csv").read_text().splitlines()
    assert rows[0].startswith("user,energy_j,energy_j_low,energy_j_high")
    assert [row.split(",")[0] for row in rows[1:]] == ["ada", "bob", "no job", "all"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--jobs"),
        (["--split-idle", "5min", "--jobs", "x"], "--jobs"),
        (["--jobs", "none.txt"], "none.txt"),
        (["--split-idle", "5min", "--host", "other=a"], "is none of the logs"),
    ],
)
def test_bad_options_are_one_line(day, capsys, words, says):
    _, _, _, (log, _) = day
    said = command(capsys, "jobs", str(log), *words)
    assert said.code == 2
    assert says in said.complaint


def later(jobs, by_s):
    return [(name, user, own, a + by_s, b + by_s, level) for name, user, own, a, b, level in jobs]


@pytest.mark.parametrize("by_s", [-3600, 40])
def test_a_clock_that_differs_is_seen_and_moved(tmp_path, by_s):
    log, joules, _ = day_of_gpus(tmp_path, later(JOBS, by_s))
    table = table_of(tmp_path / "jobs.txt", JOBS)
    (note,) = billed(log, "--jobs", table)["notes"]
    assert f"s {'after' if by_s > 0 else 'before'} their jobs run" in note
    word = note.split("--shift ")[1].split()[0]
    assert float(word.removeprefix("node1=").removesuffix("s")) == pytest.approx(-by_s, abs=STEP_S)
    assert billed(log, "--jobs", table, "--shift", word)["notes"] == []
    found = billed(log, "--jobs", table, "--shift", f"node1={-by_s}s")
    assert all(holds(job["energy_j"], joules[job["name"]]) for job in found["jobs"])


def test_clocks_that_agree_are_not_named(day, tmp_path):
    assert day[0]["notes"] == []
    # a GPU that rests all through its jobs, and works between them without one, is no matter of clocks
    jobs = [(f"j{k}", "ada", (0,), 1000 + 4000 * k, 1000 + 4000 * k + 2000 + 300 * k, 600.0) for k in range(4)]
    log, _, _ = day_of_gpus(tmp_path, [*jobs, ("other", "bob", (0,), 15500, 20000, 500.0)], gpus=1)
    assert billed(log, "--jobs", table_of(tmp_path / "jobs.txt", jobs[:1] + jobs[2:]))["notes"] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [(("--shift", "node9=4s"), "node9"), (("--shift", "node1=4"), "write a time"), (("--shift", "4s"), "KEY=VALUE")],
)
def test_a_shift_that_is_none_is_refused(capsys, day, words, says):
    log, table = day[3]
    said = command(capsys, "jobs", str(log), "--jobs", str(table), *words)
    assert said.code == 2
    assert says in said.complaint


def test_a_log_of_half_seconds_is_billed_to_its_ends(tmp_path):
    watts = 300 + np.random.default_rng(1).normal(0, 1, 2400)
    jobs = [("all", "ada", (0,), 0, 1200, 300.0)]
    found = billed(written(tmp_path / "node1.csv", watts, 0.5), "--jobs", table_of(tmp_path / "jobs.txt", jobs))
    assert found["all"]["energy_j"]["value"] == pytest.approx(300.0 * 1199.5, rel=2e-3)
    assert found["jobs"][0]["energy_j"]["value"] == pytest.approx(300.0 * 1199.5, rel=2e-3)
    assert found["not_recorded_gpu_s"] == 0.0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("every_s", "loads_s", "rests_s"), [pytest.param(30, 12, 3, marks=pytest.mark.slow), (10, 6, 2)]
)
def test_what_lies_between_two_rows_at_the_edges_of_jobs_is_in_their_intervals(tmp_path, every_s, loads_s, rests_s):
    """Jobs that load before they work and rest before they end: all have that in common."""
    rng, n, jobs, at = np.random.default_rng(5), 24 * 3600, [], 600
    watts = 110 + rng.normal(0, 0.5, n)
    while (end := at + int(rng.uniform(900, 2100))) < n - 600:
        watts[at + loads_s : end - rests_s] = 600 + rng.normal(0, 5, end - rests_s - at - loads_s)
        jobs.append((f"j{len(jobs)}", "ada", (0,), at, end, 0.0))
        at = end + int(rng.uniform(20, 400))
    log = written(tmp_path / "node1.csv", watts[::every_s], every_s)
    found = billed(log, "--jobs", table_of(tmp_path / "jobs.txt", jobs))
    truths = {name: float(watts[a:b].sum()) for name, _, _, a, b, _ in jobs}
    held = sum(holds(job["energy_j"], truths[job["name"]]) for job in found["jobs"])
    assert held >= fewest(len(jobs))
    (ada,) = [line for line in found["by_user"] if line["name"] == "ada"]
    assert holds(ada["energy_j"], sum(truths.values()), 0.01)


def test_the_whole_does_not_depend_on_the_table(tmp_path):
    """Jobs shorter than the time between two rows have the power beside them."""
    log = written(tmp_path / "node1.csv", 127 + np.random.default_rng(1).normal(0, 0.3, 240), 30)
    long = [("long", "ada", (0,), 600, 6000, 127.0)]
    short = [(f"j{k}", "ada", (0,), 61 + 30 * k, 65 + 30 * k, 127.0) for k in range(200)]
    few, many = (billed(log, "--jobs", table_of(tmp_path / "jobs.txt", jobs)) for jobs in (long, short))
    assert many["all"]["energy_j"]["value"] == pytest.approx(few["all"]["energy_j"]["value"], rel=1e-3)
    assert all(holds(job["energy_j"], 4 * 127.0, 0.6) for job in many["jobs"])


def test_more_pieces_than_are_solved_together_add_up(tmp_path):
    jobs = [(f"j{k}", f"user{k % 2}", (0,), 300 + 90 * k, 360 + 90 * k, 400.0) for k in range(220)]
    log, joules, whole = day_of_gpus(tmp_path, jobs, gpus=1)
    found = billed(log, "--jobs", table_of(tmp_path / "jobs.txt", jobs))
    assert sum(line["energy_j"]["value"] for line in found["by_user"]) == pytest.approx(
        found["all"]["energy_j"]["value"]
    )
    assert holds(found["all"]["energy_j"], whole, 0.02)
    assert sum(holds(job["energy_j"], joules[job["name"]], 0.3) for job in found["jobs"]) >= fewest(len(jobs))


def test_a_gpu_counts_once(capsys, day, tmp_path):
    log, table = day[3]
    copy = tmp_path / "copy.csv"
    copy.write_text(log.read_text())
    said = command(capsys, "jobs", str(log), str(copy), "--jobs", str(table))
    assert said.code == 2
    assert "GPU-node1-0 is in the logs of node1 and of copy" in said.complaint


def test_a_host_without_a_reading_is_named(day, tmp_path):
    log, table = day[3]
    none = tmp_path / "node2.csv"
    rows = log.read_text().replace("GPU-node1", "GPU-node2").replace("[W]", "[W], temperature.gpu").splitlines()[:200]
    none.write_text(re.sub(r"[\d.]+ W$", "[N/A], 40", "\n".join(rows), flags=re.MULTILINE))
    assert "node2: its log has no reading of power" in billed(log, none, "--jobs", table)["notes"]


def test_jobs_of_another_cluster_have_no_clock(tmp_path):
    rng = np.random.default_rng(2)
    log, _, _ = day_of_gpus(tmp_path, JOBS)
    starts = np.sort(rng.uniform(0, 6 * 3600 - 60, 150)).astype(int).tolist()
    jobs = [(f"j{k}", "ada", (0,), at, at + 60, 400.0) for k, at in enumerate(starts)]
    assert billed(log, "--jobs", table_of(tmp_path / "jobs.txt", jobs))["notes"] == []
