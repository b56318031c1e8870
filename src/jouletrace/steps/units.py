"""What a step is made of: units, the parts that experiments remove and repeat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat

from jouletrace.workloads.marks import DATA, OPTIMIZER

Key = tuple[str, str, str, bool]
"""What makes two operator calls the same unit: operator, input shapes, module, backward."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Calls of one operator on the same input shapes in the same module.

    The operator is the one that launches kernels: what torch dispatches below autograd and autocast,
    with composite operators taken apart (a linear layer is an ``aten.addmm``). Never a kernel name:
    on Hopper one persistent kernel serves all matrix products.

    Attributes:
        op: Operator with its namespace ("aten.addmm").
        shapes: Types and shapes of its tensor inputs ("f16[768] f16[64,768] f16[768,768]").
        module: Qualified name of the innermost module, "" outside of all; in backward, the module of
            the forward operator.
        count: Calls in an iteration.
        backward: Whether autograd calls it.
        sites: In which calls of the module it is called, as of ``module_names.CallSite``, and how often in each.
        place: How many other units are called before it.
    """

    op: str
    shapes: str
    module: str
    count: int = 1
    backward: bool = False
    sites: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    place: int = field(default=0, compare=False)

    @property
    def phase(self) -> str:
        """What of a training step it belongs to: "data", "forward", "backward" or "optimizer"."""
        return "backward" if self.backward else {DATA: "data", OPTIMIZER: "optimizer"}.get(self.module, "forward")

    @property
    def key(self) -> Key:
        """What it is apart from how often it runs."""
        return self.op, self.shapes, self.module, self.backward

    def __str__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        return f"{self.op} {self.shapes}{where}{' (backward)' if self.backward else ''}"


def group(keys: Iterable[Key], calls: Iterable[str] | None = None) -> list[Unit]:
    """The units of a sequence of operator calls, in the order of their first call.

    Args:
        keys: Of each.
        calls: In which call of its module each is; None where nobody knows.
    """
    found: dict[Key, dict[str, int]] = {}
    for key, call in zip(keys, repeat("") if calls is None else calls, strict=False):
        sites = found.setdefault(key, {})
        sites[call] = sites.get(call, 0) + 1
    return [
        Unit(op, shapes, module, sum(sites.values()), backward, tuple(sites.items()), place)
        for place, ((op, shapes, module, backward), sites) in enumerate(found.items())
    ]
