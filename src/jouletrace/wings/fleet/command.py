"""``jouletrace fleet run``, ``fleet report`` and ``fleet energy``."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.campaigns import conclude
from jouletrace.cli.command import Command
from jouletrace.cli.output import say
from jouletrace.errors import BadInputError
from jouletrace.profiler.settings import ProfileSettings

if TYPE_CHECKING:
    from jouletrace.campaign.cluster import Cluster
    from jouletrace.campaign.loop import Tally
    from jouletrace.report.tariffs import Tariff
    from jouletrace.run import Run
    from jouletrace.run.forms import Settings
    from jouletrace.wings.fleet.engine import Host
    from jouletrace.wings.fleet.findings import Findings
    from jouletrace.wings.fleet.plan import FleetSettings, Task
    from jouletrace.wings.fleet.results import Fleet

Ask = Annotated[
    str | None,
    typer.Option(
        "--ask",
        metavar="GPU",
        help="Test whether requesting this GPU pays: a number, HOST:GPU for several hosts, or a UUID. "
        "[default: the fastest]",
    ),
]
Top = Annotated[int, typer.Option(min=1, help="Number of best and of worst GPUs shown, if there are many.")]


@options.from_settings(
    ProfileSettings,
    *options.all_but(ProfileSettings, "target_ci", "max_time_s", "backend", "threads", "streams", "hint"),
    "idle_s",
)
def run(
    settings: ProfileSettings,
    workload: Annotated[str, typer.Argument(help="As for profile; also gemm, sgemm, dgemm, memcpy.")],
    gpus: Annotated[
        str, typer.Option(help="all, or numbers or UUIDs with commas; with --device sim:NAME, their number.")
    ] = "all",
    repeats: Annotated[int, typer.Option(help="Fresh processes per GPU.")] = 10,
    placement: Annotated[str, typer.Option(help="together (all GPUs of a host at once) or in-turn.")] = "together",
    noise: Annotated[
        list[str] | None,
        typer.Option(metavar="WORKLOAD@GPUS", help="A concurrent load: resnet50@1,2 or memcpy@all; repeatable."),
    ] = None,
    noise_task: Annotated[str, typer.Option(help="Task of the noise: infer or train.")] = "infer",
    noise_batch: Annotated[int | None, typer.Option(help="Batch of the noise. [default: the workload's]")] = None,
    seconds: Annotated[float, typer.Option("--seconds", metavar="SECONDS", help="Measured time per repeat.")] = 10.0,
    limit: Annotated[float, typer.Option(metavar="SECONDS", help="A repeat that takes longer is ended.")] = 600.0,
    allow_busy: Annotated[
        bool, typer.Option("--allow-busy", help="Also measure GPUs that other processes use.")
    ] = False,
    on: options.On = None,
    price: options.KeptPrice = None,
    carbon: options.KeptCarbon = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder; repeating the command resumes. [default: under runs/]"),
    ] = None,
    top: Top = 10,
    verbose: options.Verbose = False,
    json: options.Json = False,
) -> None:
    """Run the same load on every GPU, each repeat in a fresh process, and report how much the GPUs differ.

    With --on, every node of the cluster measures its own GPUs. The exit code is 3 if results are missing at the end.
    """
    from jouletrace.campaign.cluster import cluster
    from jouletrace.campaign.loop import folder_of
    from jouletrace.wings.fleet.engine import open_host
    from jouletrace.wings.fleet.plan import FleetSettings, parse_noise

    how = FleetSettings(
        workload=workload,
        profile=replace(settings, device="auto"),
        repeats=repeats,
        placement=placement,
        seconds=seconds,
        noise=tuple(parse_noise(text) for text in noise or []),
        noise_profile=ProfileSettings(task=noise_task, batch=noise_batch, seed=settings.seed),
        limit_s=limit,
        seed=settings.seed,
    )
    given, nodes = options.tariff(price, carbon), cluster(on, settings.device)
    host = open_host(how, settings.device, gpus, allow_busy=allow_busy, on=nodes)
    with folder_of(output, f"fleet-{Path(workload).name}") as place:
        tally = _measured(how, host, place, given.settings, nodes, quiet=json)
        there, missing = len(tally.outcomes) - len(tally.missing), len(tally.missing)
        say(f"{max(0, there - tally.before)} new results, {tally.before} existed, {missing} missing; saved {place}")
        if there:
            results = _opened([str(place)])
            stated = given if given.settings else given.usual
            _print(results, _find(results), top=top, json=json, verbose=verbose, given=stated)
        conclude(tally, place, "results")


def _measured(
    how: FleetSettings, host: Host, place: Path, kept: Settings, nodes: Cluster | None, *, quiet: bool
) -> Tally[Task]:
    """Run a fleet into a folder, whose Runs keep these settings."""
    from jouletrace.cli.progress import quiet_output
    from jouletrace.recording.session import command_line
    from jouletrace.wings.fleet.engine import run_fleet
    from jouletrace.wings.fleet.folder import Folder
    from jouletrace.wings.fleet.progress import FleetProgress

    with FleetProgress(host.gpus, quiet=quiet) as progress, quiet_output():
        return run_fleet(how, host, Folder(place), command=command_line(), kept=kept, watch=progress, on=nodes)


def report(
    places: Annotated[
        list[str],
        typer.Argument(metavar="FLEET", help="Folder of a fleet run; or Runs of one or more devices each."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write one HTML file; replaces an older report.")
    ] = None,
    ask: Ask = None,
    worth: Annotated[str, typer.Option(help="Gain from which requesting a GPU pays.")] = "1%",
    price: options.Price = None,
    carbon: options.Carbon = None,
    top: Top = 10,
    verbose: options.Verbose = False,
    json: options.Json = False,
) -> None:
    """Report how GPUs differ: spread, outliers, components of variance, correlates of slowness, worth of a request."""
    from jouletrace.report.tariffs import tariff

    gain, given = options.parse_percent(worth, "--worth"), tariff(price, carbon)
    if not 0 <= gain < 1:
        raise BadInputError(f"--worth {worth}: must lie between 0 and 100 %")
    fleet = _opened(places)
    found = _find(fleet, ask, gain)
    _print(fleet, found, top=top, json=json, verbose=verbose, given=given)
    if output is not None:
        from jouletrace.wings.fleet.html import write

        write(fleet, found, output, given)
        say(f"wrote {output}")


def _opened(places: list[str]) -> Fleet:
    from jouletrace.run.files import quoted
    from jouletrace.wings.fleet.folder import ABOUT
    from jouletrace.wings.fleet.results import read_fleet

    runs = [place for place in places if place.endswith(".zip") or (Path(place) / "run.json").is_file()]
    twice = next((place for n, place in enumerate(places) if _same(place, places[:n])), None)
    if twice is not None:
        raise BadInputError(f"fleet report: {twice} is given twice")
    if not runs and len(places) == 1:
        inside = sorted(Path(places[0]).glob("*/run.json"))
        if inside and not (Path(places[0]) / ABOUT).exists():
            raise BadInputError(
                f"no fleet in {places[0]}, but {len(inside)} Runs: jouletrace fleet report {quoted(Path(places[0]))}/*"
            )
        return read_fleet(places[0])
    if len(runs) != len(places):
        raise BadInputError("fleet report: give one fleet, or several Runs")
    return _of_runs(places)


def _of_runs(places: list[str]) -> Fleet:
    """A fleet of the readable Runs, with the reasons for the others.

    Raises:
        BadInputError: If one doesn't exist, or none can be read.
    """
    from jouletrace.profiler.loading import load
    from jouletrace.wings.fleet.results import fleet_of

    read: dict[str, Run] = {}
    damaged: list[str] = []
    for place in places:
        try:
            read[place] = load(place)
        except BadInputError as error:
            if len(places) == 1 or not Path(place).exists():
                raise
            damaged.append(f"{error}: left out")
    return fleet_of(read, "of Runs", damaged)


def _same(place: str, others: list[str]) -> bool:
    return Path(place).resolve() in [Path(other).resolve() for other in others]


def energy(
    data: Annotated[
        list[Path], typer.Argument(metavar="DATA...", help="Files of Parquet or CSV with a row a reading, or folders.")
    ],
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="host, gpu, day or a column such as user; repeatable. [default: host, day]"
        ),
    ] = None,
    column: options.Map = None,
    rest: Annotated[
        float | None, typer.Option(metavar="WATTS", help="A GPU is at rest below it. [default: by the readings]")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Lines of each table.")] = 20,
    price: options.Price = None,
    carbon: options.Carbon = None,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Energy, cost and time at rest of a whole fleet, by a dataset of power readings.

    Reads a month of a thousand GPUs in a minute, batch by batch; --map names columns of time, power, gpu and host.
    Jobs of few hosts with their own intervals are billed by jouletrace jobs.
    """
    from jouletrace.cli.output import check_form
    from jouletrace.report.tariffs import Tariff, tariff
    from jouletrace.report.text import rendered
    from jouletrace.wings.fleet.energy import fleet_energy
    from jouletrace.wings.fleet.energy_report import document, to_dict

    form, given = check_form(form, json), tariff(price, carbon) or Tariff()
    if missing := [path for path in data if not path.exists()]:
        raise BadInputError(f"{missing[0]}: no such file or folder")
    asked = list(dict.fromkeys(by or ["host", "day"]))
    measured = fleet_energy(data, asked, options.parse_pairs(column or [], "--map"), rest)
    shown = document(measured, given, top if form == "table" else None)
    sys.stdout.write(rendered(shown, lambda: to_dict(measured, given), form, colour=sys.stdout.isatty()))
    sys.stdout.flush()


def _find(fleet: Fleet, ask: str | None = None, worth: float | None = None) -> list[Findings]:
    from jouletrace.wings.fleet.findings import WORTH, asked_for, find

    if ask is not None and not any(asked_for(group, ask) is not None for group in fleet.groups):
        raise BadInputError(f"--ask {ask}: {_why_not(fleet, ask)}")
    return [find(group, ask, WORTH if worth is None else worth) for group in fleet.groups]


def _why_not(fleet: Fleet, ask: str) -> str:
    """Why the GPU is ambiguous or unknown, and what to write."""
    from jouletrace.wings.fleet.plan import is_meant

    gpus = {(gpu.node, gpu.id): gpu for group in fleet.groups for gpu in group.gpus}.values()
    meant = [gpu.label for gpu in gpus if is_meant(ask, gpu.node, gpu.id, gpu.label)]
    if not meant:
        return f"there is no such GPU; the fleet has {', '.join(gpu.label for gpu in gpus)[:300]}"
    return f"several are meant; write one of {', '.join(meant)[:300]}"


def _print(
    fleet: Fleet, found: list[Findings], *, top: int, json: bool, verbose: bool, given: Tariff | None = None
) -> None:
    from jouletrace.report.text import typeset
    from jouletrace.wings.fleet.document import document, short
    from jouletrace.wings.fleet.findings import to_dict

    if json:
        text = json_module.dumps(to_dict(fleet, found, given), indent=1, allow_nan=False)
    else:
        shown = document(fleet, found, top, given) if verbose else short(fleet, found, top, given)
        text = typeset(shown, colour=sys.stdout.isatty()).rstrip("\n")
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


COMMAND = Command(
    "Fleets and slices",
    "The same load on many GPUs, and how much they differ.",
    about="The same load on many GPUs and hosts, and how much they differ.",
    parts={
        "run": Command(
            "",
            "Measure the load on every GPU, then report.",
            (
                "jouletrace fleet run gemm",
                "jouletrace fleet run deit-b --batch 64 --mode graph --repeats 5 -o runs/fleet",
            ),
            run,
        ),
        "report": Command(
            "",
            "Report how much the GPUs of a fleet differ.",
            ("jouletrace fleet report runs/fleet -o fleet.html --ask 3",),
            report,
        ),
        "energy": Command(
            "",
            "Energy and cost of a fleet by its readings.",
            (
                "jouletrace fleet energy month/ --by host --by day --price 0.30EUR/kWh",
                "jouletrace fleet energy readings.parquet --by user",
            ),
            energy,
        ),
    },
)
