"""A GPU on another machine, by the page of a monitor there."""

import time
from dataclasses import replace

import numpy as np
import pytest

from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.profiler.monitoring import Reading
from jouletrace.run import DeviceInfo
from jouletrace.wings.live import Address, Exporter, MetricsPage, RemoteGpu, remote
from jouletrace.wings.live.remote import offset, scrape
from metric_server import Page, serving

AHEAD_S = 3.25
WATTS = {"GPU-a": 300.0, "GPU-b": 80.0}
STEP_S = 0.1


def page_text(gpus=("GPU-a",), ahead_s=AHEAD_S, still=False):
    """A monitor's page on a machine whose clock is ahead, updated every 0.1 s."""

    def text():
        now = time.time() + ahead_s
        until = 1000.0 if still else float(np.floor(now / STEP_S) * STEP_S)
        lines = [f"jouletrace_time_seconds {now!r}"]
        for index, uuid in enumerate(gpus):
            labels = f'{{gpu="{index}",uuid="{uuid}",name="H100",simulated="false"}}'
            joules = WATTS[uuid] * (until - 1e9)
            lines += [
                f"jouletrace_energy_joules_total{labels} {joules!r}",
                f"jouletrace_energy_timestamp_seconds{labels} {until!r}",
                f"jouletrace_power_limit_watts{labels} 700.0",
                f"jouletrace_sm_clock_hertz{labels} 1.98e9",
                f"jouletrace_throttle_reasons{labels} 4.0",
            ]
        return "\n".join(lines) + "\n"

    return text


def test_the_clocks_are_compared_by_round_trips():
    with serving(Page(page_text())) as page:
        ahead_s, error_s = offset(page.url)
    assert ahead_s == pytest.approx(AHEAD_S, abs=error_s)
    assert 0 < error_s < 1


def test_the_power_is_that_of_the_counter_on_this_machine_s_clock():
    with serving(Page(page_text())) as page:
        gpu = open_device(page.url)
        (source,) = gpu.sources()
        found, began = [], time.time()
        while time.time() < began + 1.0:
            found += source.poll()
            time.sleep(0.05)
        ended = time.time()
    watts = np.concatenate([one.value for one in found if one.channel == "power_w"])
    stamps = np.concatenate([one.time_ns for one in found if one.channel == "power_w"]) / 1e9
    assert watts == pytest.approx(300.0, rel=1e-3)
    assert len(stamps) >= 3
    assert np.median(np.diff(np.unique(stamps))) > 0.7 * STEP_S, "one reading for each update of the page"
    assert began - 2 * STEP_S - 1 < stamps.min() < stamps.max() < ended + gpu.offset_error_s
    assert {one.channel for one in found} == {"power_w", "clock_sm_mhz", "throttle_bits"}
    channel = source.channels[0]
    assert channel.gapless is True
    assert channel.period_s == pytest.approx(STEP_S, rel=0.6)
    assert isinstance(gpu, RemoteGpu)
    assert gpu.info.host == "127.0.0.1"
    assert gpu.info.power_limit_w == 700.0


def test_energy_is_whole_over_a_time_in_which_the_page_could_not_be_read():
    with serving(Page(page_text())) as page:
        gpu = RemoteGpu(page.url)
        (source,) = gpu.sources()
        source.poll()
        page.status = 500
        assert source.poll() == []
        time.sleep(3 * source.channels[0].period_s)  # three updates pass unread
        page.status = 200
        late = [one for one in source.poll() if one.channel == "power_w"]
    assert np.concatenate([one.value for one in late]) == pytest.approx(300.0, rel=1e-3)
    # a reading for each update that was missed, or the record would have a hole
    stamps = np.concatenate([one.time_ns for one in late]) / 1e9
    assert len(stamps) >= 2
    assert np.diff(stamps) == pytest.approx(source.channels[0].period_s, rel=0.6)


def test_the_gpu_is_chosen_by_number_or_uuid():
    with serving(Page(page_text(("GPU-a", "GPU-b")))) as page:
        assert RemoteGpu(f"{page.url}#1").info.id == "GPU-b"
        assert RemoteGpu(f"{page.url}#GPU-a").spec == f"{page.url}#GPU-a"
        with pytest.raises(BadInputError, match=r"has these GPUs: 0 \(GPU-a\), 1 \(GPU-b\); name the server's as"):
            RemoteGpu(page.url)
        with pytest.raises(BadInputError, match="'GPU-c' matches 0 of its GPUs"):
            RemoteGpu(f"{page.url}#GPU-c")
        with pytest.raises(BadInputError, match="'GPU-' matches 2 of its GPUs"):
            RemoteGpu(f"{page.url}#GPU-")


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (Page("tokens_total 3\n"), "is not a page of `jouletrace monitor --serve`"),
        (Page("<html>"), "is not a page of `jouletrace monitor --serve`"),
        (Page("no", status=404), "answers 404"),
    ],
)
def test_another_page_is_refused(page, said):
    with serving(page), pytest.raises(NotPossibleError, match=said):
        open_device(page.url)


def test_a_machine_that_does_not_answer_is_reported():
    with pytest.raises(NotPossibleError, match="can't be reached: Connection refused"):
        open_device("http://127.0.0.1:9/metrics")


def test_a_page_that_stands_still_is_refused(monkeypatch):
    monkeypatch.setattr(remote, "PATIENCE_S", 0.3)
    with serving(Page(page_text(still=True))) as page:
        gpu = RemoteGpu(page.url)
        with pytest.raises(NotPossibleError, match=r"the energy of GPU-a did not change in 0.3 s"):
            gpu.sources()


def test_the_page_of_the_monitor_itself_is_read():
    info = DeviceInfo("GPU-1", "H100", index=2, simulated=True)
    with Exporter(Address("127.0.0.1", 0)) as exporter:
        exporter.show([Reading(info.id, info.name, info, 5, {"power_w": 1.0}, 12.5, energy_ns=7_500_000_000)], None)
        found = scrape(exporter.url)
        gpu = RemoteGpu(exporter.url)
    assert found.values["energy_timestamp_seconds", "GPU-1"] == 7.5
    assert found.values["energy_joules_total", "GPU-1"] == 12.5
    assert abs(found.offset_s) <= found.error_s + 1e-3
    assert (gpu.info.index, gpu.info.simulated) == (2, True)


def test_a_clock_that_is_set_meanwhile_is_reported():
    with serving(Page(page_text())) as page:
        gpu = RemoteGpu(page.url)
        assert gpu.clock_moved() == ""
        page.text = page_text(ahead_s=AHEAD_S + 7)
        assert gpu.clock_moved().startswith("the clock of 127.0.0.1 moved by +7 s against this one")
    assert gpu.clock_moved().startswith("the clocks could not be compared at the end")


def test_a_simulated_gpu_is_named_by_its_place_on_the_page():
    device = open_device("sim:h100")
    try:
        info = replace(device.info, index=None)
    finally:
        device.close()
    reading = Reading(info.id, info.name, info, values={"power_w": 300.0}, time_ns=1)
    family = next(one for one in MetricsPage([reading]).collect() if one.name.endswith("power_watts"))
    assert family.samples[0].labels["gpu"] == "0"
