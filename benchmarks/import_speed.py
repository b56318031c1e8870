"""How fast importers are and what they hold in memory, beside the nearest thing to compare them with.

    python benchmarks/import_speed.py [TRACE ...] [--hta PYTHON] [--kernels N]

Traces are of Kineto; ``--hta`` is a Python that has Holistic Trace Analysis
(``pip install traceinsight``), which then reads the same files. The nsys export is generated and
compared with a bare scan by sqlite3. Every reading runs in a process of its own. Times are of the
processor (all of these use one core), of the call alone, imports not counted, the least of several;
memory is the peak of the process less what it had before the call.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from import_timelines import make_export

REPEATS = 3

MEASURE = """
import json, resource, sys, time
{prepare}
path = sys.argv[1]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
began = time.process_time()
{call}
print(json.dumps(dict(seconds=time.process_time() - began, bytes=peak() - before, rows=rows)))
"""

OURS = MEASURE.format(
    prepare="from jouletrace.formats.importers import FORMATS, importer, read_file\n"
    "for name in FORMATS:\n    importer(name)  # all are asked whether it is theirs\n"
    "from jouletrace.run import Run\nRun()  # the first Arrow table imports pandas, where there is one",
    call="rows = len(read_file(path).spans)",
)
HTA = MEASURE.format(
    prepare="import logging\nlogging.disable(100)\nfrom hta.common.trace import parse_trace_file\n"
    "import contextlib, io",
    call="with contextlib.redirect_stdout(io.StringIO()):\n    rows = len(parse_trace_file(path)[1])",
)
SCAN = MEASURE.format(
    prepare="import sqlite3",
    call="base = sqlite3.connect(path)\n"
    "tables = ('CUPTI_ACTIVITY_KIND_KERNEL', 'CUPTI_ACTIVITY_KIND_RUNTIME', 'NVTX_EVENTS')\n"
    "rows = sum(1 for table in tables for _ in base.execute(f'SELECT * FROM {table}'))",
)


def measured(python: str, code: str, path: Path) -> dict[str, float]:
    """The least time and memory of several runs."""
    found = []
    for _ in range(REPEATS):
        done = subprocess.run([python, "-c", code, str(path)], check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout.strip().splitlines()[-1]))
    return {key: min(one[key] for one in found) for key in found[0]}


def raw_bytes(path: Path) -> int:
    """Bytes of a file, unpacked."""
    data = path.read_bytes()
    return len(gzip.decompress(data)) if data[:2] == b"\x1f\x8b" else len(data)


def main() -> None:
    """Print a table for traces and one for the export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--hta", help="a Python that has Holistic Trace Analysis")
    parser.add_argument("--kernels", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(
            "| trace | raw MB | spans | s | MB/s | peak / raw |"
            + (" HTA s | HTA rows | HTA / ours |" if arguments.hta else "")
        )
        print("|---|---|---|---|---|---|" + ("---|---|---|" if arguments.hta else ""))
        for trace in arguments.traces:
            raw = raw_bytes(trace)
            ours = measured(sys.executable, OURS, trace)
            line = f"| {trace.name} | {raw / 1e6:.1f} | {ours['rows']:.0f} | {ours['seconds']:.3f} "
            line += f"| {raw / 1e6 / ours['seconds']:.0f} | {ours['bytes'] / raw:.1f} |"
            if arguments.hta:
                theirs = measured(arguments.hta, HTA, trace)
                line += f" {theirs['seconds']:.3f} | {theirs['rows']:.0f} | {theirs['seconds'] / ours['seconds']:.1f} |"
            print(line, flush=True)
        if arguments.kernels:
            export = Path(folder) / "made.sqlite"
            make_export(export, arguments.kernels)
            scan = measured(sys.executable, SCAN, export)
            ours = measured(sys.executable, OURS, export)
            print("\n| export | MB | spans | s | scan s | ours / scan | peak MB |\n|---|---|---|---|---|---|---|")
            line = f"| {arguments.kernels} kernels | {export.stat().st_size / 1e6:.0f} | {ours['rows']:.0f} "
            line += f"| {ours['seconds']:.2f} | {scan['seconds']:.2f} | {ours['seconds'] / scan['seconds']:.2f} "
            print(line + f"| {ours['bytes'] / 1e6:.0f} |")


if __name__ == "__main__":
    main()
