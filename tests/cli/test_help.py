"""The help: commands and options in groups, a line for each command, examples; and completion in the shell."""

import inspect
import re
import shlex
import subprocess
import sys

import pytest

from commands import command
from jouletrace.cli.app import _tree as tree

ROOT = tree()


def leaves(group=ROOT, before=""):
    """All commands, with the group in front."""
    found = {}
    for name, one in group.commands.items():
        found |= leaves(one, f"{before}{name} ") if hasattr(one, "commands") else {before + name: one}
    return found


def test_every_command_has_a_title_and_examples():
    assert all(one.of.title for one in ROOT.commands.values())
    assert all(one.of.examples for one in leaves().values())


@pytest.mark.parametrize("name", ROOT.commands)
def test_a_command_is_made_without_the_others_and_is_the_same(name):
    alone, whole = tree(name).commands, ROOT.commands[name]
    assert list(alone) == [name]
    assert list(getattr(alone[name], "commands", ())) == list(getattr(whole, "commands", ()))
    assert [option.opts for option in alone[name].params] == [option.opts for option in whole.params]


@pytest.mark.parametrize("name", sorted(leaves()))
def test_options_have_lower_case_names_whatever_stands_for_their_values(name):
    """Typer 0.29 on Python 3.12.3 takes a metavar that is the name in capitals for the name: --LIMIT."""
    command = leaves()[name]
    own = [one for one in command.params if one.param_type_name == "option"]
    flags = [flag for one in own for flag in (*one.opts, *one.secondary_opts)]
    assert [flag for flag in flags if not re.fullmatch(r"--[a-z][a-z0-9-]*|-[A-Za-z]", flag)] == []
    stated = inspect.signature(command.callback, eval_str=True).parameters
    trapped = [one.name for one in own if one.metavar == one.name.upper()]
    first = {one: stated[one].annotation.__metadata__[0].default for one in trapped}  # of a name alone, that
    assert [one for one, name in first.items() if name != f"--{one}"] == []


GROUPS = {"": ROOT, **{name: one for name, one in ROOT.commands.items() if hasattr(one, "commands")}}


@pytest.mark.parametrize("group", GROUPS)
def test_a_summary_fits_its_line(capsys, group):
    said = command(capsys, *group.split(), "--help")
    assert said.code == 0
    rows = re.findall(r"^  (\w+) +(\S.+)$", said.out, re.MULTILINE)
    summaries = dict(rows)
    for name, one in GROUPS[group].commands.items():
        assert summaries[name] == one.of.summary
    assert max(map(len, said.out.splitlines())) <= 80


@pytest.mark.parametrize("name", sorted(leaves()))
def test_examples_are_printed_whole_and_are_understood(capsys, name):
    said = command(capsys, *name.split(), "--help")
    assert said.code == 0
    for line in leaves()[name].of.examples:
        assert f"\n  {line}\n" in said.out
        assert len(line) <= 78
        words = shlex.split(line)
        assert words[: 1 + len(name.split())] == ["jouletrace", *name.split()]
        leaves()[name].make_context(name, words[1 + len(name.split()) :])


def test_many_options_are_listed_in_groups(capsys):
    out = command(capsys, "profile", "--help").out
    titles = re.findall(r"^(\w+):", out, re.MULTILINE)
    assert titles == ["Usage", "Arguments", "Workload", "Measurement", "Output", "Examples"]
    workload, measurement = out.index("\nWorkload:"), out.index("\nMeasurement:")
    assert workload < out.index("--batch") < measurement < out.index("--target-ci") < out.index("\nOutput:")
    assert "\nOptions:" in command(capsys, "show", "--help").out


def complete(monkeypatch, *words):
    """The words that the shell would offer for the last word."""
    monkeypatch.setenv("_JOULETRACE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["jouletrace", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    code = "import sys; sys.argv = ['jouletrace']; from jouletrace.cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.thorough
def test_the_shell_completes_commands_and_options(monkeypatch):
    assert complete(monkeypatch, "mo") == ["monitor"]
    assert complete(monkeypatch, "profile", "--detail-") == ["--detail-time"]
