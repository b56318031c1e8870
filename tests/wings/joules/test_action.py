"""The steps of action.yml, run in bash as GitHub runs them."""

import re
import shlex
import subprocess
import sys

import pytest
import yaml

from jouletrace.run import load
from places import REPOSITORY
from test_joules import ALONE, BLOCK, LOADED

ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text())
BUNDLED = REPOSITORY / "src" / "jouletrace" / "bundled" / "deit-b-64-graph-h100.zip"


@pytest.fixture
def act(tmp_path):
    """Runs the steps in the folder "project"; returns their exit codes by name, as far as they went."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    pip = f'[ "$1 $2" = "-m pip" ] && echo "$@" >> {tmp_path}/pip.txt'
    python.write_text(f'#!/bin/bash\n{pip} || exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "project").mkdir()

    def run(**inputs):
        values = {f"inputs.{name}": given.get("default", "") for name, given in ACTION["inputs"].items()}
        values |= {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
        values["runner.temp"] = str(tmp_path)

        def filled(text):
            def value(match):
                return next(filter(None, (values.get(name.strip(), "") for name in match[1].split("||"))), "")

            return re.sub(r"\$\{\{(.+?)\}\}", value, text)

        codes = {}
        for step in ACTION["runs"]["steps"]:
            condition = re.fullmatch(
                r"\$\{\{ inputs\.tests ([=!])= '' \}\}", step.get("if", "${{ inputs.tests != '' }}")
            )
            if "if" in step and (condition[1] == "=") == bool(values["inputs.tests"]):
                continue
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=tmp_path / "project",
                env={
                    **ALONE,
                    **{name: filled(text) for name, text in step.get("env", {}).items()},
                    "PATH": f"{python.parent}:{ALONE['PATH']}",
                    "GITHUB_ACTION_PATH": str(REPOSITORY),
                    "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
                },
                capture_output=True,
                text=True,
                check=False,
            )
            codes[step["name"]] = done.returncode
            if done.returncode:
                break
        return codes

    return run


@pytest.fixture
def project(tmp_path):
    """A repository of three commits: before tests, with one, and with one that sleeps for longer."""

    def git(*words):
        config = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
        done = subprocess.run(
            ["git", *config, *words], cwd=tmp_path / "project", capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(name, text):
        (tmp_path / "project" / name).write_text(text)
        git("add", name)
        git("commit", "--quiet", "-m", name)
        return git("rev-parse", "HEAD")

    git("init", "--quiet")
    commits = [
        commit("README", "a project"),
        commit("test_mine.py", BLOCK),
        commit("test_mine.py", BLOCK.replace("0.3", "0.8")),
    ]
    return git, commits


DEVICE = LOADED.partition("=")[2]
MEASURED = ["Install jouletrace", "Measure the base", "Measure the change and compare"]


@pytest.mark.thorough
@pytest.mark.parametrize(("base", "repeats", "last"), [pytest.param(1, "2", 1, marks=pytest.mark.slow), (0, "1", 0)])
def test_tests_are_measured_at_the_base_and_at_the_change(act, project, tmp_path, base, repeats, last):
    git, commits = project
    options = {"tests": "-q -p joules test_mine.py", "device": DEVICE, "fail_if": "energy>30%\n\nenergy>20%"}
    codes = act(base=commits[base], repeats=repeats, install="echo installed >> ../installs.txt", **options)
    assert codes == dict(zip(MEASURED, (0, 0, last), strict=True))
    assert git("rev-parse", "HEAD") == commits[2]
    assert shlex.split((tmp_path / "pip.txt").read_text())[2:] == ["install", "--quiet", str(REPOSITORY), "pytest"]
    assert (tmp_path / "installs.txt").read_text() == "installed\n" * 2
    summary = (tmp_path / "summary.md").read_text()
    assert ("| higher |" in summary) == (last == 1)
    assert summary.count("failed: energy") == 2 * last
    times = {
        side: [load(file).result("time_s").value for file in (tmp_path / "joules" / side).glob("*.zip")]
        for side in ("before", "after")
    }
    assert len(times["after"]) == int(repeats)
    assert times["before"] == ([] if base == 0 else pytest.approx([0.3, 0.3], abs=0.1))


@pytest.mark.thorough
def test_runs_are_compared_in_the_summary(act, tmp_path):
    codes = act(a=str(BUNDLED), b=str(BUNDLED), fail_if="")
    assert codes == {"Install jouletrace": 0, "Compare Runs": 0}
    assert "| per iteration | A | B | change |" in (tmp_path / "summary.md").read_text()


def test_the_page_names_inputs_that_are_there():
    page = (REPOSITORY / "docs" / "how-to" / "pytest.md").read_text()
    (block,) = (text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "uses: jouletrace" in text)
    (step,) = (one for one in yaml.safe_load(block)["jobs"]["energy"]["steps"] if "jouletrace" in one.get("uses", ""))
    assert set(step["with"]) <= set(ACTION["inputs"])
