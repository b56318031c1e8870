"""What the tracer costs a launch and a launch-bound model, by turns.

    python benchmarks/tracing_cost.py OUT [ROUNDS]

First processes that launch 300,000 empty kernels: as they are; with the library loaded, idle; with CUPTI's records;
with the callbacks at launches, too; and with a range around each launch. Then encoders at batch 1 and training: turns
inside one process, as it is, with CUPTI's records, with modules and with operators. Differences are of neighbouring
turns, medians with their 95 % intervals; those of modules and operators are above what "records" cost.
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
    """Ratios of neighbouring turns: CUPTI's records to none, and modules and operators to records."""
    for model in ("encoder", "vit", "train", "resnet"):
        words = [sys.executable, str(HERE / "worker.py"), model, str(4 * rounds)]
        said = {way: np.array(turns) for way, turns in json.loads(ran(words, made["whole"], out / "trace")).items()}
        for way, base in (("records", "plain"), ("modules", "records"), ("operators", "records")):
            ratio = 100 * (said[way] - said[base]) / said["plain"]
            middle = np.median(ratio, axis=0)
            error = 1.96 * 1.253 * 1.4826 * np.median(abs(ratio - middle), axis=0) / len(ratio) ** 0.5
            wall, cpu = (f"{a:+6.2f} ± {b:.2f}" for a, b in zip(middle, error, strict=True))
            whole = 1e3 * np.median(said["plain"][:, 0])
            print(f"{model:8} {way:10} {wall} points of {whole:.3f} ms, {cpu} of processors, {len(ratio)} turns")


def main() -> None:
    out, rounds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10
    made = build(out)
    launches(out, made, rounds)
    models(out, made, rounds)


if __name__ == "__main__":
    main()
