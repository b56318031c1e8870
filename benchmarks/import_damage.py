"""What becomes of damaged files: thousands of random changes, through all that a user does with what was read.

    python benchmarks/import_damage.py [FOLDER] [--count N] [--cuts N] [--changes N]

Samples are those that the tests generate and, of FOLDER, the files that are recognised (the first
256 KiB of each, unpacked). Of each format ``--count`` damaged copies are read, analysed, saved, loaded,
shown and reported (``tests/support/damaged.py``): a partial import, or one line; anything else, a warning of
NumPy too, is printed and ends with code 1. A copy has twenty seconds, a format 1 GB.

"Cuts" breaks each sample off at so many random places. "Unsaid" counts what was then read with a value
that the whole file doesn't hold (half a number, say) and nothing in the warnings.

The second table is of ``--changes`` files a format that changed in one way each (``tests/support/mutations.py``),
through import, show, verify and load of the command line. A change without a meaning must leave all figures as they
are; after any other, no wrong figure may pass all checks. Faults are printed to stderr, ten of a family at most.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import import_logs
import import_timelines
import mutable
from damaged import read_damaged
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import FORMATS, importer, recognise
from jouletrace.formats.importers.base import ImportOptions, read_bytes
from jouletrace.run import Run
from judged import Judge
from mutations import drawn, fitting

_WHOLE = 256 << 10
_HANGS_S = 20
_MOST_MB = 1024
_ENDS_AT = 3 << 30
"""Bytes at which what asks for more ends in a MemoryError, and not the machine."""

_SHOWN = 10

_FOLDERS = ("jouletrace", "mig_folder")
"""Formats of folders; Runs have ``tests/run/test_damage.py``."""

_OPTIONS = {"table": ImportOptions(map={"time_s": "1", "power_mw": "2"})}
"""Tables need a mapping, most of them; damaged ones are refused for it otherwise."""


def generated(folder: Path) -> dict[str, list[bytes]]:
    """Small samples of every format, as the tests make them."""
    found = defaultdict(list)
    for form, text in import_logs.SAMPLES.values():
        found[form].append(text.encode())
    for form, samples in mutable.samples().items():
        found[form] += [sample.whole for sample in samples if sample.table is None or form not in _OPTIONS]
    launches = [(import_timelines.GEMM, (8, 1, 1)), (import_timelines.RELU, (16, 1, 1))]
    found["kineto"].append(import_timelines.native(import_timelines.kineto_events(4)).encode())
    found["nsys"].append(import_timelines.nsys(folder / "a", launches=40).read_bytes())
    found["ncu"].append(import_timelines.ncu_details(folder / "c", launches).read_bytes())
    found["ncu"].append(import_timelines.ncu_raw(folder / "d", launches).read_bytes())
    return found


def real(folder: Path, wanted: str) -> list[bytes]:
    """What is recognised in a folder as a format; databases whole, if they are small, and of others the beginning."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        try:
            form = recognise(path)
            data = read_bytes(path) if form == wanted else b""
        except BadInputError:
            continue
        if form != wanted:
            continue
        if form != "nsys" or len(data) <= 2 * _WHOLE:
            end = data.rfind(b"\n", 0, _WHOLE) + 1 if len(data) > _WHOLE else len(data)
            found.append(data if form == "nsys" else data[: end or _WHOLE])
    return found


def values(run: Run) -> Counter[tuple[Any, ...]]:
    """The values of a Run, without the times that depend on the file's own."""
    rows = [("sample", row["channel"], row["value"]) for row in run.samples.to_pylist()]
    rows += [("counter", row["metric"], row["value"]) for row in run.counters.to_pylist()]
    for row in run.spans.to_pylist():
        known = row["start_ns"] is not None and row["end_ns"] is not None
        rows.append(("span", row["name"], row["end_ns"] - row["start_ns"] if known else None))
    return Counter(rows)


def unsaid(form: str, sample: bytes, path: Path, cuts: int) -> int:
    """How many of the cuts leave a value that the whole file doesn't hold, and no further word."""
    draw = random.Random(form)
    path.write_bytes(sample)
    try:
        whole = importer(form).read(path, ImportOptions())
    except BadInputError:
        return 0
    there, said = values(whole), whole.settings["imported"][0]["left_out"]
    count = 0
    for _ in range(cuts):
        path.write_bytes(sample[: draw.randrange(1, len(sample))])
        try:
            run = importer(form).read(path, ImportOptions())
        except BadInputError:
            continue
        more = {key for key, n in run.settings["imported"][0]["left_out"].items() if n > said.get(key, 0)}
        codes = {one.code for one in run.warnings} - {one.code for one in whole.warnings}
        count += bool(set(values(run)) - set(there)) and not more and not codes
    return count


def main() -> None:
    """Print a row for each format, each read by a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--cuts", type=int, default=0)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--only", help="one format")
    arguments = parser.parse_args()
    forms = sorted(FORMATS) if arguments.only is None else [arguments.only]
    failed = damage_table(forms, arguments) if arguments.count else False
    failed |= changes_table(forms, arguments.changes) if arguments.changes else False
    sys.exit(failed)


def damage_table(forms: Sequence[str], arguments: argparse.Namespace) -> bool:
    """Print how each format takes random damage; True if anything failed."""
    print("| format | samples made / real | damaged | read | refused | failed | ms each | peak MB | cuts | unsaid |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    failed = False
    for form in forms:
        if form in _FOLDERS:
            continue
        worker = multiprocessing.get_context("spawn").Process(
            target=one_format, args=(form, arguments.folder, arguments.count, arguments.cuts)
        )
        worker.start()
        worker.join()
        failed |= worker.exitcode != 0
        if worker.exitcode not in (0, 1):  # -27: it used up its time in code that does not come back
            print(f"| {form} | ended by {worker.exitcode} |", flush=True)
    return failed


def changes_table(forms: Sequence[str], count: int) -> bool:
    """Print how each format takes changes of each family; True if a fault arose."""
    print("\n| format | change | files | read | refused | failed | faults | ms each |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    failed = False
    for form in forms:
        if form in mutable.samples():
            worker = multiprocessing.get_context("spawn").Process(target=changes_of, args=(form, count))
            worker.start()
            worker.join()
            failed |= worker.exitcode != 0
    return failed


def changes_of(form: str, count: int) -> None:
    """Print the rows of one format; code 1 if a fault arose."""
    warnings.simplefilter("error", RuntimeWarning)
    resource.setrlimit(resource.RLIMIT_DATA, (_ENDS_AT, _ENDS_AT))
    families, every = fitting(form), 0
    with tempfile.TemporaryDirectory() as place:
        judge = Judge(Path(place))
        for turn, family in enumerate(families):
            outcomes: Counter[str] = Counter()
            began = time.process_time()
            for number in range(turn, count, len(families)):
                change = drawn(form, family, number)
                outcome, wrong = judge.fault(change)
                outcomes.update([outcome, *(["fault"] if wrong else [])])
                if wrong and outcomes["fault"] <= _SHOWN:
                    kept = Path(tempfile.gettempdir()) / f"changed-{form}-{family.replace(' ', '-')}-{number}"
                    kept.write_bytes(change.data)
                    print(f"{form}, {family}, {change.said}: {wrong}; kept as {kept}", file=sys.stderr)
            tried = sum(outcomes[name] for name in ("read", "refused", "failed"))
            every += outcomes["fault"]
            print(
                f"| {form} | {family} | {tried} | {outcomes['read']} | {outcomes['refused']} | {outcomes['failed']} "
                f"| {outcomes['fault']} | {1000 * (time.process_time() - began) / max(tried, 1):.0f} |",
                flush=True,
            )
    sys.exit(bool(every))


def one_format(form: str, folder: Path | None, count: int, cuts: int) -> None:
    """Print the row of one format; code 1 if something failed or took more memory than it may."""
    warnings.simplefilter("error", RuntimeWarning)  # NumPy's reach the user too
    resource.setrlimit(resource.RLIMIT_DATA, (_ENDS_AT, _ENDS_AT))
    with tempfile.TemporaryDirectory() as place:
        made, found = generated(Path(place))[form], real(folder, form) if folder else []
        samples = made + found
        path = Path(place) / "damaged.file"
        began = time.process_time()
        outcomes: Counter[str] = Counter()
        for number in range(count):  # one by one, so that a failure doesn't hide the next
            signal.setitimer(signal.ITIMER_PROF, _HANGS_S)  # of the processor: other programs may hold this one up
            sample = samples[number % len(samples)]
            through, options = Path(place), _OPTIONS.get(form)
            try:
                outcomes += read_damaged(importer(form), [sample], path, 1, number, through, options)
            except Exception:
                kept = Path(tempfile.gettempdir()) / f"damaged-{form}-{number}"
                kept.write_bytes(path.read_bytes())
                outcomes["failed"] += 1
                print(f"{form}, number {number}, kept as {kept}:\n{traceback.format_exc()}", file=sys.stderr)
        signal.setitimer(signal.ITIMER_PROF, 0)
        took = (time.process_time() - began) / max(count, 1)
        silent = sum(unsaid(form, sample, path, cuts) for sample in samples) if cuts else 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"| {form} | {len(made)} / {len(found)} | {sum(outcomes.values())} | {outcomes['read']} "
        f"| {outcomes['refused']} | {outcomes['failed']} | {1000 * took:.1f} | {peak:.0f} "
        f"| {cuts * len(samples)} | {silent} |",
        flush=True,
    )
    sys.exit(bool(outcomes["failed"]) or peak > _MOST_MB)


if __name__ == "__main__":
    main()
