"""An atlas: latency, power, energy and the split by operator of ten models, two batch sizes, eager and compiled.

    python benchmarks/atlas.py measure OUT [--device D] [--seconds-left S] [--models a,b] [--modes eager,compile]
    python benchmarks/atlas.py table OUT ... -o DATA
    python benchmarks/atlas.py page DATA -o FILE

``measure`` saves the Run of each configuration as OUT/MODEL-BATCH-MODE.zip and the seconds that it took in
OUT/seconds.json. It skips what either of them has, so that the same command goes on where device time ended, also
on another machine that has seconds.json alone. One that fails leaves OUT/MODEL-BATCH-MODE.failed.txt with the reason;
remove the file to try again. Each GPU has an OUT of its own. ``table`` writes the data set, or adds to the one
that is there, and ``page`` one HTML file that filters and plots it.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import jouletrace as jt
from jouletrace.devices import open_device
from jouletrace.processes.with_parent import end_with_parent
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run.files import write_whole
from jouletrace.workloads.user_code import one_line

HERE = Path(__file__).resolve().parent
OWN = f"{HERE.relative_to(Path.cwd()) if HERE.is_relative_to(Path.cwd()) else HERE}/attribution/models.py"

MODELS: dict[str, tuple[str, int, int]] = {
    "resnet50": ("resnet50", 1, 64),
    "convnext": (f"{OWN}:convnext", 1, 64),
    "swin-tiny": ("swin-tiny", 1, 64),
    "segformer": (f"{OWN}:segformer", 1, 16),
    "mpnet": ("mpnet", 1, 128),
    "minilm": ("minilm", 1, 256),
    "gpt2-large": ("gpt2-large", 1, 8),
    "gemma2": (f"{OWN}:gemma2", 1, 8),
    "whisper": (f"{OWN}:whisper", 1, 16),
    "dlrm": ("dlrm", 64, 8192),
}
"""Arguments of ``jouletrace profile``, and the two batch sizes. None of these served to tune the attribution; six
are in docs/results/any-model-h200.md too, of which DLRM and GPT-2-large in fp16."""

MODES = ("eager", "compile")
OPTIONS: dict[str, Any] = {"dtype": "bf16", "detail": "kernel", "detail_time": 10.0}
FIRST_S, MORE, LONGEST_S = 100.0, 1.2, 400.0
"""Seconds that a configuration is expected to take before one of its mode is known; how much longer than the median
of those known the next may take; seconds after which it is given up."""


class Configuration(NamedTuple):
    """The name of its files, the model as ``jouletrace profile`` takes it, batch size and mode."""

    name: str
    spec: str
    batch: int
    mode: str


def configurations(models: Iterable[str] = MODELS, modes: Iterable[str] = MODES) -> list[Configuration]:
    """All configurations of the named models, a model after the other, the large batch first.

    It lets the sample rate of the GPU's sensor be determined, which is stored for the small one.
    """
    of = {name: MODELS[name] for name in models}
    return [Configuration(f"{m}-{b}-{mode}", of[m][0], b, mode) for m in of for b in of[m][:0:-1] for mode in modes]


class Worker:
    """A process that profiles one configuration after the other: libraries are imported once, and it may crash."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, os.getpid()))
        self._process.start()
        theirs.close()

    def profile(self, spec: str, options: dict[str, Any], limit_s: float) -> str | None:
        """Why it failed, "" if it didn't; None after ``limit_s`` or where the process ended, which ``ended`` says."""
        try:
            self._pipe.send((spec, options))
            return self._pipe.recv() if self._pipe.poll(limit_s) else None
        except (EOFError, OSError):
            self._process.join()
            return None

    def ended(self) -> str:
        """How the process ended; "" if it runs."""
        code = self._process.exitcode
        return "" if code is None else f"the process ended with {'signal' if code < 0 else 'code'} {abs(code)}"

    def close(self) -> None:
        """End the process, and with it the recorder."""
        self._process.kill()
        self._process.join()


def _work(pipe: Any, parent: int) -> None:
    end_with_parent(parent)
    while True:
        spec, options = pipe.recv()
        reason = ""
        try:
            jt.profile(spec, progress=False, **options)
        except jt.JouletraceError as error:
            reason = str(error)
        except Exception as error:  # of the model, the compiler or the GPU: the next may well run
            reason = one_line(error)
        pipe.send(reason)
        if torch := sys.modules.get("torch"):
            if options["mode"] == "compile":
                torch.compiler.reset()
            gc.collect()
            torch.cuda.empty_cache()


def measure(
    out: Path, todo: list[Configuration], device: str = "auto", seconds_left: float = math.inf, **options: Any
) -> int:
    """Profile what isn't in ``out`` yet, while the time lasts; returns how many are left."""
    end = time.monotonic() + seconds_left
    out.mkdir(parents=True, exist_ok=True)
    log = out / "seconds.json"
    took: dict[str, float] = json.loads(log.read_text()) if log.exists() else {}
    there = {path.name for path in out.iterdir()}
    left = [c for c in todo if c.name not in took and not {f"{c.name}.zip", f"{c.name}.failed.txt"} & there]
    print(f"{len(todo) - len(left)} of {len(todo)} are there", flush=True)
    worker = None
    try:
        while left:
            one, began = left[0], time.monotonic()
            known = [s for name, s in took.items() if name.endswith(one.mode)]
            need = MORE * statistics.median(known) if known else FIRST_S
            if began + need > end:
                print(f"{len(left)} are left: {one.name} may take {need:.0f} s, {end - began:.0f} s remain", flush=True)
                break
            if worker is None or worker.ended():
                worker = Worker()
            place = {"device": device, "batch": one.batch, "mode": one.mode, "save_to": str(out / f"{one.name}.zip")}
            reason = worker.profile(one.spec, {**OPTIONS, **options, **place}, min(LONGEST_S, end - began))
            seconds = time.monotonic() - began
            if reason is None:
                reason = worker.ended() or f"given up after {seconds:.0f} s"
                if began + seconds >= end:
                    print(f"{len(left)} are left: {one.name} did not end in time", flush=True)
                    break
            left.pop(0)
            print(f"{one.name}: {seconds:.0f} s{f', failed: {reason}' if reason else ''}", flush=True)
            if reason:
                worker.close()  # an error on a GPU may last as long as the process
                write_whole(out / f"{one.name}.failed.txt", f"{reason}\n".encode())
            else:
                took[one.name] = round(seconds, 1)
                write_whole(log, json.dumps(took, indent=1).encode())
    finally:
        if worker is not None:
            worker.close()
    return len(left)


def main() -> int:
    """0; 1 if bad input kept it from starting; 3 if configurations are left or failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("out", type=Path)
    one.add_argument("--device", default="auto")
    one.add_argument("--seconds-left", type=float, default=math.inf)
    one.add_argument("--models", type=partial(_names, known=tuple(MODELS)), default=tuple(MODELS))
    one.add_argument("--modes", type=partial(_names, known=MODES), default=MODES)
    one.add_argument("--detail-time", type=float, default=OPTIONS["detail_time"], help="seconds of the recording")
    other = commands.add_parser("table")
    other.add_argument("out", type=Path, nargs="+")
    other.add_argument("-o", "--data", type=Path, required=True)
    plots = commands.add_parser("page")
    plots.add_argument("data", type=Path)
    plots.add_argument("-o", "--output", type=Path, default=Path("atlas.html"))
    asked = parser.parse_args()
    try:
        if asked.command == "measure":
            open_device(asked.device).close()
            ProfileSettings(detail_time_s=asked.detail_time)
            todo = configurations(asked.models, asked.modes)
            left = measure(asked.out, todo, asked.device, asked.seconds_left, detail_time=asked.detail_time)
            return 3 if left or any(asked.out.glob("*.failed.txt")) else 0
        from atlas_data import page, table

        return page(asked.data, asked.output) if asked.command == "page" else table(asked.out, asked.data)
    except (jt.JouletraceError, OSError, ValueError) as error:  # pyarrow's are of the last kind
        kind = "" if isinstance(error, jt.JouletraceError) else f"{type(error).__name__}: "
        print(f"atlas: {kind}{error}", file=sys.stderr)
        return 1


def _names(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"no {unknown[0]!r}: there are {', '.join(known)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
