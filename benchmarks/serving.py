"""Bills and joules per token of a server on this machine: two equal runs, a mix of requests against loads of one kind.

    PYTHONPATH=src python benchmarks/serving.py OUT --size 1b --server-device cuda

Starts ``examples/serve_reference.py`` with a log of its steps. ``run`` measures four rates twice with the same
requests. ``kinds`` measures two kinds of requests alone and then by turns, always 16 at once: what the bill of each
kind is there over what it is alone. ``profile`` measures the same model as
``jouletrace profile --task generate``. ``traced`` starts the server again, under ``jouletrace run``, for one load,
whose bills come from its kernels. Bills are by the steps that the answers show, and in ``NAME-logged`` by the log.
Saves the Runs in OUT and prints the comparisons; ``table`` prints them again.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.analysis import analyse
from jouletrace.analysis.serving.steady import Steady, requests_of, steady_window
from jouletrace.analysis.serving.steps import FACTORS, amounts_of, steps_in
from jouletrace.report.older import upgraded
from jouletrace.run import Run, load
from jouletrace.run.parts import Parts

ROOT = Path(__file__).parents[1]
JOULETRACE = [sys.executable, "-m", "jouletrace"]
KINDS = {"short": (100, 32), "long": (600, 96)}
"""Tokens of prompt and answer."""

PORT = 8123
URL = f"http://127.0.0.1:{PORT}"


@contextmanager
def served(options: argparse.Namespace, before: list[str]) -> Any:
    """The server, until the end of ``with``; the path of the log of its steps."""
    out = options.output
    steps = out / f"steps-{len(list(out.glob('steps-*')))}.jsonl"
    log = (out / "server.log").open("a")
    command = [*before, str(ROOT / "examples" / "serve_reference.py"), "--size", options.size]
    command += ["--device", options.server_device, "--port", str(PORT), "--steps", str(steps)]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        for _ in range(900):
            try:
                urllib.request.urlopen(f"{URL}/v1/models", timeout=1).read()
                break
            except OSError:
                assert process.poll() is None, "the server ended: see server.log"
                time.sleep(0.1)
        yield steps
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(90)
        except subprocess.TimeoutExpired:
            process.kill()


def bench(options: argparse.Namespace, name: str, steps: Path, *load: str) -> dict[str, Any]:
    """Run ``jouletrace bench``, and bill again by the log; what the former states as JSON."""
    place = options.output / name
    command = [*JOULETRACE, "bench", URL, "-o", str(place), "--json"]
    for one in options.device or []:
        command += ["--device", one]
    found = subprocess.run([*command, "--pause", "2", *load], stdout=subprocess.PIPE, text=True, check=False)
    place.with_suffix(".json").write_text(found.stdout)
    logged = [*JOULETRACE, "bill", str(place), str(steps), "-o", f"{place}-logged", "--json"]
    again = subprocess.run(logged, stdout=subprocess.PIPE, text=True, check=False)
    Path(f"{place}-logged.json").write_text(again.stdout)
    return json.loads(found.stdout) if found.stdout.strip() else {}


def run(options: argparse.Namespace, steps: Path) -> None:
    """Four rates, twice."""
    lengths = ["--input-tokens", "64:512", "--output-tokens", "16:48", "--duration", str(options.seconds)]
    for name in ("rates-a", "rates-b"):
        bench(options, name, steps, "--rate", options.rates, *lengths)


def kinds(options: argparse.Namespace, steps: Path) -> None:
    """Each kind alone, then by turns; always 16 at once."""
    at_once = ["--concurrency", "16", "--duration", str(options.seconds)]
    for kind, (prompt, answer) in KINDS.items():
        bench(options, kind, steps, *at_once, "--input-tokens", str(prompt), "--output-tokens", str(answer))
    trace = options.output / "mix.csv"
    lengths = [f"0,{prompt},{answer}" for prompt, answer in KINDS.values()]
    trace.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *lengths]))
    bench(options, "mix", steps, *at_once, "--trace", str(trace))


def traced(options: argparse.Namespace) -> None:
    """One load on a server under ``jouletrace run``, with bills by its kernels."""
    out = options.output
    with served(options, [*JOULETRACE, "run", "-o", str(out / "server-run")]) as steps:
        lengths = ["--input-tokens", "64:512", "--output-tokens", "16:48", "--duration", str(options.seconds)]
        bench(options, "traced", steps, "--rate", options.rates.split(",")[1], *lengths)
    for log, name in (([], "traced-billed"), ([str(steps)], "traced-logged-billed")):
        where = [str(out / "traced"), *log, "--server-run", str(out / "server-run"), "-o", str(out / name)]
        subprocess.run([*JOULETRACE, "bill", *where], check=False)


def profile(options: argparse.Namespace) -> None:
    """The same model without a server."""
    generate = ["--task", "generate", "--batch", "16", "--prompt-len", "100", "--max-new-tokens", "32"]
    where = ["-o", str(options.output / "profile")]
    subprocess.run([*JOULETRACE, "profile", f"llama-{options.size}", *generate, *where], check=False)


def bills(run: Run, prompt: int = 0, answer: int = 0) -> np.ndarray:
    """Joules of each request (of these lengths), NaN unless it lies wholly in the steady window."""
    table = run.requests.to_pydict()
    keys = zip(table["input_tokens"], table["output_tokens"], table["billed"], table["energy_j"], strict=True)
    return np.array(
        [e if billed == 1 else np.nan for p, a, billed, e in keys if not prompt or (p, a) == (prompt, answer)], float
    )


def above_idle(run: Run) -> tuple[dict[int, float], dict[str, float]]:
    """Joules per request without idle power, of the first load: of a bill by length of prompt, and by phase."""
    steps, requests = steps_in(run), requests_of(run, 0)
    results, window = Parts(run), steady_window(requests)[:2]
    load = results.units("load")[0]
    level = Steady(load.id, {"name": ""}, requests, window, load.get("energy_total_j"), ())
    amounts, x = amounts_of(level, steps), np.array([run.result(name).value or 0.0 for name in FACTORS])
    x = x * level.energy.value / (amounts.whole @ x)
    whole = amounts.share == 1
    of_kind = {
        int(prompt): float((amounts.requests[whole & (requests.input_tokens == prompt)][:, 1:] @ x[1:]).mean())
        for prompt in np.unique(requests.input_tokens[whole])
    }
    phases = {name: amounts.parts[f"energy_{name}_j"] for name in ("prefill", "decode")}
    return of_kind, {name: float(one[1:] @ x[1:] / amounts.share.sum()) for name, one in phases.items()}


def table(out: Path) -> None:
    """Print what the saved Runs say."""
    files = [out / f"{name}.json" for name in ("rates-a", "rates-b")]
    both = [upgraded(json.loads(text)) for file in files if file.exists() and (text := file.read_text())]
    for pair in zip(*(one["parts"].get("request", []) for one in both), strict=True):
        name = pair[0]["path"][-1]["name"]
        per_token = [load["other"]["energy_per_output_token_j"] for load in pair]
        said = [f"{one['value']:.4f} [{one['low']:.4f}, {one['high']:.4f}] J" for one in per_token if one["value"]]
        if len(said) < len(pair):
            print(f"{name}: {[one['reason'] for one in per_token]}")
            continue
        closure = [f"{load['other']['closure_bills']['value']:.6f}" for load in pair]
        ratio = per_token[1]["value"] / per_token[0]["value"]
        print(f"{name}: per output token {' and '.join(said)}, ratio {ratio:.4f}; bills/energy {closure}")
    for name in ("rates-a", "rates-b", *KINDS, "mix", "traced"):
        if (out / f"{name}-logged").exists():
            streamed, logged = (bills(load(out / which)) for which in (name, f"{name}-logged"))
            ratio = (streamed / logged)[np.isfinite(streamed / logged)]
            if len(ratio):
                print(f"{name}: bill by the answers / by the log {ratio.mean():.4f} ± {ratio.std():.4f} ({len(ratio)})")
    for end in [one for one in ("", "-logged") if (out / f"mix{one}").exists()]:
        runs = {name: analyse(load(out / f"{name}{end}")) for name in (*KINDS, "mix")}
        in_mix = above_idle(runs["mix"])[0]
        for kind, lengths in KINDS.items():
            alone, mixed = (one[np.isfinite(one)] for one in (bills(runs[k], *lengths) for k in (kind, "mix")))
            if not (len(alone) and len(mixed)):
                print(f"{kind}{end}: no bills")
                continue
            said = f"alone {alone.mean():.3f} J ({len(alone)}), in the mix {mixed.mean():.3f} J ({len(mixed)})"
            ratios = mixed.mean() / alone.mean(), in_mix[lengths[0]] / above_idle(runs[kind])[0][lengths[0]]
            print(f"{kind}{end}: bill {said}, ratio {ratios[0]:.4f}, above idle {ratios[1]:.4f}")


def phases(out: Path) -> None:
    """Print joules of prefill and decode per request: 16 short requests at once, served, and by ``profile``."""
    if not (out / "profile" / "run.json").exists():
        return
    for name in ("short", "short-logged"):
        for phase in ("prefill", "decode"):
            values = phase_ratios(analyse(load(out / name)), analyse(load(out / "profile")), phase)
            print(f"{name}: {phase}, J per request, served, profile, ratio; above idle: {np.round(values, 4).tolist()}")


def phase_ratios(served: Run, profiled: Run, phase: str, batch: int = 16) -> list[float]:
    """Joules per request of a phase served, by ``profile``, and their ratio; then all three above idle power."""
    results, alone = Parts(served), Parts(profiled)
    load = results.units("load")[0]
    whole, price, part = (load.get(f"energy_{name}_j").value or np.nan for name in ("total", "per_request", phase))
    one = next(part for part in alone.units("phase") if part.name == phase)
    energy, seconds = (one.get(metric).value for metric in ("energy_total_j", "time_s"))
    idle_w = alone.get("baseline_context_idle_w").value
    pairs = (part * price / whole, energy / batch), (above_idle(served)[1][phase], (energy - idle_w * seconds) / batch)
    return [value for a, b in pairs for value in (a, b, a / b)]


def main() -> None:
    """Measure, or print again."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("output", type=Path)
    options.add_argument("parts", nargs="*", default=["run", "kinds", "traced", "profile"])
    options.add_argument("--size", default="1b")
    options.add_argument("--server-device", default="cuda")
    options.add_argument("--device", action="append", help="of bench, as sim:h100")
    options.add_argument("--rates", default="2,4,8,16")
    options.add_argument("--seconds", type=float, default=30.0, help="of a load")
    chosen = options.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    with served(chosen, [sys.executable]) if {"run", "kinds"} & set(chosen.parts) else nullcontext() as steps:
        if steps is not None:
            bench(chosen, "warm-up", steps, "--concurrency", "8", "--duration", "5")
        for part in [one for one in (run, kinds) if one.__name__ in chosen.parts]:
            part(chosen, steps)
    table(chosen.output)
    for part in [one for one in (traced, profile) if one.__name__ in chosen.parts]:
        part(chosen)
    phases(chosen.output)


if __name__ == "__main__":
    main()
