"""What opening, analysing, saving, showing and reporting make of damaged Runs: no traceback, no hang, a gigabyte.

    python benchmarks/run_damage.py [RUN ...] [--count N] [--seed N]

Each of ``--count`` copies of a Run (those that the tests make, and the folders named) is damaged at random: bytes,
values of run.json, cells of tables, files missing, spools of a recording that was cut off; one in three is a zip.
Then come the hostile ones of the tests, which ask for gigabytes or never end. Every one is used in a process of its
own. Anything but figures or a refusal in one line is printed and kept, and the end is code 1.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import hostile_runs
from damaged_runs import damage, save_bases, use
from make_runs import profile_run

_HANGS_S = 120
_MOST_MIB = 1024
_READ, _REFUSED, _FAILED = 10, 11, 12


def used(place: Path, folder: Path) -> tuple[str, float, float]:
    """What became of a Run, used in a child: the outcome, the peak of its memory in MiB, seconds of CPU."""
    folder.mkdir()
    child = os.fork()
    if child == 0:
        signal.alarm(_HANGS_S)
        try:
            warnings.simplefilter("error", RuntimeWarning)  # a user would see them
            os._exit(_REFUSED if use(place, folder) else _READ)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(_FAILED)
    _, status, spent = os.wait4(child, 0)
    shutil.rmtree(folder)
    if os.WIFSIGNALED(status):
        outcome = "hung" if os.WTERMSIG(status) == signal.SIGALRM else f"killed by {os.WTERMSIG(status)}"
    else:
        codes = {_READ: "read", _REFUSED: "refused"}
        outcome = codes.get(os.WEXITSTATUS(status), "failed")
    peak_mib = spent.ru_maxrss / 1024
    return (outcome if peak_mib <= _MOST_MIB else "too large"), peak_mib, spent.ru_utime + spent.ru_stime


def unpacked(run: Path, place: Path) -> Path:
    """A Run as a folder."""
    if run.is_dir():
        return run
    with zipfile.ZipFile(run) as archive:
        archive.extractall(place / run.stem)
    return place / run.stem


def _remove(place: Path) -> None:
    """Remove a Run of whatever kind: ``rmtree`` would open a pipe, and wait."""
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


class Tally:
    """Outcomes by kind of damage."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._most: dict[str, tuple[float, float]] = {}

    def add(self, kind: str, place: Path, found: tuple[str, float, float]) -> None:
        """Count one; what went wrong is kept."""
        outcome, peak_mib, seconds = found
        self.outcomes[kind, outcome] += 1
        memory, time_s = self._most.get(kind, (0.0, 0.0))
        self._most[kind] = max(memory, peak_mib), max(time_s, seconds)
        if outcome not in ("read", "refused"):
            kept = Path(tempfile.mkdtemp(prefix="run-damage-")) / place.name
            place.rename(kept)
            print(f"{kind}: {outcome}, {peak_mib:.0f} MiB, kept as {kept}", file=sys.stderr)

    def print(self) -> None:
        """A row for each kind."""
        print("| damage | Runs | read | refused | anything else | MiB at most | CPU seconds at most |")
        print("|---|---|---|---|---|---|---|")
        for kind, (memory, seconds) in self._most.items():
            of = {outcome: n for (one, outcome), n in self.outcomes.items() if one == kind}
            total, read, refused = sum(of.values()), of.get("read", 0), of.get("refused", 0)
            print(
                f"| {kind} | {total} | {read} | {refused} | {total - read - refused} | {memory:.0f} | {seconds:.1f} |"
            )

    @property
    def failed(self) -> bool:
        """Whether anything was neither read nor refused."""
        return any(outcome not in ("read", "refused") for _, outcome in self.outcomes)


def main() -> None:
    """Print a table of what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    tally, began = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        use(save_bases(home / "warm")[0], home)  # modules and templates are loaded once, for all children
        bases = save_bases(home / "bases") + [unpacked(run, home / "named") for run in asked.runs]
        for number in range(asked.count):
            draw = random.Random(f"{asked.seed} {number}")
            place = home / ("damaged.zip" if number % 3 == 0 else "damaged")
            kind = damage(bases[number % len(bases)], place, draw)
            tally.add(kind, place, used(place, home / "used"))
            _remove(place)
        profile_run(kernels=2).save(str(home / "whole"))
        for make in hostile_runs.ALL:
            place = make(home / "whole", home / "hostile")
            tally.add("hostile", place, used(place, home / "used"))
            _remove(place)
    tally.print()
    print(f"\n{asked.count} damaged and {len(hostile_runs.ALL)} hostile Runs in {time.monotonic() - began:.0f} s")
    sys.exit(tally.failed)


if __name__ == "__main__":
    main()
