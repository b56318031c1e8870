"""What an operator costs in a model against what it costs looped alone, at the same mean clock.

    jouletrace profile deit-b --batch 64 --mode graph --detail kernel -o deit-b-64.zip
    python benchmarks/alone.py deit-b-64.zip --device cuda:0 -o alone.md

Takes a Run on the same board, and of it the operators with the most energy whose data doesn't fit the L2. Each is
run on random data of its shapes, over and over in a CUDA graph, with several pauses in an iteration: each has a mean
clock of its own, by the SMs' cycle counters, and what a kernel that only waits draws in the pause is taken off. A
straight line through these gives the energy at the clock of the Run's own references, or their mean where clocks are
all alike. Under a power cap those are the references with a pause, and energies of operators are those at equal
clocks: at the cap itself an operator costs what it makes the others run slower for, too.
"""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import jouletrace as jt
from jouletrace.experiments.arms import REFERENCE
from jouletrace.experiments.levels import Observed
from jouletrace.report.results import Results
from jouletrace.run import Run, load
from jouletrace.steps.pacing import cycles_per_second

COPIES = 4
"""Sets of tensors that take turns, so that no launch finds its data in the cache."""

PAUSES = (0.2, 0.5, 1.0)
"""Over the time of an iteration without one."""

LEAST_APART = 0.03
"""Of clocks through which a line is drawn, relative."""

L2_BYTES = 50e6
_TENSOR = re.compile(r"f16\[([\d,]*)\]")

CALLS: dict[str, Callable[..., Any]] = {
    "aten.addmm": torch.addmm,
    "aten.add": torch.add,
    "aten.gelu": F.gelu,
    "aten.native_layer_norm": lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias),
    "aten._scaled_dot_product_cudnn_attention": F.scaled_dot_product_attention,
    "aten._scaled_dot_product_flash_attention": F.scaled_dot_product_attention,
}


@dataclass(frozen=True)
class Operator:
    """One of the Run's operators: joules and seconds of all its launches, with the half-width of the joules."""

    name: str
    module: str
    shapes: list[list[int]]
    count: int
    energy_j: float
    half_width_j: float
    time_s: float

    @property
    def bytes(self) -> float:
        """Of its inputs and its output, in fp16."""
        shapes = [*self.shapes, self.shapes[0]]
        if self.name == "aten.addmm":
            shapes[-1] = [self.shapes[1][0], self.shapes[2][1]]
        return 2.0 * sum(float(np.prod(shape)) for shape in shapes)


def operators(run: Run, most: int) -> list[Operator]:
    """Those with the most energy that can be made here and don't fit the cache."""
    results, found = Results(run), []
    for unit in results.units("op"):
        energy, time = results.get("energy_matched_j", unit["id"]), results.get("time_s", unit["id"])
        energy = energy if energy and energy.value else results.get("energy_total_j", unit["id"])
        shapes = [[int(n) for n in one.split(",") if n] for one in _TENSOR.findall(unit["shapes"] or "")]
        if unit["op"] in CALLS and energy and energy.value and energy.half_width and time and time.value:
            figures = (energy.value, energy.half_width, time.value)
            found.append(Operator(unit["op"], unit["module"], shapes, unit["count"], *figures))
    large = [one for one in found if one.bytes > L2_BYTES]
    return sorted(large, key=lambda one: -one.energy_j)[:most]


def clock_of(run: Run) -> float:
    """Mean counted clock of the Run's references in MHz: of those with a pause, where there are any."""
    seen = Observed.of(run.windows)
    paced = any(arm.kind == REFERENCE and arm.spin_ns for arm in seen.arm)
    mine = [arm.kind == REFERENCE and (arm.spin_ns > 0) == paced for arm in seen.arm]
    return float(np.nanmean(seen.counted_mhz[mine]))


def loop(operator: Operator, device: str, pause_cycles: int) -> Callable[[], Any]:
    """An iteration: each set of tensors once, then the pause."""
    call = CALLS[operator.name]
    sets = [
        [_random(shape, operator.name, i, device) for i, shape in enumerate(operator.shapes)] for _ in range(COPIES)
    ]

    def run() -> Any:
        outputs = [call(*tensors) for tensors in sets]
        if pause_cycles:
            torch.cuda._sleep(pause_cycles)
        return outputs[-1]

    return run


def _random(shape: list[int], name: str, place: int, device: str) -> torch.Tensor:
    if name == "aten.addmm" and place == 2:
        return torch.randn(shape[::-1], dtype=torch.float16, device=device).t()  # as a linear layer keeps it
    return torch.randn(shape, dtype=torch.float16, device=device)


def measured(call: Callable[[], Any], device: str, name: str) -> tuple[float, float, float]:
    """Joules and seconds of an iteration, and the counted clock in MHz."""
    run = jt.profile(call, device=device, mode="graph", name=name, idle=0.5, warmup=1, max_time=2.5, latency=0.1)
    windows = [row for row in run.windows.to_pylist() if row["variant"] == "untouched"]
    energy, time = run.result("energy_total_j").value, run.result("latency_s").value
    return energy, time, float(np.nanmean([row["counted_mhz"] or np.nan for row in windows]))


def line(operator: Operator, clock_mhz: float, device: str) -> str:
    """Its row of the table."""
    rate = cycles_per_second(torch.device(device))
    free_s = operator.time_s / operator.count * COPIES
    clocks, energies = [], []
    for share in PAUSES:
        cycles = round(share * free_s * rate)
        energy, _, clock = measured(loop(operator, device, cycles), device, operator.name)
        pause_s = cycles / rate
        waiting_j = pause_s * waiting_w(device) if cycles else 0.0
        clocks.append(clock)
        energies.append((energy - waiting_j) / COPIES * operator.count)
    # An operator that waits for memory runs at one clock whatever the pause: no line can be drawn through that.
    apart = np.ptp(clocks) > LEAST_APART * clock_mhz
    level = np.polyfit(np.array(clocks) - clock_mhz, energies, 1)[1] if apart else np.mean(energies)
    off = level / operator.energy_j - 1
    return (
        f"| {operator.name} {operator.module} | {operator.energy_j * 1e3:.1f} ± {operator.half_width_j * 1e3:.1f} | "
        f"{level * 1e3:.1f} | {100 * off:+.1f} % | {min(clocks):.0f} to {max(clocks):.0f} | "
        f"{', '.join(f'{e * 1e3:.1f}' for e in energies)} |"
    )


_WAITING: dict[str, float] = {}


def waiting_w(device: str) -> float:
    """Power of a kernel that only waits."""
    if device not in _WAITING:
        cycles = round(1e-3 * cycles_per_second(torch.device(device)))
        energy, time, _ = measured(lambda: torch.cuda._sleep(cycles), device, "wait")
        _WAITING[device] = energy / time
    return _WAITING[device]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--most", type=int, default=5, help="operators")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    run = load(arguments.run)
    clock_mhz = clock_of(run)
    lines = [
        f"Clock of the model's own references, counted: {clock_mhz:.0f} MHz.",
        "",
        "| operator | in the model, at equal clocks (mJ) | alone, at that clock (mJ) | off "
        "| clocks alone (MHz) | energies there (mJ) |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for operator in operators(run, arguments.most):
        lines.append(line(operator, clock_mhz, arguments.device))
        print(lines[-1], flush=True)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
