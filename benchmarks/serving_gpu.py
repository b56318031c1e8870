"""Measures a served request against the same steps without a server, and in a mix of two kinds, on one GPU.

    PYTHONPATH=src python benchmarks/serving_gpu.py OUT

Parts, by name in this order; without names all of them, of which those that no longer fit in ``--limit`` are left out:

``served``  ``examples/serve_reference.py`` under loads of 16 requests at once: short (100 + 32 tokens), both by turns
            (``mix``), and long (200 + 48).
``alone``   The manager of batches of that server without a server, by ``jouletrace.profile``: an iteration is 16 short
            requests, or the same with answers of 8 tokens, from which prefill and decode follow.
``table``   The figures.

A step begins at least ``--step-ms`` after the step before, in all of them: the wait is between the logged steps. After
requests have ended a server waits up to 100 ms for those that follow, so that all steps have 16 of them. Attention is
the same everywhere. Saves all in ``OUT/serving.zip``.
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
KINDS = {"short": (100, 32), "long": (200, 48)}
"""Tokens of prompt and answer; a tenth of the prompts with ``--size tiny``."""

FEW = 8
"""Tokens of the short answers of the part ``alone``."""

AT_ONCE, PORT = 16, 8123
URL = f"http://127.0.0.1:{PORT}"
PATIENCE_S = 0.1
"""Longest wait for the requests that follow those just answered."""


def settings(size: str, steps: str) -> Any:
    """The reference server, of which steps begin equally far apart, with a cache that leaves most of the memory."""
    import serve_reference
    from transformers import ContinuousBatchingConfig

    class PacedLog(serve_reference.StepLog):
        """Steps that begin ``step_s`` apart or later; a server's wait for the requests that follow those answered."""

        step_s, together, before, due = 0.0, False, 0, 0.0

        def __init__(self, manager: Any, path: str) -> None:
            super().__init__(manager, path)
            self.body, manager._generation_loop_body, manager.log = manager._generation_loop_body, self.paced, self

        def open(self) -> int:
            """Requests that are not answered yet."""
            scheduler = self.manager.batch_processor.scheduler
            waiting = len(scheduler.waiting_requests) + self.manager.input_queue.qsize()
            return len(scheduler.active_requests) + waiting

        def paced(self, processor: Any, bootstrapping: bool) -> bool:
            """Begin a step when it is due and those requests have come."""
            until = time.perf_counter() + PATIENCE_S
            while self.together and self.open() not in (self.before, AT_ONCE) and time.perf_counter() < until:
                time.sleep(0.0005)
            self.before = self.open()
            time.sleep(max(self.due - time.perf_counter() - 0.0005, 0))
            while time.perf_counter() < self.due:
                pass
            self.due = time.perf_counter() + self.step_s
            return bool(self.body(processor, bootstrapping))

    serve_reference.StepLog = PacedLog
    # all prompts in one step; 16,384 tokens in the cache
    pages = ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=AT_ONCE * (KINDS["long"][0] + 1))
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
    """Be the server: the reference, with a page that sets how far apart steps begin."""
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
        manager.log.step_s, manager.log.together = float(await request.text()) / 1e3, True
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
        self.facts: dict[str, Any] = {"step_ms": options.step_ms}

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


def load(measured: Measured, name: str, kinds: list[str], seconds: float) -> None:
    """A load of 16 at once, billed by the log of steps."""
    options, work = measured.options, measured.work
    trace = work / f"{name}.csv"
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
        urllib.request.urlopen(f"{URL}/pace", str(options.step_ms).encode(), timeout=5).read()
        for name, kinds, seconds in (
            ("short", ["short"], options.seconds),
            ("mix", [*KINDS], 1.1 * options.seconds),
            ("long", ["long"], 1.1 * options.seconds),
        ):
            measured.part(name, seconds + 12, load, name, kinds, seconds)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


def alone(measured: Measured) -> None:
    """The same manager without a server."""
    import jouletrace as jt

    options, work = measured.options, measured.work
    log = work / "steps-alone.jsonl"
    manager = settings(options.size, str(log)).batching(options.size, options.device, str(log))
    manager.log.step_s = options.step_ms / 1e3
    rounds, (prompt, answer) = Rounds(manager), KINDS["short"]
    print(f"model built, {measured.left_s():.0f} s left", flush=True)

    def profiled(_: Measured, name: str, tokens: int, max_time: float) -> None:
        kinds = (prompt, tokens)
        rounds(kinds)
        more: dict[str, Any] = {"warmup": 2, "latency_s": 0.5, "target_ci": 0.002, "max_time": max_time}
        label = f"{AT_ONCE} requests of {prompt} + {tokens} tokens"
        jt.profile(rounds, (kinds,), name=label, save_to=work / f"{name}.zip", device=options.gpu or "auto", **more)

    measured.part("alone-few", 14, profiled, "alone-few", FEW, 8)
    measured.part("alone", 20, profiled, "alone", answer, min(23, measured.left_s() - 11))


def table(measured: Measured) -> None:
    """Print what the Runs say."""
    import serving
    from jouletrace.run import load as load_run

    runs = {path.stem: load_run(path) for path in sorted(measured.work.glob("*.zip"))}
    for name in sorted(set(LOADS) & set(runs)):
        said = serving.stated(runs[name])
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in said.items())}")
    if {"alone", "alone-few", "short"} <= set(runs):
        profiles, tokens = (runs["short"], runs["alone-few"], runs["alone"]), (FEW, KINDS["short"][1])
        for by in (serving.windows, serving.iterations):
            for name, (a, b, both) in serving.against_alone(*profiles, tokens, by).items():
                print(f"{name}, by {by.__name__}: served {a:.4f}, alone {b:.4f}, ratio {both:.4f}")
    for kind, (prompt, _) in KINDS.items():
        if {kind, "mix"} <= set(runs):
            values = [f"{one:.4f}" for one in serving.mixed(runs[kind], runs["mix"], prompt)]
            print(f"{kind}: J by its own load, in the mix, ratio; the same above idle power: {', '.join(values)}")


LOADS = ("short", "mix", "long")
PARTS = {"served": served, "alone": alone, "table": table}


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
    options.add_argument("--step-ms", type=float, default=35.0, help="least, between beginnings of steps")
    options.add_argument("--seconds", type=float, default=14.0, help="of the load short; of others a tenth more")
    options.add_argument("--limit", type=float, default=155.0)
    options.add_argument("--serve", default="", help=argparse.SUPPRESS)
    chosen = options.parse_intermixed_args()
    if chosen.size == "tiny":
        KINDS.update({name: (prompt // 10, answer) for name, (prompt, answer) in KINDS.items()})
    if chosen.serve:
        serve(chosen)
        return
    measured = Measured(chosen)
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(int(chosen.limit) + 8)
    for name in chosen.parts:
        measured.part(name, 20 if name in ("served", "alone") else 0, PARTS[name])
    shutil.rmtree(measured.work)


if __name__ == "__main__":
    main()
