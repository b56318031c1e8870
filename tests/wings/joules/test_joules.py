"""The fixture ``joules`` in suites of others, each run by pytest in a process of its own."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from statistics import mean, stdev

import pytest

import jouletrace as jt
from jouletrace.run import load

BLOCK = """
import time

def test_block(joules):
    with joules.block():
        time.sleep(0.3)
"""

PRODUCTS = """
import pytest
import torch

SQUARE = torch.ones(64, 64)

@pytest.mark.parametrize("n", range({tests}))
def test_product(joules, n):
    joules(lambda: [SQUARE @ SQUARE for _ in range({calls})], max_time=1.5, warmup=0.3, progress=False)
"""

ALONE = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
ALONE["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
LOADED = "--joules-device=sim:h100?load=1:300"


@pytest.fixture
def suite(tmp_path):
    """Runs pytest on a file of tests; returns the process, with what it printed."""

    def run(text, *options, **environment):
        (tmp_path / "test_mine.py").write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "joules", "-p", "no:cacheprovider", "test_mine.py", *options],
            env={**ALONE, "COLUMNS": "200", **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.thorough
def test_a_suite_without_the_fixture_loads_no_library(suite):
    done = suite("import sys\n\ndef test_mine():\n    assert {'numpy', 'pyarrow', 'scipy'}.isdisjoint(sys.modules)\n")
    assert done.returncode == 0, done.stdout
    assert "joules" not in done.stdout


@pytest.mark.thorough
def test_the_table_states_what_the_saved_run_states(suite, tmp_path):
    done = suite(BLOCK, LOADED, "--joules-save=runs", "--joules-summary=summary.md")
    assert done.returncode == 0, done.stdout
    (file,) = (tmp_path / "runs").iterdir()
    run = load(file)
    assert run.workload["name"] == "test_mine.py::test_block"
    (row,) = re.findall(r"^test_mine.py::test_block +(.+)$", done.stdout, re.MULTILINE)
    assert row.split()[-1] == "yes"
    energy = run.result("energy_total_j")
    assert f"{energy.value:.2f} ± " in row
    assert energy.value == pytest.approx(300 * run.result("time_s").value, rel=0.05)
    assert "\nSIMULATED\n" in done.stdout
    assert "| test\\_mine.py::test\\_block |" in (tmp_path / "summary.md").read_text()


@pytest.mark.thorough
def test_each_session_adds_a_run_of_another_simulated_gpu(suite, tmp_path):
    for _ in range(2):
        assert suite(BLOCK, LOADED, "--joules-save=runs").returncode == 0
    first, second = map(str, (tmp_path / "runs").iterdir())
    assert jt.compare(first, second).shared is None


@pytest.mark.thorough
def test_another_gpu_is_neither_better_nor_worse(suite):
    assert suite(BLOCK, LOADED, "--joules-save=before").returncode == 0
    done = suite(BLOCK, LOADED.replace("h100", "a100"), "--joules-compare=before")
    assert done.returncode == 0, done.stdout
    (row,) = re.findall(r"^test_mine.py::test_block +(.+)$", done.stdout, re.MULTILINE)
    assert re.search(r"differs: .*H100.* in A, .*A100.* in B: measure both on one", row), row
    assert "better" not in done.stdout


@pytest.mark.slow
def test_sessions_at_once_lose_no_run(suite, tmp_path):
    with ThreadPoolExecutor() as pool:
        sessions = [pool.submit(suite, BLOCK, LOADED, "--joules-save=runs") for _ in range(3)]
    assert [session.result().returncode for session in sessions] == [0, 0, 0]
    assert len(list((tmp_path / "runs").iterdir())) == 3


@pytest.fixture
def before(tmp_path):
    """Three Runs of a test of ``PRODUCTS`` in the folder "before", on simulated GPUs of seeds of their own."""
    torch = pytest.importorskip("torch")
    square = torch.ones(64, 64)

    def product():
        return square @ square

    (tmp_path / "before").mkdir()
    for seed in range(1, 4):
        run = jt.profile(
            product,
            device=f"sim:h100?run={seed}",
            name="test_mine.py::test_product[0]",
            max_time=1.5,
            warmup=0.3,
            progress=False,
        )
        run.save(tmp_path / "before" / f"{seed}.zip")
    return ["--joules-compare=before", "--joules-fail=energy>3%", "--joules-device=sim:h100?run=50"]


@pytest.mark.thorough
@pytest.mark.parametrize(("calls", "code"), [(1, 0), (2, 1)])
def test_a_session_fails_where_more_energy_is_shown(suite, before, tmp_path, calls, code):
    done = suite(PRODUCTS.format(tests=1, calls=calls), *before, "--joules-summary=summary.md")
    assert done.returncode == code, done.stdout
    assert (" worse " in done.stdout) == bool(code)
    assert "1 passed" in done.stdout
    failed = r"test_mine\.py::test_product\[0\]: --joules-fail 'energy>3%' failed: energy \+[12]\d\.\d % *, above"
    assert bool(re.search(failed, done.stdout.replace("\u00a0", " "))) == bool(code)
    assert ("| worse |" in (tmp_path / "summary.md").read_text()) == bool(code)


@pytest.mark.thorough
def test_a_check_that_cannot_be_judged_fails_the_session(suite, before):
    done = suite(PRODUCTS.format(tests=1, calls=1), *before, "--joules-fail=layer:encoder:energy>3%")
    assert done.returncode == 1
    assert "layer" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--joules-fail=energy>3%"], "--joules-compare FOLDER"),
        (["--joules-compare=runs"], "no Runs there"),
        (["--joules-fail=energy"], "--joules-fail 'energy': write"),
        (["--joules-save=/dev/null/runs"], "/dev/null"),
        (["--joules-summary=/dev/null/summary.md"], "/dev/null"),
        (["--joules-summary=."], "Is a directory"),
    ],
)
def test_wrong_use_is_refused_before_a_test_runs(suite, options, said):
    done = suite("def test_mine():\n    print('ran')\n", "-s", *options)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert said in done.stderr
    assert "ran" not in done.stdout
    assert "Traceback" not in done.stderr


TWICE = BLOCK + "    with joules.block():\n        pass\n"
WITHIN = BLOCK.replace("time.sleep(0.3)", "joules(time.time, name='clock')")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "environment", "said"),
    [
        (TWICE, {}, "is measured already"),
        (WITHIN, {}, "is within the block test_mine.py::test_block"),
        (BLOCK, {"PYTEST_XDIST_WORKER": "gw0"}, "run without -n"),
    ],
)
def test_what_would_falsify_a_figure_fails_its_test(suite, text, environment, said):
    done = suite(text, LOADED, **environment)
    assert done.returncode == 1
    assert said in done.stdout


@pytest.mark.thorough
def test_names_of_tests_are_harmless_in_files_and_terminals(suite, tmp_path):
    text = BLOCK.replace(
        "def test_block(joules)", "@pytest.mark.parametrize('x', NAMES, ids=NAMES)\ndef test_block(joules, x)"
    )
    names = ["../../up", "=1+1", "a" * 300, "a" * 299 + "b", "\x1b[31m", "é|`"]
    done = suite(f"import pytest\nNAMES = {names}\n{text}", LOADED, "--joules-save=runs", "--joules-summary=s.md")
    assert done.returncode == 0, done.stdout
    assert len(list((tmp_path / "runs").iterdir())) == len(names)
    assert {load(file).workload["name"] for file in (tmp_path / "runs").iterdir()} >= {
        f"test_mine.py::test_block[{'a' * 300}]"
    }
    assert "\x1b[31m" not in done.stdout + (tmp_path / "s.md").read_text()


SESSIONS = """
import sys

import pytest

for side, seed in (("before", 100), ("after", 500)):
    for _ in range(3):
        options = [f"--joules-device=sim:h100?run={seed}", f"--joules-save={side}"]
        options += ["--joules-compare=before", "--joules-fail=energy>0%"] * (side == "after")
        code = pytest.main(["-q", "-p", "joules", "-p", "no:cacheprovider", "test_mine.py", *options])
sys.exit(code)
"""


@pytest.mark.slow
def test_false_alarms_are_rare_among_all_tests_of_a_session(suite, tmp_path):
    """Twelve equal tests, three sessions a side: none is shown to take more, all checks together.

    Of the 20 splits of each test's six Runs one, 5 %, may be shown to take more by more than 0: more is no more than
    chance among tests. By more than 1 %, as of a gate, none is.
    """
    from itertools import combinations

    pytest.importorskip("torch")
    (tmp_path / "test_mine.py").write_text(PRODUCTS.format(tests=12, calls=1))
    done = subprocess.run([sys.executable, "-c", SESSIONS], cwd=tmp_path, env=ALONE, check=False)
    assert done.returncode == 0
    alarms = []
    for n in range(12):
        files = [path for side in ("before", "after") for path in sorted((tmp_path / side).glob(f"*product-{n}-?.zip"))]
        runs = [load(path) for path in files]
        assert len(runs) == 6
        splits = [[[runs[k] for k in a], [runs[k] for k in range(6) if k not in a]] for a in combinations(range(6), 3)]
        alarms.append(sum(jt.compare(*split, fail_if="energy>0%").checks[0].outcome == "failed" for split in splits))
        assert not any(jt.compare(*split, fail_if="energy>1%").checks[0].outcome == "failed" for split in splits)
    assert 0.25 < mean(alarms) <= 1 + 1.8 * stdev(alarms) / 12**0.5  # t of one side at 95 %, 11 degrees of freedom
