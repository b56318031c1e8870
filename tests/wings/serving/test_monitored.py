"""A load on a server whose GPU is read by the page of a monitor there, and pages that are none."""

import time

import numpy as np
import pytest

pytest.importorskip("aiohttp")

from commands import command
from completion_server import Server, answering
from hostile_server import Hostile, hostile
from jouletrace.devices import open_devices
from jouletrace.wings.serving.client.bench import BenchSettings, bench
from jouletrace.wings.serving.client.load import Lengths, open_levels
from metric_server import Page, serving

SIZES = Lengths.parse("5:20", "in"), Lengths.parse("3:6", "out")


@pytest.mark.thorough
def test_energy_comes_from_a_monitor_on_another_machine(tmp_path):
    ahead_s, watts = 40.0, 250.0

    def text():
        now = time.time() + ahead_s
        until = float(np.floor(now * 10)) / 10
        labels = '{gpu="0",uuid="GPU-far",name="H100",simulated="true"}'
        return (
            f"jouletrace_time_seconds {now!r}\n"
            f"jouletrace_energy_joules_total{labels} {watts * (until - 1e9)!r}\n"
            f"jouletrace_energy_timestamp_seconds{labels} {until!r}\n"
        )

    with serving(Page(text)) as page, answering(Server()) as server:
        (device,) = open_devices([page.url])
        settings = BenchSettings(server.url, open_levels([40], "poisson", 2, 1, SIZES, 1), pause_s=1.0)
        run = bench(settings, [device], folder=tmp_path / "run")
    power = run.result("power_w", 1)
    assert power.value == pytest.approx(watts, rel=0.01), (power.reason, run.warnings)
    assert run.devices[0].details["clock_offset_s"] == pytest.approx(ahead_s, abs=0.5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("gzip-page", "answers with more than 16 MiB"),
        ("endless-page", "answers with more than 16 MiB"),
        ("other-page", "answers 302: it redirects to another server, {elsewhere}; give that address if you mean it"),
    ],
)
def test_a_page_without_end_is_no_gpu(capsys, mode, said):
    with hostile() as other, hostile(Hostile()) as server:
        server.elsewhere = other.url
        shown = command(capsys, "doctor", "-d", f"{server.url}/{mode}/metrics")
        assert said.format(elsewhere=other.url) in " ".join((shown.out + shown.err).split())
        assert not other.asked
        assert server.longest < 64 << 20
