"""Additions of ``--help`` to the commands: their titles and summaries, groups of options, and examples.

typer's own panels need rich, whose import takes longer than all else that the help does.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from jouletrace.cli.command import Command

_WORKLOAD = (
    *(
        "task",
        "batch",
        "seq-len",
        "max-new-tokens",
        "dtype",
        "dtype-b",
        "mode",
        "mode-b",
        "backend",
        "threads",
    ),
    *("streams", "hint", "config", "optimizer", "label-smoothing", "data", "random", "seed", "input-sets"),
    *("models", "tasks", "noise", "noise-task", "noise-batch"),
)
_OUTPUT = ("detail", "output", "top", "advice", "format", "json", "margin", "fail-if", "strict", "help")
_MANY = 12
"""From this number of options on, those of a command that measures are listed in groups."""


def _group(option: Any) -> str:
    names = {name.lstrip("-") for name in option.opts}
    if names & set(_WORKLOAD):
        return "Workload"
    return "Output" if names & set(_OUTPUT) else "Measurement"


class CommandHelp(TyperCommand):
    """A command whose help lists many options in groups, and ends with examples."""

    of: Command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words, where an option of ``Command.bare`` may be without its value."""
        valued = {name for param in self.get_params(ctx) for name in param.opts if not getattr(param, "is_flag", True)}
        at, args = 0, list(args)
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            if args[at] in self.of.bare and (at + 1 == len(args) or args[at + 1].startswith("-")):
                args.insert(at + 1, "")
            at += 2 if args[at] in valued else 1
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options; in groups if there are many."""
        params = [param for param in self.get_params(ctx) if param.get_help_record(ctx) is not None]
        options = [param for param in params if param.param_type_name == "option"]
        if len(options) < _MANY or not any("--device" in param.opts for param in options):
            super().format_options(ctx, formatter)
            return
        groups: dict[str, list[Any]] = {"Arguments": [], "Workload": [], "Measurement": [], "Output": []}
        for param in params:
            groups["Arguments" if param not in options else _group(param)].append(param.get_help_record(ctx))
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, one a line."""
        lines = self.of.examples
        if lines:
            with formatter.section("Example" if len(lines) == 1 else "Examples"):
                for line in lines:
                    formatter.write(f"  {line}\n")


class GroupHelp(TyperGroup):
    """A group of commands."""

    of: Command


class RootHelp(TyperGroup):
    """The root, whose help lists the commands under their titles, in an ``order``: typer puts groups last."""

    order: tuple[str, ...]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, those of one title together."""
        width = max(len(name) for name in self.commands)
        titled: dict[str, list[tuple[str, str]]] = {}
        shown: dict[str, Any] = dict(self.commands)
        for name, shown_command in sorted(shown.items(), key=lambda item: self.order.index(item[0])):
            titled.setdefault(shown_command.of.title, []).append((name.ljust(width), shown_command.of.summary))
        for title, rows in titled.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def helped(kind: type[Any], command: Command) -> type[Any]:
    """The class of a typer command whose help is that of ``command``."""
    return type(kind.__name__, (kind,), {"of": command})
