"""Where the energy of a model goes, by several methods on one board in one process, and what tracing costs.

    python benchmarks/kernel_energy.py methods tracing --device cuda:0 --cases deit-b:64 deit-b:1 -o out.md
    python benchmarks/kernel_energy.py repeats --cases deit-b:64 bert-l:8:320 gpt2-large:1:1024 --folder runs

methods   modules (equal layers together) by: this package; power and wall clock read in module hooks; a thread
          that polls power every millisecond, shared out over torch.profiler's kernel times; Zeus, a window a
          module. What the others find is summed over the same modules. A Run FOLDER/NAME-BATCH.zip made before on
          the same board is taken for the first of them.
tracing   replays with and without a tracer, paired and interleaved: CUPTI as here, and torch.profiler
repeats   every case profiled twice with ``--detail kernel``: how far rows differ between two runs

Each line is printed as soon as it is known. A case is NAME:BATCH[:TOKENS].
"""

import argparse
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from jouletrace.devices import open_device
from jouletrace.energy.interval import mean_estimate
from jouletrace.profiler.prepare import prepare, resolve
from jouletrace.profiler.profile import profile_workload
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.report.results import Results
from jouletrace.run import Estimate, Run, load
from jouletrace.tracing.cuda import with_cupti, with_torch

ITERATIONS = 30
PAIRS = 15
PAIR_S = 0.3
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")

Energies = dict[str, float]
"""Joules of an iteration by module, "*" for the number of a layer."""


def settings_of(
    case: str, device: str, mode: str, detail: str = "model", seconds: float = 150.0
) -> tuple[str, ProfileSettings]:
    name, batch, *tokens = case.split(":")
    seq_len = int(tokens[0]) if tokens else None
    given = {
        "device": device,
        "dtype": "fp16",
        "mode": mode,
        "detail": detail,
        "batch": int(batch),
        "detail_time_s": seconds,
    }
    return name, ProfileSettings(seq_len=seq_len, **given)


def pattern(module: str) -> str:
    return _NUMBER.sub("*", module)


def ours(run: Run) -> Energies:
    """Own operators of each module, by the experiments."""
    results, found = Results(run), defaultdict(float)
    for unit in results.units("layer"):
        own = results.get("energy_own_j", unit["id"])
        inner = any(other["parent"] == unit["id"] for other in results.units("layer"))
        value = (
            own.value if own.value is not None else None if inner else results.get("energy_total_j", unit["id"]).value
        )
        if value is not None:
            found[pattern(unit["name"])] += value
    return dict(found)


class Power:
    """The power that other methods read: NVML's, in watts."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self._read = pynvml.nvmlDeviceGetPowerUsage

    def watts(self) -> float:
        return self._read(self._handle) / 1e3


@contextmanager
def hooked(model, before: Callable[[str], None], after: Callable[[str], None]) -> Iterator[None]:
    """Calls around every module without children."""
    hooks = []
    for name, module in model.named_modules():
        if not list(module.children()):
            hooks.append(module.register_forward_pre_hook(lambda *_, n=name: before(n)))
            hooks.append(module.register_forward_hook(lambda *_, n=name: after(n)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def by_hooks(built, power: Power) -> Energies:
    """Power read at both ends of each module, times its wall clock, the device waited for."""
    import torch

    found, begun = defaultdict(float), {}

    def before(name: str) -> None:
        torch.cuda.synchronize()
        begun[name] = (time.perf_counter(), power.watts())

    def after(name: str) -> None:
        torch.cuda.synchronize()
        since, watts = begun[name]
        found[pattern(name)] += (time.perf_counter() - since) * (watts + power.watts()) / 2

    with hooked(built.module, before, after):
        for i in range(ITERATIONS):
            built.call(i)
    return {name: joules / ITERATIONS for name, joules in found.items()}


def by_polling(built, power: Power) -> Energies:
    """Polled power shared out over torch.profiler's kernel times."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    stamps, watts, stop = [], [], threading.Event()

    def poll() -> None:
        while not stop.is_set():
            watts.append(power.watts())
            stamps.append(time.time_ns())
            time.sleep(0.001)

    thread = threading.Thread(target=poll, daemon=True)

    def before(name: str) -> None:
        marks.append(torch.profiler.record_function(f"module {name}"))
        marks[-1].__enter__()

    def after(name: str) -> None:
        marks.pop().__exit__(None, None, None)

    marks: list = []
    thread.start()
    with (
        hooked(built.module, before, after),
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found,
    ):
        for i in range(ITERATIONS):
            built.call(i)
        torch.cuda.synchronize()
    stop.set()
    thread.join()
    # Their stamps are not among what events give; a reading is a mean of the last second anyway.
    mean_w = float(np.trapezoid(watts, stamps) / (stamps[-1] - stamps[0]))
    modules = defaultdict(float)
    for event in found.events():
        owner = event
        while owner is not None and not owner.name.startswith("module "):
            owner = owner.cpu_parent
        for kernel in event.kernels:
            if owner is not None:
                joules = kernel.duration / 1e6 * mean_w
                modules[pattern(owner.name.removeprefix("module "))] += joules / ITERATIONS
    return dict(modules)


def by_zeus(built) -> Energies | None:
    """A Zeus window around each module; None where Zeus isn't installed."""
    try:
        from zeus.monitor import ZeusMonitor
    except ImportError as error:
        print(f"Zeus: not here ({error})", flush=True)
        return None
    monitor = ZeusMonitor(approx_instant_energy=True)
    found = defaultdict(float)

    def after(name: str) -> None:
        found[pattern(name)] += monitor.end_window(name).total_energy

    with hooked(built.module, monitor.begin_window, after):
        for i in range(ITERATIONS):
            built.call(i)
    return {name: joules / ITERATIONS for name, joules in found.items()}


def methods(cases: list[str], device: str, folder: Path, say: Callable[[str], None]) -> None:
    for case in cases:
        name, settings = settings_of(case, device, "graph", "kernel")
        kept = folder / f"{case.replace(':', '-')}.zip"
        known = load(kept) if kept.exists() else None
        run = known or profile_workload(name, settings, folder=folder / f"{case.replace(':', '-')}-methods")
        board = open_device(device)
        built = prepare(resolve(name), board, settings_of(case, device, "eager")[1]).built
        for i in range(20):
            built.call(i)
        power = Power(board.info.id)
        columns = {"in situ": ours(run), "hooks": by_hooks(built, power)}
        columns["polling"] = by_polling(built, power)
        zeus = by_zeus(built)
        if zeus is not None:
            columns["Zeus"] = zeus
        whole = run.result("energy_total_j").value
        say(f"\n### {case}: the step takes {whole * 1e3:.2f} mJ (graph); mJ of an iteration by module\n")
        say("| module | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
        order = sorted(columns["in situ"], key=lambda module: -columns["in situ"][module])
        for module in order[:14]:
            cells = [f"{c[module] * 1e3:.2f}" if module in c else "–" for c in columns.values()]
            say(f"| `{module}` | " + " | ".join(cells) + " |")
        say("| sum over the step | " + " | ".join(f"{sum(c.values()) / whole:.2f}" for c in columns.values()) + " |")
        board.close()


def tracing(cases: list[str], device: str, say: Callable[[str], None]) -> None:
    say("\n| case, mode | tracer | traced / not |\n|---|---|---|")
    # torch's profiler puts its own clock into CUPTI's records, for as long as the process lives: it comes last.
    for label, trace in (("CUPTI as here", with_cupti), ("torch.profiler", with_torch)):
        for case in cases:
            for mode in ("graph", "eager"):
                found = slowdown(case, device, mode, trace)
                say(f"| {case}, {mode} | {label} | {found.value:.3f} ({found.low:.3f}–{found.high:.3f}) |")


def slowdown(case: str, device: str, mode: str, trace: Callable[[Callable[[], None]], object]) -> Estimate:
    """Time of replays with a tracer over that without, paired and interleaved."""
    name, settings = settings_of(case, device, mode)
    board = open_device(device)
    step = prepare(resolve(name), board, settings).step
    step.replay(20)
    n = max(3, round(PAIR_S / (step.replay(10).seconds / 10)))
    ratios = []
    for pair in range(PAIRS):
        seconds = {}
        for traced in (True, False) if pair % 2 else (False, True):
            kept = []

            def run(kept=kept) -> None:
                step.replay(3)
                kept.append(step.replay(n).seconds)

            trace(run) if traced else run()
            seconds[traced] = kept[0]
        ratios.append(seconds[True] / seconds[False])
    step.close()
    board.close()
    return mean_estimate(ratios)


def repeats(arguments: argparse.Namespace, say: Callable[[str], None]) -> None:
    head = "closure | closure of time | at equal clocks | seconds | spikes | rows > 5 %: half-width, worst | in situ"
    say(f"\n| case, mode, run | {head} |\n|---|" + "---|" * 7)
    for case in arguments.cases:
        for mode in arguments.modes:
            name, settings = settings_of(case, arguments.device, mode, "kernel", arguments.seconds)
            both = []
            for number in (1, 2):
                began = time.perf_counter()
                run = profile_workload(
                    name, settings, folder=arguments.folder / f"{case.replace(':', '-')}-{mode}-{number}"
                )
                say(summary(f"{case}, {mode}, {number}", run, time.perf_counter() - began))
                for warning in run.warnings:
                    say(f"| | {warning['text']} | | | | | | |")
                both.append(run)
            say(differences(*both))


def shares(run: Run) -> dict[tuple, tuple[float, float]]:
    """Energy and half-width over it of each operator, by what it is."""
    results, found = Results(run), {}
    for unit in results.units("op"):
        energy = results.get("energy_total_j", unit["id"])
        if unit["op"] and energy.value:
            key = (unit["op"], unit["shapes"], unit["module"])
            found[key] = (energy.value, (energy.half_width or np.nan) / abs(energy.value))
    return found


def summary(label: str, run: Run, seconds: float) -> str:
    def text(metric: str) -> str:
        e = run.result(metric)
        return "–" if e.value is None else f"{e.value:.3f} ({e.low:.3f}–{e.high:.3f})" if e.low else f"{e.value:.3f}"

    whole = run.result("energy_total_j").value
    widths = [width for energy, width in shares(run).values() if energy > 0.05 * whole]
    results = Results(run)
    spikes = [f for u in results.all() if (f := results.metrics(u["id"]).get("spike_recovered")) is not None]
    passed = sum("spike_missed" not in spike.flags for spike in spikes)
    measured = sum(energy for energy, _ in shares(run).values()) / whole
    cells = [text(m) for m in ("closure_kernels", "closure_kernels_time", "closure_kernels_matched")]
    worst = f"{max(widths):.1%}" if widths else "–"
    cells += [f"{seconds:.0f}", f"{passed}/{len(spikes)}", worst, f"{measured:.1%}"]
    return f"| {label} | " + " | ".join(cells) + " |"


def differences(one: Run, other: Run) -> str:
    first, second, whole = shares(one), shares(other), one.result("energy_total_j").value
    bands = []
    for low, high in ((0.05, 1.0), (0.02, 0.05)):
        keys = [key for key in first.keys() & second.keys() if low < first[key][0] / whole <= high]
        apart = [abs(first[key][0] / second[key][0] - 1) for key in keys]
        bands.append(f"{low:.0%}–{high:.0%}: {max(apart):.1%} of {len(apart)} rows" if apart else f"{low:.0%}: none")
    return f"| | rows apart at most, {'; '.join(bands)} | | | | | | |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=["methods", "tracing", "repeats"])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--cases", nargs="+", default=["deit-b:64", "deit-b:1"])
    parser.add_argument("--modes", nargs="+", default=["graph"], help="of repeats")
    parser.add_argument("--seconds", type=float, default=150.0, help="of the experiments on parts, in repeats")
    parser.add_argument("--folder", type=Path, default=Path("runs/kernel-energy"))
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()

    def say(line: str) -> None:
        print(line, flush=True)
        if arguments.output is not None:
            with arguments.output.open("a") as sink:
                sink.write(line + "\n")

    for what in arguments.what:
        if what == "methods":
            methods(arguments.cases, arguments.device, arguments.folder, say)
        elif what == "tracing":
            tracing(arguments.cases, arguments.device, say)
        else:
            repeats(arguments, say)


if __name__ == "__main__":
    main()
