"""Launch modes of steps, and the kinds of device that support them."""

from __future__ import annotations

from jouletrace.errors import BadInputError

MODES = ("eager", "graph", "compile")

_REFUSED: dict[str, dict[tuple[str, str], str]] = {
    "simulated": {
        ("mode", "compile"): "a simulated GPU runs eager or graph",
    },
    "cpu": {
        ("mode", "graph"): "CUDA graphs need a GPU; on the CPU use eager or compile",
        ("dtype", "tf32"): "a number format of NVIDIA GPUs; on the CPU use fp32 or bf16",
    },
}
"""Options that a kind of device doesn't support, and why."""


def check_options(kind: str, mode: str, dtype: str | None = None, where: str = "") -> None:
    """Refuse a mode or dtype that is unknown, or that a kind of device doesn't support.

    Args:
        kind: "simulated", "cpu", or any other kind, which supports all.
        mode: One of ``MODES``.
        dtype: The ``--dtype``; those of ``workloads.precision`` are assumed to be valid.
        where: The requested device, for the message.

    Raises:
        BadInputError: With the option.
    """
    if mode not in MODES:
        raise BadInputError(f"--mode {mode}: must be one of {', '.join(MODES)}")
    for (name, value), why in _REFUSED.get(kind, {}).items():
        if {"mode": mode, "dtype": dtype}[name] == value:
            raise BadInputError(f"--{name} {value}{f' on {where}' if where else ''}: {why}")
