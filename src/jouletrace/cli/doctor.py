"""``jouletrace doctor``."""

from __future__ import annotations

import shlex
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import put_json, say
from jouletrace.errors import WITHOUT_GPU
from jouletrace.words.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from jouletrace.devices.base import Capability
    from jouletrace.profiler.doctor import DeviceDiagnosis, Diagnosis
    from jouletrace.run import DeviceInfo


def doctor(
    device: Annotated[
        str | None, typer.Option("--device", "-d", help=options.DEVICE_HELP + " [default: all local devices]")
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="FILE.zip", help="Record 30 s of pulses of a load for others to learn this GPU from."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Report what can be measured on this machine, how well, and what is missing.

    Reads each sensor once and changes nothing. With --bundle, it runs a load for 40 s and writes what every sensor
    shows of it, with this report: no names of users, hosts, folders or processes.
    """
    if bundle is not None:
        return _write_bundle(device or "auto", bundle)
    from rich.text import Text

    from jouletrace.profiler.doctor import diagnose
    from jouletrace.report.console import open_console

    diagnosis = diagnose(device)
    if json:
        put_json(diagnosis.to_dict())
        return
    console = open_console(highlight=False)
    for line in _verdict(diagnosis, device):
        _item(console, line, indent=0)
    console.print()
    for device_found in diagnosis.devices:
        _print_device(console, device_found)
    if diagnosis.no_gpu is not None:
        _item(console, f"no NVIDIA GPU: {diagnosis.no_gpu}", _BAD, indent=0)
        _item(console, WITHOUT_GPU, indent=2)
        console.print()
    console.print(Text("Libraries and tools", style="bold"))
    width = max(map(len, diagnosis.extras), default=0) + 2
    for name, extra in diagnosis.extras.items():
        _item(console, str(extra["note"]), _GOOD if extra["available"] else _BAD, name=name.ljust(width))


def _write_bundle(device: str, place: Path) -> None:
    from jouletrace.cli.progress import ProgressLine
    from jouletrace.errors import BadInputError
    from jouletrace.profiler.bundle import bundle

    if place.suffix != ".zip":
        raise BadInputError(f"--bundle {place}: name a file that ends in .zip")
    try:
        place.touch(exist_ok=False)
    except OSError as error:  # before the load runs
        raise BadInputError(f"--bundle {place}: {error.strerror}") from None
    place.unlink()
    with ProgressLine() as progress:
        run = bundle(device, place, progress)
    names = ", ".join(channel.name for channel in run.channels)
    say(f"saved {place}, {place.stat().st_size / 1e3:.0f} kB: {names}; see it with jouletrace show {place} -v")


def _verdict(diagnosis: Diagnosis, device: str | None) -> list[str]:
    """Print what can be measured here, what can be run, and what to do next: a line each."""
    gpus = [
        device_there
        for device_there in diagnosis.devices
        if device_there.info.kind in ("gpu", "mig") and not device_there.problem
    ]
    powered = [
        device_there
        for device_there in diagnosis.devices
        if any(_of_power(one_can) for one_can in device_there.capabilities)
    ]
    names = ", ".join(dict.fromkeys(device_there.info.name for device_there in powered))
    energy = f"energy: yes, of {names}" if powered else "energy: no, no device here reports its power; time alone"
    missing = [name for name in ("torch", "transformers") if not diagnosis.extras.get(name, {}).get("available")]
    meters = bool(diagnosis.devices) and all(device_there.info.kind == "meter" for device_there in diagnosis.devices)
    if meters:
        models = "models: no, a meter runs none"
    else:
        models = f"models: no {' and '.join(missing)}; pip install 'jouletrace[torch]'" if missing else "models: yes"
    here = "" if device is None else f" --device {shlex.quote(device)}"
    busy = [process for device_there in gpus for process in device_there.processes]
    uncalibrated = next((device_there for device_there in gpus if device_there.calibrated_days_ago is None), None)
    if busy:
        what = f"wait until pid {busy[0].pid} ends, or end it: other processes spoil figures"
    elif uncalibrated is not None:
        what = f"jouletrace calibrate{here}, once; then jouletrace profile deit-tiny{here}"
    elif powered and meters:
        what = f"jouletrace monitor{here}"
    elif powered and not missing:
        what = f"jouletrace profile deit-tiny{here}"
    else:
        what = "jouletrace demo, a Run recorded on an H100"
    return [energy, models, f"next: {what}"]


def _of_power(capability: Capability) -> bool:
    """True if energy can be computed from it."""
    return capability.available and ("power" in capability.name.lower() or "energy" in capability.name.lower())


_GOOD, _BAD, _NOTE = "✓", "✗", "!"
_STYLES = {_GOOD: "green", _BAD: "red", _NOTE: "yellow"}


def _item(console: Console, text: str, mark: str = "", *, name: str = "", indent: int = 2) -> None:
    """Print a line after its mark; continuation lines are indented to its beginning."""
    from rich.text import Text

    lead = " " * indent + (f"{mark} " if mark else "") + printable(name)
    indents: Any = {"initial_indent": lead, "subsequent_indent": " " * len(lead)}
    words: Any = {"break_long_words": False, "break_on_hyphens": False}
    lines = wrap(printable(text), max(console.width, 40), **indents, **words)
    shown = Text("\n".join(lines))
    if mark:
        shown.stylize(_STYLES[mark], indent, indent + len(mark))
    console.print(shown, soft_wrap=True)


def _print_device(console: Console, diagnosed: DeviceDiagnosis) -> None:
    from rich.text import Text

    info = diagnosed.info
    mark = "  SIMULATED" if info.simulated else ""
    console.print(Text.assemble((printable(info.name), "bold"), f"  {printable(info.id)}{mark}"), soft_wrap=True)
    if diagnosed.problem:
        _item(console, diagnosed.problem, _BAD)
    if facts := _facts(info):
        _item(console, "; ".join(facts))
    for capability in diagnosed.capabilities:
        _item(console, _line(capability), _GOOD if capability.available else _BAD)
    if info.kind != "cpu":
        if diagnosed.calibrated_days_ago is None:
            _item(console, "not calibrated: run jouletrace calibrate (under a minute)", _NOTE)
        else:
            _item(console, f"calibrated {_ago(diagnosed.calibrated_days_ago)}", _GOOD)
            for name, response in diagnosed.calibration.items():
                _item(console, _response(response), name=f"{name}: ", indent=6)
    for fact in diagnosed.remembered.values():
        _item(console, f"{fact['text']}; measured {_ago(fact['days_ago'])}", _GOOD)
    for process in diagnosed.processes:
        used = f", {process.memory_bytes / 2**20:.0f} MiB" if process.memory_bytes else ""
        who = f"{process.name or 'a process'} (pid {process.pid}{used})"
        _item(console, f"in use by {who}; to end it: kill {process.pid}", _NOTE)
    console.print()


def _facts(info: DeviceInfo) -> list[str]:
    """Facts that a device reports: driver, power limits, memory, persistence mode."""
    facts = []
    if info.driver:
        facts.append(f"driver {info.driver}")
    if info.power_limit_w is not None:
        limits = ", ".join(f"{name} {watts:g} W" for name, watts in info.power_limits_w.items())
        facts.append(f"power limit {info.power_limit_w:g} W" + (f" ({limits})" if limits else ""))
    if info.memory_bytes:
        facts.append(f"{info.memory_bytes / 2**30:.0f} GiB")
    if info.persistence is not None:
        facts.append(f"persistence {'on' if info.persistence else 'off'}")
    return facts


def _response(response: dict[str, Any]) -> str:
    times = {"period": "period_s", "window": "window_s", "rise": "rise_s", "delay": "delay_s"}
    parts = [f"{name} {_duration(response[key])}" for name, key in times.items()]
    return ", ".join([*parts, "gapless" if response["gapless"] else "not gapless"])


def _line(capability: Capability) -> str:
    every = f"every {_duration(capability.period_s)}" if capability.period_s else ""
    cost = "" if capability.cost_s is None else f"a read costs {_duration(capability.cost_s)}"
    text = ", ".join(filter(None, [capability.name, every, cost, capability.source]))
    return f"{text}: {capability.note}" if capability.note else text


def _duration(seconds: float) -> str:
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def _ago(days: float) -> str:
    hours = days * 24
    return "less than an hour ago" if hours < 1 else f"{hours:.0f} h ago" if hours < 48 else f"{days:.0f} days ago"


COMMAND = Command(
    "Measure",
    "What can be measured here, how well, and what is missing.",
    (
        "jouletrace doctor",
        "jouletrace doctor --device cuda:1 --json",
        "jouletrace doctor --bundle gpu.zip",
    ),
    doctor,
)
