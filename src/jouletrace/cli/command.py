"""A command of ``jouletrace``: its function, and its line and examples in the help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """A command, or a group of commands. Its module calls it ``COMMAND``.

    Attributes:
        title: The group of ``jouletrace --help`` that lists it; "" of a command in a group of commands.
        summary: Its line there.
        examples: Command lines below its own help, at most 78 characters each.
        call: The function that runs it, whose parameters are its arguments and options; None of a group.
        ends_options: Whether the words behind the first argument belong to the program that it runs.
        bare: Options whose value may be left out; it is then "".
        parts: The commands of a group, by name.
        about: The first sentence in the help of a group.
    """

    title: str
    summary: str
    examples: tuple[str, ...] = ()
    call: Callable[..., None] | None = None
    ends_options: bool = False
    bare: tuple[str, ...] = ()
    parts: Mapping[str, Command] = field(default_factory=dict)
    about: str = ""
