"""``jouletrace jobs``."""

from __future__ import annotations

import sys
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import check_form, say

if TYPE_CHECKING:
    from jouletrace.report.tariffs import Tariff
    from jouletrace.run import Run
    from jouletrace.wings.jobs.bill import Carbon, JobsBill
    from jouletrace.wings.jobs.tables import ClusterJob


def jobs(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG...", help="Power logs, or Runs of import or monitor; of several hosts.")
    ],
    table: Annotated[
        Path | None,
        typer.Option("--jobs", metavar="FILE", help="What sacct prints, or a CSV file with a row a job."),
    ] = None,
    split_idle: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Without a table: a job ends where its GPU rests for so long, such as 5min."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE=NAME", help="Host of a log that doesn't state it. [default: its file's name]"),
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST=TIME", help="Move the times of a host's log, such as node2=-40s."),
    ] = None,
    time_zone: Annotated[str | None, typer.Option(help="Time zone of local times, such as Europe/Berlin.")] = None,
    absolute: options.Absolute = False,
    price: options.Price = None,
    carbon: Annotated[
        str | None,
        typer.Option(
            metavar="MASS|FILE",
            envvar="JOULETRACE_CARBON",
            help="CO2 equivalent of a kWh, such as 400g/kWh, or a table of times and g/kWh.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for jobs.csv and the sums by user, host and day.")
    ] = None,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Bill the jobs of a cluster: energy, cost and CO2 of each job, user, host and day.

    Energy is that of a job's GPUs from its start to its end, with an interval; jobs, time without a job, and time with
    several on one GPU add up to the whole.
    """
    from jouletrace.errors import BadInputError
    from jouletrace.formats.importers.stamps import zone_of
    from jouletrace.report.tariffs import Tariff, tariff
    from jouletrace.report.text import rendered
    from jouletrace.wings.jobs.bill import bill, hours_of, worked
    from jouletrace.wings.jobs.report import document, to_dict
    from jouletrace.wings.jobs.tables import read_jobs

    form, zone = check_form(form, json), zone_of(time_zone)
    by_hour = hours_of(Path(carbon), time_zone) if carbon is not None and Path(carbon).is_file() else None
    given = tariff(price, carbon if by_hour is None else None) or Tariff()
    if (table is None) == (split_idle is None):
        what = "name either" if table is None else "of these two give one:"
        raise BadInputError(
            f"{what} the table of jobs with --jobs, or how long a GPU rests between jobs with --split-idle"
        )
    if output is not None and output.exists() and not output.is_dir():
        raise BadInputError(f"-o {output}: is a file, not a folder")
    asked: list[ClusterJob] = []
    notes: list[str] = []
    if table is not None:
        asked, notes = read_jobs(table, time_zone)
    runs = _runs(
        logs, options.parse_pairs(host or [], "--host"), {name for job in asked for name in job.hosts}, time_zone
    )
    if split_idle is not None:
        asked = worked(runs, options.parse_duration(split_idle, "--split-idle"))
    named = {host or logs[0].name: host for host in runs}
    billed = bill(runs, asked, zone, by_hour or _constant(given), _ahead(shift or [], named))
    billed.notes = notes + [
        f"GPUs of {name} work some {abs(ahead_s)} s {'after' if ahead_s > 0 else 'before'} their jobs run: if clocks or"
        f" time zones differ, --shift {name}={-ahead_s}s moves the log"
        for name, host in named.items()
        if (ahead_s := billed.clocks.get(host, 0))
    ]
    read = {line.what for line in billed.sums["host"]}
    billed.notes += [f"{name}: its log has no reading of power" for name, host in named.items() if host not in read]
    if by_hour is not None and billed.whole.carbon.value is None:
        billed.notes.append(f"no CO2: {carbon} begins after the logs do")
    if table is not None and time_zone is None:
        billed.notes.append("times without a zone are taken for UTC: --time-zone names it")
    billed = billed.with_sensors() if absolute else billed
    simulated = "SIMULATED" if any(device.simulated for run in runs.values() for device in run.devices) else ""
    shown = document(billed, given, zone, simulated)
    sys.stdout.write(rendered(shown, lambda: to_dict(billed, given), form, colour=sys.stdout.isatty()))
    sys.stdout.flush()
    if output is not None:
        _keep(output, billed, given, zone)


def _ahead(shifts: list[str], named: dict[str, str]) -> dict[str, float]:
    """Seconds by which clocks of hosts are ahead of that of the jobs, as --shift says."""
    from jouletrace.errors import BadInputError, unknown

    ahead = {}
    for name, text in options.parse_pairs(shifts, "--shift").items():
        if name not in named:
            raise unknown("host of --shift", name, named)
        later = options.parse_duration(text.removeprefix("-"), "--shift")
        ahead[named[name]] = later if text.startswith("-") else -later
    if len(ahead) < len(shifts):
        raise BadInputError("--shift: give each host once")
    return ahead


def _constant(given: Tariff) -> Carbon | None:
    import numpy as np

    from jouletrace.wings.jobs.bill import Carbon

    if given.carbon_g is None:
        return None
    return Carbon(np.array([0], np.int64), np.array([given.carbon_g]))


def _runs(logs: list[Path], hosts: dict[str, str], asked: set[str], time_zone: str | None) -> dict[str, Run]:
    """The Run of each host: its logs on one clock.

    A log's host is what --host says or it states of its GPUs, else its file's name if jobs ran on a host of this name
    or there are several logs; a single log is of the only host of all jobs.
    """
    from jouletrace.errors import BadInputError
    from jouletrace.formats.importers import UNIX, import_files
    from jouletrace.run.memory import bounded

    if unknown := [name for name in hosts if name not in {text for log in logs for text in (str(log), log.name)}]:
        raise BadInputError(f"--host {unknown[0]}: is none of the logs")
    files: dict[str, list[Path]] = {}
    with bounded(logs):
        for log in logs:
            stem = log.stem if log.stem in asked or len(logs) > 1 else ""
            files.setdefault(hosts.get(str(log), hosts.get(log.name)) or stem, []).append(log)
        runs: dict[str, Run] = {}
        for name, some in files.items():
            run = import_files(*some, time_zone=time_zone)
            if not run.channels:
                raise BadInputError(f"{some[0]}: has no readings of power, only what jouletrace import {some[0]} shows")
            if any(about["clock"] != UNIX for about in run.settings["imported"]):
                raise BadInputError(f"{some[0]}: has no times of day, by which jobs are placed")
            stated = sorted({device.host for device in run.devices if device.host})
            if stated and not any(log.name in hosts or str(log) in hosts for log in some):
                runs |= {host: _of_host(run, host) for host in stated}
            elif name or len(asked) < 2:
                runs[name or next(iter(asked), "")] = run
            else:
                raise BadInputError(f"{some[0]}: of which host? Name it with --host {some[0].name}=HOST")
    owners: dict[str, str] = {}
    for name, run in runs.items():
        for device in run.devices:
            if device.id.startswith(("GPU-", "MIG-")) and owners.setdefault(device.id, name) != name:
                raise BadInputError(
                    f"{device.id} is in the logs of {owners[device.id]} and of {name}: name the host of both with"
                    f" --host FILE={name}"
                )
    return runs


def _of_host(run: Run, host: str) -> Run:
    """The same log with the GPUs of one host."""
    from jouletrace.run.model import derived

    return derived(run, devices=[device for device in run.devices if device.host == host])


def _keep(folder: Path, billed: JobsBill, given: Tariff, zone: tzinfo) -> None:
    from jouletrace.campaign.loop import keep
    from jouletrace.errors import BadInputError
    from jouletrace.wings.jobs.report import jobs_table, sums_table

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"-o {folder}: {error.strerror or error}") from None
    keep(folder / "jobs.csv", jobs_table(billed, given, zone).csv())
    for by in billed.sums:
        keep(folder / f"by_{by}.csv", sums_table(billed, by, given).csv())
    say(f"saved {folder}: jobs.csv, {', '.join(f'by_{by}.csv' for by in billed.sums)}")


COMMAND = Command(
    "Import and export",
    "Energy, cost and CO2 of the jobs of a cluster.",
    (
        "jouletrace jobs week.csv --jobs sacct.txt --price 0.30EUR/kWh",
        "jouletrace jobs node1.csv node2.csv --jobs jobs.csv -o bill",
        "jouletrace jobs week.csv --split-idle 5min",
    ),
    jobs,
)
