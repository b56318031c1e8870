"""Tables of jobs, as schedulers print them and people write them."""

import pytest

from jouletrace.errors import BadInputError
from jouletrace.wings.jobs.tables import read_jobs

PIPED = """JobID|JobName|User|NodeList|AllocTRES|Start|End|State
101|train|ada|node[01-02]|billing=16,cpu=16,gres/gpu=16,mem=64G|2026-11-23T08:00:00|2026-11-23T12:00:00|COMPLETED
101.batch|batch||node01|cpu=8|2026-11-23T08:00:00|2026-11-23T12:00:00|COMPLETED
102|sweep|bob|node01|gres/gpu:h100=4|2026-11-23T13:00:00|Unknown|RUNNING
103|late|bob|None assigned|gres/gpu=1|Unknown|Unknown|PENDING
"""

FIXED = """JobID           JobName      User        NodeList               Start                 End
------------ ---------- --------- --------------- ------------------- -------------------
7                 train       ada          node01 2026-11-23T08:00:00 2026-11-23T09:00:00
7.0              python                    node01 2026-11-23T08:00:00 2026-11-23T09:00:00
"""

CSV = """name,user,host,gpu_ids,start,end
a,ada,n1,"0,1",2026-11-23 08:00:00,2026-11-23 09:00:00
b,bob,n1,2-3,1795683600,1795687200
"""


LOADGEN = """:::MLLOG {"key": "loadgen_version", "value": "4.0", "time_ms": 0.01, "namespace": "mlperf::logging"}
:::MLLOG {"key": "power_begin", "value": "07-05-2024 10:00:25.500", "time_ms": 15.1, "namespace": "mlperf::logging"}
:::MLLOG {"key": "power_begin", "value": "07-05-2024 10:10:25.500", "time_ms": 15.1, "namespace": "mlperf::logging"}
:::MLLOG {"key": "power_end", "value": "07-05-2024 10:20:35.250", "time_ms": 15.1, "namespace": "mlperf::logging"}
:::MLLOG {"key": "result_validity", "value": "INVALID", "time_ms": 15.2, "namespace": "mlperf::logging"}
:::MLLOG {"key": "power_begin", "value": "07-05-2024 11:10:25.500", "time_ms": 15.1, "namespace": "mlperf::logging"}
"""


def jobs_of(tmp_path, text, **options):
    path = tmp_path / "jobs.txt"
    path.write_text(text)
    return read_jobs(path, **options)


def test_what_sacct_prints_between_bars(tmp_path):
    jobs, notes = jobs_of(tmp_path, PIPED)
    assert [(job.id, job.name, job.user, job.hosts, job.count) for job in jobs] == [
        ("101", "train", "ada", ("node01", "node02"), 16),
        ("102", "sweep", "bob", ("node01",), 4),
    ]
    assert jobs[0].end_ns - jobs[0].start_ns == 4 * 3600 * 10**9
    assert jobs[1].end_ns is None
    assert notes == ["1 row left out: the job had not started (the first in line 5)"]


def test_what_sacct_prints_in_columns(tmp_path):
    (job,), notes = jobs_of(tmp_path, FIXED)
    assert (job.id, job.name, job.user, job.hosts, job.gpus) == ("7", "train", "ada", ("node01",), None)
    assert notes == []


def test_the_run_of_loadgen_is_a_job(tmp_path):
    (job,), notes = jobs_of(tmp_path, LOADGEN)
    assert (job.name, job.gpus) == ("MLPerf run, invalid", None)
    assert job.start_ns == 1_720_174_225_500_000_000  # 5 July, not 7 May
    assert job.end_ns - job.start_ns == 609_750_000_000
    assert notes == ["2 rows left out: the job has a time that can't be read (the first in line 2)"]
    assert jobs_of(tmp_path, f"\n{LOADGEN}")[0] == [job]


def test_a_table_of_ones_own_names_gpus(tmp_path):
    table = CSV.replace("1795683600,1795687200", "2026-11-23 08:00:00,2026-11-23 09:00:00")
    jobs, _ = jobs_of(tmp_path, table)
    assert [job.gpus for job in jobs] == [("0", "1"), ("2", "3")]


def test_local_times_are_those_of_the_zone(tmp_path):
    (utc,), _ = jobs_of(tmp_path, FIXED)
    (berlin,), _ = jobs_of(tmp_path, FIXED, time_zone="Europe/Berlin")
    assert utc.start_ns - berlin.start_ns == 3600 * 10**9


def test_times_of_the_doubled_hour_are_named(tmp_path):
    rows = [
        "a,2026-10-25 02:30:00,2026-10-25 05:00:00",
        "b,2026-10-25 02:10:00,2026-10-25 04:00:00",
        "c,2026-10-25T02:30:00+01:00,2026-10-25T05:00:00+01:00",
        "d,2026-10-25 01:30:00,2026-10-25 02:50:00",
    ]
    jobs, notes = jobs_of(tmp_path, "\n".join(["name,start,end", *rows]), time_zone="Europe/Berlin")
    midnight_ns = 1792886400 * 10**9  # 2026-10-25T00:00:00Z
    minutes = {job.name: (job.start_ns - midnight_ns) / 60e9 for job in jobs}
    assert minutes == {"a": 30, "b": 10, "c": 90, "d": -30}
    ending = "occurs twice on 2026-10-25: the first was taken; let Slurm print UTC"
    assert notes == [
        f"the job a: its start 02:30 {ending}",
        f"the job b: its start 02:10 {ending}",
        f"the job d: its end 02:50 {ending}",
    ]
    assert jobs_of(tmp_path, "\n".join(["name,start,end", *rows]))[1] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "a start and an end"),
        ("name,start,end\n", "no row is a job"),
        ("name,start,end\na,2026-11-23 09:00,2026-11-23 08:00\n", "ended before it began"),
        ("name,gpus,start,end\na,4,2026-11-23 08:00,2026-11-23 09:00\n", "gpu_ids or gpu_count"),
        ("name,start,end\na,yesterday,today\n", "can't be read"),
        (CSV.replace('"0,1"', "0-99999999999"), "more than 1,000 GPUs or hosts: 0-99999999999"),
        ("", "is empty"),
    ],
)
def test_bad_tables_are_one_line(tmp_path, text, says):
    with pytest.raises(BadInputError, match=says) as caught:
        jobs_of(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_rows_that_are_no_job_are_counted(tmp_path):
    jobs, notes = jobs_of(
        tmp_path, CSV.splitlines()[0] + "\n" + CSV.splitlines()[1] + "\nx,,,,2026-11-23 09:00:00,2026-11-23 09:00:00\n"
    )
    assert len(jobs) == 1
    assert notes == ["1 row left out: the job took no time (the first in line 3)"]


def test_what_sacct_cuts_short_is_left_out(tmp_path):
    cut = FIXED.replace(
        "node01 2026-11-23T08:00:00 2026-11-23T09:00:00", "node[01-02,04-+ 2026-11-23T08:00:00 2026-11-23T09:00:00", 1
    )
    with pytest.raises(BadInputError, match="prints all with -P"):
        jobs_of(tmp_path, cut.replace("         node[", "node["))


def test_quotes_and_bars_of_a_name_lose_no_other_row(tmp_path):
    rows = PIPED.replace("|sweep|", '|"half|').replace("|train|", '|"half|')
    jobs, _ = jobs_of(tmp_path, rows)
    assert [job.id for job in jobs] == ["101", "102"]
    _, notes = jobs_of(tmp_path, PIPED.replace("|sweep|", "|a|b|"))
    assert "more cells than the table has headings (the first in line 4)" in notes[0]


def test_only_steps_of_a_job_are_left_out(tmp_path):
    jobs, _ = jobs_of(
        tmp_path,
        CSV.splitlines()[0].replace("name", "id") + "\n" + CSV.splitlines()[1].replace("a,", "v1.2,", 1) + "\n",
    )
    assert [job.id for job in jobs] == ["v1.2"]


@pytest.mark.parametrize(("cell", "count"), [("gres/gpu:a100-sxm4=2", 2), ("cpu=8,mem=1G", 0), ("4", 4)])
def test_gpus_are_counted_as_slurm_prints_them(tmp_path, cell, count):
    table = f"name|AllocTRES|start|end\na|{cell}|2026-11-23 08:00|2026-11-23 09:00\n"
    (job,), _ = jobs_of(tmp_path, table)
    assert job.count == count


def test_a_count_that_cant_be_read_is_no_zero(tmp_path):
    with pytest.raises(BadInputError, match="number of GPUs that can't be read"):
        jobs_of(tmp_path, "name,gpu_count,start,end\na,two,2026-11-23 08:00,2026-11-23 09:00\n")
