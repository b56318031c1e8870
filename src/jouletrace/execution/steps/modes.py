"""Launch modes of steps, and the kinds of device that support them."""

from __future__ import annotations

from jouletrace.errors import BadInputError

MODES = ("eager", "graph", "compile")
L2 = ("warm", "cold")

_REFUSED: dict[str, dict[tuple[str, str], str]] = {
    "simulated": {
        ("mode", "compile"): "a simulated GPU runs eager or graph",
        ("l2", "cold"): "a simulated GPU has no cache to flush",
    },
    "cpu": {
        ("mode", "graph"): "CUDA graphs need a GPU; on the CPU use eager or compile",
        ("l2", "cold"): "only a GPU's L2 cache can be flushed",
        ("dtype", "tf32"): "a number format of NVIDIA GPUs; on the CPU use fp32 or bf16",
    },
}
"""Options that a kind of device doesn't support, and why."""


def check_options(kind: str, mode: str, l2: str = "warm", dtype: str | None = None, where: str = "") -> None:
    """Refuse a mode, cache or dtype that is unknown, or that a kind of device doesn't support.

    Args:
        kind: "simulated", "cpu", or any other kind, which supports all.
        mode: One of ``MODES``.
        l2: One of ``L2``.
        dtype: The ``--dtype``; those of ``workloads.precision`` are assumed to be valid.
        where: The requested device, for the message.

    Raises:
        BadInputError: With the option.
    """
    for name, value, allowed in (("mode", mode, MODES), ("l2", l2, L2)):
        if value not in allowed:
            raise BadInputError(f"--{name} {value}: must be one of {', '.join(allowed)}")
    for (name, value), why in _REFUSED.get(kind, {}).items():
        if {"mode": mode, "l2": l2, "dtype": dtype}[name] == value:
            raise BadInputError(f"--{name} {value}{f' on {where}' if where else ''}: {why}")
