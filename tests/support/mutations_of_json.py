"""Changes of the layout of JSON, and of the kernels and ranges of timelines."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from mutable import Sample, changed_database
from mutation import DOUBT, SAME, Mutation


def json_layout(sample: Sample, draw: Random) -> Mutation | None:
    """The same JSON in another layout: white space, lines, order of keys, a mark of its encoding."""
    if sample.kind not in ("json", "lines of json"):
        return None
    lined = sample.kind == "lines of json"
    values = [json.loads(line) for line in sample.whole.splitlines()] if lined else [sample.parsed]
    indent = None if lined else draw.choice([None, None, 0, 1, 4, "\t"])
    separators = draw.choice([(",", ":"), (", ", ": "), (" , ", " : ")])
    mixed = draw.random() < 0.5
    texts = [json.dumps(_mixed(one, draw) if mixed else one, indent=indent, separators=separators) for one in values]
    before, behind = draw.choice(["", "", "\ufeff", "\n"]), draw.choice(["", "\n", "\n\n", " "])
    text = before + "\n".join(texts) + behind
    said = f"{before!r} in front, {behind!r} behind, indent {indent!r}, separators {separators}, mixed {mixed}"
    data = (text.replace("\n", "\r\n") if draw.random() < 0.3 else text).encode()
    return Mutation(data, SAME, sample.whole, said=said)


def _mixed(value: Any, draw: Random) -> Any:
    """The same with the keys of each object in another order."""
    if isinstance(value, list):
        return [_mixed(one, draw) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: _mixed(value[key], draw) for key in draw.sample(sorted(value), len(value))}


def _kernels(sample: Sample) -> tuple[Any, list[Any]]:
    trace = sample.parsed
    return trace, [one for one in trace["traceEvents"] if one.get("cat") == "kernel"]


def kernels_at_zero(sample: Sample, draw: Random) -> Mutation | None:
    """Some kernels have stamp 0 and duration 0, as CUPTI leaves them at times."""
    if sample.form == "nsys":
        rest = draw.randrange(2, 5)
        change = f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 0, end = 0 WHERE correlationId % {rest} = 1"
        return Mutation(changed_database(sample.whole, change), DOUBT, sample.whole)
    if sample.form != "kineto":
        return None
    trace, kernels = _kernels(sample)
    for one in draw.sample(kernels, draw.randrange(1, len(kernels))):
        one.update(ts=0, dur=0)
    return Mutation(json.dumps(trace).encode(), DOUBT, sample.whole)


def kernel_over_others(sample: Sample, draw: Random) -> Mutation | None:
    """A kernel lasts so long that it covers later ones of its own stream, which is impossible."""
    if sample.form == "nsys":
        change = f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start + {draw.choice([20_000, 10**6, 10**9])}"
        one = f" WHERE correlationId = {draw.randrange(1, 20)}"
        return Mutation(changed_database(sample.whole, change + one), DOUBT, sample.whole)
    if sample.form != "kineto":
        return None
    trace, kernels = _kernels(sample)
    draw.choice(kernels[:-4])["dur"] = draw.choice([1500.0, 3000.0, 1.6e6])
    return Mutation(json.dumps(trace).encode(), DOUBT, sample.whole)


def annotation_without_device(sample: Sample, draw: Random) -> Mutation | None:
    """A range on the GPU's side states no device: it is no GPU of its own."""
    if sample.form != "kineto":
        return None
    trace, _ = _kernels(sample)
    event = {"ph": "X", "cat": "gpu_user_annotation", "name": "step", "pid": 0, "tid": 7, "ts": 5.0, "dur": 900.0}
    event["args"] = {"device": 0, "stream": 7}
    trace["traceEvents"].append(event)
    like = json.dumps(trace).encode()
    event.update(pid=draw.choice([100_000_003, 4242, "GPU"]), args={})
    return Mutation(json.dumps(trace).encode(), SAME, like, said=str(event["pid"]))
