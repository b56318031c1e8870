"""Whether tests notice when a formula of an uncertainty is wrong: ``make mutants``.

Each mutant of ``table.py`` is one small change of a copy of the source, under which the tests that it names are run.
It is killed if they fail. One that survives is a term of an interval that no test needs: the exit code is 1 then.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from table import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
PASSED, FAILED = 0, 1
"""Exit codes of pytest; any other says that the tests could not be run."""

PATIENCE_S, OF_ONE_S = 1800.0, 120.0
"""Most time that tests may take together, and that one may: a mutant may never end."""


def pytest(source: Path, tests: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    """Run tests on the source in a folder, in their order, to the first that fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", f"{OF_ONE_S:.0f}"]
    command += [*options, *(str(ROOT / "tests" / test) for test in tests)]
    # Compiled files stay in the folder: a second less for each mutant.
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONPYCACHEPREFIX": str(source / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, FAILED, "", "")


def try_out(mutant: Mutant, source: Path) -> str:
    """What becomes of a mutant: "killed", "SURVIVED", or why it could not be tried."""
    path = source / "jouletrace" / mutant.path
    if not path.exists():
        return "STALE: there is no such file"
    plain = path.read_text()
    if plain.count(mutant.old) != 1:
        return f"STALE: its text is there {plain.count(mutant.old)} times"
    path.write_text(plain.replace(mutant.old, mutant.new))
    try:
        done = pytest(source, mutant.tests)
    finally:
        path.write_text(plain)
    if done.returncode == PASSED:
        return "SURVIVED"
    return "killed" if done.returncode == FAILED else f"BROKEN: pytest ended with {done.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="mutants whose path or description holds this text")
    only = parser.parse_args().only
    chosen = [mutant for mutant in MUTANTS if only in f"{mutant.path} {mutant.what}"]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        source = Path(folder)
        shutil.copytree(ROOT / "src" / "jouletrace", source / "jouletrace")
        whole = sorted({test for mutant in chosen for test in mutant.tests})
        if (plain := pytest(source, whole)).returncode != PASSED:
            print(plain.stdout[-3000:], "The tests fail without any mutant.", sep="\n")
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
