"""Records the Runs of the results pages on GPUs, each part guarded, within a time.

    python benchmarks/results_gpu.py OUT --seconds 570 long programs host whole spans repeats cost    # on two GPUs
    python benchmarks/results_gpu.py OUT --seconds 60 cap                                             # on one or two

Parts are done in the order in which they are named; one begins only if half of its expected time is left. ``long``
works on the second GPU meanwhile. OUT gets Runs, what the counter said beside them and logs in ``runs-N.tar``, packed
after each part, and ``summary.json``. ``gpu_pages.py`` computes the figures of the pages.

Without a GPU: ``--device 'sim:h100?realtime=1' --quick`` and a stand-in for pynvml on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import bursts
import gpu_pages
import slowdown
from jouletrace.run import load

HERE = Path(__file__).parent
MOST_BYTES, FILES, PACKING_S = 15 << 20, 6, 8

WHOLE = {
    "deit-t-1-graph": "deit-t --batch 1 --mode graph",
    "deit-b-1-graph": "deit-b --batch 1 --mode graph",
    "deit-b-64-graph": "deit-b --batch 64 --mode graph",
    "deit-b-1-eager": "deit-b --batch 1 --mode eager",
    "bert-b-128-graph": "bert-b --seq-len 128 --mode graph",
    "bert-l-320-graph": "bert-l --seq-len 320 --mode graph",
    "resnet50-64-eager": "resnet50 --batch 64 --mode eager",
    "llama-1b-512-eager": "llama-1b --seq-len 512 --mode eager",
}
PROGRAMS = {"unet": (["unet_train"], 8), "lora": (["lora_accum"], 8), "gnn": (["gnn_train"], 12)}
PROGRAMS |= {"jax": (["jax_train"], 8)}
HOST = {"mamba": (["mamba_infer"], 6), "transformer": (["counted", "transformer"], 10)}
"""Programs and the seconds of their loops: fewer where kernels are many, since their Runs are kept."""


@dataclass
class Call:
    """One call of this script: its folders, its time, and what became of its parts."""

    out: Path
    ends: float
    device: str
    quick: bool
    work: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="results-")))
    summary: dict = field(default_factory=dict)

    def left(self) -> float:
        """Seconds until packing must begin."""
        return self.ends - PACKING_S - time.monotonic()

    def devices(self, *, loads: bool = False) -> list[str]:
        """The option that names a simulated GPU, which runs loads in virtual time; a real one the command sees."""
        return ["--device", self.device.partition("?" if loads else "\n")[0]] if self.device else []

    def seconds(self, wanted: float) -> float:
        """Length of a loop."""
        return 1 if self.quick else wanted

    def command(self, name: str, words: Sequence[str], gpu: str = "0", most_s: float = 120) -> str:
        """Run a command; returns its output, and keeps it as a log with seconds and exit code."""
        began, log = time.monotonic(), self.work / f"{name}.log"
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        with log.open("w") as errors, (self.work / f"{name}.out").open("w+") as printed:
            process = subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=errors,
                start_new_session=True,
            )
            try:
                code = str(process.wait(max(5.0, min(most_s, self.left()))))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGINT)
                try:
                    code = f"interrupted, {process.wait(5)}"
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    code = "killed"
            printed.seek(0)
            text = printed.read()
        took = time.monotonic() - began
        self.summary.setdefault("commands", {})[name] = {"code": code, "s": round(took, 1), "words": words[1:]}
        print(f"   {name}: {code}, {took:.1f} s", flush=True)
        if code != "0":
            print(log.read_text()[-1200:], text[-400:], flush=True)
        return text

    def jouletrace(self, name: str, *words: str, gpu: str = "0", most_s: float = 120) -> None:
        """A command of jouletrace whose Run is ``NAME.zip``; its JSON isn't kept."""
        whole = [sys.executable, "-m", "jouletrace", words[0], "-o", str(self.work / f"{name}.zip"), *words[1:]]
        self.command(name, whole, gpu, most_s)

    def program(self, name: str, script: Sequence[str], seconds: float) -> None:
        """A program under ``run``, its loop beside the counter."""
        words = [str(HERE / "programs" / f"{script[0]}.py"), *script[1:]]
        words += [str(self.seconds(seconds)), str(self.work / f"{name}.json")]
        self.jouletrace(name, "run", *self.devices(), *words, most_s=90 if self.device == "" else 300)
        self.state(name, lambda: gpu_pages.loop_row(self.work / f"{name}.zip"))

    def state(self, name: str, figures: Callable[[], object]) -> None:
        """Print figures of a page and keep them; none if the Run has none."""
        try:
            self.summary.setdefault("figures", {})[name] = stated = figures()
            print(f"   {name}: {json.dumps(stated, default=str)}", flush=True)
        except Exception:
            print(f"   {name}: {traceback.format_exc(limit=-3)}", flush=True)

    def pack(self) -> None:
        """Write the archives and the summary again."""
        packed: list[list[Path]] = [[]]
        for path in sorted(path for path in self.work.iterdir() if path.is_file() and path.stat().st_size):
            if sum(one.stat().st_size + 1024 for one in [*packed[-1], path]) > MOST_BYTES:
                packed.append([])
            if path.stat().st_size < MOST_BYTES and len(packed) <= FILES:
                packed[-1].append(path)
            else:
                self.summary.setdefault("left out", {})[path.name] = path.stat().st_size
        for number, files in enumerate(packed[:FILES]):
            with tarfile.open(self.out / f"runs-{number}.tar", "w") as archive:
                for path in files:
                    archive.add(path, path.name)
        (self.out / "summary.json").write_text(json.dumps(self.summary, indent=1, default=str))


def programs(call: Call) -> None:
    for name, (script, seconds) in PROGRAMS.items():
        if call.left() > 30:
            call.program(name, script, seconds)


def host(call: Call) -> None:
    for name, (script, seconds) in HOST.items():
        if call.left() > 30:
            call.program(name, script, seconds)


def profile(call: Call, case: str, name: str) -> None:
    """One profile of a whole model, in a fresh process."""
    call.jouletrace(name, "profile", *WHOLE[case].split(), *call.devices(loads=True), most_s=60)
    call.state(name, lambda: gpu_pages.whole_row(call.work / f"{name}.zip"))


def whole(call: Call) -> None:
    for name in list(WHOLE)[: 2 if call.quick else None]:
        if call.left() > 25:
            profile(call, name, name)


def repeats(call: Call) -> None:
    """Two more profiles of each case; two more again where this part is named again."""
    for name in gpu_pages.REPEATED * (1 if call.quick else 2):
        if call.left() > 22:
            profile(call, name, f"{name}-{2 + len(list(call.work.glob(f'{name}-*.zip')))}")


def spans(call: Call) -> None:
    words = [str(HERE / "record_bursts.py"), str(call.work / "spans.zip"), *call.devices()]
    call.command("spans", [sys.executable, *words, *(["--quick"] if call.quick else [])], most_s=180)
    call.state("spans", lambda: bursts.table(call.work / "spans.zip"))


def cost(call: Call) -> None:
    os.environ |= {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    for name, (script, _) in HOST.items():
        if call.left() > 60 or call.quick:
            rows = slowdown.measure(*script)
            (call.work / f"cost-{name}.json").write_text(json.dumps(rows))
            call.state(f"cost-{name}", lambda rows=rows: slowdown.more(rows))


def cap(call: Call) -> None:
    """The same load on both GPUs at once."""
    words = ("profile", *WHOLE["deit-b-64-graph"].split(), "--detail", "kernel", "--detail-time", "6")
    names = [f"cap-{gpu}" for gpu in (0, 1)]
    threads = [
        threading.Thread(
            target=call.jouletrace, args=(name, *words, *call.devices(loads=True)), kwargs={"gpu": str(gpu)}
        )
        for gpu, name in enumerate(names)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        call.state(name, lambda name=name: gpu_pages.capped_row(call.work / f"{name}.zip"))


class Long(threading.Thread):
    """A training program for nine minutes under ``run`` on the second GPU; memory of all its processes every 5 s."""

    def __init__(self, call: Call) -> None:
        super().__init__(daemon=True)
        self._call, self._rows, self._began = call, [], time.monotonic()
        self._ended = threading.Event()

    def run(self) -> None:
        """Record, then state what a page needs: the Run itself is large."""
        call, place, out = self._call, self._call.work / "long", self._call.work / "long-counter.json"
        length = 5 if call.quick else max(30.0, call.left() - 62)
        script = ["counted", "transformer"] if call.device else ["resnet_train"]
        words = ["run", "-o", str(place), *call.devices(), str(HERE / "programs" / f"{script[0]}.py"), *script[1:]]
        threading.Thread(target=self._sample, daemon=True).start()
        jouletrace = [sys.executable, "-m", "jouletrace", *words, str(length), str(out)]
        call.command("long", jouletrace, gpu="1", most_s=600)
        self._ended.set()
        files = [path for path in place.rglob("*") if path.is_file()]
        facts = {"memory": self._rows, "bytes": {path.name: path.stat().st_size for path in files}}
        facts["counter"] = json.loads(out.read_text()) if out.exists() else None
        (call.work / "long.json").write_text(json.dumps(facts))
        shown = call.command("long-show", [sys.executable, "-m", "jouletrace", "show", str(place), "--json"], most_s=60)
        document = json.loads(shown)
        facts["shown"] = {name: document.get(name) for name in gpu_pages.OF_LONG}
        (call.work / "long-show.out").unlink()
        (call.work / "long.json").write_text(json.dumps(facts))
        facts["window"] = gpu_pages.window(load(place), facts["counter"])
        (call.work / "long.json").write_text(json.dumps(facts))
        call.state("long", lambda: gpu_pages.long_row(facts))

    def _sample(self) -> None:
        """Seconds, process, bytes and words of this call's own processes beside the second GPU's program."""
        while not self._ended.wait(1 if self._call.quick else 5):
            self._rows += [
                (round(time.monotonic() - self._began, 1), *row) for row in memory(str(self._call.work / "long"))
            ]


def memory(place: str) -> list[tuple[int, int, str]]:
    """Process, resident bytes and last words of the processes whose command line, or a parent's, has a place."""
    found: dict[int, tuple[int, int, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
            found[int(folder.name)] = (int(status["PPid"]), 1024 * int(status.get("VmRSS", "0 kB").split()[0]), words)
        except (OSError, ValueError, KeyError):
            continue
    own = {process for process, (_, _, words) in found.items() if f"-o {place} " in words}
    for _ in range(4):
        own |= {process for process, (parent, _, _) in found.items() if parent in own}
    return [(process, found[process][1], found[process][2][-60:]) for process in sorted(own)]


EXPECTED_S = {"programs": 120, "host": 60, "whole": 130, "spans": 100, "cost": 80, "repeats": 40, "cap": 45}
PARTS: dict[str, Callable[[Call], None]] = {
    part.__name__: part for part in (programs, host, whole, spans, cost, repeats, cap)
}


def main() -> None:
    """Do the parts that are named, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("parts", nargs="+", choices=("long", *PARTS))
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--device", default="")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    call = Call(chosen.out, time.monotonic() + chosen.seconds, chosen.device, chosen.quick)
    call.out.mkdir(parents=True, exist_ok=True)
    beside = Long(call) if "long" in chosen.parts else None
    if beside is not None:
        beside.start()
    for name in (name for name in chosen.parts if name != "long"):
        began = time.monotonic()
        if call.left() < EXPECTED_S[name] / 2:
            print(f"== {name}: {call.left():.0f} s are left, not begun", flush=True)
            continue
        print(f"== {name}, {call.left():.0f} s are left", flush=True)
        try:
            PARTS[name](call)
            call.pack()
        except Exception:
            print(traceback.format_exc(), flush=True)
        call.summary.setdefault("parts", {})[name] = round(time.monotonic() - began, 1)
        print(f"== {name}: {time.monotonic() - began:.0f} s", flush=True)
    if beside is not None:
        beside.join(max(1.0, call.left()))
    call.pack()
    print(json.dumps({name: call.summary.get(name) for name in ("parts", "left out")}))


if __name__ == "__main__":
    main()
