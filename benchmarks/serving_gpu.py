"""What a served request takes, against the same steps without a server, and in a mix of two kinds: on one GPU.

    PYTHONPATH=src python benchmarks/serving_gpu.py OUT

Parts, by name in this order; without names all of them, of which those that no longer fit in ``--limit`` are left out:

``served``  ``examples/serve_reference.py`` under loads of 16 requests at once: short (100 + 32 tokens) and, at a longer
            step, short, long (600 + 96) and both by turns; then short and the mix without a least length of a step.
``alone``   The manager of batches of that server without a server, by ``jouletrace.profile``: an iteration is 16 short
            requests, or their prompts alone, in steps of the same length; then without a least length, by operators.
            The same model by transformers' ``generate``, by operators too.

``causes``  What makes the difference of ``generate`` and that manager, by kernels: ``jouletrace compare``.
``table``   The figures.

The steps of ``short`` and ``alone`` are equal: each lasts at least ``--step-ms``, a wait within the logged step, and
the 16 requests that end together begin together, for which the server waits up to 60 ms. Those of a mix and of each
kind beside it last at least ``--mix-step-ms``. Saves all in ``OUT/serving.zip``.
``--size tiny --device cpu --gpu sim:h100`` runs every line without a GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
import traceback
import urllib.request
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "examples"), str(ROOT / "benchmarks")]
KINDS = {"short": (100, 32), "long": (600, 96)}
"""Tokens of prompt and answer; a tenth of the prompts and a quarter of the answers with ``--size tiny``."""

AT_ONCE, PORT = 16, 8123
URL = f"http://127.0.0.1:{PORT}"
PATIENCE_S = 0.06
"""Longest wait for the requests that follow those just answered."""


def settings(size: str, steps: str) -> Any:
    """The manager of the reference server with a cache that leaves most of the memory, and steps of equal length."""
    import serve_reference
    from transformers import ContinuousBatchingConfig

    class PacedLog(serve_reference.StepLog):
        """Steps that last at least ``step_s``; ``together``: requests that end together begin together."""

        step_s, together, before = 0.0, False, 0

        def __init__(self, manager: Any, path: str) -> None:
            super().__init__(manager, path)
            self.compute, self.step, self.body = self.step, self.paced, manager._generation_loop_body
            manager._generation_loop_body = self.gathered
            manager.log = self

        def open(self) -> int:
            """Requests that are not answered yet."""
            scheduler = self.manager.batch_processor.scheduler
            waiting = len(scheduler.waiting_requests) + self.manager.input_queue.qsize()
            return len(scheduler.active_requests) + waiting

        def paced(self) -> None:
            """Carry a step out, and wait."""
            until, self.before = time.perf_counter() + self.step_s, self.open()
            self.compute()
            time.sleep(max(until - time.perf_counter() - 0.0005, 0))
            while time.perf_counter() < until:
                pass

        def gathered(self, processor: Any, bootstrapping: bool) -> bool:
            """Begin a step once those have come that follow the requests just answered."""
            until = time.perf_counter() + PATIENCE_S
            while self.together and self.open() not in (0, self.before, AT_ONCE) and time.perf_counter() < until:
                time.sleep(0.0005)
            return bool(self.body(processor, bootstrapping))

    serve_reference.StepLog = PacedLog
    # all short prompts in one step; 131,072 tokens in the cache
    pages = ContinuousBatchingConfig(num_blocks=512, max_batch_tokens=AT_ONCE * (KINDS["short"][0] + 1))
    pages.use_cuda_graph = False
    serve_reference.PAGE[size] = pages
    return serve_reference


class Rounds(torch.nn.Module):
    """16 requests that begin together, carried out by a manager that isn't started, step by step.

    Its modules have the names of the model's, by which ``compare`` matches them.
    """

    def __init__(self, manager: Any) -> None:
        super().__init__()
        self.manager, self.count = manager, 0
        self.model, self.lm_head = manager.model.model, manager.model.lm_head
        with torch.no_grad():
            manager.batch_processor = manager._create_batch_processor()
        manager.current_batch = 0

    @torch.no_grad()
    def forward(self, *kinds: tuple[int, int]) -> None:
        """Answer 16 requests, of these prompts and answers by turns; prompts are new each time."""
        manager, size = self.manager, self.manager.model.config.vocab_size
        for number in range(AT_ONCE):
            prompt, answer = kinds[number % len(kinds)]
            ids, self.count = torch.randint(size, (prompt,), device="cpu").tolist(), self.count + 1
            manager.add_request(ids, f"alone-{self.count}", max_new_tokens=answer)
        manager._generation_loop_body(manager.batch_processor, False)
        while manager.batch_processor.has_pending_requests():
            manager._generation_loop_body(manager.batch_processor, False)
        results = [manager.output_router.output_queue.get_nowait() for _ in range(AT_ONCE)]
        assert not any(one.error for one in results), results[0].error


def serve(options: argparse.Namespace) -> None:
    """Be the server: the reference, with a page that sets the least length of a step."""
    from aiohttp import web

    reference = settings(options.size, options.serve)
    manager = reference.batching(options.size, options.device, options.serve)
    rounds = Rounds(manager)
    for kinds in ([KINDS["short"]], [KINDS["long"]], [*KINDS.values()]):  # shapes take long at first
        begun = time.perf_counter()
        rounds(*kinds)
        print(f"warm-up {kinds}: {time.perf_counter() - begun:.2f} s", flush=True)
    server = reference.Server(options.size, manager)

    async def pace(request: web.Request) -> web.Response:
        step_ms, together = json.loads(await request.text())
        manager.log.step_s, manager.log.together = step_ms / 1e3, together
        return web.Response()

    app = server.application()
    app.router.add_post("/pace", pace)
    asyncio.set_event_loop(asyncio.new_event_loop())
    web.run_app(app, host="127.0.0.1", port=PORT, print=None)
    manager.stop(block=True, hard_stop=True)


class Measured:
    """Where results go, and how long all may take."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.begun = options, time.monotonic()
        self.out = options.output
        self.work = self.out / "work"
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.facts: dict[str, Any] = {"step_ms": options.step_ms, "mix_step_ms": options.mix_step_ms}

    def left_s(self) -> float:
        """Seconds until the limit."""
        return self.options.limit - (time.monotonic() - self.begun)

    def keep(self) -> None:
        """Pack what there is."""
        (self.work / "facts.json").write_text(json.dumps(self.facts, indent=1))
        fresh = self.out / "serving.new"
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as packed:
            for path in sorted(self.work.iterdir()):
                packed.write(path, path.name)
        fresh.replace(self.out / "serving.zip")

    def part(self, name: str, needed_s: float, function: Any, *args: Any, **more: Any) -> None:
        """Run a part if there is time; print how long it took, or what failed."""
        begun = time.monotonic()
        if self.left_s() < needed_s:
            print(f"{name}: left out, {self.left_s():.0f} s are left", flush=True)
            return
        try:
            function(self, *args, **more)
        except Exception:  # others go on
            traceback.print_exc()
            print(f"{name}: FAILED", flush=True)
        self.facts[f"seconds: {name}"] = round(time.monotonic() - begun, 1)
        self.keep()
        print(f"{name}: {time.monotonic() - begun:.1f} s, {self.left_s():.0f} s left", flush=True)


def load(measured: Measured, name: str, kinds: list[str], step_ms: float, seconds: float) -> None:
    """A load of 16 at once, billed by the log of steps; of ``short`` all 16 begin together."""
    options, work = measured.options, measured.work
    urllib.request.urlopen(f"{URL}/pace", json.dumps([step_ms, name == "short"]).encode(), timeout=5).read()
    trace = work / f"{'-'.join(kinds)}.csv"
    trace.write_text(
        "\n".join(["arrival_s,input_tokens,output_tokens", *(f"0,{a},{b}" for a, b in map(KINDS.get, kinds))])
    )
    command = [sys.executable, "-m", "jouletrace", "bench", URL, "--concurrency", str(AT_ONCE), "--trace", str(trace)]
    command += ["--duration", str(seconds), "--pause", "2", "--steps", str(work / "steps.jsonl")]
    command += ["-o", str(work / f"{name}.zip"), *(["--device", options.gpu] if options.gpu else [])]
    with (work / f"{name}.txt").open("w") as log:
        subprocess.run(command, stdout=log, stderr=log, check=False, timeout=seconds + 45)
    if not (work / f"{name}.zip").exists():
        raise RuntimeError((work / f"{name}.txt").read_text()[-1500:])


def served(measured: Measured) -> None:
    """The loads on the server."""
    options, work = measured.options, measured.work
    command = [sys.executable, __file__, str(options.output), "--serve", str(work / "steps.jsonl")]
    command += ["--size", options.size, "--device", options.device]
    log = (work / "server.txt").open("w")
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until, up = time.monotonic() + 90, False
        while not up:
            with suppress(OSError):
                up = bool(urllib.request.urlopen(f"{URL}/v1/models", timeout=1).read())
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError((work / "server.txt").read_text()[-2000:])
            time.sleep(0.1)
        print(f"server up, {measured.left_s():.0f} s left", flush=True)
        length, rest = options.seconds, options.rest
        for name, kinds, step_ms, seconds, left_s in (
            ("short", ["short"], options.step_ms, length, 0.0),
            ("mix-paced", [*KINDS], options.mix_step_ms, 1.2 * length, 0.0),
            ("short-paced", ["short"], options.mix_step_ms, length, 0.0),
            ("long-paced", ["long"], options.mix_step_ms, 1.2 * length, 0.0),
            ("short-free", ["short"], 0.0, 0.6 * length, rest),
            ("mix-free", [*KINDS], 0.0, 0.8 * length, rest),
        ):
            measured.part(name, seconds + 12 + left_s, load, name, kinds, step_ms, seconds)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


def steps_s(log: Path) -> dict[str, float]:
    """Mean seconds of the logged steps that read prompts, and of the others; the log is then empty."""
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("")
    times = [((row["end_ns"] - row["start_ns"]) / 1e9, bool(row["new_tokens"])) for row in rows]
    return {
        name: sum(found) / len(found)
        for name, is_prefill in (("prefill", True), ("decode", False))
        if (found := [seconds for seconds, reads in times if reads is is_prefill])
    }


def alone(measured: Measured) -> None:
    """The same manager without a server, and ``generate``."""
    options, work = measured.options, measured.work
    log = work / "steps-alone.jsonl"
    manager = settings(options.size, str(log)).batching(options.size, options.device, str(log))
    rounds, (prompt, answer) = Rounds(manager), KINDS["short"]
    print(f"model built, {measured.left_s():.0f} s left", flush=True)

    def profiled(_: Measured, name: str, tokens: int, step_ms: float, **more: Any) -> None:
        import jouletrace as jt

        manager.log.step_s = step_ms / 1e3
        kinds = (prompt, tokens)
        rounds(kinds)
        log.write_text("")
        label = f"{AT_ONCE} requests of {prompt} + {tokens} tokens"
        jt.profile(rounds, (kinds,), name=label, save_to=work / f"{name}.zip", **where(options), **more)
        measured.facts[name] = steps_s(log)

    def generated(_: Measured) -> None:
        import jouletrace as jt

        manager.model.set_attn_implementation("sdpa")
        ids = torch.randint(manager.model.config.vocab_size, (AT_ONCE, prompt), device=manager.model.device)
        more: dict[str, Any] = {"task": "generate", "max_new_tokens": answer, "first_token": False, **by_operators}
        where_ = where(options)
        jt.profile(manager.model, {"input_ids": ids}, save_to=work / "generate-ops.zip", **where_, **more)

    by_operators = {"detail": "kernel", "detail_time": 5, "max_time": 5, "warmup": 2}
    paced = {"warmup": 3, "latency_s": 0.5, "target_ci": 0.002}
    measured.part("alone-prefill", 15, profiled, "alone-prefill", 1, options.step_ms, max_time=9, **paced)
    measured.part("alone", 18, profiled, "alone", answer, options.step_ms, max_time=14, **paced)
    measured.part("alone-ops", 25, profiled, "alone-ops", answer, 0.0, latency_s=0.5, **by_operators)
    measured.part("generate-ops", 20, generated)


def where(options: argparse.Namespace) -> dict[str, Any]:
    """The device of a profile."""
    return {"device": options.gpu or "auto"}


def causes(measured: Measured) -> None:
    """What makes the difference of ``generate`` and the manager of batches, by kernels."""
    names = [str(measured.work / f"{name}.zip") for name in ("generate-ops", "alone-ops")]
    command = [sys.executable, "-m", "jouletrace", "compare", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    (measured.work / "causes.txt").write_text(done.stdout + done.stderr)
    print(done.stdout, done.stderr)


def table(measured: Measured) -> None:
    """Print what the Runs say."""
    import serving
    from jouletrace.run import load as load_run

    runs = {path.stem: load_run(path) for path in sorted(measured.work.glob("*.zip"))}
    for name in sorted(set(LOADS) & set(runs)):
        said = serving.stated(runs[name])
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in said.items())}")
    if {"alone", "alone-prefill", "short"} <= set(runs):
        there, here = (
            serving.served(runs["short"]),
            serving.alone(runs["alone-prefill"], runs["alone"], measured.facts, KINDS["short"][1]),
        )
        for phase, values in there.items():
            ratios = [f"{a:.4f} / {b:.4f} = {a / b:.4f}" for a, b in zip(values, here[phase], strict=True)]
            print(f"{phase}, J per request, served / alone: {ratios[0]}; above idle: {ratios[1]}")
    for kind, lengths in KINDS.items():
        for end in ("paced", "free"):
            if {f"{kind}-{end}", f"mix-{end}"} <= set(runs):
                values = serving.mixed(runs[f"{kind}-{end}"], runs[f"mix-{end}"], lengths)
                print(f"{kind}, {end}: alone, in the mix, ratio, ratio above idle {[round(one, 4) for one in values]}")


LOADS = ("short", "mix-paced", "short-paced", "long-paced", "short-free", "mix-free")
PARTS = {"served": served, "alone": alone, "causes": causes, "table": table}


def out_of_time(*_: Any) -> None:
    """End the part that hangs.

    Raises:
        TimeoutError: Always.
    """
    raise TimeoutError("the limit has passed")


def main() -> None:
    """Measure, or be the server."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("output", type=Path)
    options.add_argument("parts", nargs="*", default=list(PARTS))
    options.add_argument("--size", default="1b")
    options.add_argument("--device", default="cuda", help="of the model")
    options.add_argument("--gpu", default="", help="that is recorded, as sim:h100")
    options.add_argument("--step-ms", type=float, default=18.0)
    options.add_argument("--mix-step-ms", type=float, default=30.0)
    options.add_argument("--seconds", type=float, default=16.0, help="of a load")
    options.add_argument("--rest", type=float, default=95.0, help="seconds that the part alone needs")
    options.add_argument("--limit", type=float, default=270.0)
    options.add_argument("--serve", default="", help=argparse.SUPPRESS)
    chosen = options.parse_intermixed_args()
    if chosen.size == "tiny":
        KINDS.update({name: (prompt // 10, answer // 4) for name, (prompt, answer) in KINDS.items()})
    if chosen.serve:
        serve(chosen)
        return
    measured = Measured(chosen)
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(int(chosen.limit) + 10)
    for name in chosen.parts:
        measured.part(name, 20 if name in ("served", "alone") else 0, PARTS[name])
    shutil.rmtree(measured.work)


if __name__ == "__main__":
    main()
