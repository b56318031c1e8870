"""Runs tests in copies of the repository from which wings are deleted; nothing else is edited.

python tests/without_wings.py -- -n 2               # all wings but ``shipped.LATER``, with options of pytest
python tests/without_wings.py mig runtimes -- -k x  # these wings
python tests/without_wings.py --each -- -n 2        # for each wing: all others but those that it imports
python tests/without_wings.py --each                # the same, where modules are imported and the help printed alone
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Collection
from contextlib import redirect_stdout
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from pkgutil import walk_packages

ROOT = Path(__file__).parents[1]
NATIVE = Path("src/jouletrace/tracer/native.so")
COPIES = ROOT / "build" / "without"

sys.path.insert(0, str(ROOT / "tests" / "support"))
from shipped import LATER, WINGS  # noqa: E402

HEAVY = ("numpy", "pyarrow", "scipy", "pandas", "torch", "transformers")
"""Libraries that modules import: processes that are forked after them import the package alone."""

OTHERS = ("jouletrace.__main__", "jouletrace.tracer.native", "jouletrace.tracer.hooks")
"""Modules that are loaded otherwise."""


def needed_by(name: str) -> set[str]:
    """A wing and all that it imports."""
    return {name}.union(*map(needed_by, WINGS.get(name, ())))


def copy_without(names: Collection[str], to: Path) -> None:
    """Have what git knows, and the native library, in a folder, without wings and their tests.

    What an earlier run has left there is kept where it is the same, with its bytecode: compiling all takes 10 s.
    """
    known = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    homes = [f"{home}/{name}/" for name in names for home in ("src/jouletrace/wings", "tests/wings")]
    files = {
        name
        for name in {*known.decode().split("\0"), str(NATIVE)} - {""}
        if (ROOT / name).is_file() and not name.startswith(tuple(homes))
    }
    for path in [path for path in to.rglob("*") if path.is_file() and path.suffix != ".pyc"]:
        if str(path.relative_to(to)) not in files:
            path.unlink()
    for home in homes:
        shutil.rmtree(to / home, ignore_errors=True)
    for name in files:
        new, old = (ROOT / name).stat(), to / name
        if not old.exists() or (old.stat().st_mtime_ns, old.stat().st_size) != (new.st_mtime_ns, new.st_size):
            old.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, old)


def link_without(names: Collection[str], to: Path) -> None:
    """The package alone, by links, which takes no time."""
    package = to / "src" / "jouletrace"
    (package / "wings").mkdir(parents=True)
    for home in (Path(), Path("wings")):
        for path in (ROOT / "src" / "jouletrace" / home).iterdir():
            if path.name not in {"wings", *names}:
                (package / home / path.name).symlink_to(path)


def run_without(names: Collection[str], command: list[str]) -> int:
    """Run Python in a copy without wings; returns the exit code."""
    folder = COPIES / "-".join(sorted(names))
    copy_without(names, folder)
    paths = {"PYTHONPATH": f"{folder}/src", "PYTHONDONTWRITEBYTECODE": ""}
    if "joules" in names:  # the installed entry point names a module that isn't there
        paths["PYTEST_ADDOPTS"] = "-p no:joules"
    code = subprocess.run([sys.executable, *command], cwd=folder, env=os.environ | paths, check=False).returncode
    return said(names, code)


def import_without(names: Collection[str]) -> int:
    """Import all modules and print the help where wings aren't, in this process; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="core") as folder, redirect_stdout(io.StringIO()):
        link_without(names, Path(folder))
        for module in [module for module in sys.modules if module.partition(".")[0] == "jouletrace"]:
            del sys.modules[module]
        sys.path.insert(0, f"{folder}/src")
        package = import_module("jouletrace")
        assert package.__path__ == [f"{folder}/src/jouletrace"]
        try:
            for module in walk_packages(package.__path__, "jouletrace."):
                if module.name not in OTHERS:
                    import_module(module.name)
            code = import_module("jouletrace.cli.main").run(["--help"])
        except ImportError:
            traceback.print_exc()
            code = 1
    return said(names, code)


def said(names: Collection[str], code: int) -> int:
    """Print how it went; returns the exit code."""
    print(f"== without {', '.join(sorted(names)) or 'no wing'}: {'failed' if code else 'passed'}", flush=True)
    return code


def main(typed: list[str]) -> int:
    """Run the tests; returns an exit code."""
    end = typed.index("--") if "--" in typed else len(typed)
    names, options = typed[:end], typed[end + 1 :]
    tests = ["-m", "pytest", "-q", *options]
    if names != ["--each"]:
        return run_without(names or set(WINGS) - set(LATER), tests)
    rests = [set(WINGS) - set(LATER) - needed_by(name) for name in WINGS if name not in LATER]
    if options:
        return max(run_without(rest, tests) for rest in rests)
    sys.dont_write_bytecode = False
    for library in HEAVY:
        import_module(library)
    with get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        return max(pool.map(import_without, rests, chunksize=1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
