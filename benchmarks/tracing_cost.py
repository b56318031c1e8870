"""What the tracer costs a launch and a launch-bound model, by turns.

    python benchmarks/tracing_cost.py OUT [ROUNDS]

First processes that launch 300,000 empty kernels: as they are; with the library loaded, idle; with CUPTI's records;
with the callbacks at launches, too; and with a range around each launch. Then encoders at batch 1 and training: turns
inside one process, as it is, with CUPTI's records, with modules, and with operators all the while. What a step takes is
the FAST quantile of all steps, since others use the host in turns; each is above the way before it, with 95 % intervals
from drawing turns again. Operators are marked for so much of the time as their events take 3 % at 700 ns each.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import numpy as np

HERE = Path(__file__).parent / "tracing"
TRACER = Path(__file__).parent.parent / "src/jouletrace/tracer"
FAST = 0.1
PARTS = {"records": 0, "whole": 1}
"""Libraries without and with callbacks at launches."""


def build(out: Path) -> dict[str, Path]:
    made = {}
    for name, callbacks in PARTS.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        made[name] = out / name / "native.so"
        (out / name / "hooks.py").write_bytes((TRACER / "hooks.py").read_bytes())
        sources = [str(one) for one in sorted((TRACER / "native").glob("*.c"))]
        flags = ["-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-DLAUNCH_CALLBACKS={callbacks}"]
        subprocess.run(["gcc", *flags, "-o", made[name], *sources, "-ldl", "-lpthread"], check=True)
    subprocess.run(["nvcc", "-O2", "-o", str(out / "empty"), str(HERE / "empty.cu")], check=True)
    return made


def environment(library: Path | None, folder: Path | None) -> dict[str, str]:
    found = dict(os.environ)
    if library is not None:
        found |= {"CUDA_INJECTION64_PATH": str(library), "NVTX_INJECTION64_PATH": str(library)}
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found["JOULETRACE_TRACE"] = str(folder)
    places = [*Path("/usr/local").glob("cuda*/extras/CUPTI/lib64"), *Path("/usr/local").glob("cuda*/lib64")]
    return found | {"JOULETRACE_CUPTI": ":".join(map(str, places))}


def ran(words: list[str], library: Path | None, folder: Path | None) -> str:
    env = environment(library, folder)
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=False)
    if folder is not None:
        subprocess.run(["rm", "-r", str(folder)], check=True)
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stderr[-800:]}")
    return done.stdout.splitlines()[-1]


def launches(out: Path, made: dict[str, Path], rounds: int) -> None:
    ways = [("plain", None, False, ""), ("loaded", made["whole"], False, ""), ("records", made["records"], True, "")]
    ways += [("callbacks", made["whole"], True, ""), ("ranges", made["whole"], True, "range")]
    table: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, library, traced, how in ways:
            words = [str(out / "empty"), "300000", *([how] if how else [])]
            each, start = map(float, ran(words, library, out / "trace" if traced else None).split())
            table.setdefault(name, []).append((each, start))
    for name, found in table.items():
        each, start = np.array(found).T
        over = each - np.array(table["plain"])[:, 0]
        spread = f"{median(over):+6.0f} ns [{over.min():+.0f}, {over.max():+.0f}]"
        print(f"{name:10} {median(each):7.0f} ns a launch, {spread}, CUDA's start {1e3 * median(start):.0f} ms")


def models(out: Path, made: dict[str, Path], rounds: int) -> None:
    """Ratios of steps: CUPTI's records to none, and modules and operators to records."""
    rng = np.random.default_rng(0)
    for model in ("encoder", "vit", "train", "resnet"):
        words = [sys.executable, str(HERE / "worker.py"), model, str(4 * rounds)]
        said = json.loads(ran(words, made["whole"], out / "trace"))
        ways = {way: [np.array(turn, float) for turn in turns] for way, turns in said["ways"].items()}
        turns = len(ways["plain"])
        drawn = [np.arange(turns), *(rng.integers(turns, size=turns) for _ in range(400))]
        fast = {
            way: np.array([np.quantile(np.concatenate([one[k] for k in which]), FAST) for which in drawn])
            for way, one in ways.items()
        }
        for way, base in (("records", "plain"), ("modules", "records"), ("operators", "modules")):
            points = 100 * (fast[way] - fast[base]) / fast["plain"]
            low, high = np.quantile(points[1:], [0.025, 0.975])
            whole = f"points of {fast['plain'][0] / 1e6:.3f} ms"
            print(f"{model:8} {way:10} {points[0]:+6.2f} [{low:+.2f}, {high:+.2f}] {whole}")
        each = (fast["operators"] - fast["modules"]) / said["events"]
        low, high = np.quantile(each[1:], [0.025, 0.975])
        events = f"{said['events']:.0f} a step, {each[0]:.0f} [{low:.0f}, {high:.0f}] ns each"
        print(f"{model:8} events     {events}, {turns} turns")


def main() -> None:
    out, rounds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10
    made = build(out)
    launches(out, made, rounds)
    models(out, made, rounds)


if __name__ == "__main__":
    main()
