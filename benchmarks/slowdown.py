"""Cost of ``jouletrace run`` for a program: time per iteration with it over without, for ``canary.py``.

Processes of each kind load the program (of ``benchmarks/programs``) at the same time and then take turns on the GPU,
so that the host and the die are the same for all. What differs from process to process isn't in the interval.
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
from collections.abc import Sequence
from pathlib import Path

import numpy as np

PROGRAMS = Path(__file__).parent / "programs"
KINDS = {"python": [], "run": ["-m", "jouletrace", "run", "--duty", "59/60", "--output"]}
EACH, ROUNDS, TURN_S, REST_S, LOADED_S, ENDED_S = 2, 7, 0.8, 0.1, 180, 5
"""Processes of a kind; turns of each; their length, and the rest before each; how long a program may load, and end."""


class Program:
    """A process that works in its turns."""

    def __init__(self, kind: str, words: Sequence[str], place: Path) -> None:
        self.kind, self._line = kind, socket.socket(socket.AF_UNIX)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(place))
        self._server.listen(1)
        self._server.settimeout(LOADED_S)
        self.log = place.with_suffix(".log")
        command = [sys.executable, *KINDS[kind], *([f"{place}-run"] if KINDS[kind] else []), *words]
        with self.log.open("w") as out:
            self._process = subprocess.Popen(
                command, env={**os.environ, "TURNS": str(place)}, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def ready(self) -> None:
        """Wait until the program has loaded."""
        self._line, _ = self._server.accept()
        self._line.settimeout(60)
        self._answers = self._line.makefile("r")
        self._answers.readline()

    def turn(self, length: float) -> tuple[int, float]:
        """Iterations and seconds of one turn."""
        time.sleep(REST_S)
        self._line.sendall(f"{length}\n".encode())
        count, took = self._answers.readline().split()
        return int(count), float(took)

    def end(self) -> str:
        """Prints of the program, once it has ended."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        try:
            code = f"exit code {self._process.wait(ENDED_S)}"
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = f"killed after {ENDED_S} s"
        return f"--- {self.kind}: {code}\n{self.log.read_text()[-1500:]}"


def measure(program: str, *arguments: str) -> list[dict]:
    """Turns of all processes of a program: kind, process, round, iterations, seconds of these."""
    with tempfile.TemporaryDirectory() as name:
        kinds = [kind for kind in KINDS for _ in range(EACH)]
        words = [str(PROGRAMS / f"{program}.py"), *arguments]
        programs = [Program(kind, words, Path(name) / f"{kind}-{number}") for number, kind in enumerate(kinds)]
        found = []
        try:
            for one in programs:
                one.ready()
            for one in programs:
                one.turn(TURN_S / 2)
            for number in range(ROUNDS):
                for place in np.random.default_rng(number).permutation(len(programs)).tolist():
                    count, took = programs[place].turn(TURN_S)
                    row = {"kind": kinds[place], "process": place, "round": number}
                    found.append({**row, "iterations": count, "s": took})
        finally:
            for one in programs:
                print(one.end(), file=sys.stderr)
        return found


def more(rows: list[dict]) -> tuple[float, float, float]:
    """By how many % an iteration takes longer under ``run``, with the 95 % interval.

    Of medians of turns, since single turns take up to three times as long on a machine that others use, too. The
    interval is by resampling rounds.
    """
    rounds = sorted({row["round"] for row in rows})
    drawn = np.searchsorted(rounds, [rounds, *np.random.default_rng(0).choice(rounds, (2000, len(rounds)))])
    medians = {}
    for kind in KINDS:
        turns = defaultdict(list)
        for row in rows:
            if row["kind"] == kind:
                turns[row["round"]].append(row["s"] / row["iterations"])
        # Each process has a turn in each round.
        own = np.array([turns[number] for number in rounds])[drawn]
        medians[kind] = np.median(own.reshape(len(drawn), -1), axis=1)
    percent = 100 * (medians["run"] / medians["python"] - 1)
    low, high = np.quantile(percent[1:], (0.025, 0.975)).tolist()
    return float(percent[0]), low, high
