"""Dividing a GPU and restoring its earlier layout: the only module that changes a GPU's partitioning."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from typing import Any

from jouletrace.devices import open_device
from jouletrace.devices.base import Process
from jouletrace.errors import SIMULATE_GPU, BadInputError, JouletraceError, NotPossibleError
from jouletrace.processes.locks import Guard, Hold, hold, journal_of, noted
from jouletrace.run import DeviceInfo
from jouletrace.wings.mig.driver import NvmlMigBackend
from jouletrace.wings.mig.partition import MigBackend, MigRefusedError
from jouletrace.wings.mig.plan import Layout, Plan, PlannedInstance, layout_of
from jouletrace.wings.mig.simulated import stored


def open_backend(device: str) -> MigBackend:
    """Open the partitioning of a GPU.

    Args:
        device: "auto", "cuda:N", a GPU's UUID, "sim:NAME"; a MIG instance stands for its GPU. Changes of a
            simulated GPU are kept in the cache folder between commands.

    Raises:
        BadInputError: If the device doesn't exist, or is a CPU.
        NotPossibleError: If the driver is missing, or the GPU has no MIG.
    """
    with closing(open_device(device)) as opened:
        info = opened.info
        board = str(getattr(opened, "parent", info.id))
    if info.simulated:
        return stored("sim:{preset}?seed={seed}".format_map(info.details))
    if info.kind == "cpu":
        if "no_gpu" in info.details:
            raise NotPossibleError(f"no GPU that can be divided: {info.details['no_gpu']}; {SIMULATE_GPU}")
        raise BadInputError(f"--device {device}: only an NVIDIA GPU can be divided")
    return NvmlMigBackend(board)


CHANGE = "mig"
"""Its key in the journal."""

Say = Callable[[str], None]


class PendingResetError(NotPossibleError):
    """MIG is turned on or off only by the next reset of the GPU; the journal is kept."""


def apply(plan: Plan, backend: MigBackend, device: str, say: Say = lambda text: None) -> Layout:
    """Divide a GPU by a plan, permanently; it is restored if this process is killed meanwhile. Returns the new layout.

    ``device`` is the user's name of the GPU, for messages; ``say`` is called with each step.

    Raises:
        NotPossibleError: As ``divide``, and if another jouletrace changes this GPU.
    """
    with hold(backend.info, "dividing") as held:
        before = layout_of(backend)
        with restored_if_killed(held, backend, device, before) as watch:
            try:
                return divide(held, plan, backend, device, say)
            finally:
                if _is(backend, before) or _is(backend, plan.layout):
                    watch.done()


def divide(held: Hold, plan: Plan, backend: MigBackend, device: str, say: Say = lambda text: None) -> Layout:
    """Divide a held GPU by a plan, after recording the old layout; arguments as for ``apply``. Returns the new layout.

    If it is refused half way, or interrupted by Ctrl-C, the old layout is restored.

    Raises:
        NotPossibleError: If processes use the GPU (named), the user lacks permission, or it needs a reset.
        BadInputError: If the journal of an earlier command can't be read.
    """
    refuse_if_used(backend)
    before = layout_of(backend)
    if plan.layout.satisfied_by(before):
        return before
    first = written_down(backend.info) or before  # several plans keep the layout before the first
    held.note(CHANGE, {"device": device, "before": first.to_dict(), "target": plan.layout.to_dict()})
    try:
        converge(backend, plan.layout, say)
    except PendingResetError:
        raise
    except (JouletraceError, KeyboardInterrupt) as error:
        _go_back(held, backend, device, before, error, say)
        raise
    return layout_of(backend)


def restore(backend: MigBackend, say: Say = lambda text: None) -> Layout | None:
    """Restore the layout from before jouletrace first divided a GPU. Returns it; None if nothing has been changed.

    Raises:
        NotPossibleError: As ``apply``; the journal is kept then.
    """
    with hold(backend.info, "restoring the MIG layout of") as held:
        before = written_down(backend.info)
        if before is None:
            return None
        if not (before.satisfied_by(layout_of(backend)) and not backend.mode().needs_reset):
            refuse_if_used(backend)
            converge(backend, before, say)
        held.forget(CHANGE)
        return layout_of(backend)


def return_to(held: Hold, layout: Layout, backend: MigBackend, say: Say = lambda text: None) -> bool:
    """Restore a layout from some time ago, whatever the journal contains. Returns whether a change was necessary.

    Raises:
        NotPossibleError: As ``divide``.
    """
    changes = not layout.satisfied_by(layout_of(backend)) or backend.mode().pending != layout.on
    if changes:
        refuse_if_used(backend)
        converge(backend, layout, say)
    first = written_down(backend.info)
    if first is not None and first.satisfied_by(layout):
        held.forget(CHANGE)
    return changes


def restored_if_killed(held: Hold, backend: MigBackend, device: str, before: Layout) -> AbstractContextManager[Guard]:
    """Have another process restore ``before`` if this process ends before everything is done, killed or not."""
    return held.watched(
        "jouletrace.wings.mig.apply:put_back",
        f"jouletrace mig restore --device {device}",
        device=device if backend.info.simulated else backend.info.id,
        before=before.to_dict(),
    )


def put_back(held: Hold, device: str, before: dict[str, Any]) -> str | None:
    """Restore the layout of a GPU whose holder has died; for ``watcher``."""
    with closing(open_backend(device)) as backend:
        layout = Layout.from_dict(before)
        return f"it is divided as before again ({layout})" if return_to(held, layout, backend) else None


def written_down(board: DeviceInfo) -> Layout | None:
    """The layout of a GPU from before jouletrace first divided it; None if jouletrace has changed nothing.

    Raises:
        BadInputError: If it can't be read: overwriting it would lose the old layout.
    """
    entry = noted(board, CHANGE)
    try:
        return Layout.from_dict(entry["before"]) if entry is not None else None
    except (KeyError, TypeError, ValueError):
        path = journal_of(board)
        raise BadInputError(f"the journal {path} holds no MIG layout; inspect it, then remove it") from None


def refuse_if_used(backend: MigBackend) -> None:
    """Raise if processes use the GPU.

    Raises:
        NotPossibleError: With their names.
    """
    users = backend.processes()
    if users:
        named = ", ".join(_named(process) for process in users)
        raise NotPossibleError(f"{backend.info.name} ({backend.info.id}) is in use by {named}: end them first")


def converge(backend: MigBackend, target: Layout, say: Say) -> None:
    """Give a GPU the wanted layout, whatever its present one.

    Raises:
        PendingResetError: If the mode changes only by a reset.
        MigRefusedError: If the driver refuses a step.
    """
    mode = backend.mode()
    if target.on and (not mode.current or not mode.pending):
        _switch(backend, True, say)
    if backend.mode().current:
        _destroy(backend, target, say)
        _create(backend, target, say)
    if not target.on and (backend.mode().current or backend.mode().pending):
        _switch(backend, False, say)


def _switch(backend: MigBackend, on: bool, say: Say) -> None:
    word = "on" if on else "off"
    say(f"turning MIG {word}")
    mode = backend.set_mode(on)
    if mode.needs_reset:
        index = backend.info.index if backend.info.index is not None else backend.info.id
        raise PendingResetError(
            f"{backend.info.name}: MIG turns {word} only by a reset, since a process holds the driver: end monitoring "
            f"services (nvidia-persistenced, DCGM), run sudo nvidia-smi --gpu-reset -i {index} or reboot, "
            "then give this command again"
        )
    if mode.current != on:
        raise MigRefusedError("failed", f"{backend.info.name}: the driver did not turn MIG {word}")


def _destroy(backend: MigBackend, target: Layout, say: Say) -> None:
    """Destroy instances that aren't wanted, or whose compute instances differ from the wanted ones."""
    for instance in backend.instances():
        there = PlannedInstance.from_instance(instance)
        wanted = next((part for part in target.parts if part.same_place(there)), None)
        if wanted is not None and wanted.satisfied_by(there):
            continue
        for one in instance.compute:
            say(f"destroying compute instance {one.id} of {there}")
            backend.destroy_compute(instance.id, one.id)
        if wanted is None:
            say(f"destroying {there}")
            backend.destroy(instance.id)


def _create(backend: MigBackend, target: Layout, say: Say) -> None:
    profiles = {profile.name: profile for profile in backend.profiles()}
    for part in target.parts:
        existing = next(
            (one for one in backend.instances() if part.same_place(PlannedInstance.from_instance(one))), None
        )
        if existing is None:
            if part.profile not in profiles:
                raise MigRefusedError("not_supported", f"{backend.info.name} has no profile {part.profile}")
            say(f"creating {part}")
            number = backend.create(profiles[part.profile], part.placement)
        else:
            number = existing.id
            if existing.compute:  # complete, or it would have been emptied
                continue
        for share in part.compute:
            say(f"creating a compute instance of {share.slices} slices in {part}")
            backend.create_compute(number, share.slices, share.placement)


def _go_back(held: Hold, backend: MigBackend, device: str, before: Layout, cause: BaseException, say: Say) -> None:
    """Restore the layout from before this command; the journal of an earlier command stays."""
    try:
        converge(backend, before, say)
    except JouletraceError as error:
        raise NotPossibleError(
            f"{cause or 'interrupted'}; and the old layout could not be restored ({error}): "
            f"run jouletrace mig restore --device {device}"
        ) from None
    if written_down(backend.info) == before:
        held.forget(CHANGE)


def _is(backend: MigBackend, layout: Layout) -> bool:
    with suppress(JouletraceError):
        return layout.satisfied_by(layout_of(backend))
    return False


def _named(process: Process) -> str:
    return f"{process.name or 'a process'} (pid {process.pid})"
