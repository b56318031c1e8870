"""Runs tests in a copy of the repository from which wings are deleted; nothing else is edited.

python tests/without_wings.py                     # all wings: the core's tests
python tests/without_wings.py fleet mig -- -k name  # two wings: all tests but theirs, with options of pytest
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
NATIVE = Path("src/jouletrace/tracer/native.so")


def copy_without(names: list[str], to: Path) -> None:
    """Copy what git knows, and the native library, to a folder; then delete wings with their tests, all of none."""
    known = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    for name in {*known.decode().split("\0"), str(NATIVE)} - {""}:
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    for home in (to / "src/jouletrace/wings", to / "tests/wings"):
        for folder in [one for one in home.iterdir() if one.is_dir() and (not names or one.name in names)]:
            shutil.rmtree(folder)


def main(typed: list[str]) -> int:
    """Run the tests; returns pytest's exit code."""
    end = typed.index("--") if "--" in typed else len(typed)
    names, options = typed[:end], typed[end + 1 :] or ["-m", "not slow and not gpu"]
    with tempfile.TemporaryDirectory(prefix="core") as folder:
        copy_without(names, Path(folder))
        command = [sys.executable, "-m", "pytest", "-q", *options]
        paths = {"PYTHONPATH": f"{folder}/src", "PYTHONDONTWRITEBYTECODE": ""}
        return subprocess.run(command, cwd=folder, env=os.environ | paths, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
