"""``jouletrace import``."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import print_runs, put, put_json, say
from jouletrace.errors import BadInputError
from jouletrace.option import number

if TYPE_CHECKING:
    from jouletrace.report.tariffs import Tariff
    from jouletrace.run import Run


def import_(
    files: Annotated[
        list[Path], typer.Argument(help="Files of other tools; several files become one Run.", metavar="FILE...")
    ],
    output: options.Output = None,
    form: Annotated[
        str | None, typer.Option("--format", "-f", help="Format of all files. [default: by content]")
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(metavar="S", help="Seconds to add to all files but the first, or FILE=S. Repeatable."),
    ] = None,
    column: options.Map = None,
    latency: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Latency per inference (4.37ms), to compute its energy from a power log."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="Name of the device, if no file states it.")] = None,
    time_zone: Annotated[str | None, typer.Option(help="Time zone of local times, such as Europe/Berlin.")] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Keep the readings of a log from then on: a time, or its seconds."),
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Keep those up to then.")] = None,
    absolute: options.Absolute = False,
    price: options.KeptPrice = None,
    carbon: options.KeptCarbon = None,
    verbose: options.Verbose = False,
    json: options.Json = False,
) -> None:
    """Import files of other profilers and power loggers into a Run, on one clock.

    It reads tables of power, and timelines, counters and logs of other tools; a --format that it lacks lists all. A
    timeline with a record of NVML's power samples gives the power per operator and kernel.
    """
    from jouletrace.run.memory import bounded
    from jouletrace.run.places import check_free

    given = options.tariff(price, carbon)
    everywhere, by_file = _offsets(offset or [])
    chosen = {
        "format": form,
        "offset_s": everywhere,
        "offsets_s": by_file,
        "map": options.parse_pairs(column or [], "--map"),
        "latency_s": _seconds(latency) if latency is not None else None,
        "device": device,
        "time_zone": time_zone,
        "since": since,
        "until": until,
    }
    if output is not None:
        check_free(output)
    with bounded(files):
        _import(files, chosen, output, given, json=json, verbose=verbose, absolute=absolute)


def _import(
    files: list[Path],
    chosen: dict[str, Any],
    output: Path | None,
    given: Tariff,
    *,
    json: bool,
    verbose: bool,
    absolute: bool,
) -> None:
    """Read, save and print."""
    from jouletrace.formats.importers import import_files
    from jouletrace.report.contract import to_json_object
    from jouletrace.report.cost import tariff_of
    from jouletrace.run import save
    from jouletrace.run.files import quoted
    from jouletrace.run.masking import masked_arguments
    from jouletrace.run.places import fresh_folder
    from jouletrace.run.recording_names import has_recording
    from jouletrace.run.store import remove_own

    run = import_files(*files, **chosen)
    run.settings |= given.settings
    run.command = " ".join(["jouletrace", *masked_arguments(sys.argv[1:])])
    target = output if output is not None else fresh_folder("runs", files[0].stem)
    try:
        saved = save(run, target)
    except BadInputError:
        remove_own(target)
        raise
    run.settings |= {"absolute": absolute}  # which isn't saved
    asked = absolute or chosen["latency_s"] is not None or has_recording(run)
    facts = {"schema": 1, "run": str(saved), **_facts(run)}
    if json:
        report = {"report": to_json_object(run, tariff=given)} if asked or tariff_of(run, given) is not None else {}
        put_json({**facts, **report})
    else:
        put("\n".join(_lines(run, facts) if verbose else [_counted(facts)]))
        print_runs([run], form="table", verbose=verbose, tariff=given)
    say(f"saved {saved} · more: jouletrace show {quoted(saved)} -v")


def _seconds(text: str) -> float:
    """A latency such as "4.37ms", in seconds."""
    from jouletrace.formats.importers import units

    digits, printed = units.split(text)
    unit = units.unit(printed) if printed else None
    with suppress(ValueError):
        if unit is not None and unit.si == "s" and 0 < (value := float(digits) * unit.factor) < float("inf"):
            return value
    raise BadInputError(f"--latency {text}: must be a time of more than 0 s with its unit, such as 4.37ms")


def _offsets(texts: list[str]) -> tuple[float | None, dict[str, float]]:
    """Offsets in seconds: for all but the first file, and by file."""
    everywhere: float | None = None
    by_file: dict[str, float] = {}
    for text in texts:
        name, separator, value = text.rpartition("=")
        try:
            seconds = number(value)
        except ValueError:
            raise BadInputError(f"--offset {text!r}: write seconds, or FILE=SECONDS") from None
        if not separator:
            everywhere = seconds
        else:
            by_file[name] = seconds
    return everywhere, by_file


def _facts(run: Run) -> dict[str, Any]:
    """Counts of the things that were imported."""
    import pyarrow.compute as pc

    from jouletrace.formats.importers.extent import extent

    kinds = pc.value_counts(run.spans["kind"].cast("string")).to_pylist()
    whole = extent(run)
    seconds = (whole.end_ns - whole.start_ns) / 1e9 if whole.start_ns is not None and whole.end_ns is not None else None
    return {
        "files": run.settings["imported"],
        "devices": [{"id": device.id, "name": device.name} for device in run.devices],
        "spans": {str(kind["values"]): kind["counts"] for kind in sorted(kinds, key=lambda kind: -kind["counts"])},
        "samples": len(run.samples),
        "counters": len(run.counters),
        "figures": len(run.results),
        "start_ns": whole.start_ns,
        "time_s": seconds,
        "warnings": [warning.to_dict() for warning in run.warnings],
    }


def _counted(facts: dict[str, Any]) -> str:
    """One line about what was read."""
    counted = [f"{n} {kind if n == 1 else _SEVERAL.get(kind, f'{kind}s')}" for kind, n in facts["spans"].items()]
    counted += [f"{n} {what if n > 1 else what[:-1]}" for what in ("samples", "counters") if (n := facts[what])]
    seconds = "" if facts["time_s"] is None else f" over {facts['time_s']:.6g} s"
    return (", ".join(counted) or f"{facts['figures']} figures") + seconds


def _lines(run: Run, facts: dict[str, Any]) -> list[str]:
    """The same as readable lines."""
    from jouletrace.run.recording_names import has_recording, recording_of

    lines = []
    for file in facts["files"]:
        lines.append(f"{file['path']}: {file['format']}; {file['aligned']}")
        joins, match = file.get("joins"), file.get("match")
        if joins and joins["device_spans"]:
            lines.append(
                f"  {joins['with_launch']} of {joins['device_spans']} kernels and copies have their launch, "
                f"{joins['with_parent']} the operator that launched them"
            )
            for key, text in _JOINS.items():
                if joins.get(key):
                    lines.append(f"  {joins[key]} {text}")
        if match:
            lines.append(
                f"  {match['matched']} of {match['launches']} launches matched ({match['rate']:.1%}), "
                f"{match['ambiguous']} ambiguous, {match['unknown']} not in the timeline"
            )
        if file.get("not_read"):
            lines.append("  not read: " + ", ".join(f"{table} ({n} rows)" for table, n in file["not_read"].items()))
    lines.append(_counted(facts))
    lines += [f"device {device['id']}: {device['name']}" for device in facts["devices"]]
    if has_recording(run):
        about = recording_of(run)
        by = about["iterations_by"]
        each = f"per iteration, {about['iterations']} of {by}" if by else "of the whole recording: it has no marks"
        lines.append(
            f"powers of kernels from the record of samples; figures are {each}{'' if by else ' of iterations'}"
        )
    return lines + [
        f"! {warning['where']}{': ' * bool(warning['where'])}{warning['message']}" for warning in facts["warnings"]
    ]


_SEVERAL = {"memcpy": "copies", "launch": "launches"}
"""Plurals of kinds of spans that don't just end in s."""

_JOINS = {
    "ambiguous_launch": "have several launches of one id, and were not joined",
    "refused_external_ids": "ids of operators were ignored: the launch lies outside the operator",
    "before_launch": "start before their launch: the two clocks differ",
}


COMMAND = Command(
    "Import and export",
    "Read files of other profilers and power loggers.",
    (
        "jouletrace import dmon.log --latency 4.37ms",
        "jouletrace import trace.json power.csv -o runs/imported",
    ),
    import_,
)
