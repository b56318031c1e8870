"""``jouletrace otlp``."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli.command import Command
from jouletrace.errors import BadInputError, NotPossibleError

if TYPE_CHECKING:
    from jouletrace.run import Run
    from jouletrace.wings.otlp.sender import State


def otlp(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A Run of run, monitor, record or import.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="A collector, such as http://127.0.0.1:4318.")],
) -> None:
    """Send energy and mean power of each device of a Run to an OpenTelemetry collector.

    They have the times of the Run, as hw.energy and hw.power. monitor --otlp sends readings while it runs.
    """
    from jouletrace.cli.output import say
    from jouletrace.formats.importers import UNIX
    from jouletrace.run import load
    from jouletrace.wings.otlp.sender import Sender

    opened = load(run)
    if (imported := opened.settings.get("imported")) and all(about["clock"] != UNIX for about in imported):
        raise BadInputError(f"{run} can't be sent: its times have no date: import a log whose times have one")
    states = _states(opened)
    if not states:
        what = "its energy is per iteration" if opened.kind in ("profile", "ab") else "it has no energy of a device"
        raise BadInputError(f"{run} can't be sent: {what}")
    sender, taken = Sender(url), list[bool]()
    sending = Thread(target=lambda: taken.append(sender.send(states)), daemon=True)
    sending.start()
    sending.join(sender.limit_s)
    if taken != [True]:
        raise NotPossibleError(f"{sender.where} did not take {run}")
    say(f"sent {', '.join(state.info.name for state in states)}")


_PHASES = ("program", "monitor")
"""Names of the phase whose energy a Run of a program, or of watched devices, states."""


def _states(run: Run) -> list[State]:
    """Energy and mean power of each device of a Run whose energy is known, over its phase, or that of its readings."""
    import pyarrow.compute as pc

    from jouletrace.run.parts import Parts
    from jouletrace.run.spans import spans_of
    from jouletrace.wings.otlp.sender import State

    if run.kind in ("profile", "ab"):
        return []
    units = {unit.module: unit for unit in Parts(run).units("device")}
    phases = spans_of(run, "phase")
    phases = phases.take(phases.those("name", _PHASES))
    states = []
    for info in run.devices:
        if info.id not in units and len(run.devices) > 1:
            continue
        figures = units[info.id].get if info.id in units else run.result
        energy, power = figures("energy_total_j").value, figures("power_w").value
        if len(phases):
            start_ns, end_ns = int(phases.start_ns[0]), int(phases.end_ns[0])
        else:
            read = pc.min_max(run.samples.filter(pc.equal(run.samples["device"], info.id))["time_ns"]).as_py()
            start_ns, end_ns = read["min"], read["max"]
        if energy is not None and start_ns is not None:
            values = {"hw.energy": energy} | ({"hw.power": power} if power is not None else {})
            states.append(State(info, start_ns, end_ns, values))
    return states


COMMAND = Command(
    "Import and export",
    "Send a Run to an OpenTelemetry collector.",
    ("jouletrace otlp runs/mine http://127.0.0.1:4318",),
    otlp,
)
