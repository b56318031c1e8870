"""Units as experiments see them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """An operator on some shapes in a module."""

    op: str
    module: str = ""
    shapes: str = "f16[8]"
    count: int = 1
    backward: bool = False
    phase: str = "forward"
    sites: tuple = ()
