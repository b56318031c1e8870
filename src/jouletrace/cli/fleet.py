"""``jouletrace fleet run`` and ``fleet report``."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.output import opened, say
from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError
from jouletrace.profiler.settings import ProfileSettings

if TYPE_CHECKING:
    from jouletrace.addons.fleet.engine import Summary
    from jouletrace.addons.fleet.findings import Findings
    from jouletrace.addons.fleet.open import Request
    from jouletrace.addons.fleet.plan import FleetSettings
    from jouletrace.addons.fleet.results import Fleet
    from jouletrace.run import Run

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
    *("device", "task", "batch", "seq_len", "dtype", "mode", "detail", "config", "warmup_s", "idle_s", "seed"),
)
def run(
    settings: ProfileSettings,
    workload: Annotated[str, typer.Argument(help="As for profile; also gemm, sgemm, dgemm, memcpy, allreduce.")],
    gpus: Annotated[
        str, typer.Option(help="all, or numbers or UUIDs with commas; with --device sim:NAME, the number per host.")
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
    cool_to: Annotated[
        float | None,
        typer.Option(
            metavar="°C", help="Wait until the die is this cool. [default: 5 above each GPU's first temperature]"
        ),
    ] = None,
    cool_limit: Annotated[float, typer.Option(metavar="SECONDS", help="Longest wait for cooling; 0 for none.")] = 60.0,
    limit: Annotated[float, typer.Option(metavar="SECONDS", help="A repeat that takes longer is ended.")] = 600.0,
    engine: Annotated[str, typer.Option(help="local (this host) or ray (a cluster).")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster. [default: the one of this host]")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Number of hosts of simulated GPUs.")] = 1,
    allow_busy: Annotated[
        bool, typer.Option("--allow-busy", help="Also measure GPUs that other processes use.")
    ] = False,
    size: Annotated[
        str | None,
        typer.Option(help="For gemm: rows, or auto for the best use of the GPU; for memcpy and allreduce: MiB."),
    ] = None,
    iterations: Annotated[int | None, typer.Option(help="Products or copies per iteration.")] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Folder or fsspec URL; repeating the command resumes. [default: under runs/]"
        ),
    ] = None,
    top: Top = 10,
    json: options.Json = False,
) -> None:
    """Run the same load on every GPU, each repeat in a fresh process, and report how much the GPUs differ.

    The exit code is 3 if results are missing at the end.
    """
    from jouletrace.addons.fleet.open import Request
    from jouletrace.addons.fleet.plan import FleetSettings, parse_noise

    if output is not None and (Path(output) / "run.json").exists():
        raise BadInputError(f"--output {output}: it holds a Run, not a fleet")
    if size == "auto" and output is not None:
        size = _settled_size(output)
    given = {name: str(value) for name, value in (("size", size), ("iterations", iterations)) if value is not None}
    how = FleetSettings(
        workload=workload,
        profile=replace(settings, device="auto", config={**settings.config, **given}),
        repeats=repeats,
        placement=placement,
        seconds=seconds,
        noise=tuple(parse_noise(text) for text in noise or []),
        noise_profile=ProfileSettings(task=noise_task, batch=noise_batch, seed=settings.seed),
        cool_to_c=cool_to,
        cool_limit_s=cool_limit,
        limit_s=limit,
        seed=settings.seed,
    )
    request = Request(
        device=settings.device, gpus=gpus, nodes=nodes, engine=engine, address=address, allow_busy=allow_busy
    )
    place, found = _measured(how, request, output, quiet=json)
    say(
        f"{found.measured} new results, {found.before} existed, "
        f"{found.wanted - found.before - found.measured} missing; saved {place}"
    )
    results = _opened([place])
    _print(results, _find(results), top=top, json=json)
    if found.failed:
        reasons = "; ".join(list(dict.fromkeys(one.text for one in found.failed))[:3])
        again = f"repeat the command with -o {place} for the missing ones"
        raise NotPossibleError(f"{len(found.failed)} of {found.wanted} results are missing: {reasons}; {again}")


def _measured(how: FleetSettings, request: Request, output: str | None, *, quiet: bool) -> tuple[str, Summary]:
    """Run a fleet; returns the folder of its results and its summary."""
    from jouletrace.addons.fleet.dataset import Dataset
    from jouletrace.addons.fleet.engine import run_fleet
    from jouletrace.addons.fleet.open import open_fleet
    from jouletrace.addons.fleet.store import open_store
    from jouletrace.cli.fleet_progress import FleetProgress
    from jouletrace.recording.session import command_line
    from jouletrace.run.store import fresh_folder

    with open_fleet(how, request) as fleet:
        place = output or str(fresh_folder("runs", f"fleet-{Path(how.workload).name}"))
        progress = FleetProgress(fleet.gpus, quiet=quiet)
        try:
            with progress:
                found = run_fleet(
                    fleet.settings,
                    fleet.gpus,
                    Dataset(open_store(place)),
                    fleet.engine(place if "://" in place else str(Path(place).absolute()), command_line()),
                    command=command_line(),
                    excluded=fleet.excluded,
                    watch=progress,
                )
        except BaseException as error:
            if Path(place).is_dir() and not any(Path(place).iterdir()):
                Path(place).rmdir()  # refused before anything was measured
            elif progress.measured or not isinstance(error, JouletraceError):
                say(f"the results so far are in {place}; repeat the command with -o {place} for the missing ones")
            raise
    return place, found


def report(
    places: Annotated[
        list[str],
        typer.Argument(metavar="FLEET", help="Folder or URL of a fleet run; or Runs of one or more devices each."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write one HTML file; replaces an older report.")
    ] = None,
    actions: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Write the recommended action per GPU: inspect, keep, undecided.")
    ] = None,
    limit: Annotated[str, typer.Option(help="Slowness relative to the median from which to inspect a GPU.")] = "3%",
    ask: Ask = None,
    worth: Annotated[str, typer.Option(help="Gain from which requesting a GPU pays.")] = "1%",
    top: Top = 10,
    json: options.Json = False,
) -> None:
    """Report how GPUs differ: spread, outliers, components of variance, correlates of slowness, worth of a request."""
    gain, slow = options.parse_percent(worth, "--worth"), options.parse_percent(limit, "--limit")
    for option, text, share in (("--worth", worth, gain), ("--limit", limit, slow)):
        if not 0 <= share < 1:
            raise BadInputError(f"{option} {text}: must lie between 0 and 100 %")
    fleet = _opened(places)
    found = _find(fleet, ask, gain)
    _print(fleet, found, top=top, json=json)
    if actions is not None:
        from jouletrace.addons.fleet.actions import actions as decide
        from jouletrace.addons.fleet.actions import write_csv

        write_csv(decide(fleet, found, slow), fleet.simulated, actions)
        say(f"wrote {actions}")
    if output is not None:
        from jouletrace.addons.fleet.html import write

        say(f"wrote {write(fleet, found, output, slow)}")


def _settled_size(place: str) -> str:
    """The size that a resumed fleet, or another host, has chosen; "auto" if there is none."""
    from jouletrace.addons.fleet.dataset import Dataset
    from jouletrace.addons.fleet.store import open_store

    known = Dataset(open_store(place)).about() or {}
    return str(known.get("settings", {}).get("profile", {}).get("config", {}).get("size", "auto"))


def _opened(places: list[str]) -> Fleet:
    from jouletrace.addons.fleet.results import read_fleet

    runs = [place for place in places if place.endswith(".zip") or (Path(place) / "run.json").is_file()]
    twice = next((place for n, place in enumerate(places) if _same(place, places[:n])), None)
    if twice is not None:
        raise BadInputError(f"fleet report: {twice} is given twice")
    if not runs and len(places) == 1:
        return read_fleet(places[0])
    if len(runs) != len(places):
        raise BadInputError("fleet report: give one fleet, or several Runs")
    return _of_runs(places)


def _of_runs(places: list[str]) -> Fleet:
    """A fleet of the readable Runs, with the reasons for the others.

    Raises:
        BadInputError: If one doesn't exist, or none can be read.
    """
    from jouletrace.addons.fleet.results import fleet_of

    read: dict[str, Run] = {}
    damaged: list[str] = []
    for place in places:
        try:
            read[place] = opened(place)
        except BadInputError as error:
            if len(places) == 1 or not Path(place).exists():
                raise
            damaged.append(f"{error}: left out")
    return fleet_of(list(read.values()), "of Runs", places=list(read), damaged=damaged)


def _same(place: str, others: list[str]) -> bool:
    return Path(place).resolve() in [Path(other).resolve() for other in others]


def _find(fleet: Fleet, ask: str | None = None, worth: float | None = None) -> list[Findings]:
    from jouletrace.addons.fleet.findings import WORTH, asked_for, find

    if ask is not None and not any(asked_for(group, ask) is not None for group in fleet.groups):
        raise BadInputError(f"--ask {ask}: {_why_not(fleet, ask)}")
    return [find(group, ask, WORTH if worth is None else worth) for group in fleet.groups]


def _why_not(fleet: Fleet, ask: str) -> str:
    """Why the GPU is ambiguous or unknown, and what to write."""
    from jouletrace.addons.fleet.names import is_meant

    gpus = {(gpu.node, gpu.id): gpu for group in fleet.groups for gpu in group.gpus}.values()
    meant = [gpu for gpu in gpus if is_meant(ask, gpu.node, gpu.id, gpu.label)]
    if not meant:
        return f"there is no such GPU; the fleet has {', '.join(gpu.label for gpu in gpus)[:300]}"
    labels = ", ".join(gpu.label for gpu in meant)[:300]
    if len({gpu.node for gpu in meant}) > 1:
        return f"several hosts have one; write HOST:GPU, such as --ask {meant[0].label} (candidates: {labels})"
    return f"several UUIDs begin so; write more of the UUID, or one of {labels}"


def _print(fleet: Fleet, found: list[Findings], *, top: int, json: bool) -> None:
    from jouletrace.addons.fleet.document import document
    from jouletrace.addons.fleet.findings import to_dict
    from jouletrace.report.table import typeset

    if json:
        text = json_module.dumps(to_dict(fleet, found), indent=1, allow_nan=False)
    else:
        text = typeset(document(fleet, found, top)).rstrip("\n")
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
