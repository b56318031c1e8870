"""The time from a command to the first line of its program: as the shell starts it, and as ``jouletrace run`` does.

    PYTHONPATH=src python benchmarks/start.py [--runs 10] [--device 'sim:h100?realtime=1']

By turns; medians with ranges. Bytecode is cached, as it is after an installation: the first turn writes it, uncounted.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--device", default="sim:h100?realtime=1")
    asked = parser.parse_args()
    plain = [sys.executable, "-c", "import time; print(time.time_ns(), flush=True)"]
    ours = [sys.executable, "-m", "jouletrace", "run", "-d", asked.device]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/cache", "PYTHONDONTWRITEBYTECODE": ""}
        taken: dict[str, list[float]] = {"python": [], "jouletrace run": []}
        for turn in range(asked.runs + 1):
            for name, ms in taken.items():
                before = [] if name == "python" else [*ours, "-o", f"{folder}/{turn}"]
                begin = time.time_ns()
                out = subprocess.run([*before, *plain], env=environment, check=True, capture_output=True).stdout
                ms.extend([(int(out.split()[0]) - begin) / 1e6] if turn else [])
    for name, ms in taken.items():
        print(f"{name}: {statistics.median(ms):.0f} ms ({min(ms):.0f} to {max(ms):.0f})")
    print(f"{statistics.median(ms) / statistics.median(taken['python']):.0f} times as long")


if __name__ == "__main__":
    main()
