"""How well the parts of a step are told apart on simulated boards, where every joule is known.

Real models are counted and made steps on boards drawn by seed; what the experiment says of each part,
from the board's own noisy sensors, is held against the truth. Beside it the naive way: a captured
graph's nodes switched off one at a time, windows one after the other, against one reference.

Truth at equal clocks (and everywhere where no cap acts) is what the kernels drew in the reference's
own windows. Truth of the marginal cost under a cap is the noiseless steady state with and without
the part, at the power that the kernels drew in this run.

    python benchmarks/experiments_sim.py --seeds 10 -o experiments.md
    python benchmarks/experiments_sim.py --phases --workloads bert-b:16 resnet50:64    (of training steps)
"""

import argparse
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from jouletrace.analysis.windows import fill
from jouletrace.devices import open_device
from jouletrace.experiments.estimate import Findings, estimate_parts
from jouletrace.experiments.parts import Part
from jouletrace.experiments.plan import PlanSettings
from jouletrace.experiments.run_plan import Experiment
from jouletrace.profiler.session import Session
from jouletrace.run import Estimate
from jouletrace.steps.base import DETACHED
from jouletrace.steps.counting import Operator, count_workload
from jouletrace.steps.simulated import SimulatedStep, kernels_of
from jouletrace.workloads import resolve
from jouletrace.workloads.base import WorkloadOptions

WARM_S = 30.0
TAIL_NS = 300_000_000


@dataclass
class Row:
    """A part's figure against its truth."""

    op: str
    share: float
    truth_j: float
    estimate: Estimate
    kind: str

    @property
    def covered(self) -> bool:
        return self.estimate.low <= self.truth_j <= self.estimate.high

    @property
    def width(self) -> float:
        return self.estimate.half_width / abs(self.truth_j)

    @property
    def error(self) -> float:
        return self.estimate.value / self.truth_j - 1


@dataclass
class Outcome:
    """One experiment on one board."""

    findings: Findings
    rows: list[Row]
    seconds: float
    naive_sum: float
    naive_errors: list[float]
    notes: list[tuple[str, str]]


def experiment(spec: str, operators: list[Operator], settings: PlanSettings) -> Outcome:
    """Warm up, experiment, and compare; the naive way last."""
    device = open_device(spec)
    step = SimulatedStep(device, kernels_of(device, operators))
    with tempfile.TemporaryDirectory() as folder:
        session = Session("profile", [device], folder=Path(folder) / "run")
        with session:
            iteration_s = step.replay(10).seconds / 10
            step.replay(round(WARM_S / iteration_s))

            def measured():
                run = session.snapshot()
                if len(run.windows):
                    session.recorder.wait_until(int(run.windows["end_ns"].to_numpy().max()) + TAIL_NS)
                    fill(session.snapshot())
                return session.run.windows

            stamps, _ = session.power(0)
            period_s = float(stamps[-1] - stamps[0]) / 1e9 / (len(stamps) - 1)
            runner = Experiment(step, measured, replace(settings, sensor_s=period_s))
            for window in runner.windows():
                session.add_window(**window.columns())
            table = measured()
            findings = estimate_parts(table, [part.id for part in runner.parts])
            rows = compare(step, runner.parts, findings, table.to_pylist())
            naive = leave_one_out(step, runner.parts, session)
            session.finish()
    device.close()
    truth = {row.op: row.truth_j for row in rows if row.kind == "in context"}
    errors = [joules / truth[name(part)] - 1 for part, joules in zip(runner.parts, naive[1:], strict=True)]
    return Outcome(findings, rows, runner.spent_s, sum(naive[1:]) / naive[0], errors, runner.notes)


def name(part: Part) -> str:
    return f"{part.op} {part.module}".strip()


def _scale(truth, schedule, start_ns: int, end_ns: int) -> float:
    """Power of the load in a window over that without noise at the window's clock."""
    steady = truth.steady(schedule, clock_mhz=truth.clock_mhz(start_ns, end_ns))
    return truth.step(schedule, start_ns, end_ns).kernel_active_j.sum() / steady.kernel_active_j.sum()


def compare(step: SimulatedStep, parts: list[Part], findings: Findings, windows: list[dict]) -> list[Row]:
    """Every part's figures with their truth."""
    truth, board = step._device.truth, step._device.board
    pause = round(findings.pause_s * 1e9)
    paced = step.paced(pause / 1e9) if pause else step
    label = f"reference paced {pause / 1000:.3f}us" if pause else "reference"
    matched = [truth.step(paced.schedule, w["start_ns"], w["end_ns"]) for w in windows if w["variant"] == label]
    drawn = np.mean([t.kernel_j for t in matched], axis=0)
    gap_s = truth.parameters().kernel_gap_s
    gap_j = gap_s * np.mean([board.engine.idle_w(truth.temperature_c(w["end_ns"]), True) for w in windows])
    # The load's power in these windows over that without noise, which the marginal truth needs too.
    plain = [(w["start_ns"], w["end_ns"]) for w in windows if w["variant"] == "reference"]
    heat = np.mean([truth.temperature_c(end) for _, end in plain])
    scale = np.mean([_scale(truth, step.schedule, *edges) for edges in plain])

    def steady_j(variant: SimulatedStep) -> float:
        kernels = [kernel.scaled(power=scale) for kernel in variant.schedule.kernels]
        return truth.steady(board.schedule(kernels), temperature_c=heat).energy_j

    rows = []
    for part in parts:
        cost = findings.parts[part.id]
        exact = sum(drawn[i] + gap_j for unit in part.units for i in step.places(unit))
        alone, without = (step.variant(part.changes(times)) for times in (DETACHED, 0))
        marginal = steady_j(alone) - steady_j(without) if pause else exact
        share = exact / drawn.sum()
        rows.append(Row(name(part), share, marginal, cost.cost.energy_j, "in context"))
        if cost.matched is not None:
            rows.append(Row(name(part), share, exact, cost.matched.energy_j, "equal clocks"))
    return rows


def leave_one_out(step: SimulatedStep, parts: list[Part], session: Session) -> list[float]:
    """Energy of the step, then what each part seems to cost when its graph nodes are switched off."""
    windows = [toggled_window(step)]
    for part in parts:
        for unit in part.units:
            step.toggle(unit, enabled=False)
        windows.append(toggled_window(step))
        for unit in part.units:
            step.toggle(unit, enabled=True)
    session.recorder.wait_until(windows[-1][2] + TAIL_NS)
    run = session.snapshot()
    first = len(run.windows)
    for replays, start_ns, end_ns in windows:
        session.add_window(variant="naive", replays=replays, start_ns=start_ns, end_ns=end_ns)
    fill(session.snapshot())
    energy = run.windows["energy_j"].to_numpy()[first:] / run.windows["replays"].to_numpy()[first:]
    return [energy[0], *(energy[0] - energy[1:])]


def toggled_window(step: SimulatedStep) -> tuple[int, int, int]:
    n = max(1, round(0.5 / (step.replay(20).seconds / 20)))
    step.replay(n)
    interval = step.replay(n)
    return n, interval.start_ns, interval.end_ns


def summary(title: str, outcomes: list[Outcome], kind: str) -> str:
    """One line of the table."""
    rows = [row for outcome in outcomes for row in outcome.rows if row.kind == kind]
    found = [outcome.findings for outcome in outcomes]
    cells = [title, str(len(outcomes)), f"{np.mean([row.covered for row in rows]):.1%} of {len(rows)}"]
    for low, high in ((0.05, 1.0), (0.02, 0.05)):
        some = [row for row in rows if low < abs(row.share) <= high]
        widths = [row.width for row in some]
        rms = np.sqrt(np.mean([row.error**2 for row in some])) if some else np.nan
        cells.append(f"{np.median(widths):.1%}, {max(widths):.1%}; {rms:.1%}" if some else "–")
    closures = [f.closure if kind == "in context" else f.closure_matched for f in found]
    values = [c.value for c in closures if c]
    held = [c.low <= 1 <= c.high for c in closures if c]
    cells.append(f"{np.mean(values):.3f} ({min(values):.3f}–{max(values):.3f}); {np.mean(held):.0%}")
    spikes = [spike.passed for f in found for spike in f.spikes]
    pairs = [pair.passed for f in found for pair in f.additivity]
    null = [f.null.low <= 1 <= f.null.high for f in found]
    cells += [f"{np.mean(some):.0%} of {len(some)}" if some else "–" for some in (spikes, pairs)]
    cells.append(f"{np.mean(null):.0%}")
    spread = [f.clock_spread_mhz for f in found if f.clock_spread_mhz is not None]
    cells += [f"{max(spread):.0f}", f"{np.mean([o.seconds for o in outcomes]):.0f}"]
    naive = [outcome.naive_sum for outcome in outcomes]
    errors = [abs(e) for outcome in outcomes for e in outcome.naive_errors]
    cells.append(f"{np.mean(naive):.2f}; {np.median(errors):.0%}")
    return "| " + " | ".join(cells) + " |"


HEADER = (
    "| workload, board, kind | boards | coverage | > 5 %: half-width median, worst; rms error | 2–5 %: same "
    "| closure mean (range); holds 1 | spikes recovered | pairs add | null holds 1 "
    "| clocks apart, MHz | seconds | naive: sum; median error |\n|" + "---|" * 12
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="boards of each kind")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workloads", nargs="+", default=["deit-b:1", "deit-b:64"], help="NAME:BATCH")
    parser.add_argument("--boards", nargs="+", default=["h100?cap=off", "h100"])
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of each experiment")
    parser.add_argument("--phases", action="store_true", help="of training steps, each phase as a whole")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--rows", action="store_true", help="print every row of the last board too")
    arguments = parser.parse_args()
    lines = [HEADER]
    print(HEADER, flush=True)
    for workload in arguments.workloads:
        model, _, batch = workload.partition(":")
        task, dtype = ("train", "bf16") if arguments.phases else ("infer", "fp16")
        options = WorkloadOptions(batch=int(batch or 1), dtype=dtype, task=task)
        _, operators = count_workload(resolve(model), options)
        for board in arguments.boards:
            outcomes = []
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
                spec = f"sim:{board}{'&' if '?' in board else '?'}seed={seed}"
                began = time.perf_counter()
                settings = PlanSettings(budget_s=arguments.budget, seed=seed, phases=arguments.phases)
                outcomes.append(experiment(spec, operators, settings))
                if arguments.rows:
                    show(outcomes[-1], time.perf_counter() - began)
            for kind in dict.fromkeys(row.kind for outcome in outcomes for row in outcome.rows):
                lines.append(summary(f"{workload}, {board}, {kind}", outcomes, kind))
                print(lines[-1], flush=True)
    if arguments.output is not None:
        arguments.output.write_text("\n".join(lines) + "\n")


def show(outcome: Outcome, wall_s: float) -> None:
    for row in outcome.rows:
        e = row.estimate
        if e.value is None:
            print(f"{row.op[:60]:60s} {row.kind:12s} {e.reason}")
            continue
        print(
            f"{row.op[:60]:60s} {row.kind:12s} {row.share:6.1%} truth {row.truth_j * 1e3:8.3f} mJ,"
            f" found {e.value * 1e3:8.3f} [{e.low * 1e3:8.3f}, {e.high * 1e3:8.3f}] n={e.n}"
            f"{'' if row.covered else ' MISS'}"
        )
    f = outcome.findings
    for key in ("closure", "closure_time", "closure_matched", "perturbation", "null", "gaps", "resolvable_j", "flags"):
        print(f"{key}: {getattr(f, key)}")
    for check in (*f.spikes, *f.additivity):
        print(check)
    print(
        f"pause {f.pause_s * 1e6:.0f} us, {f.windows} windows, {outcome.seconds:.0f} s simulated, {wall_s:.1f} s real"
    )


if __name__ == "__main__":
    main()
