"""``jt.profile``: the profile of the command line, for a model that exists in Python."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.profiler.profile import profile_workload
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import Run
from jouletrace.run.store import check_free
from jouletrace.workloads import ObjectWorkload
from jouletrace.workloads.options import nearest


def profile(
    model: Any,
    inputs: Any = (),
    *,
    device: str = "auto",
    mode: str = "eager",
    dtype: str | None = None,
    name: str | None = None,
    target_ci: float = 0.01,
    save_to: str | Path | None = None,
    **options: Any,
) -> Run:
    """Measure latency, power and energy of a model or any callable.

    Args:
        model: A module, any callable, or the name of a built-in workload.
        inputs: A tuple of positional arguments, a mapping of keyword arguments, or a single
            argument. Use real data or random numbers: zeros draw less power.
        device: "auto", "cuda:N", a UUID, "cpu" or "sim:NAME".
        mode: "eager", "graph" or "compile".
        dtype: Data type to cast to first; None keeps the model's.
        name: Name of the workload.
        target_ci: Requested relative half-width of the energy's 95 % interval.
        save_to: Folder or ".zip" file for the Run; None keeps it in memory (``run.save`` writes it later).
        **options: Further options of ``jouletrace profile`` (``max_time``, ``warmup``, ``seed``, ...), or
            fields of ``profiler.settings.ProfileSettings``; times have both names (``max_time_s``).

    Returns:
        The Run, with its figures.

    Raises:
        BadInputError: If there is no such option (the nearest are named), a value is invalid, or
            the model doesn't take the inputs.
        NotPossibleError: If a library or device is missing.
    """
    settings = ProfileSettings(device=device, mode=mode, dtype=dtype, target_ci=target_ci, **_named(options))
    if isinstance(model, str) and (name is not None or not isinstance(inputs, tuple) or inputs):
        raise BadInputError(f"profile({model!r}): a built-in workload has its own inputs and name")
    workload = model if isinstance(model, str) else ObjectWorkload(model, inputs, name)
    place = check_free(save_to).absolute() if save_to is not None else None
    packed = place is not None and place.suffix.lower() == ".zip"
    label = workload if isinstance(workload, str) else workload.name
    command = f"jouletrace.profile({label})"
    run = profile_workload(workload, settings, folder=None if packed else place, command=command)
    if packed:
        run.save(str(place))
    return run


def _named(options: dict[str, Any]) -> dict[str, Any]:
    """Options under the names of the settings' fields, which include the unit."""
    known = [field.name for field in fields(ProfileSettings)]
    found: dict[str, Any] = {}
    for name, value in options.items():
        field = next((field for field in (name, f"{name}_s") if field in known), None)
        if field is None:
            raise BadInputError(f"profile() has no option {name!r}{nearest(name, known)}")
        if field in found:
            raise BadInputError(f"profile() got {field} twice, also as {field.removesuffix('_s')}")
        found[field] = value
    return found
