"""``jouletrace mig``: list, plan, apply and restore."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jouletrace.cli.output import put, say

if TYPE_CHECKING:
    from jouletrace.addons.mig.layout import Layout

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
    from jouletrace.addons.mig.backend import open_backend
    from jouletrace.addons.mig.listing import listing, render

    backend = open_backend(device)
    try:
        found = listing(backend)
    finally:
        backend.close()
    put(json_module.dumps(found, indent=1) if json else render(found))


def plan(wanted: Wanted, device: Device = "auto", json: JsonOut = False) -> None:
    """Show whether and where instances fit on the undivided GPU, and what remains. Changes nothing."""
    from jouletrace.addons.mig.backend import open_backend
    from jouletrace.addons.mig.listing import render_plan
    from jouletrace.addons.mig.plan import make_plan

    backend = open_backend(device)
    try:
        found = make_plan(wanted, backend)
    finally:
        backend.close()
    put(json_module.dumps(found.to_dict(), indent=1) if json else render_plan(found))


def apply(
    wanted: Wanted,
    device: Device = "auto",
    yes: Annotated[bool, typer.Option("--yes", help="Apply the change; without this it is only shown.")] = False,
    json: JsonOut = False,
) -> None:
    """Divide the GPU by a plan; the earlier division is recorded first, for restore.

    Instances that are not in the plan are destroyed. The command is refused while processes use the GPU.
    """
    from jouletrace.addons.mig.apply import apply as divide
    from jouletrace.addons.mig.backend import open_backend
    from jouletrace.addons.mig.layout import layout_of
    from jouletrace.addons.mig.plan import make_plan
    from jouletrace.errors import BadInputError

    backend = open_backend(device)
    try:
        found = make_plan(wanted, backend)
        if not yes:
            change = f"from [{layout_of(backend)}] to [{found.layout}]"
            raise BadInputError(f"this would change {backend.info.name} {change}: add --yes to apply it")
        now = divide(found, backend, device, say)
        say(f"to restore: jouletrace mig restore --device {device}")
        _print_layout(now, backend.info.id, json)
    finally:
        backend.close()


def restore(device: Device = "auto", json: JsonOut = False) -> None:
    """Restore the division and mode that the GPU had before apply or sweep, also after a crash."""
    from jouletrace.addons.mig.apply import restore as bring_back
    from jouletrace.addons.mig.backend import open_backend
    from jouletrace.addons.mig.layout import layout_of

    backend = open_backend(device)
    try:
        now = bring_back(backend, say)
        if now is None:
            say("jouletrace has changed nothing on this GPU")
        _print_layout(now or layout_of(backend), backend.info.id, json)
    finally:
        backend.close()


def _print_layout(layout: Layout, board: str, json: bool) -> None:
    if json:
        found: dict[str, Any] = {"schema": 1, "board": board, "layout": layout.to_dict()}
        print(json_module.dumps(found, indent=1))
    else:
        put(str(layout))
