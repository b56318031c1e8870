"""What a step is made of: units, the parts that experiments remove and repeat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
    """

    op: str
    shapes: str
    module: str
    count: int = 1
    backward: bool = False

    @property
    def key(self) -> Key:
        """What it is apart from how often it runs."""
        return self.op, self.shapes, self.module, self.backward

    def __str__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        return f"{self.op} {self.shapes}{where}{' (backward)' if self.backward else ''}"


def group(keys: Iterable[Key]) -> list[Unit]:
    """The units of a sequence of calls, in the order of their first call."""
    counts: dict[Key, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return [Unit(op, shapes, module, count, backward) for (op, shapes, module, backward), count in counts.items()]
