"""DistributedDataParallel training on several GPUs: energies of ranks and their waiting, against the GPUs' counters.

    PYTHONPATH=src python benchmarks/ddp.py --seconds 45 --output runs/ddp

Starts itself under ``torchrun``, one rank per GPU (``--ranks`` on the CPU with simulated GPUs), with
``jt.record`` around a training of BERT on random tokens, and polls the GPUs' energy counters meanwhile.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import jouletrace as jt
from counter import PolledCounter, inner_bracket
from jouletrace.analysis.power import energies
from jouletrace.devices.cuda_order import cuda_uuids


def worker(options: argparse.Namespace) -> None:
    """One rank."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from transformers import BertConfig, BertForSequenceClassification

    rank, gpu = int(os.environ["RANK"]), torch.cuda.is_available()
    torch.manual_seed(rank)
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if gpu else "gloo")
    on = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    small = {} if gpu else {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(**small)
    model = BertForSequenceClassification(config).to(on)
    model = DistributedDataParallel(model, device_ids=[on.index] if gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    batch = options.batch if gpu else 2

    def train() -> None:
        tokens = torch.randint(1, config.vocab_size, (batch, 128), device=on)
        labels = torch.randint(2, (batch,), device=on)
        optimizer.zero_grad()
        with jt.range("forward"), torch.autocast(on.type, torch.bfloat16):
            loss = model(input_ids=tokens, labels=labels).loss
        with jt.range("backward"):
            loss.backward()
        with jt.range("optimizer"):
            optimizer.step()

    def seconds_of(n: int) -> float:
        begin = time.monotonic()
        for _ in range(n):
            train()
        if gpu:
            torch.cuda.synchronize()
        return time.monotonic() - begin

    seconds_of(10)
    each = torch.tensor([seconds_of(10) / 10], device=on)
    dist.all_reduce(each)  # all ranks make the same number of steps
    n = max(int(options.seconds / (each.item() / dist.get_world_size())), 30)
    devices = "visible" if gpu else f"sim:h100?realtime=1&seed={rank + 1}&load=0.5:{300 + 100 * rank}"
    with jt.record("bert-b, DDP", device=devices, save_to=options.output, on_update=print) as recording:
        for _ in range(n):
            train()
            jt.step()
        if gpu:
            torch.cuda.synchronize()
    print(f"rank {rank}: {n} steps; {recording.now()}", flush=True)
    if rank == 0:
        print(recording, flush=True)
    dist.destroy_process_group()


def against_counters(run: jt.Run, counters: dict[str, PolledCounter]) -> None:
    """Print the record over the counter between counter steps within each rank's recording, and of the sum."""
    ours = theirs = 0.0
    for row in run.spans.to_pylist():
        if row["kind"] != "phase" or row["name"] != "monitor" or row["device"] not in counters:
            continue
        found = inner_bracket(counters[row["device"]].steps(), row["start_ns"], row["end_ns"])
        assert found is not None, "the counter did not step"
        window = energies(run, row["device"], [found.start_ns], [found.end_ns])
        assert window is not None
        ours, theirs = ours + float(window.energy_j[0]), theirs + found.energy_j
        ratio = float(window.energy_j[0]) / found.energy_j
        print(f"{row['device']}: record {window.energy_j[0]:.1f} J, counter {found.energy_j:.1f} J, ratio {ratio:.4f}")
    if theirs:
        verdict = "within 1 %" if abs(ours / theirs - 1) <= 0.01 else "NOT within 1 %"
        print(f"SUM of ranks {ours:.1f} J, of counters {theirs:.1f} J, ratio {ours / theirs:.4f}: {verdict}")


def main() -> None:
    """Driver, or one rank."""
    options = argparse.ArgumentParser(description="DDP on several GPUs, measured")
    options.add_argument("--seconds", type=float, default=45.0)
    options.add_argument("--batch", type=int, default=64, help="of one rank")
    options.add_argument("--ranks", type=int, default=0, help="default: one a GPU")
    options.add_argument("--output", default="runs/ddp")
    options.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.worker:
        return worker(chosen)
    uuids = (cuda_uuids() or [])[: chosen.ranks or None]
    ranks = len(uuids) or chosen.ranks or 2
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks), __file__]
    counters = {uuid: PolledCounter(uuid, Path(tempfile.mkdtemp()) / "counter.npy") for uuid in uuids}
    with ExitStack() as stack:
        for counter in counters.values():
            stack.enter_context(counter)
        subprocess.run([*launch, "--worker", *sys.argv[1:]], check=True)
    run = jt.load(chosen.output)
    names = {unit["id"]: unit["name"] for unit in run.units.to_pylist()}
    for unit, name in names.items():
        if name.startswith(("rank ", "all ranks")):
            time_s, energy = run.result("time_s", unit), run.result("energy_total_j", unit)
            said = energy.reason or f"{energy.value:.4g} J [{energy.low:.4g}, {energy.high:.4g}]"
            print(f"{name:45s} {1e3 * (time_s.value or 0):.3f} ms  {said}")
    against_counters(run, counters)
    return None


if __name__ == "__main__":
    main()
