"""The metrics of the ``results`` table: what each is called in print, and its unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric as people read it.

    Attributes:
        label: What is printed in front of the figure.
        unit: SI unit, "1" for a ratio, "%" for a fraction to be printed in percent, "pct" for
            what is in percent already.
        short: Heading of a column, in front of the unit; "" where the unit says it all.
    """

    label: str
    unit: str
    short: str


METRICS: dict[str, Metric] = {
    "latency_s": Metric("Latency, median", "s", "latency"),
    "throughput_per_s": Metric("Throughput", "samples/s", ""),
    "time_to_first_token_s": Metric("First token, median", "s", "first token"),
    "tokens_per_s": Metric("New tokens", "1/s", "tokens"),
    "iteration_time_s": Metric("Time, back to back", "s", "back to back"),
    "time_s": Metric("Time", "s", "time"),
    "power_idle_w": Metric("Power, idle level", "W", "idle"),
    "power_working_w": Metric("Power, working level", "W", "working"),
    "power_difference_w": Metric("Power, difference", "W", "difference"),
    "power_w": Metric("Power, mean", "W", "power"),
    "energy_total_j": Metric("Energy, total", "J", "energy"),
    "energy_active_j": Metric("Energy, active", "J", "active"),
    "energy_active_over_context_idle_j": Metric("  active over context idle", "J", "active over context idle"),
    "energy_active_over_deep_idle_j": Metric("  active over deep idle", "J", "active over deep idle"),
    "work_done": Metric("Work counted", "1", "work"),
    "work_per_s": Metric("Rate of work", "1/s", "work"),
    "energy_per_token_j": Metric("Energy for each new token", "J", "each token"),
    "energy_per_work_j": Metric("Energy for one unit of work", "J", "energy for one"),
    "cost": Metric("Cost, at the given price", "1", "cost"),
    "co2_g": Metric("CO2, at the given factor", "g", "CO2"),
    "share": Metric("Share", "%", "share"),
    "baseline_context_idle_w": Metric("Baseline, context idle", "W", "context idle"),
    "baseline_deep_idle_w": Metric("Baseline, deep idle", "W", "deep idle"),
    "energy_per_inference_j": Metric("Energy of an inference", "J", "energy, inference"),
    "energy_each_j": Metric("Energy, each", "J", "each"),
    "energy_own_j": Metric("Energy, own operators", "J", "own"),
    "time_busy_s": Metric("Time with something running", "s", "busy"),
    "time_own_s": Metric("Time, own operators", "s", "own time"),
    "energy_removed_j": Metric("Energy, module removed", "J", "removed as a whole"),
    "time_removed_s": Metric("Time, module removed", "s", "time, removed as a whole"),
    "energy_summed_j": Metric("Energy, sum of operators", "J", "sum of operators"),
    "time_summed_s": Metric("Time, sum of operators", "s", "time, sum of operators"),
    "time_matched_s": Metric("Time, at equal clocks", "s", "time, equal clocks"),
    "energy_matched_j": Metric("Energy, at equal clocks", "J", "energy, equal clocks"),
    "energy_removal_j": Metric("Energy, by removal", "J", "by removal"),
    "energy_repetition_j": Metric("Energy, by repetition", "J", "by repetition"),
    "time_removal_s": Metric("Time, by removal", "s", "time by removal"),
    "time_repetition_s": Metric("Time, by repetition", "s", "time by repetition"),
    "time_traced_s": Metric("Time, traced", "s", "traced"),
    "energy_step_j": Metric("Energy of the step among its parts", "J", "step among its parts"),
    "closure_phases": Metric("Closure: phases / whole", "1", "closure of phases"),
    "closure_phases_time": Metric("Closure of phases, time", "1", "closure of phases, time"),
    "closure_layers": Metric("Closure, layers", "1", "closure, layers"),
    "closure_kernels": Metric("Closure: parts and gaps / whole", "1", "closure"),
    "closure_kernels_time": Metric("Closure of time", "1", "closure of time"),
    "closure_kernels_matched": Metric("Closure at equal clocks", "1", "closure, equal clocks"),
    "perturbation": Metric("Perturbation", "1", "perturbation"),
    "null_experiment": Metric("Null experiment", "1", "null experiment"),
    "energy_resolvable_j": Metric("Smallest energy told from nothing", "J", "resolvable"),
    "pause_s": Metric("Pause that keeps the cap away", "s", "pause"),
    "detuned_s": Metric("Pause against the sensor's beat", "s", "pause"),
    "clock_spread_mhz": Metric("Clocks apart, at most", "MHz", "clocks apart"),
    "spike_recovered": Metric("Spike recovered", "1", "spike"),
    "additivity_residual": Metric("Pair less its parts", "1", "pair less parts"),
    "counter_ratio": Metric("Record / energy counter", "1", "record / counter"),
    "energy_total_spread_within_pct": Metric("Energy, sd of windows", "pct", "energy, sd of windows"),
    "energy_total_spread_between_pct": Metric("Energy, sd of runs", "pct", "energy, sd of runs"),
    "iteration_time_spread_within_pct": Metric("Time, sd of windows", "pct", "time, sd of windows"),
    "iteration_time_spread_between_pct": Metric("Time, sd of runs", "pct", "time, sd of runs"),
}
"""In the order in which they are listed. ``share`` is stored as a fraction and printed in percent."""
