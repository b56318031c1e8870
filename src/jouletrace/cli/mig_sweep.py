"""``jouletrace mig sweep``."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from jouletrace.cli.mig import Device, JsonOut
from jouletrace.cli.output import put, say
from jouletrace.errors import BadInputError, NotPossibleError


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
    json: JsonOut = False,
) -> None:
    """Run workloads on slices of several profiles: latency, throughput, activity, memory, power, energy per sample.

    The GPU is divided for each profile and restored at the end, also after Ctrl-C.
    """
    from jouletrace.addons.mig.backend import open_backend
    from jouletrace.addons.mig.jobs import read_jobs
    from jouletrace.addons.mig.point import PointSettings
    from jouletrace.addons.mig.summary import summary
    from jouletrace.addons.mig.sweep import SweepSettings
    from jouletrace.addons.mig.sweep import sweep as run_sweep
    from jouletrace.cli.progress import ProgressLine
    from jouletrace.run.store import fresh_folder

    if not 1 <= seconds <= 3600:
        raise BadInputError(f"--seconds {seconds:g}: must be between 1 and 3600 s")
    lengths = _numbers(seq_len, "--seq-len") if seq_len else [None]
    jobs = read_jobs(_names(models), _names(tasks), _numbers(batch, "--batch"), lengths, dtype=dtype, mode=mode)
    counts = tuple(0 if one == "max" else _numbers(one, "--together")[0] for one in _names(together))
    point = PointSettings(seconds=seconds, solo_s=max(1.0, seconds * 0.4))
    settings = SweepSettings(tuple(_names(profiles)), tuple(jobs), counts, point, dcgm_url)
    backend = open_backend(device)
    try:
        simulated = backend.info.simulated
        if not (yes or simulated):
            raise BadInputError(
                f"this divides {backend.info.name} for each profile and restores it: add --yes to permit it"
            )
        folder = output or fresh_folder("runs", "mig-sweep")
        with ProgressLine() as progress:
            store = run_sweep(
                device,
                backend,
                settings,
                folder,
                begin=lambda number, count, what: progress.begin(f"{number}/{count} {what}", 0),
            )
    finally:
        backend.close()
    say(f"saved {folder} (sweep.csv, sweep.parquet)")
    if json:
        rows = [{key: value for key, value in row.items() if key != "latency_quantiles_s"} for row in store.rows]
        print(json_module.dumps({"schema": 1, "simulated": simulated, "rows": rows}, indent=1))
    else:
        put(summary(store.rows, simulated=simulated))
    lost = [row for row in store.rows if row["status"] == "failed" and row["reason"] != "out_of_memory"]
    if lost:
        reasons = "; ".join(list(dict.fromkeys(str(row["detail"]) for row in lost))[:3])
        raise NotPossibleError(f"{len(lost)} of {len(store.rows)} rows have no figures: {reasons}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(name) for name in _names(text)]
    except ValueError:
        raise BadInputError(f"{option} {text}: write whole numbers, such as 1,2,4") from None
