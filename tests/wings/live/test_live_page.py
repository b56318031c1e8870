"""The monitor's page for people and its points, asked over HTTP as a browser does."""

import json
import socket
import time
from urllib.request import urlopen

import pytest

from jouletrace.devices import Process
from jouletrace.profiler.monitoring import LiveWork, Reading
from jouletrace.run import DeviceInfo
from jouletrace.wings.live import Address, Exporter
from jouletrace.wings.live.live_page import WINDOW_S, History

START_NS = 1_763_676_000_000_000_000
EVIL = "<script>document.title='broken'</script>"


def reading(at_s=0.0, *, id="GPU-1", energy_j=None, **values):
    info = DeviceInfo(id, EVIL, index=3, simulated=True, power_limit_w=700.0)
    at_ns = START_NS + round(at_s * 1e9)
    return Reading(id, EVIL, info, at_ns, values, energy_j, energy_ns=at_ns, processes=[Process(7, "python", 2**30)])


def test_points_have_units_and_say_what_runs():
    history = History("train --token=hunter2")
    history.show([reading(power_w=310.5, memory_used_bytes=3 * 2.0**30)], LiveWork("tokens", 12.0, 3.0, 0.25))
    found = history.to_dict()
    units = {one["key"]: one["unit"] for one in found["channels"]}
    assert (units["power_w"], units["memory_used_bytes"], units["clock_sm_mhz"]) == ("W", "GiB", "MHz")
    (device,) = found["devices"]
    assert (device["values"]["power_w"], device["values"]["memory_used_bytes"]) == ((310.5,), (3.0,))
    assert device["values"]["clock_sm_mhz"] == (None,), "what isn't reported is no 0"
    assert (device["index"], device["simulated"], found["simulated"]) == (3, True, True)
    assert device["processes"] == [{"pid": 7, "name": "python", "memory_bytes": 2**30}]
    assert found["work"]["j_each"] == 0.25


def test_power_is_the_mean_between_points_however_many_readings_lie_there():
    history = History()
    for tick in range(21):  # 0.1 s apart, alternately 100 and 500 W
        energy = 10.0 * sum(1 if n % 2 else 5 for n in range(tick))
        history.show([reading(0.1 * tick, energy_j=energy, power_w=999.0)], None)
    (device,) = history.to_dict()["devices"]
    assert len(device["time_s"]) == 5
    assert device["values"]["power_w"][1:] == pytest.approx([340, 260, 340, 260])  # 3 and 2 of 5 readings are high


def test_five_minutes_are_kept_and_only_what_is_new_is_sent():
    history = History()
    for second in range(400):
        history.show([reading(second, power_w=1.0)], None)
    (device,) = history.to_dict()["devices"]
    assert device["time_s"][-1] - device["time_s"][0] == WINDOW_S
    (device,) = history.to_dict(START_NS / 1e9 + 397.5)["devices"]
    assert [at - START_NS / 1e9 for at in device["time_s"]] == [398.0, 399.0]


def test_the_server_has_a_page_points_and_metrics():
    with Exporter(Address("127.0.0.1", 0), "train.py") as exporter:
        exporter.show([reading(power_w=310.5)], None)
        page = urlopen(exporter.url).read().decode()
        assert "connect-src" in page
        assert EVIL not in page
        assert json.load(urlopen(f"{exporter.url}history?after=x"))["devices"][0]["values"]["power_w"] == [310.5]
        assert json.load(urlopen(f"{exporter.url}history?after=2e9"))["devices"][0]["time_s"] == []
        assert "jouletrace_power_watts" in urlopen(f"{exporter.url}metrics").read().decode()


def test_a_browser_that_hangs_holds_up_nothing():
    with Exporter(Address("127.0.0.1", 0)) as exporter:
        many = [reading(id=f"GPU-{n}", power_w=1.0) for n in range(8)]
        with socket.create_connection(("127.0.0.1", exporter._server.server_port)) as half:
            half.sendall(b"GET /history HTTP/1.1\r\nHost: ")
            with socket.create_connection(("127.0.0.1", exporter._server.server_port)) as deaf:
                deaf.sendall(b"GET / HTTP/1.1\r\n\r\n" * 50)
                start = time.monotonic()
                for _ in range(100):
                    exporter.show(many, None)
                assert len(json.load(urlopen(f"{exporter.url}history", timeout=10))["devices"]) == 8
                assert time.monotonic() - start < 5
