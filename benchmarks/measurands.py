"""How often intervals hold what they are of, on simulated GPUs whose energy is known exactly.

    python benchmarks/measurands.py [--gpus 200] [--fleets 1000]
    python benchmarks/measurands.py --late 200
    python benchmarks/measurands.py --drawn 800 --first 3001

Each GPU runs a step of four kernels: one run gives the interval, three give that of ``--repeats``. Intervals of *this
run* are compared with what its windows drew, those of *this workload on this GPU* with the GPU's mean over all runs at
the temperature of its windows. Of *such GPUs*: fleets of eight GPUs, drawn from these, each of which ran once, against
the mean of all. A t-interval of what the runs really drew shows what chance alone does: nothing is measured for it, and
``--drawn`` makes it alone, of many GPUs.
"""

import numpy as np

from jouletrace.analysis import analyse
from jouletrace.campaign.repeats import merge
from jouletrace.execution.steps.base import Interval
from jouletrace.execution.steps.simulated import SimulatedStep
from jouletrace.profiler import passes
from jouletrace.profiler.passes import warm_up
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording.calibrations import SIMULATED_SCATTER
from jouletrace.recording.session import Session
from jouletrace.run import Estimate, Run
from jouletrace.simulator.boards import SimKernel, SimulatedGpu
from jouletrace.stats.interval import mean_estimate
from judging import Case, judged, options
from step_truth import steady_step

SETTINGS = ProfileSettings(warmup_s=2.0, idle_s=1.0, calibrated=False)
KERNELS = [SimKernel("gemm", 50e-6, 300.0, clocked=0.2, core=0.5) for _ in range(4)]
FLEET = 8


def recorded(device: SimulatedGpu, step: SimulatedStep, *, idle_after: bool = False) -> Run:
    """The passes of a profile."""
    with Session("profile", [device], settings=SETTINGS.to_dict(), workload={"name": "measurands"}) as session:
        warm = warm_up(session, step, SETTINGS.warmup_s, Progress())
        passes.idle(session, "context idle before", SETTINGS, Progress())
        passes.energy(session, step, SETTINGS, warm.iteration_s, Progress())
        if idle_after:
            passes.idle(session, "context idle after", SETTINGS, Progress())
        return session.finish()


def profiled(spec: str) -> tuple[Run, float, float]:
    """The passes of a profile: its Run, the true energy of an iteration in its windows, and that of all runs, J."""
    device = SimulatedGpu(spec)
    step = SimulatedStep(device, KERNELS)
    run = recorded(device, step)
    start, end, replays = (run.windows[name].to_numpy() for name in ("start_ns", "end_ns", "replays"))
    drawn = joules_drawn(device, run)
    heat = float(np.mean([device.truth.temperature_c(int(at)) for at in (start + end) // 2]))
    steady = steady_step(device, step.schedule, temperature_c=heat).energy_j
    device.close()
    return run, float(np.mean(drawn / replays)), float(steady)


def joules_drawn(device: SimulatedGpu, run: Run) -> np.ndarray:
    """What each window drew without its pauses, J, before the Run is analysed."""
    start, end, seconds = (run.windows[name].to_numpy() for name in ("start_ns", "end_ns", "time_s"))
    idle_w = np.array([device.truth.idle_w(int(at)) for at in (start + end) // 2])
    whole = np.array([device.truth.energy_j(*edges) for edges in zip(start, end, strict=True)])
    return whole - idle_w * ((end - start) / 1e9 - seconds)


class LateStep(SimulatedStep):
    """A step whose host is late: between iterations the GPU idles, in each window for another share of the time."""

    rng = np.random.default_rng(0)
    at_once = 20  # in a piece of a window
    late, until_ns = 0.0, 0

    def replay(self, n: int) -> Interval:
        """As of ``SimulatedStep``, with pauses of 0 to 0.8 of the time that iterations take; others after 0.3 s."""
        ran: list[Interval] = []
        if self._device.clock.time_ns() > self.until_ns:
            self.late, self.until_ns = self.rng.uniform(0.0, 0.8), self._device.clock.time_ns() + 300_000_000
        for begin in range(0, n, self.at_once):
            ran.append(super().replay(min(self.at_once, n - begin)))
            self._device.clock.sleep(self.late * (ran[-1].end_ns - ran[-1].start_ns) / 1e9)
        return Interval(ran[0].start_ns, ran[-1].end_ns)


def of_late_host(board: str, seed: int) -> dict[str, Case]:
    """Energies of a run whose host is late, and what its windows drew, over their own idle power."""
    device = SimulatedGpu(f"sim:{board}?seed={seed}")
    step = LateStep(device, KERNELS)
    step.rng = np.random.default_rng(seed)
    run = recorded(device, step, idle_after=True)
    start, end, replays = (run.windows[name].to_numpy() for name in ("start_ns", "end_ns", "replays"))
    drawn, seconds = joules_drawn(device, run), run.windows["time_s"].to_numpy()
    within = zip(start, end, strict=True)
    idle_w = [np.mean([device.truth.idle_w(int(at)) for at in np.linspace(*one, 5)]) for one in within]
    truth = {"total": drawn, "active_over_context_idle": drawn - np.array(idle_w) * seconds}
    device.close()
    analyse(run)
    truth["work"] = truth["active_over_context_idle"]
    return {
        f"late host, {name}": (run.result(f"energy_{name}_j"), float(np.mean(joules / replays)))
        for name, joules in truth.items()
    }


def drawn(spec: str) -> float:
    """Energy that a run of 4 s draws, over the mean of all runs at its temperature."""
    device = SimulatedGpu(spec)
    step = SimulatedStep(device, KERNELS)
    iteration_s = step.schedule.at(1.0, 1.0).period_s
    step.replay(round(0.3 / iteration_s))
    n = round(4.0 / iteration_s)
    ran = step.replay(n)
    moments = np.linspace(ran.start_ns, ran.end_ns, 9)
    heat = float(np.mean([device.truth.temperature_c(int(at)) for at in moments]))
    steady = steady_step(device, step.schedule, temperature_c=heat).energy_j
    joules = device.truth.energy_j(ran.start_ns, ran.end_ns) / n
    device.close()
    return float(joules / steady)


def energy(run: Run, stored: dict | None) -> Estimate:
    """Energy of an iteration, with a stored scatter between runs or without."""
    run.stored.pop("between_runs", None)
    if stored is not None:
        run.stored["between_runs"] = stored
    return analyse(run).result("energy_total_j")


def of_gpu(board: str, seed: int) -> dict[str, Case]:
    """Intervals of a GPU and of three runs on it, and what they are of, by name."""
    runs, here, anywhere = zip(*(profiled(f"sim:{board}?seed={seed}&run={n}") for n in (1, 2, 3)), strict=True)
    return {
        "this run": (energy(runs[0], None), here[0]),
        "this workload, without the term": (energy(runs[0], None), anywhere[0]),
        "this workload, stored figure": (energy(runs[0], SIMULATED_SCATTER), anywhere[0]),
        "this workload, --repeats 3": (energy(merge(list(runs)), SIMULATED_SCATTER), anywhere[0]),
        "the same, by what these 3 runs really drew": (mean_estimate(np.array(here)), anywhere[0]),
    }


def of_fleets(cases: list[dict[str, Case]], fleets: int, rng: np.random.Generator) -> list[Case]:
    """Means of fleets that are drawn from GPUs, and the mean of all."""
    measured = np.array([one["this run"][0].value for one in cases])
    truth = float(np.mean([one["this workload, stored figure"][1] for one in cases]))
    drawn = (rng.choice(len(cases), FLEET, replace=False) for _ in range(fleets))
    return [(mean_estimate(measured[some]), truth) for some in drawn]


def row(name: str, cases: list[Case]) -> str:
    """A line of the table."""
    found = judged(cases)
    width = np.median(found.half * found.truth / found.value)
    return f"| {name} | {found.n} | {100 * found.held.mean():.1f} % | {100 * width:.2f} % | {100 * found.rms:.2f} % |"


def main() -> None:
    asked = options(__doc__, gpus=200, fleets=1000, late=0, drawn=0, board="h100", first=1).parse_args()
    seeds = range(asked.first, asked.first + (asked.late or asked.drawn or asked.gpus))
    if asked.drawn:
        runs = ([drawn(f"sim:{asked.board}?seed={seed}&run={n}") for n in (1, 2, 3)] for seed in seeds)
        print(row("what three runs drew", [(mean_estimate(three), 1.0) for three in runs]))
        return
    cases = [of_late_host(asked.board, seed) if asked.late else of_gpu(asked.board, seed) for seed in seeds]
    if not asked.late:
        print("| interval of | n | covered | median half-width | RMS error |\n|---|---|---|---|---|")
    for name in cases[0]:
        print(row(name, [one[name] for one in cases]))
    if not asked.late:
        print(row(f"such GPUs, fleets of {FLEET}", of_fleets(cases, asked.fleets, np.random.default_rng(1))))


if __name__ == "__main__":
    main()
