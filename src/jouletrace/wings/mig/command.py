"""``jouletrace mig``: list, plan, apply, restore and sweep."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jouletrace.cli.campaigns import conclude
from jouletrace.cli.command import Command
from jouletrace.cli.options import Verbose
from jouletrace.cli.output import put, put_json, say
from jouletrace.errors import BadInputError
from jouletrace.option import whole

if TYPE_CHECKING:
    from jouletrace.wings.mig.plan import Layout

Device = Annotated[
    str, typer.Option("--device", "-d", help="The GPU: auto, cuda:N, a UUID, or sim:NAME (sim:a100-80).")
]
JsonOut = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Wanted = Annotated[
    list[str],
    typer.Argument(metavar="PROFILE...", help="3g.40gb, 3g, 1g.10gb+me; 1c.2g or 2x1c.2g for compute instances."),
]


def list_profiles(device: Device = "auto", json: JsonOut = False) -> None:
    """List the MIG profiles of the GPU and its current division. Changes nothing."""
    from jouletrace.wings.mig.apply import open_backend
    from jouletrace.wings.mig.tables import listing, render

    with closing(open_backend(device)) as backend:
        found = listing(backend)
    if json:
        put_json(found)
    else:
        put(render(found))


def plan(wanted: Wanted, device: Device = "auto", json: JsonOut = False) -> None:
    """Show whether and where instances fit on the undivided GPU, and what remains. Changes nothing."""
    from jouletrace.wings.mig.apply import open_backend
    from jouletrace.wings.mig.plan import make_plan
    from jouletrace.wings.mig.tables import render_plan

    with closing(open_backend(device)) as backend:
        found = make_plan(wanted, backend)
    if json:
        put_json(found.to_dict())
    else:
        put(render_plan(found))


def apply(
    wanted: Wanted,
    device: Device = "auto",
    yes: Annotated[bool, typer.Option("--yes", help="Apply the change; without this it is only shown.")] = False,
    json: JsonOut = False,
) -> None:
    """Divide the GPU by a plan; the earlier division is recorded first, for restore.

    Instances that are not in the plan are destroyed. The command is refused while processes use the GPU.
    """
    from jouletrace.wings.mig.apply import apply as divide
    from jouletrace.wings.mig.apply import open_backend
    from jouletrace.wings.mig.plan import layout_of, make_plan

    with closing(open_backend(device)) as backend:
        found = make_plan(wanted, backend)
        if not yes:
            change = f"from [{layout_of(backend)}] to [{found.layout}]"
            raise BadInputError(f"this would change {backend.info.name} {change}: add --yes to apply it")
        now = divide(found, backend, device, say)
        say(f"to restore: jouletrace mig restore --device {device}")
        _print_layout(now, backend.info.id, json)


def restore(device: Device = "auto", json: JsonOut = False) -> None:
    """Restore the division and mode that the GPU had before apply or sweep, also after a crash."""
    from jouletrace.wings.mig.apply import open_backend
    from jouletrace.wings.mig.apply import restore as bring_back
    from jouletrace.wings.mig.plan import layout_of

    with closing(open_backend(device)) as backend:
        now = bring_back(backend, say)
        if now is None:
            say("jouletrace has changed nothing on this GPU")
        _print_layout(now or layout_of(backend), backend.info.id, json)


def sweep(
    profiles: Annotated[str, typer.Option(metavar="P,P,...", help="Slices: 1g.10gb,3g.40gb,7g.80gb.")],
    models: Annotated[
        str,
        typer.Option(metavar="M,M,...", help="vit,resnet50,swin,bert-base,distilbert,minilm,mpnet, or any workload."),
    ],
    tasks: Annotated[
        str, typer.Option(metavar="T,T,...", help="infer, train (also cv_infer, nlp_train, ...).")
    ] = "infer",
    batch: Annotated[str, typer.Option(metavar="N,N,...", help="Samples per request.")] = "1",
    seq_len: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Tokens per sample. [default: the model's]")
    ] = None,
    together: Annotated[
        str, typer.Option(metavar="N,N,...", help="Concurrently busy slices of a profile: numbers, or max.")
    ] = "1",
    device: Device = "auto",
    dtype: Annotated[str | None, typer.Option(help="fp32, tf32, fp16, bf16, amp. [default: fp16]")] = None,
    mode: Annotated[str, typer.Option(help="eager or graph.")] = "eager",
    seconds: Annotated[float, typer.Option("--seconds", metavar="SECONDS", help="Length of each measurement.")] = 10.0,
    dcgm_url: Annotated[
        str | None, typer.Option(metavar="URL", help="A dcgm-exporter for activity and memory. [default: GPM]")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder of the rows; repeating the command resumes. [default: under runs/]"
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Permit dividing a real GPU; it is restored at the end.")] = False,
    verbose: Verbose = False,
    json: JsonOut = False,
) -> None:
    """Run workloads on slices of several profiles: latency, throughput, activity, memory, power, energy per sample.

    The GPU is divided for each profile and restored at the end, also after Ctrl-C.
    """
    from jouletrace.campaign.loop import OUT_OF_MEMORY, PointObserver, folder_of
    from jouletrace.cli.progress import ProgressLine
    from jouletrace.wings.mig.apply import open_backend
    from jouletrace.wings.mig.jobs import read_jobs
    from jouletrace.wings.mig.point import PointSettings
    from jouletrace.wings.mig.sweep import SweepSettings
    from jouletrace.wings.mig.sweep import sweep as run_sweep
    from jouletrace.wings.mig.tables import summary

    if not 1 <= seconds <= 3600:
        raise BadInputError(f"--seconds {seconds:g}: must be between 1 and 3600 s")
    lengths = _numbers(seq_len, "--seq-len") if seq_len else [None]
    jobs = read_jobs(_names(models), _names(tasks), _numbers(batch, "--batch"), lengths, dtype=dtype, mode=mode)
    counts = tuple(0 if one == "max" else _numbers(one, "--together")[0] for one in _names(together))
    point = PointSettings(seconds=seconds, solo_s=max(1.0, seconds * 0.4))
    settings = SweepSettings(tuple(_names(profiles)), tuple(jobs), counts, point, dcgm_url)
    with closing(open_backend(device)) as backend:
        simulated = backend.info.simulated
        if not (yes or simulated):
            raise BadInputError(
                f"this divides {backend.info.name} for each profile and restores it: add --yes to permit it"
            )
        with folder_of(output, "mig-sweep") as folder:
            with ProgressLine() as progress:
                store, tally = run_sweep(device, backend, settings, folder, watch=PointObserver(progress))
            say(f"saved {folder} (sweep.csv, sweep.parquet)")
            if json:
                rows = [
                    {key: value for key, value in row.items() if key != "latency_quantiles_s"} for row in store.rows
                ]
                put_json({"schema": 1, "simulated": simulated, "rows": rows})
            elif store.rows:
                put(summary(store.rows, simulated=simulated, verbose=verbose))
            conclude(tally, folder, answer=OUT_OF_MEMORY)


def _print_layout(layout: Layout, board: str, json: bool) -> None:
    if json:
        found: dict[str, Any] = {"schema": 1, "board": board, "layout": layout.to_dict()}
        put_json(found)
    else:
        put(str(layout))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [whole(name) for name in _names(text)]
    except ValueError:
        raise BadInputError(f"{option} {text}: write whole numbers, such as 1,2,4") from None


COMMAND = Command(
    "Fleets and slices",
    "Divide a GPU into slices (MIG), and measure on them.",
    about="Divide a GPU into slices (MIG), and measure workloads on them.",
    parts={
        "list": Command(
            "",
            "List possible and present divisions of the GPU.",
            ("jouletrace mig list --device sim:a100-80",),
            list_profiles,
        ),
        "plan": Command(
            "",
            "Show whether and where instances fit.",
            ("jouletrace mig plan 3g.40gb 2g.20gb 1g.10gb --device sim:a100-80",),
            plan,
        ),
        "apply": Command(
            "",
            "Divide the GPU by a plan.",
            ("jouletrace mig apply 3g.40gb 2g.20gb 1g.10gb --yes",),
            apply,
        ),
        "restore": Command(
            "",
            "Restore the previous division.",
            ("jouletrace mig restore",),
            restore,
        ),
        "sweep": Command(
            "",
            "Run workloads on slices of several profiles.",
            ("jouletrace mig sweep --profiles 1g.10gb,7g.80gb --models vit --batch 1,8 --yes",),
            sweep,
        ),
    },
)
