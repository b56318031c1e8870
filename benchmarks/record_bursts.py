"""Records bursts of DeiT-B after idle, and the steps of the GPU's energy counter beside them, for ``bursts.py``.

    python benchmarks/record_bursts.py OUT.zip --device cuda:0    # OUT.zip and OUT-counter.npz, 100 s

Bursts of a captured model at batch 64 run in random order, each after more than a second of idle; a process of its own
polls the counter.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from counter import poll
from jouletrace.devices import open_device
from jouletrace.profiler.prepare import prepare
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording import calibrations
from jouletrace.recording.session import Session
from jouletrace.workloads import resolve

PLAN = ((0.02, 12), (0.05, 12), (0.2, 12), (1.0, 8), (3.0, 6))
PAUSE_S = 1.1


def record(place: Path, spec: str, plan: tuple[tuple[float, int], ...]) -> None:
    """Run the bursts; keep a Run whose lane ``burst`` has them, each by its length, and the polled counter."""
    settings = ProfileSettings(device=spec, batch=64, dtype="fp16", mode="graph")
    device, rng = open_device(spec), np.random.default_rng(1)
    folder = Path(tempfile.mkdtemp()) / "run"
    words = [sys.executable, __file__, "poll", str(place.with_name(f"{place.stem}-counter.npz")), device.info.id]
    with Session(
        "measure", [device], folder=folder, workload={"name": "bursts"}, settings=settings.to_dict()
    ) as session:
        calibrations.attach(session.run, device)
        step = prepare(resolve("deit-b"), device, settings).step
        step.replay(10)
        iteration_s = step.replay(50).seconds / 50
        step.replay(int(2 / iteration_s))
        poller = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        poller.stdout.readline()
        session.clock.sleep(3.0)
        for seconds in rng.permutation(np.repeat(*map(list, zip(*plan, strict=True)))):
            burst = step.replay(max(1, round(seconds / iteration_s)))
            session.add_span("range", f"{seconds:g}", burst.start_ns, burst.end_ns, "burst")
            session.clock.sleep(PAUSE_S + rng.uniform(0, 0.1))
        session.clock.sleep(0.5)
        poller.communicate(b"")
        session.finish().save(place)
        step.close()
    device.close()


if __name__ == "__main__":
    if sys.argv[1] == "poll":
        poll(*sys.argv[2:4])
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("out", type=Path)
        parser.add_argument("--device", default="cuda:0")
        parser.add_argument("--quick", action="store_true", help="three bursts of each length")
        chosen = parser.parse_args()
        record(chosen.out, chosen.device, tuple((length, 3) for length, _ in PLAN) if chosen.quick else PLAN)
