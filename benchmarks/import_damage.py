"""What importers make of damaged files: thousands of random changes, and every kind of cut.

    python benchmarks/import_damage.py [FOLDER] [--count N]

Samples are those that the tests generate and, of FOLDER, the files that are recognised (the first
256 KiB of each, unpacked). Each format reads ``--count`` damaged copies of its samples: a partial
import, or one line that names the file; anything else is printed and ends with code 1.

"Cut" breaks each sample off at 200 random places. "Unsaid" counts what was then read with a value
that the whole file doesn't hold (half a number, say) and nothing in the warnings.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import import_logs
import import_timelines
from damaged import read_damaged
from jouletrace.errors import BadInputError
from jouletrace.importers import importer, recognise
from jouletrace.importers.base import ImportOptions, read_bytes
from jouletrace.run import Run

_WHOLE = 256 << 10
_HANGS_S = 60
_CUTS = 200


def generated(folder: Path) -> dict[str, list[bytes]]:
    """Small samples of every format, as the tests make them."""
    found = defaultdict(list)
    for form, text in import_logs.SAMPLES.values():
        found[form].append(text.encode())
    launches = [(import_timelines.GEMM, (8, 1, 1)), (import_timelines.RELU, (16, 1, 1))]
    found["kineto"].append(import_timelines.native(import_timelines.kineto_events(4)).encode())
    found["nsys"].append(import_timelines.nsys(folder / "a", launches=40).read_bytes())
    found["nsys_stats"].append(import_timelines.nsys_stats(folder / "b", rows=20).read_bytes())
    found["ncu"].append(import_timelines.ncu_details(folder / "c", launches).read_bytes())
    found["ncu"].append(import_timelines.ncu_raw(folder / "d", launches).read_bytes())
    return found


def real(folder: Path) -> dict[str, list[bytes]]:
    """What is recognised in a folder; databases whole, if they are small, and of others the beginning."""
    found = defaultdict(list)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        try:
            form = recognise(path)
            data = read_bytes(path)
        except BadInputError:
            continue
        if form != "nsys" or len(data) <= 2 * _WHOLE:
            end = data.rfind(b"\n", 0, _WHOLE) + 1 if len(data) > _WHOLE else len(data)
            found[form].append(data if form == "nsys" else data[: end or _WHOLE])
    return found


def values(run: Run) -> Counter[tuple[Any, ...]]:
    """The values of a Run, without the times that depend on the file's own."""
    rows = [("sample", row["channel"], row["value"]) for row in run.samples.to_pylist()]
    rows += [("counter", row["metric"], row["value"]) for row in run.counters.to_pylist()]
    for row in run.spans.to_pylist():
        known = row["start_ns"] is not None and row["end_ns"] is not None
        rows.append(("span", row["name"], row["end_ns"] - row["start_ns"] if known else None))
    return Counter(rows)


def unsaid(form: str, sample: bytes, path: Path) -> int:
    """How many of the cuts leave a value that the whole file doesn't hold, and no further word."""
    draw = random.Random(form)
    path.write_bytes(sample)
    try:
        whole = importer(form).read(path, ImportOptions())
    except BadInputError:
        return 0
    there, said = values(whole), whole.settings["imported"][0]["left_out"]
    count = 0
    for _ in range(_CUTS):
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
    """Print a row for each format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--only", help="one format")
    arguments = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as place:
        made, found = generated(Path(place)), real(arguments.folder) if arguments.folder else {}
        print("| format | samples made / real | damaged | read | refused | failed | ms each | cuts | unsaid |")
        print("|---|---|---|---|---|---|---|---|---|")
        for form in sorted(made) if arguments.only is None else [arguments.only]:
            samples = made[form] + found.get(form, [])
            path = Path(place) / "damaged.file"
            began = time.process_time()
            outcomes: Counter[str] = Counter()
            for seed in range(arguments.count // 100):  # in portions, so that a failure doesn't hide the next
                signal.alarm(_HANGS_S)
                try:
                    turned = samples[seed % len(samples) :] + samples[: seed % len(samples)]
                    outcomes += read_damaged(importer(form), turned, path, 100, seed)
                except Exception:
                    kept = Path(tempfile.gettempdir()) / f"damaged-{form}-{seed}"
                    kept.write_bytes(path.read_bytes())
                    outcomes["failed"] += 1
                    print(f"{form}, seed {seed}, kept as {kept}:\n{traceback.format_exc()}", file=sys.stderr)
            took = (time.process_time() - began) / max(outcomes["read"] + outcomes["refused"], 1)
            signal.alarm(0)
            silent = sum(unsaid(form, sample, path) for sample in samples)
            failed |= bool(outcomes["failed"])
            print(
                f"| {form} | {len(made[form])} / {len(samples) - len(made[form])} | {arguments.count} "
                f"| {outcomes['read']} | {outcomes['refused']} | {outcomes['failed']} | {1000 * took:.1f} "
                f"| {_CUTS * len(samples)} | {silent} |",
                flush=True,
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
