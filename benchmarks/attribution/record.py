"""Records programs on a GPU for work on attribution: kernels by CUPTI, power by the driver's 20 ms record.

    python benchmarks/attribution/record.py OUT [SECTION ...]

Writes OUT/rows.npy (stamp us, mW), OUT/conditions.npy (time ns, SM MHz, degrees C, reasons, energy mJ), and for each
section OUT/NAME.npz: start (ns), duration (ns), name (index), names, log (variant of each iteration), variants
(place, times), ops (json), marks (ns). Nothing on the board is changed.
"""

import json
import lzma
import os
import subprocess
import sys
import tarfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

OUT = Path(sys.argv[1])


def record_power() -> None:
    import pynvml as nvml

    nvml.nvmlInit()
    board = nvml.nvmlDeviceGetHandleByIndex(0)
    rows, conditions, last, turn = [], [], 0, 0
    while not (OUT / "stop").exists():
        try:
            _, found = nvml.nvmlDeviceGetSamples(board, nvml.NVML_TOTAL_POWER_SAMPLES, last)
            rows += [(one.timeStamp, one.sampleValue.uiVal) for one in found]
            last = max([last, *(one.timeStamp for one in found)])
        except nvml.NVMLError_NotFound:
            pass
        for _ in range(10):
            energy = nvml.nvmlDeviceGetTotalEnergyConsumption(board) if turn % 10 == 0 else 0
            turn += 1
            conditions.append(
                (
                    time.time_ns(),
                    nvml.nvmlDeviceGetClockInfo(board, nvml.NVML_CLOCK_SM),
                    nvml.nvmlDeviceGetTemperature(board, nvml.NVML_TEMPERATURE_GPU),
                    nvml.nvmlDeviceGetCurrentClocksEventReasons(board),
                    energy,
                )
            )
            time.sleep(0.05)
    np.save(OUT / "rows.npy", np.array(rows, np.int64))
    np.save(OUT / "conditions.npy", np.array(conditions, np.int64))


if __name__ == "__main__" and sys.argv[2:] == ["power"]:
    record_power()
    sys.exit()

import torch  # noqa: E402
from chain import Chain  # noqa: E402
from excitation import Lister, ModuleNames, capture, variant_call  # noqa: E402
from pulses import Pulses  # noqa: E402

from jouletrace.tracer.in_process import InProcess  # noqa: E402
from jouletrace.tracer.launching import Duty  # noqa: E402

RNG = np.random.default_rng(int(os.environ.get("SEED", "0")))
TRACERS: list[InProcess] = []
POOL, SAVING = ThreadPoolExecutor(3), []


def tracing():
    TRACERS[:] = [InProcess(operators=False, duty=Duty(first_kernels=sys.maxsize))]
    return time.time_ns()


def traced():
    torch.cuda.synchronize()
    end = time.time_ns()
    (found,) = TRACERS[0].end()
    order = np.argsort(found.work.start_ns, kind="stable")
    return found.work.take(order), end


def save(name, trace, **more):
    """Idle times between kernels and durations in ns, compressed with lzma: a byte or two per kernel."""
    start, end = trace.start_ns.astype(np.int64), trace.end_ns.astype(np.int64)
    previous = np.r_[start[:1], end[:-1]]
    parts = {
        "gap": (start - previous).astype(np.int32),
        "duration": (end - start).astype(np.int32),
        "name": trace.name.astype(np.int16),
        "stream": trace.stream.astype(np.int16),
    }
    meta = {
        "first": int(start[0]) if len(start) else 0,
        "names": list(trace.names),
        "n": len(trace),
        **more,
    }
    grids, launch = (
        np.unique(np.array(trace.shapes)[trace.extra * (trace.kind == 0), :6], axis=0, return_inverse=True)
        if len(trace)
        else (np.zeros((0, 6)), np.zeros(0))
    )
    parts["launch"] = launch.astype(np.int16)
    meta["launches"] = grids.tolist()
    print(f"{name}: {len(trace)} kernels", flush=True)
    SAVING.append(POOL.submit(_save, name, meta, parts))


def _save(name, meta, parts):
    packed = {key: np.frombuffer(lzma.compress(value.tobytes(), preset=1), np.uint8) for key, value in parts.items()}
    np.savez(OUT / f"{name}.npz", meta=np.frombuffer(lzma.compress(json.dumps(meta).encode()), np.uint8), **packed)


def pack():
    """All files into a few archives of at most 15 MB."""
    files = sorted((f for f in OUT.iterdir() if f.suffix in (".npz", ".npy")), key=lambda f: -f.stat().st_size)
    bins = []
    for f in files:
        room = next((b for b in bins if sum(x.stat().st_size for x in b) + f.stat().st_size < 15e6), None)
        bins.append([f]) if room is None else room.append(f)
    for i, b in enumerate(bins):
        with tarfile.open(OUT / f"pack{i}.tar", "w") as tar:
            for f in b:
                tar.add(f, f.name)
                f.unlink()
    print("packed", [round(sum(1 for _ in b)) for b in bins], flush=True)


def loop(step, seconds, every=4, log=None):
    """Run ``step()`` for a time, waiting for the GPU now and then; returns iterations and marks in ns."""
    torch.cuda.synchronize()
    start, n = time.time_ns(), 0
    while time.time_ns() - start < seconds * 1e9:
        for _ in range(every):
            made = step()
            if log is not None:
                log.append(made if isinstance(made, int) else -1)
        n += every
        torch.cuda.synchronize()
    return n, start, time.time_ns()


def section(name, step, seconds, every=4, untraced=0.0, **more):
    """Untraced for a moment, then traced."""
    plain = loop(step, untraced, every) if untraced else None
    log = []
    begin = tracing()
    n, start, end = loop(step, seconds, every, log)
    trace, _ = traced()
    save(name, trace, plain=plain, iterations=n, marks=[start, end], begin=begin, log=log, **more)


def pulses(name, seconds, lengths):
    made = Pulses()
    gaps = RNG.uniform(0.2e-3, 1.6e-3, 100_000)
    which = RNG.integers(0, max(1, len(lengths)), 100_000)
    at = iter(range(100_000))

    def step():
        i = next(at)
        made.wait(gaps[i])
        if lengths:
            made.burn(lengths[which[i]])
        return int(which[i])

    section(name, step, seconds, every=64, lengths=list(lengths))


def operators(call, module):
    """The operators of an iteration, and how many kernels each launches, by waiting after each under the tracer."""
    tracing()
    with ModuleNames(module) as names, Lister(names, time.time_ns) as lister:
        call()
    trace, _ = traced()
    rows, start = [], trace.start_ns
    for op, shapes, where, once, before, after in lister.rows:
        mine = np.flatnonzero((start >= before - 20_000) & (start <= after + 20_000))
        rows.append(
            {
                "op": op,
                "shapes": shapes,
                "module": where,
                "repeatable": once,
                "kernels": [trace.names[k] for k in trace.name[mine]],
                "ns": [int(d) for d in (trace.end_ns - trace.start_ns)[mine]],
            }
        )
    covered = sum(len(row["kernels"]) for row in rows)
    print(f"   {len(rows)} operators, {covered} kernels in them of {len(trace)}", flush=True)
    return rows


def variants_of(rows, per_kind=3, targets=(80e3, 200e3)):
    """(place, times): for each kind of operator some places, twice, with copies that fill tens and hundreds of us."""
    kinds = {}
    for place, row in enumerate(rows):
        if row["kernels"] and row["repeatable"]:
            kinds.setdefault((row["op"], row["shapes"], tuple(row["kernels"])), []).append(place)
    found = [(-1, 1)]
    for places in kinds.values():
        length = max(1.0, float(np.median([sum(rows[p]["ns"]) for p in places])))
        for target in targets:
            times = int(np.clip(round(target / length), 2 if target == targets[0] else 3, 32))
            found += [(int(p), times) for p in RNG.permutation(places)[:per_kind]]
    return found


def repeated(name, call, module, mode, seconds, runs=1, untraced=4.0, base=10.0, per_kind=3, every=4):
    """A plain iteration for a while, then iterations with one randomly drawn operator run several times in place."""
    with torch.inference_mode():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        rows = operators(call, module)
        variants = variants_of(rows, per_kind)
        more = {"ops": rows, "variants": variants, "mode": mode}
        if mode == "graph":
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(3):
                    call()
            torch.cuda.synchronize()
            pool, t0 = torch.cuda.graph_pool_handle(), time.time()
            graphs = [capture(call, place, times, pool, stream) for place, times in variants]
            print(f"   {len(graphs)} graphs in {time.time() - t0:.1f} s", flush=True)
            run = [graph.replay for graph in graphs]
        else:
            run = [lambda v=v: variant_call(call, *v) for v in variants]

        def plain():
            run[0]()
            return 0

        def drawn():
            v = int(RNG.integers(0, len(variants)))
            run[v]()
            return v

        loop(plain, 1.5, every)
        if base:
            section(f"{name}_base", plain, base, every, untraced, **more)
        for i in range(runs):
            section(f"{name}_rep{i}", drawn, seconds, every, 0.0, **more)
        if base:
            n, start, end = loop(plain, 2.0, every)
            print(f"   {name} untraced after: {(end - start) / n / 1e6:.4f} ms an iteration", flush=True)
            np.save(OUT / f"{name}_after.npy", np.array([n, start, end]))


def do_pulses():
    pulses("pulses_mixed", 15, (50e-6, 100e-6, 200e-6, 500e-6))
    for us in (50, 100, 200, 500):
        pulses(f"pulses_{us}", 2.5, (us * 1e-6,))
    pulses("pulses_none", 2.0, ())
    pulses("pulses_long", 2.5, (5e-3,))


def do_chain():
    m = Chain()
    with torch.inference_mode():

        def fixed():
            for op in m.OPS:
                m.op(op)

        def shuffled():
            for i in RNG.permutation(len(m.OPS)):
                m.op(m.OPS[i])

        def pauses():
            shuffled()
            if RNG.random() < 0.3:
                torch.cuda.synchronize()
                time.sleep(float(RNG.uniform(0, 0.004)))

        def copies():
            j, k = int(RNG.integers(0, len(m.OPS))), int(RNG.integers(2, 5))
            for i, op in enumerate(m.OPS):
                for _ in range(k if i == j else 1):
                    m.op(op)
            return 10 * j + k

        loop(fixed, 1.5)
        section("chain_fixed", fixed, 25, untraced=4)
        section("chain_shuffled", shuffled, 25)
        section("chain_pauses", pauses, 20)
        section("chain_copies", copies, 30)
    torch.cuda.empty_cache()


def do_alone():
    m = Chain()
    with torch.inference_mode():
        for op in m.OPS:
            loop(lambda op=op: m.op(op), 0.5, every=8)
            section(f"chain_alone_{op}", lambda op=op: m.op(op), 1.5, every=8)


def do_vit():
    import torchvision

    vit = torchvision.models.vit_b_16().cuda().half().eval()
    x = torch.randn(16, 3, 224, 224, device="cuda", dtype=torch.half)
    with torch.inference_mode():
        loop(lambda: vit(x), 1.5)
        section("vit_a", lambda: vit(x), 20, untraced=4)
    repeated("vit", lambda: vit(x), vit, "eager", 20, base=0)


def built(name, batch, seq_len=None):
    from jouletrace.workloads.options import WorkloadOptions
    from jouletrace.workloads.registry import resolve

    made = resolve(name).build("cuda:0", WorkloadOptions(batch=batch, seq_len=seq_len, dtype="fp16"))
    return (lambda: made.call(0)), made.module


def do_deit64():
    repeated("deit64", *built("deit-b", 64), "graph", 25, untraced=3, base=8)


def do_deit1():
    repeated("deit1", *built("deit-b", 1), "graph", 20, runs=2, untraced=3, base=4, every=16)


def do_bertl():
    repeated("bertl", *built("bert-l", 8, 320), "graph", 25, untraced=3, base=6)


def do_gpt2():
    repeated("gpt2", *built("gpt2", 4, 512), "graph", 25, untraced=3, base=6)


def do_convnext():
    import torchvision

    net = torchvision.models.convnext_tiny().cuda().half().eval()
    x = torch.randn(32, 3, 224, 224, device="cuda", dtype=torch.half)
    repeated("convnext", lambda: net(x), net, "eager", 25, untraced=3, base=6)


def do_qwen():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        hidden_size=896,
        num_hidden_layers=12,
        intermediate_size=4864,
        num_attention_heads=14,
        num_key_value_heads=2,
        vocab_size=32000,
        use_cache=False,
    )
    net = Qwen2ForCausalLM(config).cuda().half().eval()
    ids = torch.randint(0, 32000, (4, 512), device="cuda")
    repeated("qwen", lambda: net(ids), net, "eager", 25, untraced=3, base=6)


SECTIONS = {
    "gpt2": do_gpt2,
    "convnext": do_convnext,
    "qwen": do_qwen,
    "alone": do_alone,
    "pulses": do_pulses,
    "chain": do_chain,
    "vit": do_vit,
    "deit1": do_deit1,
    "deit64": do_deit64,
    "bertl": do_bertl,
}


def main() -> None:
    (OUT / "stop").unlink(missing_ok=True)
    beside = subprocess.Popen([sys.executable, __file__, str(OUT), "power"])
    time.sleep(1.0)
    idle = time.time_ns()
    torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    time.sleep(1.5)
    print("context idle from", idle, torch.cuda.get_device_name(0), flush=True)
    for name in sys.argv[2:] or SECTIONS:
        begun = time.time()
        try:
            SECTIONS[name]()
        except Exception:
            traceback.print_exc()
        print(f"== {name}: {time.time() - begun:.1f} s", flush=True)
    pulses("pulses_end", 3, (200e-6,))
    time.sleep(1.5)
    (OUT / "stop").touch()
    beside.wait()
    for one in SAVING:
        one.result()
    pack()


if __name__ == "__main__":
    main()
