"""The container's files, as far as they can be checked without an engine that builds them."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

from commands import command
from compose import COMPOSE, service
from jouletrace.processes.locks import FOLDER_VARIABLE
from places import REPOSITORY

DOCKERFILE = REPOSITORY / "docker" / "Dockerfile"
KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "VOLUME", "ENTRYPOINT", "CMD"}


def instructions():
    """Each instruction with its words, lines that go on joined and comments left out."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]


def of(name):
    return [rest for word, rest in instructions() if word == name]


def project():
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


@pytest.mark.thorough
def test_every_instruction_is_one():
    assert {word for word, _ in instructions()} == KNOWN
    assert instructions()[0][0] == "FROM"


def test_the_image_has_a_python_that_the_package_runs_on():
    (image,) = of("FROM")
    found = re.fullmatch(r"python:(\d+)\.(\d+)-slim", image)
    least = re.fullmatch(r">=(\d+)\.(\d+)", project()["requires-python"])
    assert [int(part) for part in found.groups()] >= [int(part) for part in least.groups()]


def copied():
    """Paths that go from the repository into the image."""
    return {source for line in of("COPY") for source in shlex.split(line)[:-1]}


def test_all_that_is_copied_is_there_and_is_all_that_the_package_is_built_of():
    assert all((REPOSITORY / source).exists() for source in copied())
    about = project()
    assert copied() == {"pyproject.toml", "setup.py", about["readme"], *about["license-files"], "src"}


def test_nothing_else_is_sent_to_the_engine():
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == copied()


@pytest.mark.thorough
def test_what_is_copied_builds_a_package_with_all_of_its_files(tmp_path):
    pytest.importorskip("build")
    leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "native.so")
    for source in copied():
        whole = REPOSITORY / source
        if whole.is_dir():
            shutil.copytree(whole, tmp_path / source, ignore=leave_out)
        else:
            shutil.copy(whole, tmp_path / source)
    building = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "out")]
    subprocess.run([*building, str(tmp_path)], check=True, capture_output=True)
    (wheel,) = (tmp_path / "out").glob("jouletrace-*.whl")
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if name.startswith("jouletrace/")}
        (entries,) = [name for name in file.namelist() if name.endswith("/entry_points.txt")]
        assert f"jouletrace = {project()['scripts']['jouletrace']}" in file.read(entries).decode()
    source = tmp_path / "src"
    files = {path.relative_to(source).as_posix() for path in (source / "jouletrace").rglob("*") if path.is_file()}
    library = {"jouletrace/tracer/native.so"} if shutil.which("gcc") else set()
    assert packed == files | library


def test_the_extras_that_are_installed_exist():
    (line,) = of("RUN")
    (target,) = [word for word in shlex.split(line) if "[" in word]
    folder, extras = re.fullmatch(r"(.+)\[(.+)\]", target).groups()
    assert folder == "."
    assert set(extras.split(",")) <= set(project()["optional-dependencies"])


def test_its_command_is_one_of_the_package_and_runs(capsys):
    (entry,), (default,) = of("ENTRYPOINT"), of("CMD")
    (name,) = json.loads(entry)
    assert name in project()["scripts"]
    assert command(capsys, *json.loads(default), "--help").code == 0


def test_the_cache_the_locks_and_the_journal_lie_in_the_volume_that_stays():
    (volume,) = of("VOLUME")
    (line,) = of("ENV")
    variables = dict(word.split("=") for word in shlex.split(line))
    for name in ("JOULETRACE_CACHE", FOLDER_VARIABLE):
        assert variables[name].startswith(f"{volume}/"), name
    assert of("WORKDIR")[-1] == volume
    assert f"./data:{volume}" in service("jouletrace")["volumes"]


def test_files_that_are_mounted_and_built_from_are_there():
    for line in service("exporter")["volumes"]:
        source = line.split(":")[0]
        assert (COMPOSE.parent / source).is_file(), source
    build = service("jouletrace")["build"]
    context = COMPOSE.parent / build["context"]
    assert context.resolve() == REPOSITORY.resolve()
    assert (context / build["dockerfile"]).resolve() == DOCKERFILE.resolve()


@pytest.mark.parametrize("name", ["exporter", "jouletrace"])
def test_both_services_have_the_gpus_and_may_count_and_divide(name):
    asked = service(name)
    assert asked["cap_add"] == ["SYS_ADMIN"]
    (device,) = asked["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}


def test_the_exporter_is_asked_where_it_listens():
    (url,) = [one for one in service("jouletrace")["command"] if one.startswith("--dcgm-url=")]
    (port,) = service("exporter")["ports"]
    assert url == f"--dcgm-url=http://exporter:{port.rpartition(':')[2]}/metrics"
    assert service("jouletrace")["depends_on"] == ["exporter"]
