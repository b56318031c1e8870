"""Lists formulas of uncertainties whose mistakes no test notices: ``make mutants``.

Each mutant of ``table.py`` is one small change of a copy of the source, under which the tests that it names are run.
It is killed if they fail. One that survives is a term of an interval that no test needs: the exit code is 1 then.
"""

import argparse
import importlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from table import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
PASSED, FAILED = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED
"""Exit codes of pytest; any other says that the tests could not be run."""

PATIENCE_S = 1800.0
"""Most time that tests may take: a mutant may never end."""

MEMORY_BYTES = 12 << 30
"""Most memory that they may reserve: a mutant may ask for all there is."""

for library in ("hypothesis", "numpy", "pandas", "pyarrow.parquet", "scipy.optimize", "scipy.signal", "scipy.stats"):
    importlib.import_module(library)  # here, not in each of the processes that are forked


def exit_code(
    source: Path, tests: list[str], *options: str, patience_s: float = PATIENCE_S, plugins: Sequence[object] = ()
) -> int:
    """Run tests on the source in a folder, in their order, to the first that fails: pytest's exit code.

    They run in a process forked from this one, which imports none of the source. What they print is in ``output`` of
    the folder.
    """
    printed, output = os.pipe()  # some tests limit the size of files
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = _exit_code(source, tests, options, plugins, output)
        finally:
            os._exit(code)
    os.close(output)
    os.set_blocking(printed, False)
    ends = time.monotonic() + patience_s
    with open(printed, "rb", buffering=0) as pipe, (source / "output").open("wb") as file:
        while time.monotonic() < ends:
            done, status = os.waitpid(child, os.WNOHANG)
            while text := pipe.read(1 << 16):
                file.write(text)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return FAILED


def _exit_code(source: Path, tests: list[str], options: tuple[str, ...], plugins: Sequence[object], output: int) -> int:
    os.setpgid(0, 0)
    os.chdir(ROOT)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    os.dup2(output, 1)
    os.dup2(output, 2)
    # Compiled files stay in the folder; those of a mutant are not written.
    os.environ.update(PYTHONPATH=str(source), PYTHONPYCACHEPREFIX=str(source / "compiled"))
    sys.path.insert(0, str(source))
    sys.pycache_prefix, sys.dont_write_bytecode = str(source / "compiled"), not plugins
    names = [str(ROOT / "tests" / test) for test in tests]
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *options, *names], plugins=[OnDemand(), *plugins]))


class OnDemand:
    """A plug-in: the process from which tests fork theirs starts with the first that they need, most need none."""

    def pytest_sessionstart(self) -> None:
        """Leave out the start, which takes longer than most tests."""
        preloaded = importlib.import_module("preloaded")
        preloaded.start = lambda: None  # type: ignore[attr-defined]


def try_out(mutant: Mutant, source: Path) -> str:
    """The fate of a mutant: "killed", "SURVIVED", or why it could not be tried."""
    path = source / "jouletrace" / mutant.path
    if not path.exists():
        return "STALE: there is no such file"
    plain = path.read_text()
    if plain.count(mutant.old) != 1:
        return f"STALE: its text is there {plain.count(mutant.old)} times"
    path.write_text(plain.replace(mutant.old, mutant.new))
    try:
        code = exit_code(source, mutant.tests)
    finally:
        path.write_text(plain)
    if code == PASSED:
        return "SURVIVED"
    return "killed" if code == FAILED else f"BROKEN: pytest ended with {code}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="mutants whose path or description holds this text")
    only = parser.parse_args().only
    chosen = [mutant for mutant in MUTANTS if only in f"{mutant.path} {mutant.what}"]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        source = Path(folder)
        shutil.copytree(ROOT / "src" / "jouletrace", source / "jouletrace")
        whole = sorted({test for mutant in chosen for test in mutant.tests})
        if exit_code(source, whole) != PASSED:
            print((source / "output").read_text()[-3000:], "The tests fail without any mutant.", sep="\n")
            return 1
        ends = []
        for mutant in chosen:
            began = time.perf_counter()
            ends.append(try_out(mutant, source))
            took = time.perf_counter() - began
            print(f"{ends[-1]:8}  {took:5.1f} s  {mutant.path:24} {mutant.what}", flush=True)
    killed = ends.count("killed")
    print(f"{killed} of {len(ends)} mutants killed")
    return 0 if killed == len(ends) > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
