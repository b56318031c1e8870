"""``--detail``, ``--by`` and ``--fail-if`` take the words of one table, which help, errors and documentation list."""

import csv
import io
import json

import pytest

from commands import command
from jouletrace.levels import BY, FAIL_IF, LEVELS, OPTIONS, PROFILE, RENAMED, SHOW, taken
from places import REPOSITORY

LAYERS = str(next((REPOSITORY / "src" / "jouletrace" / "bundled").glob("*layers-h200.zip")))
WHOLE = str(next((REPOSITORY / "src" / "jouletrace" / "bundled").glob("*graph-h100.zip")))


def typed(option, level):
    """The command line that gives a level to an option."""
    return {
        PROFILE: ["profile", "deit-t", "--device", "sim:nothing", "--detail", level],
        SHOW: ["show", WHOLE, "--detail", level],
        BY: ["show", WHOLE, "--by", level],
        FAIL_IF: ["compare", WHOLE, WHOLE, "--fail-if", f"{level}:*:energy>5%"],
    }[option]


@pytest.mark.thorough
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_takes_its_levels_and_names_those_of_others(capsys, option):
    """The command may fail after the option, but not its word."""
    for level in LEVELS:
        if level.name in taken(option):
            assert "no level" not in command(capsys, *typed(option, level.name)).err
            continue
        said = command(capsys, *typed(option, level.name))
        assert said.code == 2
        assert f"no level '{level.name}' here; there is {', '.join(taken(option))}" in said.complaint
        assert [one in said.complaint for one in OPTIONS] == [one in level.options for one in OPTIONS]


@pytest.mark.parametrize("option", [PROFILE, SHOW, FAIL_IF])
@pytest.mark.parametrize(("word", "near"), [*RENAMED.items(), ("kernl", "kernel")])
def test_a_word_that_is_no_level_has_the_nearest(capsys, option, word, near):
    assert f"; did you mean '{near}'" in command(capsys, *typed(option, word)).complaint


def test_operators_are_a_level_of_every_option():
    assert [option for option in OPTIONS if "op" in taken(option)] == list(OPTIONS)


@pytest.mark.thorough
def test_an_old_word_divides_by_the_new_one_and_names_it(capsys):
    old, new = (command(capsys, "show", LAYERS, "--by", f"{word},op") for word in ("module", "layer"))
    assert (old.code, new.code) == (0, 0)
    assert old.out == new.out
    assert "--by module,op: write --by layer,op; the next release doesn't take the old word" in old.err
    assert "old word" not in new.err


@pytest.mark.thorough
def test_files_call_the_steps_of_layers_modules_as_before(capsys):
    """Heads of CSV and names of JSON stay."""
    table, as_json = (command(capsys, "show", LAYERS, "--by", "layer", "--format", form) for form in ("csv", "json"))
    assert csv.DictReader(io.StringIO(table.out)).fieldnames[:2] == ["module", "time_s"]
    steps = [step["kind"] for row in json.loads(as_json.out)["parts"]["module"] for step in row["path"]]
    assert {"module", "idle"} <= set(steps)


def test_help_and_documentation_list_the_table(capsys):
    for words, option in ((["profile"], PROFILE), (["show"], SHOW), (["show"], BY)):
        said = " ".join(command(capsys, *words, "--help").out.split())
        *names, last = taken(option)
        assert any(f"{', '.join(names)} {link} {last}" in said for link in ("or", "and"))
    shown = [level for level in LEVELS if level.options]
    rows = [
        f"| `{level.name}` | {level.meaning} | {' | '.join('yes' if one in level.options else '' for one in OPTIONS)} |"
        for level in shown
    ]
    head = f"| level | a row is | {' | '.join(f'`{one}`' for one in OPTIONS)} |\n|{'---|' * (2 + len(OPTIONS))}"
    page = (REPOSITORY / "docs" / "reference" / "commands.md").read_text()
    assert "\n".join([head, *rows]) in page
