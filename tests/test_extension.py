"""Extension: made-up sensors, vendor, format and workload: an entry of a table each, and a file but for the sensors."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from covering import fewest
from places import REPOSITORY, SUPPORT

pytestmark = pytest.mark.thorough

ADDED = {
    "devices/made_up.py": '''
"""A device that draws 100 W."""

import re

import numpy as np

from jouletrace.devices.base import Samples, Vendor
from jouletrace.devices.base import RealClock
from jouletrace.run import ChannelInfo, DeviceInfo

PERIOD_NS = 10_000_000


class Meter:
    interval_s = 0.1

    def __init__(self, device, clock):
        self.channels = (ChannelInfo(device, "power_w", "W", "made-up meter", period_s=0.01, gapless=True),)
        self._clock, self._last = clock, clock.time_ns() // PERIOD_NS

    def poll(self):
        now = self._clock.time_ns() // PERIOD_NS
        grid = np.arange(self._last + 1, now + 1, dtype=np.int64)
        self._last = now
        return [Samples("power_w", grid * PERIOD_NS, np.full(len(grid), 100.0))] if len(grid) else []


class MadeUp:
    def __init__(self, spec):
        self.spec, self.clock, self.info = spec, RealClock(), DeviceInfo(spec, "Made-up")

    def sources(self):
        return [Meter(self.spec, self.clock)]

    def capabilities(self):
        return []

    def processes(self):
        return []

    def close(self):
        pass


VENDOR = Vendor("made:N", re.compile("made:0"), MadeUp, lambda: [MadeUp("made:0").info], lambda: ["made:0"])
''',
    "formats/importers/made_up.py": '''
"""A log of lines such as ``made-up 2.5 300``: milliseconds since the start, and watts."""

from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import read_text
from jouletrace.formats.importers.log import Log


def sniff(head):
    return head.startswith(b"made-up ")


def read(path, options):
    log = Log(path, options)
    for line in read_text(path, log.left).splitlines():
        _, time, watts = line.split()
        log.row(time)
        log.add(log.gpu("0"), "power_w", float(watts), units.UNITS["W"], "ends in .average")
    return log.run("made_up", "lines", unit="ms")
''',
    "workloads/made_up.py": '''
"""A sum."""

from jouletrace.workloads.base import Built
from jouletrace.workloads.options import check_options


class MadeUp:
    name = "made-up"
    own_dtype = "fp32"

    def build(self, device, options):
        check_options(self.name, options)
        return Built(lambda i: sum(range(1000)), None, [((), {})], {"name": self.name, "batch": 1})
''',
}

EXAMPLE = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("```python\n")[2].partition("```")[0]
"""The sensor that the page for contributors adds: 7 ms of every 30 ms."""

LINES = {
    "sensor/kinds.py": (
        "KINDS: dict[str, SensorKind] = {\n",
        """
    # 900 samples per second, each the mean over 140 us; the mean of some eight is read every 10 ms.
    "made_up": SensorKind(
        (PowerField((RECORD, USAGE), "Made-up", window_s=0.009, sampling_s=1 / 900),),
        nominal(0.010, 0.0, 0.001, 0.001, rise_s=0.009, lag_s=0.003),
        Sensor(SampleResponse(-70e-6, np.ones(28)), averages=8, rates_hz=(892.0, 905.0), any_rate_hz=(860.0, 940.0)),
        recognises=lambda channel: "made-up" in channel.source,
    ),
"""
        + EXAMPLE,
    ),
    "devices/registry.py": ("VENDORS = [\n", '    "jouletrace.devices.made_up",\n'),
    "formats/importers/registry.py": ('("jouletrace", "measured"),\n', '        ("made_up", "made_up"),\n'),
    "workloads/registry.py": ("_OWN: dict[str, tuple[str, ...]] = {\n", '    "made-up": ("made_up:MadeUp",),\n'),
}
"""Where the line of each goes: after which line of the table, and what it is."""

RECORDING = """
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa

from jouletrace.analysis import analyse, window_estimate
from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables
from jouletrace.simulator.sensors import Averaging, SamplingSensor
from scenarios import simulate
from simulated_power import Board
from simulated_programs import large_operators, lay_out
from simulated_sensors import other_response

rng = np.random.default_rng(5)
scene = lay_out(large_operators(rng, 8.0), 8.0)
box = lambda rng: other_response(rng, "box")
sensor = replace(SamplingSensor.draw(rng, 8.0, box), rate_hz=900.0, averaging=Averaging(8), period_ns=1e7)
_, recorded, truth = simulate(rng, scene, Board.draw(rng, len(scene.kinds), 8.0), sensor)

begin, end = int(recorded.start_ns[0]), int(recorded.end_ns.max())
run = Run(
    workload={"recordings": [{"iterations": 1, "start_ns": begin, "end_ns": end, "dropped": 0}]},
    devices=[DeviceInfo("GPU-1", "GPU")],
    channels=[ChannelInfo("GPU-1", "power_w", "W", "made-up meter", period_s=0.01, gapless=True)],
)
kernels = [
    {"id": i, "parent": 0, "level": "kernel", "name": name, "count": 1} for i, name in enumerate(recorded.names, 1)
]
idle = {"id": 1 + len(kernels), "parent": 0, "level": "op", "name": "idle", "count": 1}
run.units = tables.from_rows([*kernels, idle], "units")
activity = {"start_ns": recorded.start_ns, "end_ns": recorded.end_ns, "unit": 1 + recorded.kind}
run.activity = tables.conform(pa.table(activity), "activity")
count = len(recorded.rows)
columns = {"device": ["GPU-1"] * count, "channel": ["power_w"] * count}
columns |= {"time_ns": recorded.rows[:, 0] * 1000, "value": recorded.rows[:, 1] / 1e3}
run.samples = tables.conform(pa.table(columns), "samples")
whole = window_estimate(run, "GPU-1", begin, end)
analyse(run)
powers = [run.result("power_w", one["id"]) for one in kernels]
print(json.dumps({
    "rate_hz": run.result("sample_rate_hz").value,
    "whole_j": whole.value,
    "true_j": float(np.diff(truth.power.energy_j(np.array([begin, end]) - truth.power.begin_ns))[0]),
    "powers": [[one.low, one.high, true] for one, true in zip(powers, truth.kind_w) if one.value is not None],
    "warnings": [one.message for one in run.warnings],
}))
"""
"""A program on a simulated GPU, recorded by such a sensor; prints figures beside the truth."""


LIVE = """
import json
import sys
from pathlib import Path

import numpy as np

from fake_nvml import NOT_SUPPORTED, FakeBoard, FakeClock, FakeNvml
from jouletrace.analysis.kernel_powers import models
from jouletrace.analysis.imported_recording import take_for_samples
from jouletrace.devices.nvml import Nvml, NvmlGpu
from jouletrace.formats.importers.registry import importer
from jouletrace.formats.importers.base import ImportOptions
from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables
from jouletrace.run.channels import POWER
from jouletrace.sensor.kinds import response_of, samples
from jouletrace.simulator.boards import SimulatedGpu
from jouletrace.simulator.boards.presets import PRESETS

NAME, PERIOD_MS, CAPABILITY = sys.argv[1], int(sys.argv[2]), tuple(map(int, sys.argv[3].split(".")))


def live(**errors):
    clock = FakeClock()
    board = FakeBoard(name=NAME, capability=CAPABILITY, ring_period_us=1000 * PERIOD_MS, errors=errors)
    gpu = NvmlGpu(board.uuid, Nvml(FakeNvml(board, clock=clock)), clock)
    return [channel for source in gpu.sources() for channel in source.channels]


def imported(form, name, text):
    Path(name).write_text(text)
    run = importer(form).read(Path(name), ImportOptions())
    assert "sensor_unknown" not in {one.code for one in run.warnings}, run.warnings
    return run.channels


def simulated():
    object.__setattr__(PRESETS["h200-141"], "title", NAME)
    object.__setattr__(PRESETS["h200-141"], "capability", CAPABILITY)
    return [channel for source in SimulatedGpu("sim:h200").sources() for channel in source.channels]


def beside_a_timeline():
    run = Run(kind="import", devices=[DeviceInfo("G", NAME)], channels=[ChannelInfo("G", POWER, "W", "a log")])
    stamps = np.arange(200) * PERIOD_MS * 1_000_000 + 10**18
    rows = [{"time_ns": t, "device": "G", "channel": POWER, "value": 300.0 + t % 7} for t in stamps.tolist()]
    run.samples = tables.from_rows(rows, "samples")
    kernel = {"id": 1, "kind": "kernel", "name": "k", "device": "G", "start_ns": 10**18, "end_ns": 10**18 + 10**9}
    run.spans = tables.from_rows([kernel], "spans")
    take_for_samples(run)
    warnings.extend(one.message for one in run.warnings)
    return run.channels


warnings = []
times = [f"10:00:{i * PERIOD_MS / 1000:06.3f}" for i in range(50)]
rows = "".join(f"2026/11/23 {times[i]}, {NAME}, {300 + i % 7}.00 W\\n" for i in range(50))
label = f'{{gpu="0",UUID="GPU-1",modelName="{NAME}"}}'
scrapes = "".join(f"DCGM_FI_DEV_POWER_USAGE{label} 30{i} {1_790_000_000_000 + 1000 * i}\\n" for i in range(9))
channels = {
    "record": live(),
    "usage": live(nvmlDeviceGetSamples=NOT_SUPPORTED, nvmlDeviceGetFieldValues=NOT_SUPPORTED),
    "nvidia_smi": imported("nvidia_smi", "smi.csv", "timestamp, name, power.draw [W]\\n" + rows),
    "dcgm": imported("dcgm", "scrapes.txt", scrapes),
    "simulated": simulated(),
    "traced": beside_a_timeline(),
}
found = {"warnings": warnings}
for place, those in channels.items():
    (power,) = [one for one in those if one.name == POWER]
    model = models(Run(), power)[0]
    found[place] = {
        "sensor": power.sensor,
        "sampling_s": power.sampling_s,
        "period_s": power.period_s,
        "window_s": power.window_s,
        "gapless": power.gapless,
        "samples": samples(power),
        "averages": getattr(model, "averages", None),
        "seen_s": response_of(power).window_s,
        "model_s": getattr(model, "window_s", None),
    }
print(json.dumps(found))
"""
"""Such a sensor on a GPU by its driver's record and by its usage, in logs of it, simulated, and beside a timeline."""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package with four more files and four more lines."""
    root = tmp_path_factory.mktemp("extended")
    source = root / "jouletrace"
    # with its bytecode: compiling all of it takes longer than all of the tests
    shutil.copytree(REPOSITORY / "src" / "jouletrace", source, ignore=shutil.ignore_patterns("*.pyc.*", "*.zip"))
    for name, text in ADDED.items():
        assert not (source / name).exists()
        (source / name).write_text(text.lstrip())
    for name, (after, line) in LINES.items():
        text = (source / name).read_text()
        assert text.count(after) == 1, f"{name} has no table that begins {after!r}"
        (source / name).write_text(text.replace(after, after + line))
    return root


def ran(package, folder, *arguments):
    """The JSON that a command of the copy prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(SUPPORT)])}
    line = [sys.executable, *arguments]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def command(package, folder, *arguments):
    return ran(package, folder, "-m", "jouletrace", *arguments, "--json")


def test_a_sensor_has_its_response_and_its_model_in_the_regression(package, tmp_path):
    found = ran(package, tmp_path, "-c", RECORDING)
    assert found["warnings"] == []
    assert found["whole_j"] == pytest.approx(found["true_j"], rel=0.005)
    assert found["rate_hz"] == pytest.approx(900, abs=1)
    assert len(found["powers"]) == 8
    assert sum(low <= true <= high for low, high, true in found["powers"]) >= fewest(8)


def test_a_sensor_that_samples_is_recognised_on_live_and_simulated_gpus_in_logs_and_beside_a_timeline(
    package, tmp_path
):
    found = ran(package, tmp_path, "-c", LIVE, "NVIDIA Made-up 80GB", "10", "99.0")
    assert found.pop("warnings") == []
    assert {place: one["sensor"] for place, one in found.items()} == dict.fromkeys(found, "made_up")
    assert found["record"]["sampling_s"] == pytest.approx(1 / 900)
    assert [found[place]["window_s"] for place in ("usage", "nvidia_smi", "dcgm")] == [0.009] * 3
    assert {place for place, one in found.items() if one["samples"]} == {"record", "simulated", "traced"}
    assert found["record"]["averages"] == 8  # the model that the regression tries
    assert found["record"]["gapless"]


def test_a_sensor_that_averages_keeps_its_window_and_is_not_called_gapless(package, tmp_path):
    found = ran(package, tmp_path, "-c", LIVE, "NVIDIA X300 80GB", "30", "12.3")
    (warning,) = found.pop("warnings")
    assert "means, not momentary samples" in warning
    for place in ("record", "usage", "nvidia_smi"):
        one = found[place]
        assert one["sensor"] == "x300"
        assert one["period_s"] == pytest.approx(0.030)
        assert (one["window_s"], one["seen_s"], one["model_s"]) == pytest.approx([0.007] * 3), place
        assert one["gapless"] is False
    assert not any(one["samples"] for one in found.values())
    assert not found["traced"]["gapless"]


def test_a_vendor_is_recorded_listed_and_chosen_by_auto(package, tmp_path):
    monitored = command(package, tmp_path, "monitor", "--device", "made:0", "--duration", "1")
    (figures,) = (row for row in monitored["parts"]["whole"] if row["path"])
    assert figures["power_w"]["value"] == pytest.approx(100)
    infos = [one["info"] for one in command(package, tmp_path, "doctor")["devices"]]
    assert "Made-up" in [info["name"] for info in infos]
    chosen = "import json; from jouletrace.devices import open_device; print(json.dumps(open_device('auto').spec))"
    assert ran(package, tmp_path, "-c", chosen) == "made:0"


def test_a_file_format_is_recognised_and_read(package, tmp_path):
    (tmp_path / "log.txt").write_text("".join(f"made-up {1000 + 12.5 * i} {300 + i % 7}\n" for i in range(90)))
    found = command(package, tmp_path, "import", "log.txt")
    assert found["files"][0]["format"] == "made_up"
    read = f"""
import json
from jouletrace.run import load
run = load({found["run"]!r})
(channel,) = run.channels
print(json.dumps([run.samples["time_ns"].to_pylist()[:2], channel.window_s]))
"""
    times, window_s = ran(package, tmp_path, "-c", read)
    assert times == [1_000_000_000, 1_012_500_000]
    assert window_s is None  # the name of a source doesn't state its averaging


def test_a_workload_is_profiled_by_its_name(package, tmp_path):
    found = command(package, tmp_path, "profile", "made-up", "--device", "cpu", "--warmup", "0.2", "--max-time", "1")
    assert found["workload"]["name"] == "made-up"
    assert found["model"]["latency_ms"]["median"] > 0


def test_a_workload_refuses_options_that_it_does_not_name(package, tmp_path):
    each = [("--task", "train"), ("--dtype", "fp16"), ("--config", "a=b"), ("--batch", "3")]
    lines = [["profile", "made-up", "--device", "cpu", *given] for given in each]
    refused = f"""
import contextlib, io, json
from jouletrace.cli import main
found = []
for line in {lines!r}:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        found.append((main.run(line), said.getvalue()))
print(json.dumps(found))
"""
    found = ran(package, tmp_path, "-c", refused)
    assert [code for code, _ in found] == [2] * len(each)
    assert all("made-up" in said for _, said in found)
