"""Does ``jouletrace run`` of a long program hold its memory: of all its processes, every 30 s and as it ends?

    python benchmarks/run_memory.py -o /tmp/hour --seconds 3600

Runs a sleeping program on a simulated GPU in real time, writes ``memory.csv`` beside the Run, and prints the memory of
each process early, in the middle, at the end of the program, and the most that it had.
"""

import argparse
import csv
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

EVERY_S = 30.0
GPU = "sim:h100?realtime=1"
KINDS = {"jouletrace.recording.worker": "recorder", "jouletrace": "parent"}


def tree(pid):
    """A process and all that it has started, by their ids."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from tree(int(child))


def memory(pid):
    """Kind of a process, and its memory now and at most, in MiB."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    kind = next((kind for module, kind in KINDS.items() if module in words), "program")
    return kind, *(round(int(lines[name].split()[0]) / 1024, 1) for name in ("VmRSS", "VmHWM"))


def record(folder, seconds):
    """Run the program; yields a row of time in s, kind of process, and its memory now and at most."""
    program = [sys.executable, "-c", f"import time; time.sleep({seconds})"]
    command = [sys.executable, "-m", "jouletrace", "run", "-d", GPU, "-o", folder / "run", *program]
    process, begun, due = subprocess.Popen(command), time.monotonic(), EVERY_S
    while process.poll() is None:
        passed = time.monotonic() - begun
        if passed >= min(due, seconds):
            due += EVERY_S if passed >= due else 0
            with suppress(OSError, KeyError):  # one ends just now
                for pid in tree(process.pid):
                    yield round(passed, 1), *memory(pid)
        time.sleep(0.1)


def main():
    """Record, write, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3600.0)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True)
    rows = []
    with (asked.output / "memory.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["s", "process", "mib", "most_mib"])
        for row in record(asked.output, asked.seconds):
            writer.writerow(row)
            file.flush()
            rows.append(row)
    for kind in dict.fromkeys(row[1] for row in rows):
        mine = [row for row in rows if row[1] == kind]
        running = [row for row in mine if row[0] < asked.seconds]
        shown = [running[len(running) * share // 4] for share in range(4)] + running[-1:]
        print(kind, *(f"{at_s:.0f} s: {mib} MiB;" for at_s, _, mib, _ in shown), f"at most {mine[-1][3]} MiB")


if __name__ == "__main__":
    main()
