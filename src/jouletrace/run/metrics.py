"""The metrics of the ``results`` table: label and unit of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Metric:
    """How a metric is printed.

    Attributes:
        label: Text in front of the figure.
        unit: SI unit, "1" for a ratio, "%" for a fraction to be printed in percent, "pct" for
            a value already in percent.
        short: Column heading in front of the unit; "" where the unit suffices.
    """

    label: str
    unit: str
    short: str


ENERGY_CPU, ENERGY_MEMORY, ENERGY_SERVER = "energy_cpu_j", "energy_memory_j", "energy_server_j"
GPUS_AND_HOST = "energy_gpus_and_host_j"
"""Energies of the host beside GPUs, and of GPUs, CPUs and memory together."""

METRICS: dict[str, Metric] = {
    "latency_s": Metric("Latency, median", "s", "latency"),
    **{
        f"latency_{statistic}_s": Metric(f"Latency, {statistic}", "s", f"latency, {statistic}")
        for statistic in ("mean", "min", "max")
    },
    **{f"latency_{statistic}_s": Metric(f"Latency, {statistic}", "s", statistic) for statistic in ("p50", "p99")},
    "throughput_per_s": Metric("Throughput", "samples/s", ""),
    "time_to_first_token_s": Metric("First token, median", "s", "first token"),
    "tokens_per_s": Metric("New tokens", "1/s", "tokens"),
    "iteration_time_s": Metric("Time, back to back", "s", "back to back"),
    "time_s": Metric("Time", "s", "time"),
    "power_idle_w": Metric("Power, idle level", "W", "idle power"),
    "power_working_w": Metric("Power, working level", "W", "working"),
    "power_difference_w": Metric("Power, difference", "W", "difference"),
    "power_w": Metric("Power, mean", "W", "power"),
    "power_gpu_w": Metric("Power, mean, of the whole GPU", "W", "whole GPU"),
    "energy_total_j": Metric("Energy, total", "J", "energy"),
    "energy_gpu_j": Metric("Energy, GPUs", "J", "GPUs"),
    "energy_cpu_j": Metric("Energy, CPUs", "J", "CPUs"),
    "energy_memory_j": Metric("Energy, main memory", "J", "memory"),
    "energy_gpus_and_host_j": Metric("Energy, GPUs, CPUs, memory", "J", "GPUs and host"),
    "energy_server_j": Metric("Energy, whole server", "J", "server"),
    "energy_work_j": Metric("  work, whatever the host's time", "J", "work"),
    "power_idle_at_work_w": Metric("  idle power over the host's time", "W", "idle at work"),
    "energy_active_j": Metric("Energy, active", "J", "active"),
    "energy_active_over_context_idle_j": Metric("  active over context idle", "J", "active over context idle"),
    "energy_active_over_deep_idle_j": Metric("  active over deep idle", "J", "active over deep idle"),
    "work_done": Metric("Work counted", "1", "work"),
    "work_per_s": Metric("Rate of work", "1/s", "work"),
    "energy_per_sample_j": Metric("Energy per sample", "J", "per sample"),
    "energy_per_token_j": Metric("Energy per new token", "J", "per token"),
    "energy_per_step_j": Metric("Energy per step", "J", "per step"),
    "energy_per_work_j": Metric("Energy per unit of work", "J", "per unit of work"),
    "cost": Metric("Cost, at the given price", "1", "cost"),
    "co2e_g": Metric("CO2 equivalent, at the given intensity", "g", "CO2e"),
    "co2_g": Metric("CO2, as the file states it", "g", "CO2"),
    "share": Metric("Share", "%", "share"),
    "flops": Metric("FLOPs, by torch's formulas", "FLOP", ""),
    "bytes_moved": Metric("Bytes of inputs and outputs", "B", ""),
    "energy_per_flop_j": Metric("Energy per FLOP", "J/FLOP", ""),
    "energy_per_byte_j": Metric("Energy per byte of inputs and outputs", "J/B", ""),
    "flops_share": Metric("FLOP/s, of the best on this GPU", "%", "of the best FLOP/s"),
    "best_flops_per_s": Metric("Best FLOP/s on this GPU", "FLOP/s", "best"),
    "bytes_share": Metric("B/s, of the best copy on this GPU", "%", "of the best B/s"),
    "best_bytes_per_s": Metric("Best B/s on this GPU", "B/s", "best"),
    "requests_offered_per_s": Metric("Requests, offered", "1/s", "offered"),
    "requests_per_s": Metric("Requests, answered", "1/s", "answered"),
    "requests_open": Metric("Open requests, mean", "1", "open"),
    "energy_per_request_j": Metric("Energy per request", "J", "per request"),
    "energy_per_output_token_j": Metric("Energy per output token, everything included", "J", "per output token"),
    "energy_per_request_error_pct": Metric("Energy per request, chance in the run", "pct", "chance, request"),
    "energy_per_output_token_error_pct": Metric("Energy per output token, chance in the run", "pct", "chance, token"),
    "energy_per_any_token_j": Metric("Energy per token of prompts and answers", "J", "per token"),
    "tokens_per_j": Metric("Output tokens per joule", "1/J", "tokens"),
    "energy_prompt_token_j": Metric("Energy that a prompt's token adds", "J", "prompt's token"),
    "energy_output_token_j": Metric("Energy that an output token adds", "J", "output token"),
    "energy_prefill_j": Metric("Energy, prefill", "J", "prefill"),
    "energy_decode_j": Metric("Energy, decode", "J", "decode"),
    "energy_idle_j": Metric("Energy, no step running", "J", "no step running"),
    "energy_step_j": Metric("Step: common to all in it", "J", "per step"),
    "energy_new_token_j": Metric("Step: a prompt's token", "J", "new token"),
    "energy_sequence_j": Metric("Step: a decoding sequence", "J", "sequence"),
    "energy_context_token_j": Metric("Step: a token in a cache", "J", "context token"),
    "energy_pair_j": Metric("Step: a query and a key", "J", "pair"),
    "bill_p50_j": Metric("Bill of a request, median", "J", "bill, median"),
    "bill_p90_j": Metric("Bill of a request, p90", "J", "bill, p90"),
    "bill_p99_j": Metric("Bill of a request, p99", "J", "bill, p99"),
    "closure_steps": Metric("Steps by the model / energy of the steady window", "1", "steps / whole"),
    "power_busy_w": Metric("Power that any open request adds", "W", "busy"),
    "activity": Metric("Activity of the slice", "%", "activity"),
    "share_idle": Metric("Time without requests", "%", "without requests"),
    "share_within_slo": Metric("Requests within the SLO", "%", "within SLO"),
    "goodput_per_s": Metric("Goodput", "1/s", "goodput"),
    "closure_bills": Metric("Bills / energy of the steady window", "1", "bills / whole"),
    "baseline_context_idle_w": Metric("Baseline, context idle", "W", "context idle"),
    "baseline_deep_idle_w": Metric("Baseline, deep idle", "W", "deep idle"),
    "energy_per_inference_j": Metric("Energy per inference", "J", "per inference"),
    "energy_each_j": Metric("Energy, each", "J", "each"),
    "energy_own_j": Metric("Energy, own operators", "J", "own"),
    "time_busy_s": Metric("Busy time", "s", "busy"),
    "time_own_s": Metric("Time, own operators", "s", "own time"),
    "time_mean_s": Metric("Time, mean", "s", "each"),
    "compute_throughput_pct": Metric("Compute throughput, of the peak", "pct", "compute"),
    "memory_throughput_pct": Metric("Memory throughput, of the peak", "pct", "memory"),
    "achieved_occupancy_pct": Metric("Achieved occupancy", "pct", "occupancy"),
    "theoretical_occupancy_pct": Metric("Theoretical occupancy", "pct", "theoretical occupancy"),
    "time_traced_s": Metric("Time, traced", "s", "traced"),
    "closure_phases": Metric("Closure: phases / whole", "1", "closure of phases"),
    "closure_phases_time": Metric("Closure of phases, time", "1", "closure of phases, time"),
    "sample_rate_hz": Metric("Sample rate of the sensor", "Hz", "sample rate"),
    "residual_w": Metric("Residual of the fit, rms", "W", "residual"),
    "powers_possible": Metric("Powers within what the GPU can draw, p", "1", "powers possible, p"),
    "closure_kernels_time": Metric("Closure of time", "1", "closure of time"),
    "closure_layers": Metric("Layers / untraced whole", "1", "layers / whole"),
    "closure_kernels": Metric("Parts / untraced whole", "1", "parts / whole"),
    "counter_ratio": Metric("Record / energy counter", "1", "record / counter"),
    "energy_total_spread_within_pct": Metric("Energy, sd of windows", "pct", "energy, sd of windows"),
    "energy_total_spread_between_pct": Metric("Energy, sd of runs", "pct", "energy, sd of runs"),
    "iteration_time_spread_within_pct": Metric("Time, sd of windows", "pct", "time, sd of windows"),
    "iteration_time_spread_between_pct": Metric("Time, sd of runs", "pct", "time, sd of runs"),
}
"""In order of display. ``share`` is stored as a fraction and printed in percent."""

CLOSURES = ("closure_layers", "closure_kernels", "closure_kernels_time")
"""Metrics of the model that should be 1."""

PROGRAM_TIME: Final = "iteration_time_s"
"""Metric of the time of all of a program. Stored Runs and JSON of schema 3 call it as that of an iteration, and so does
this table, which has one name for the time of the whole (``Parts.time``)."""

EACH = {"time_s": "time_mean_s", "energy_total_j": "energy_each_j"}
"""Metrics of all occurrences of a part together, and those of each."""

WORK = {"flops": "energy_per_flop_j", "bytes_moved": "energy_per_byte_j"}
"""Metrics of an operator's counted work in an iteration, and those of its energy by that."""

BEST = {"flops_share": "best_flops_per_s", "bytes_share": "best_bytes_per_s"}
"""Metrics of an operator's rates as shares of the best ones that its GPU reached, and those best ones: of FLOPs that of
the number format, which is its method."""

OF_PARTS = (*CLOSURES, "residual_w", "sample_rate_hz", "powers_possible")
"""Metrics of the model that say how far its parts can be trusted; listed under the parts."""

_SUFFIXES = {"_per_s": "1/s", "_s": "s", "_w": "W", "_j": "J", "_mhz": "MHz", "_c": "°C", "_bytes": "B", "_pct": "pct"}


def metric(name: str) -> Metric:
    """How a metric is printed; one that isn't in the table is named and measured by its own name."""
    if name in METRICS:
        return METRICS[name]
    for suffix, unit in _SUFFIXES.items():
        if name.endswith(suffix):
            words = name.removesuffix(suffix).replace("_", " ")
            return Metric(words.capitalize(), unit, words)
    words = name.replace("_", " ")
    return Metric(words.capitalize(), "1", words)


def ordered(names: set[str]) -> list[str]:
    """Metrics in the order of ``METRICS``, unknown ones last by name."""
    return [name for name in METRICS if name in names] + sorted(names - set(METRICS))
