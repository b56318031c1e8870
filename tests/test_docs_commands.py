"""Every command and all Python of the documentation, run on recorded Runs and simulated GPUs.

What would measure is stopped where it begins, its options checked as in use, or a recorded Run stands for its result.
Tutorials without a GPU are run as they are.
"""

import json
import os
import re
import shlex
import shutil
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

import import_logs
import import_timelines
import jouletrace as jt
from documented import PAGES, blocks, commands
from jouletrace.campaign import repeats, sweep, tune
from jouletrace.cli import app, main
from jouletrace.comparing.paired import paired
from jouletrace.profiler import ab, calibrate, profile
from jouletrace.profiler.monitoring import monitor
from jouletrace.profiler.program import program
from jouletrace.run import load
from places import REPOSITORY
from serving_runs import aiperf_line, vllm_object
from shipped import ABSENT, is_absent, is_known

ROOT = app._tree()
RECORDED = REPOSITORY / "src" / "jouletrace" / "bundled"
RUN_PAGES = [page for page in PAGES if page.stem not in ("studies", "first-profile") and commands(page)]
"""Pages whose commands run here, with stand-ins for measuring. Each line of studies.md names a test that runs it."""

ELSEWHERE = {
    "bench URL": "tests/wings/serving/test_command.py",
    "bill RUN STEPS": "the same with names",
    "calibrate --run RUN --meter FILE --meter-accuracy 0.5%": "tests/analysis/test_meter.py",
    "bill RUN steps.jsonl": "the same with names",
    "import FOLDER": "tests/wings/logs/test_mig_folder.py",
    "import bmk_result.json power.csv": "tests/wings/serving/test_inferencex.py",
    "import FILE... -o RUN --format F --offset S --offset FILE=S --json": "a synopsis",
    "otlp runs/mine http://127.0.0.1:4318": "tests/wings/otlp/test_collector.py",
    "otlp RUN URL": "a synopsis",
    "demo": "tests/cli/test_commands.py",
    "show grid": "tests/campaign/test_sweep.py",
    "merge runs/mine": "tests/profiler/record/test_ranks.py",
    "merge FOLDER": "tests/profiler/record/test_ranks.py",
    "fleet report FOLDER": "the same with names",
    "jobs power.csv --jobs sacct.txt --price 0.30EUR/kWh": "tests/wings/jobs/test_bill.py",
    "jobs node1.csv node2.csv --jobs jobs.csv --price 0.30EUR/kWh --carbon 400g/kWh -o bill": "the same",
    "jobs node1.csv node2.csv --jobs sacct.txt --time-zone Europe/Berlin --price 0.30EUR/kWh --carbon 400g/kWh "
    "-o bill": "tests/wings/jobs/test_bill.py",
    "fleet report runs/alone -o fleet.html --ask 3": "tests/wings/fleet/test_cli.py",
    "fleet energy month/ --by host --by day --price 0.30EUR/kWh": "tests/wings/fleet/test_energy.py",
    "fleet energy month/ --by user --map power=draw -f csv": "tests/wings/fleet/test_energy.py",
    "profile ./a-folder-of-transformers --task generate": "tests/workloads/test_folder.py",
    "COMMAND --help": "tests/cli/test_help.py",
    "--install-completion": "it changes files of the user",
    "--show-completion": "it asks which shell it is in",
}
"""Commands that are only parsed here: the test that runs them, or why none does."""

PLACES = {"RUN": "runs/mine", "A": "runs/a", "B": "runs/b", "FILE": "dmon.log", "SCRIPT": "train.py", "COMMAND": "true"}
WORKLOADS = {"WORKLOAD": "mymodel.py:make", "A": "mymodel.py:make", "B": "mymodel.py:make", "hf:ORG/NAME": "deit-b"}
MEASURES = ("profile", "ab", "sweep", "tune", "fleet", "convert", "trace")


class Reached(Exception):
    """The command would measure now."""


def leaf(words):
    """The command that words name, its name, and the rest."""
    one, name = ROOT, []
    while words and hasattr(one, "commands") and words[0] in one.commands:
        one, name, words = one.commands[words[0]], [*name, words[0]], words[1:]
    return one, " ".join(name), words


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_commands_of_a_page_are_understood(page):
    for words, whole in commands(page):
        if words == ["COMMAND", "--help"]:
            continue
        command, name, rest = leaf(words)
        assert name or not rest or rest[0].startswith("-"), words
        if rest[:1] and rest[0].startswith("--") and not name:
            assert rest[0] in {option for one in command.params for option in one.opts} | {"--help"}, words
            continue
        error = wrong(command, name, rest)
        if error:  # a command named in a sentence may lack its arguments
            assert not whole, (words, error)
            assert error in ("MissingParameter", "NoArgsIsHelpError", "BadOptionUsage"), words
            known = {option for one in command.params for option in one.opts}
            assert [word for word in rest if re.match(r"--?[a-z]", word) and word not in known] == [], words


def wrong(command, name, rest):
    """The kind of a usage error, empty if there is none."""
    try:
        command.make_context(name, list(rest), parent=None)
    except app._WRONG_USE as error:
        return type(error).__name__
    return ""


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with all that the pages name, which is the current one."""
    folder = tmp_path_factory.mktemp("desk")
    for name in ("docs", "src", "examples"):
        (folder / name).symlink_to(REPOSITORY / name)
    for page in PAGES:
        for text in blocks(page, "python"):
            if match := re.match(r"# ([\w.]+\.py)\n", text):
                (folder / match[1]).write_text(text)
    load(RECORDED / "deit-b-64-graph-h100.zip").save(folder / "any.zip")
    load(RECORDED / "deit-b-64-layers-h200.zip").save(folder / "runs" / "mine")
    (folder / "package").mkdir()
    (folder / "package" / "module.py").write_text("")
    (folder / "torchrun").write_text("")
    (folder / "torchrun").chmod(0o755)
    dmon = import_logs.dmon([61] * 30 + [87] * 60 + [61] * 20)
    (folder / "dmon.log").write_text(dmon)
    (folder / "bench.txt").write_text(import_logs.TORCH)
    (folder / "emissions.csv").write_text(import_logs.emissions(20))
    rows = [(i, 100 + 50 * (i // 20 % 2)) for i in range(100)]
    (folder / "pdu.csv").write_text(
        "Zeit,Leistung\n" + "".join(f"2026-01-01 00:00:{i % 60:02},{w}\n" for i, w in rows[:60])
    )
    (folder / "jetson.tsv").write_text("TIME\tTOTAL\tGPU\n" + "".join(f"{i}\t{w}00\t{w}0\n" for i, w in rows))
    (folder / "wide.csv").write_text("t,GPU 0,GPU 1\n" + "".join(f"{i}000,{w},{w + 1}\n" for i, w in rows))
    for name in ("gpu0", "monday", "tuesday"):
        (folder / f"{name}.csv").write_text("time_s,power_w\n" + "".join(f"{i},{w}\n" for i, w in rows))
    (folder / "power.csv").write_text("time_ns,power_w\n" + "".join(f"{i * 10**9},{w}\n" for i, w in rows))
    import_timelines.kineto(folder / "trace.json")
    import_timelines.nsys(folder / "timeline.sqlite")
    import_timelines.ncu_details(folder / "counters.csv", [("gemm", (8, 1, 1))])
    rows = [{"id": k, "sent_ns": k * 10**9, "first_ns": k * 10**9 + 10**8} for k in range(1, 40)]
    rows = [{**row, "last_ns": row["first_ns"] + 10**8, "input_tokens": 9, "output_tokens": 5} for row in rows]
    (folder / "profile_export.jsonl").write_text("".join(aiperf_line(row) + "\n" for row in rows))
    (folder / "result.json").write_text(json.dumps(vllm_object(rows)))
    if "serving" not in ABSENT:
        import scheduled_runs

        scheduled_runs.write_server(folder)
    for name in ("train.py", "attention.py", "file.py", "benchmark", "load-generator", "model.onnx", "gpt2.engine"):
        (folder / name).write_text("def make(): ...\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def stand_in(patch):
    """A stand-in for measuring: it gives a recorded Run, or ends the command."""
    for module in ("jouletrace.profiler.profile", "jouletrace.campaign.child"):
        import_module(module)  # imported now, they keep the real functions
    one = load(RECORDED / "deit-b-64-graph-h100.zip")
    two = load(REPOSITORY / "docs" / "results" / "runs" / "eager-graph-h100.zip")

    def reached(*arguments, **options):
        raise Reached

    patch.setattr(profile, "profile_workload", lambda *a, **o: one)
    patch.setattr(repeats, "profile_repeats", lambda *a, **o: (one, None))
    patch.setattr(repeats, "profile_on", lambda *a, **o: one)
    patch.setattr(calibrate, "calibrate", lambda *a, **o: one)
    patch.setattr(monitor, "monitor", lambda *a, **o: one)
    patch.setattr(ab, "run_ab", lambda *a, **o: (two, paired(two)))
    patch.setattr(sweep, "run_sweep", reached)
    patch.setattr(tune, "run_tune", reached)
    patch.setattr(program, "run_program", reached)
    for wing, name, instead in (
        ("fleet", "engine.open_host", reached),
        ("mig", "sweep.sweep", reached),
        ("serving", "client.bench.bench", reached),
        ("toolchain", "convert.convert", reached),
        ("toolchain", "trace.trace", reached),
        ("toolchain", "trtexec.profile_engine", lambda *a, **o: one),
    ):
        if wing not in ABSENT:
            patch.setattr(f"jouletrace.wings.{wing}.{name}", instead)


def meant(words, folder):
    """The words with real names for a page's placeholders, and a simulated GPU where one is asked for."""
    command, *rest = words
    names = WORKLOADS if command in MEASURES else PLACES
    rest = [names.get(word.removesuffix("..."), word.removesuffix("...")) for word in rest]
    rest = ["runs/mine" if word == "runs/" else word for word in rest]
    if command in ("show", "report", "export", "compare", "verify") or (command, rest[:1]) == ("fleet", ["report"]):
        outputs = [i + 1 for i, word in enumerate(rest) if word in ("-o", "--report")]
        for i, word in enumerate(rest):
            place = folder / word.replace("/*", "/1")
            option = word.startswith("-") or (i and rest[i - 1] in ("-f", "--format", "--fail-if", "--detail", "--top"))
            if not option and i not in outputs and not place.exists() and word != "report":
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / "any.zip", place)
    if command in ("mig", "doctor") and "--device" not in rest:
        rest += ["--device", "sim:h100"]
    if command == "bench":  # the server's GPU stands for that of another machine
        rest = [word for word, before in zip(rest, ["", *rest], strict=False) if "--monitor" not in (word, before)]
        rest += [] if "--device" in rest else ["--device", "sim:h100?realtime=1"]
    if command == "monitor":
        rest = ["127.0.0.1:0" if word.endswith(":9400") else word for word in ["--device", "sim:h100", *rest]]
    return [command, *(one for word in rest for one in expanded(word, folder))]


def expanded(word, folder):
    """Files that the shell puts in place of a star."""
    return [str(path.relative_to(folder)) for path in folder.glob(word)] if "*" in word else [word]


def remove_outputs(words):
    """Remove what another page's command has written: pages are independent of one another."""
    named = [Path(place) for option, place in pairwise(words) if option in ("-o", "--report")]
    for place in [*named, *Path("runs").glob("mine[.-]*")] if words[0] != "report" else []:
        shutil.rmtree(place, ignore_errors=True)
        place.unlink(missing_ok=True)


@pytest.mark.thorough
def test_commands_of_the_pages_run(desk, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(desk), prepend=os.pathsep)
    stand_in(monkeypatch)
    done, failed = set(), []
    for page in RUN_PAGES:
        for words, whole in commands(page):
            text = " ".join(words)
            _, name, rest = leaf(words)
            if not name or text in ELSEWHERE or text in done or (not whole and not rest):
                continue
            done.add(text)
            remove_outputs(words)
            try:
                code = main.run(meant(words, desk))
            except Reached:
                code = 0
            err = capsys.readouterr().err
            if code and not (not whole and ("Missing" in err or "requires an argument" in err)):
                failed.append((page.name, text, err))
    assert failed == []
    assert ABSENT or len(done) > 80


def test_commands_that_run_elsewhere_are_in_a_page_and_their_tests_are_there():
    there = {" ".join(words) for page in PAGES for words, _ in commands(page)}
    assert [text for text in ELSEWHERE if is_known(text.split()) and text not in there] == []
    tests = [place for place in ELSEWHERE.values() if "/" in place and not is_absent(place)]
    assert [place for place in tests if not (REPOSITORY / place).exists()] == []


def values_at(data, key):
    """All values of a key such as ``.rows[].change.low`` in what JSON holds."""
    values = [data]
    for name in re.findall(r"\w+|\[\]", key):
        values = [each for value in values for each in (value if name == "[]" else [value[name]])]
    return values


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("compare --json", ["compare", *(f"minilm-256-{mode}-h100.zip" for mode in ("eager", "compile"))]),
        ("show --json", ["show", "resnet50-run-h200.zip"]),
    ],
)
def test_keys_of_the_page_for_programs_are_in_what_is_printed(section, words, capsys):
    page = (REPOSITORY / "docs" / "how-to" / "agents.md").read_text()
    (text,) = re.findall(rf"^## What to read in `{section}`\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    command, *files = words
    checks = ["--fail-if", "energy>3%"] * (command == "compare")
    main.run([command, *(str(REPOSITORY / "docs" / "results" / "runs" / name) for name in files), *checks, "--json"])
    printed = json.loads(capsys.readouterr().out)
    keys = re.findall(r"`(\.[a-z][\w.\[\]]*)`", text)
    assert len(keys) >= 9
    assert [key for key in keys if not values_at(printed, key)] == []


def in_order(lines, printed):
    """How many lines of a page were printed in that order, which all must be.

    Lines may be left out at ``...`` or ``[...]``; where they are broken doesn't count.
    """
    text, at, compared = plain(printed), 0, 0
    for line in lines:
        if line not in ("...", "[...]"):
            at = text.find(plain(line), at)
            assert at >= 0, (line, printed)
            compared += 1
    return compared


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "writes"),
    [
        ("first-profile", "report.html"),
        pytest.param("cheapest-setting", "runs/tuned/tune.html", marks=pytest.mark.slow),  # a minute on two cores
    ],
)
def test_a_tutorial_runs_and_prints_what_it_says(name, writes, workspace, capsys):
    pytest.importorskip("transformers")
    compared = 0
    for block in blocks(REPOSITORY / "docs" / "tutorial" / f"{name}.md", "console"):
        for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = text.splitlines()
            words = shlex.split(command, comments=True)
            if words[0] != "jouletrace" or words[1] in ("demo", "doctor"):
                continue
            assert main.run(words[1:]) == 0, words
            said = capsys.readouterr()
            compared += in_order(lines, said.out + said.err)
    assert compared >= 9
    assert (workspace / writes).stat().st_size > 1_000_000


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_python_of_a_page_is_valid_and_names_what_is_there(page):
    for text in blocks(page, "python"):
        compile(text, page.name, "exec")
        assert ABSENT or [name for name in re.findall(r"\bjt\.(\w+)", text) if not hasattr(jt, name)] == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["own-model", "notebook"])
def test_python_of_a_guide_runs(name, desk, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("pandas")
    monkeypatch.syspath_prepend(str(desk))
    space: dict[str, object] = {}
    for text in blocks(REPOSITORY / "docs" / "how-to" / f"{name}.md", "python"):
        exec(text, space)
    assert isinstance(space["run"], jt.Run)


def plain(text):
    return re.sub(r"\s+", " ", text)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["README.md", "docs/how-to/run.md", "docs/tutorial/saving-energy.md"])
def test_output_in_a_page_is_what_the_command_prints(name, desk, capsys):
    compared = 0
    for text in blocks(REPOSITORY / name, "console"):
        command, *lines = text.splitlines()
        if not command.startswith(("$ jouletrace show docs/", "$ jouletrace compare docs/")):
            continue
        assert main.run(command.split()[2:]) == 0
        compared += in_order(lines, capsys.readouterr().out)
    assert compared >= 5
