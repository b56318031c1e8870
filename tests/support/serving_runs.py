"""Runs of a simulated server whose power follows a known formula from its requests: J per token have a known truth.

A prompt takes a set time per token, an answer too. Power is idle, plus a constant while any request is open, plus
joules per token times the rate of tokens. Readings are means over 50 ms without gaps, with noise.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from scipy.signal import lfilter

from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables
from jouletrace.sensor.calibration.response import StepResponse

START_NS = 1_800_000_000_000_000_000
PERIOD_S = 0.05


@dataclass
class Truth:
    """The formula, and how fast the server is."""

    idle_w: float = 120.0
    busy_w: float = 200.0
    prompt_j: float = 0.05
    output_j: float = 0.6
    prompt_s: float = 0.0004
    output_s: float = 0.02
    saturation_w: float = 0.0
    """If set, the part by tokens saturates towards it, as that of batches does: the linear formula is then wrong."""

    def power(self, time, rows):
        """Mean power in each of ``time``'s cells, W."""
        busy = _rate(time, rows["sent"], rows["last"], np.ones(len(rows["sent"])))
        prompt = _rate(time, rows["sent"], rows["first"], rows["input_tokens"] / (rows["first"] - rows["sent"]))
        output = _rate(time, rows["first"], rows["last"], rows["output_tokens"] / (rows["last"] - rows["first"]))
        tokens = self.prompt_j * prompt + self.output_j * output
        if self.saturation_w:
            tokens = self.saturation_w * (1 - np.exp(-tokens / self.saturation_w))
        return self.idle_w + self.busy_w * (busy > 0.5) + tokens


def _rate(time, start, end, rate):
    """Sum of rates in each cell of an even grid, by the share of the cell that each covers."""
    step = time[1] - time[0]
    edges = np.append(time, time[-1] + step)
    order = np.argsort(np.concatenate([start, end]), kind="stable")
    at, value = np.concatenate([start, end])[order], np.cumsum(np.concatenate([rate, -rate])[order])
    reached = np.append(0.0, np.cumsum(value[:-1] * np.diff(at)))
    return np.diff(np.interp(edges, at, reached)) / step


def level_of(truth, rate, seconds, inputs, outputs, rng, slots=10**9):
    """Requests of an open loop: arrays by column, seconds from the level's start; at most ``slots`` at once."""
    sent = np.cumsum(rng.exponential(1 / rate, int(rate * seconds + 5 * (rate * seconds) ** 0.5 + 10)))
    sent = sent[sent < seconds]
    input_tokens = rng.integers(inputs[0], inputs[1], len(sent), endpoint=True)
    output_tokens = rng.integers(outputs[0], outputs[1], len(sent), endpoint=True)
    first, last = np.empty(len(sent)), np.empty(len(sent))
    free = np.zeros(min(slots, len(sent) + 1))
    for i in range(len(sent)):
        slot = int(np.argmin(free)) if slots < 10**9 else 0
        begin = max(sent[i], free[slot]) if slots < 10**9 else sent[i]
        first[i] = begin + input_tokens[i] * truth.prompt_s
        last[i] = first[i] + output_tokens[i] * truth.output_s
        free[slot] = last[i]
    return {"sent": sent, "first": first, "last": last, "input_tokens": input_tokens, "output_tokens": output_tokens}


def serving_run(
    truth, levels, *, pause_s=5.0, noise_w=1.0, seed=0, slo_s=None, names=None, late_s=0.0, rates=(), rise_s=0.0
):
    """A Run of kind "bench" with these levels, one after another."""
    rng = np.random.default_rng(seed + 1000)
    rows, begin, number, whole = [], pause_s, 0, []
    for number, level in enumerate(levels):
        shifted = {k: v + begin if k in ("sent", "first", "last") else v for k, v in level.items()}
        whole.append(shifted)
        for i in range(len(level["sent"])):
            ns = {k: START_NS + round(float(shifted[k][i]) * 1e9) for k in ("sent", "first", "last")}
            rows.append(
                {
                    "id": i,
                    "level": number,
                    "scheduled_ns": ns["sent"] - round(late_s * 1e9),
                    "sent_ns": ns["sent"],
                    "first_ns": ns["first"],
                    "last_ns": ns["last"],
                    "input_tokens": int(level["input_tokens"][i]),
                    "output_tokens": int(level["output_tokens"][i]),
                    "chunks": int(level["output_tokens"][i]),
                    "status": "ok",
                }
            )
        begin = float(shifted["last"].max()) + pause_s
    time = np.arange(0.0, begin, PERIOD_S)
    joined = {k: np.concatenate([one[k] for one in whole]) for k in whole[0]}
    power = truth.power(time, joined)
    device = DeviceInfo("GPU-served", "SIMULATED GPU", simulated=True, power_limit_w=2000.0)
    run = Run(
        kind="bench",
        created_ns=START_NS,
        workload={
            "name": "model",
            "serving": {
                "url": "http://127.0.0.1:8000/v1",
                "model": "model",
                "levels": [
                    {
                        "name": (names or {}).get(k, f"level {k}"),
                        "kind": "open",
                        "arrivals": "poisson",
                        "rate_per_s": float(rates[k]) if len(rates) else None,
                        "concurrency": None,
                        "seconds": 60.0,
                    }
                    for k in range(len(levels))
                ],
                "slo_s": slo_s or {},
            },
        },
        devices=[device],
        channels=[
            ChannelInfo(
                device.id,
                "power_w",
                "W",
                "simulated",
                period_s=PERIOD_S,
                window_s=PERIOD_S,
                delay_s=PERIOD_S / 2,
                gapless=True,
            )
        ],
    )
    stamps = START_NS + np.round((time + PERIOD_S) * 1e9).astype(np.int64)
    shown = power
    if rise_s:  # a sensor that smooths: each reading is the low-passed power at its stamp
        fine = np.arange(0.0, begin, 1e-3)
        keep = np.exp(-1e-3 / rise_s)
        smooth = lfilter([1 - keep], [1, -keep], truth.power(fine, joined) - truth.idle_w) + truth.idle_w
        shown = np.interp(time + PERIOD_S, fine + 1e-3, smooth)
        response = StepResponse(PERIOD_S, rise_s=rise_s, noise_w=noise_w, origin="exact").to_dict()
        run.channels[0] = replace(run.channels[0], window_s=0.0, delay_s=rise_s, response=response)
    elif noise_w > 5.0:  # more than any sensor's own: a calibration states it
        response = StepResponse(PERIOD_S, window_s=PERIOD_S, noise_w=noise_w, origin="exact").to_dict()
        run.channels[0] = replace(run.channels[0], response=response)
    samples = shown + rng.normal(0.0, noise_w, len(power))
    columns = {"time_ns": stamps, **{k: [v] * len(stamps) for k, v in (("device", device.id), ("channel", "power_w"))}}
    run.samples = tables.conform(pa.table({**columns, "value": samples}), "samples")
    run.requests = tables.from_rows(rows, "requests")
    return run, (time, power)


def client_object(rows, **changes):
    """Results of a load as InferenceX's client saves them."""
    start, end = min(row["sent_ns"] for row in rows) / 1e9, max(row["last_ns"] for row in rows) / 1e9
    output = sum(row["output_tokens"] for row in rows)
    return {
        "date": "20270115-080500",
        "backend": "vllm",
        "model_id": "org/model",
        "num_prompts": len(rows),
        "request_rate": "inf",
        "max_concurrency": 64,
        "benchmark_start_time_unix": start,
        "benchmark_end_time_unix": end,
        "duration": end - start,
        "completed": len(rows),
        "total_input_tokens": sum(row["input_tokens"] for row in rows),
        "total_output_tokens": output,
        "request_throughput": len(rows) / (end - start),
        "output_throughput": output / (end - start),
        "median_ttft_ms": 120.0,
        "p99_ttft_ms": 480.0,
        "median_tpot_ms": 20.0,
        "p99_e2el_ms": 2500.0,
        **changes,
    }


def energy_between(record, start_s, end_s):
    """The true energy between two times of a record, J."""
    time, power = record
    edges = np.append(time, time[-1] + PERIOD_S)
    reached = np.append(0.0, np.cumsum(power * PERIOD_S))
    first, last = np.interp([start_s, end_s], edges, reached)
    return last - first


def aiperf_line(row, phase="profiling", metrics=(), **metadata):
    """A line of AIPerf's profile_export.jsonl."""
    return json.dumps(
        {
            "metadata": {
                "session_num": row["id"],
                "request_start_ns": row["sent_ns"],
                "request_end_ns": row["last_ns"],
                "worker_id": "w",
                "benchmark_phase": phase,
                "was_cancelled": False,
                **metadata,
            },
            "metrics": {
                "input_sequence_length": {"value": row["input_tokens"], "unit": "tokens"},
                "output_sequence_length": {"value": row["output_tokens"], "unit": "tokens"},
                "time_to_first_token": {"value": (row["first_ns"] - row["sent_ns"]) / 1e6, "unit": "ms"},
                "request_latency": {"value": (row["last_ns"] - row["sent_ns"]) / 1e6, "unit": "ms"},
                **dict(metrics),
            },
            "error": None,
        }
    )


def vllm_object(rows, **changes):
    """The file that vllm bench serve saves of a load, its clock with an origin of its own."""
    origin = rows[0]["sent_ns"] - 77_000_000_000
    ended = datetime.fromtimestamp(max(row["last_ns"] for row in rows) / 1e9, UTC)
    return {
        "date": f"{ended:%Y%m%d-%H%M%S}",
        "model_id": "m",
        "num_prompts": len(rows),
        "request_rate": 4.0,
        "max_concurrency": None,
        "duration": 60.0,
        "request_throughput": 4.0,
        "input_lens": [row["input_tokens"] for row in rows],
        "output_lens": [row["output_tokens"] for row in rows],
        "ttfts": [(row["first_ns"] - row["sent_ns"]) / 1e9 for row in rows],
        "itls": [[(row["last_ns"] - row["first_ns"]) / 1e9 / 10] * 10 for row in rows],
        "start_times": [(row["sent_ns"] - origin) / 1e9 for row in rows],
        "errors": ["" for _ in rows],
        "mean_ttft_ms": 1.0,
        **changes,
    }
