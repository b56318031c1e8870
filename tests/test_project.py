"""Files around the code agree with it: make targets, workflows, hooks, templates, versions, the changelog."""

import importlib.util
import re
import shlex
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from jouletrace import __version__
from places import REPOSITORY

ROOT = REPOSITORY
_SPEC = importlib.util.spec_from_file_location("check_words", ROOT / "tests" / "check_words.py")
check_words = importlib.util.module_from_spec(_SPEC)
sys.modules["check_words"] = check_words
_SPEC.loader.exec_module(check_words)
markdown_prose, python_prose = check_words.markdown_prose, check_words.python_prose

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def targets() -> dict[str, list[str]]:
    """Recipes of the Makefile by target."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (ROOT / "Makefile").read_text().splitlines():
        if match := re.match(r"([a-z-]+):(?!=)", line):
            lines = found.setdefault(match[1], [])
        elif line.startswith("\t"):
            lines.append(line.strip())
    return found


def made(commands: Iterable[str]) -> set[str]:
    """Targets of the calls of make in commands, without variables."""
    words = [word for command in commands if re.match(r"make\b", command) for word in command.split("#")[0].split()[1:]]
    return {word for word in words if re.fullmatch(r"[a-z-]+", word)}


def commands(page: Path) -> list[str]:
    """Texts of a page in code: spans, and lines after a prompt."""
    text = page.read_text()
    return [*re.findall(r"`([^`\n]+)`", text), *re.findall(r"^\$ (.+)$", text, re.MULTILINE)]


def package(requirement: str) -> str:
    return re.split(r"[<>=\[]", requirement)[0]


@pytest.mark.thorough
def test_phony_targets_are_all_targets():
    (phony,) = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(phony.split()) == set(targets())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_jobs_with_steps_that_call_targets_of_make(path):
    workflow = yaml.safe_load(path.read_text())
    assert True in workflow  # YAML 1.1 reads the key `on` as a truth value
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    called = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert made(called)
    assert made(called) <= set(targets())


def test_there_are_the_workflows_that_the_documentation_names():
    assert {path.stem for path in WORKFLOWS} == {"test", "wheel", "release"}


@pytest.mark.parametrize("name", ["test", "wheel"])
def test_pythons_of_the_matrix_begin_with_the_oldest_that_is_supported(name):
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    versions = workflow["jobs"][name]["strategy"]["matrix"]["python"]
    assert versions == ["3.11", "3.12", "3.13"]
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"
    assert PROJECT["tool"]["mypy"]["python_version"] == versions[0]


def test_only_the_job_that_publishes_gets_an_identity_and_none_a_token():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    jobs = workflow["jobs"]
    assert {name for name, job in jobs.items() if "permissions" in job} == {"publish"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_is_a_form_with_ids_of_its_own(path):
    form = yaml.safe_load(path.read_text())
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert all(field["attributes"]["label"] for field in fields)
    ids = [field["id"] for field in fields]
    assert len(ids) == len(set(ids))


def test_hooks_run_the_tools_of_make_check():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    (local,) = hooks
    assert local["repo"] == "local"
    of_hooks = [shlex.split(hook["entry"])[:2] for hook in local["hooks"]]
    of_check = [shlex.split(line.replace("$(BIN)", ".venv/bin"))[:2] for line in targets()["check"]]
    assert sorted(of_hooks) == sorted(of_check)


def test_tools_of_hooks_are_installed_with_the_extra_for_developers():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    developers = {package(name) for name in PROJECT["project"]["optional-dependencies"]["dev"]}
    for hook in hooks:
        program, *arguments = shlex.split(hook["entry"])
        if program == ".venv/bin/python":
            assert (ROOT / arguments[0]).exists()
        else:
            assert program.removeprefix(".venv/bin/") in developers
    assert {"pre-commit", "build", "pytest", "pyyaml"} <= developers


def test_pages_for_contributors_name_targets_that_are_there():
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", ".github/pull_request_template.md")]
    named = set().union(*(made(commands(page)) for page in pages))
    assert {"quick", "check", "test"} <= named
    assert named <= set(targets())


def test_files_that_pages_for_contributors_name_are_there():
    for page in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
        text = (ROOT / page).read_text()
        links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
        assert [link for link in links if not (ROOT / link).exists()] == []
        places = re.findall(r"`((?:[\w-]+/)*[\w-]+/[\w.-]+\.(?:py|md|yml|toml))`", text)
        roots = (ROOT, ROOT / "src" / "jouletrace")
        absent = [name for name in places if "NAME" not in name and not any((root / name).exists() for root in roots)]
        assert absent == []


def test_tables_that_contributors_add_a_line_to_are_there():
    text = "".join((ROOT / page).read_text() for page in ("CONTRIBUTING.md", "docs/architecture.md"))
    named = re.findall(r"`([A-Z_]{3,})` (?:in|of) `([\w/]+/\w+\.py)`", text)
    assert {name for name, _ in named} >= {"MODELS", "_OWN", "FORMATS", "KINDS", "VENDORS", "CHANNEL_UNITS"}
    for name, path in named:
        source = next(one for one in (ROOT / "src" / "jouletrace" / path, ROOT / path) if one.exists()).read_text()
        assert re.search(rf"^{name}\b", source, re.MULTILINE), (name, path)


def test_the_changelog_begins_with_what_is_unreleased_and_has_this_version():
    headings = re.findall(r"^## \[(.+?)\](.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    assert all(re.fullmatch(r" - \d{4}-\d\d-\d\d", date) for _, date in headings[1:])
    assert headings[1][0] == __version__


def test_groups_of_the_changelog_are_those_of_keep_a_changelog():
    groups = set(re.findall(r"^### (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE))
    assert groups <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_version_is_stated_in_one_place():
    stated = (ROOT / "src" / "jouletrace" / "version.py").read_text()
    assert re.findall(r'^__version__ = "(.+)"$', stated, re.MULTILINE) == [__version__]
    assert "version" in PROJECT["project"]["dynamic"]
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "jouletrace.version.__version__"}


def test_the_citation_has_this_version_and_the_date_of_its_release():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    (date,) = re.findall(
        rf"^## \[{re.escape(__version__)}\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert str(citation["date-released"]) == date
    assert citation["license"] == PROJECT["project"]["license"]


def test_no_page_names_an_address_that_is_not_there():
    pages = ("SECURITY.md", "CONTRIBUTING.md", "README.md")
    assert not any(re.search(r"[\w.]+@[\w-]+\.\w+", (ROOT / page).read_text()) for page in pages)


def test_code_and_targets_of_links_are_no_prose():
    text = "a beat `a beat`\n```\na beat\n```\n[a beat](beat.md)\n"
    assert [line.count("beat") for line in markdown_prose(text)] == [1, 0, 0, 0, 1]


def test_docstrings_comments_and_messages_are_prose_at_their_lines():
    source = '"""One.\n\nA beat.\n"""\nbeat = 1  # a beat\nprint("a beat", "beat")\n'
    assert [line.count("beat") for line in python_prose(source)][:6] == [0, 0, 1, 0, 1, 1]


def test_a_banned_word_is_reported_with_what_to_write_instead(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("The GPU board.\nIt is told.\n")
    assert check_words.main([str(page)]) == 1
    assert capsys.readouterr().out.startswith(f"{page}:2: told -> reported")
    page.write_text("The GPU board.\n")
    assert check_words.main([str(page)]) == 0


def test_names_of_tests_are_prose_and_their_strings_are_data():
    source = 'def test_it_is_told():\n    """It is found."""\n    assert f("it is told")\n'
    assert [line.strip() for line in python_prose(source, tests=True)[:3]] == ["test it is told", "It is found.", ""]
    assert python_prose(source)[2].strip() == "it is told"


def test_words_that_are_banned_in_names_are_reported_of_identifiers_alone(tmp_path, capsys):
    module = tmp_path / "module.py"
    module.write_text('from a import b\n\n_told_apart = b["told"].untold\nretold = 1\n')
    assert check_words.main([str(module)]) == 1
    assert [line.partition(": ")[2].split()[0] for line in capsys.readouterr().out.splitlines()] == ["told", "untold"]


def test_names_of_arguments_are_no_prose():
    source = 'def f(beat):\n    """One.\n\n    Args:\n        beat: A beat.\n    """\n'
    assert python_prose(source)[4].count("beat") == 1


@pytest.mark.slow  # make check does the same
def test_the_documentation_and_the_source_use_the_terms_of_the_field(capsys):
    assert check_words.main([]) == 0, capsys.readouterr().out


def test_no_replacement_is_a_banned_word_itself():
    words = check_words.read_words()
    assert all(not word.pattern.search(other.instead) for word in words for other in words)
