"""Cost of ``jouletrace run`` for a program: time and energy per iteration, with it over without, for ``canary.py``.

Processes of each kind load the program (of ``benchmarks/programs``) at the same time and then take turns on the GPU,
so that the host and the die are the same for all. What differs from process to process isn't in the intervals of the
ratios. Energy is that of the GPU's own counter, which includes idling until it steps; idle power is subtracted for
that.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

PROGRAMS = Path(__file__).parent / "programs"
KINDS = {"python": [], "run": ["-m", "jouletrace", "run", "--duty", "59/60"]}
EACH, ROUNDS, TURN_S, PATIENCE_S = 2, 7, 0.8, 5.0
"""Processes of a kind; turns of each; their length; how long a program may take to end."""


class Counter:
    """The energy counter of the first GPU."""

    def __init__(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._read, self._gpu = pynvml.nvmlDeviceGetTotalEnergyConsumption, pynvml.nvmlDeviceGetHandleByIndex(0)
        self.name = pynvml.nvmlDeviceGetName(self._gpu)

    def joules(self) -> float:
        """The counter's present value."""
        return self._read(self._gpu) / 1e3

    def stepped(self) -> tuple[float, float]:
        """Seconds and joules of the next step of the counter."""
        before = now = self.joules()
        while now == before:
            now = self.joules()
        return time.perf_counter(), now


class Program:
    """A process that works in its turns."""

    def __init__(self, kind: str, script: Path, folder: Path, number: int) -> None:
        self.kind, name = kind, f"{kind}-{number}"
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(folder / name))
        server.listen(1)
        server.settimeout(1)
        self.log = (folder / f"{name}.log").open("w")
        command = [sys.executable, *KINDS[kind]]
        if "jouletrace" in command:
            command += ["--output", str(folder / f"{name}-run")]
        environment = {**os.environ, "TURNS": str(folder / name)}
        self._server = server
        self._process = subprocess.Popen(
            [*command, str(script)], env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )

    def ready(self) -> None:
        """Wait until the program has loaded."""
        end = time.monotonic() + 180
        while True:
            try:
                self._line, _ = self._server.accept()
                break
            except TimeoutError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise
        self._line.settimeout(60)
        self._answers = self._line.makefile("r")
        self._answers.readline()

    def turn(self, length: float) -> tuple[int, float]:
        """Iterations and seconds of one turn."""
        self._line.sendall(f"{length}\n".encode())
        count, took = self._answers.readline().split()
        return int(count), float(took)

    def end(self) -> None:
        """Let the program end."""
        with contextlib.suppress(OSError, AttributeError):
            self._line.shutdown(socket.SHUT_RDWR)

    def wait(self) -> str:
        """Prints of the program, once it has ended."""
        try:
            code = f"exit code {self._process.wait(PATIENCE_S)}"
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = f"killed after {PATIENCE_S:g} s"
        self.log.close()
        return f"--- {self.kind}: {code}\n{Path(self.log.name).read_text()[-1500:]}"


def measure(program: str) -> list[dict]:
    """Turns of all processes: kind, process, round, iterations, seconds, joules of these, idle power (W)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds = [kind for kind in KINDS for _ in range(EACH)]
        programs = [Program(kind, PROGRAMS / f"{program}.py", folder, number) for number, kind in enumerate(kinds)]
        found = []
        try:
            for one in programs:
                one.ready()
            counter = Counter()
            for one in programs:
                one.turn(TURN_S / 2)
            for number in range(ROUNDS):
                order = np.random.default_rng(number).permutation(len(programs))
                time.sleep(0.2)
                idle_from = counter.stepped()
                time.sleep(0.3)
                before = counter.stepped()
                idle_w = (before[1] - idle_from[1]) / (before[0] - idle_from[0])
                for place in order:
                    count, took = programs[place].turn(TURN_S)
                    after = counter.stepped()
                    energy = after[1] - before[1] - idle_w * (after[0] - before[0] - took)
                    row = {"kind": kinds[place], "process": int(place), "round": number, "iterations": count}
                    found.append({**row, "s": took, "j": energy, "idle_w": idle_w})
                    before = after
        finally:
            for one in programs:
                one.end()
            for one in programs:
                print(one.wait(), file=sys.stderr)
        return found


def ratios(rows: list[dict]) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Time, energy, energy above idle per iteration by kind, over the plain program's: % more, with its 95 % interval.

    Of medians of turns, since single turns take up to three times as long on a machine that others use, too. The
    interval is by resampling rounds.
    """
    per = {
        "time": lambda r: r["s"],
        "energy": lambda r: r["j"],
        "energy above idle": lambda r: r["j"] - r["idle_w"] * r["s"],
    }
    rounds = sorted({row["round"] for row in rows})
    drawn = np.searchsorted(rounds, [rounds, *np.random.default_rng(0).choice(rounds, (2000, len(rounds)))])
    found = {}
    for what, of in per.items():
        turns = defaultdict(lambda: defaultdict(list))
        for row in rows:
            turns[row["kind"]][row["round"]].append(of(row) / row["iterations"])
        medians = {  # each process has a turn in each round
            kind: np.median(np.array([own[number] for number in rounds])[drawn].reshape(len(drawn), -1), axis=1)
            for kind, own in turns.items()
        }
        for kind in [one for one in turns if one != "python"]:
            more = 100 * (medians[kind] / medians["python"] - 1)
            found[what, kind] = (float(more[0]), *np.quantile(more[1:], (0.025, 0.975)).tolist())
    return found
