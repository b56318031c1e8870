"""CPU energy through a fake powercap tree."""

from pathlib import Path

import pytest

from fake_nvml import START_NS, FakeClock
from jouletrace.analysis import analyse
from jouletrace.devices import CpuHost, Device, RaplSource, find_packages, rapl
from jouletrace.devices.rapl import RaplMissingError
from jouletrace.errors import NotPossibleError
from jouletrace.run import Run, tables
from jouletrace.sensor import integrate

RANGE_UJ = 262_143_328_850


def add_zone(root, zone, name, energy_uj=0, range_uj=RANGE_UJ):
    folder = root / zone
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return folder / "energy_uj"


@pytest.fixture
def tree(tmp_path):
    """Two sockets, with everything around them that must not be counted."""
    first = add_zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    add_zone(tmp_path, "intel-rapl:0:0", "core", 500_000)
    add_zone(tmp_path, "intel-rapl:0:1", "dram", 500_000)
    second = add_zone(tmp_path, "intel-rapl:1", "package-1", RANGE_UJ - 1_000_000)
    add_zone(tmp_path, "intel-rapl:2", "psys", 9_000_000)
    add_zone(tmp_path, "intel-rapl-mmio:0", "package-0", 1_000_000)
    (tmp_path / "intel-rapl").mkdir()
    return tmp_path, first, second


def test_packages_are_counted_once_and_their_parts_are_not(tree):
    assert [p.name for p in find_packages(tree[0])[0]] == ["package-0", "package-1"]


def test_power_comes_from_differences_and_a_counter_that_wraps_loses_nothing(tree):
    root, first, second = tree
    clock = FakeClock()
    source = RaplSource("cpu", find_packages(root)[0], clock)
    assert [s.channel for s in source.poll()] == ["energy_counter_j"]
    clock.sleep(0.05)
    first.write_text(str(1_000_000 + 2_000_000))
    second.write_text("2000000")  # 1 J to the end of its range, and 2 J on
    samples = {s.channel: s for s in source.poll()}
    assert samples["energy_counter_j"].value[0] == pytest.approx(5.0)
    assert samples["power_w"].value[0] == pytest.approx(100.0)
    assert samples["power_w"].time_ns[0] == START_NS + 50_000_000


def test_a_late_poll_loses_no_energy(tree):
    root, first, _ = tree
    clock = FakeClock()
    source = RaplSource("cpu", find_packages(root)[0], clock)
    stamps, watts, uj = [], [], 1_000_000
    for wait_s, joules in ((0.05, 3), (1.7, 100), (0.05, 4), (0.05, 0)):
        for samples in source.poll():
            if samples.channel == "power_w":
                stamps.append(samples.time_ns[0])
                watts.append(samples.value[0])
        clock.sleep(wait_s)
        uj += joules * 1_000_000
        first.write_text(str(uj))
    source.poll()
    assert integrate(stamps, watts, [stamps[0]], [stamps[-1]])[0] == pytest.approx(104.0)


def test_the_power_channel_is_gapless_and_late_by_half_its_window(tree):
    channel = RaplSource("cpu", find_packages(tree[0])[0], FakeClock()).channels[0]
    assert (channel.name, channel.gapless, channel.delay_s) == ("power_w", True, channel.window_s / 2)
    assert "package-0 + package-1" in channel.source


def test_a_clock_set_back_gives_no_power_rather_than_a_negative_one(tree):
    root, first, _ = tree
    clock = FakeClock()
    source = RaplSource("cpu", find_packages(root)[0], clock)
    source.poll()
    clock.sleep(-1.0)
    first.write_text("2000000")
    samples = source.poll()
    assert [s.channel for s in samples] == ["energy_counter_j"]
    assert samples[0].value[0] == pytest.approx(1.0)


def test_a_counter_that_only_root_may_read_says_what_to_do(tree, monkeypatch):
    def refuse(path: Path) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(rapl, "_read_int", refuse)
    with pytest.raises(RaplMissingError, match="sudo chmod -R a\\+r") as caught:
        find_packages(tree[0])
    assert caught.value.code == "rapl_unreadable"
    host = CpuHost(tree[0])
    assert host.sources() == []
    assert host.info.details["no_power"] == "rapl_unreadable"
    assert "sudo chmod" in host.capabilities()[0].note


def test_a_host_without_rapl_is_still_a_device(tmp_path):
    host = CpuHost(tmp_path / "powercap")
    assert isinstance(host, Device)
    assert (host.spec, host.info.kind, host.info.details["no_power"]) == ("cpu", "cpu", "rapl_absent")
    assert host.sources() == []
    assert host.info.name
    capability = host.capabilities()[0]
    assert not capability.available
    assert str(tmp_path) in capability.note


def test_a_host_with_rapl_offers_its_energy(tree):
    host = CpuHost(tree[0])
    assert "no_power" not in host.info.details
    assert host.info.details["packages"] == ["package-0", "package-1"]
    assert host.capabilities()[0].available
    assert [c.name for c in host.sources()[0].channels] == ["power_w", "energy_counter_j"]


def test_a_counter_that_vanishes_ends_the_recording_with_one_line(tree):
    root, first, _ = tree
    source = RaplSource("cpu", find_packages(root)[0], FakeClock())
    source.poll()
    first.unlink()
    with pytest.raises(NotPossibleError, match="can't be read any more"):
        source.poll()


@pytest.mark.parametrize(("last_j", "now_j", "pause_s", "used_j"), [
    (100_000, 100_002.5, 0.05, 2.5),
    (RANGE_UJ / 1e6 - 1, 1.5, 0.05, 2.5),  # the end of the range
    (100_000, 1.5, 0.05, None),  # 3 MW: it restarted
    (100_000, 1.0, 3600, None),  # 45 W, but it may have slept
    (RANGE_UJ / 1e6 - 10_000, 2_000.0, 60, None),
    (100_000, 112_000, 60, 12_000),
    (100_000, 112_000, 3600, None),  # it may have come round several times
    (100_000, 1.0, -1, None),
])  # fmt: skip
def test_a_fall_is_the_end_of_the_range_only_if_the_package_could_have_come_there(tree, last_j, now_j, pause_s, used_j):
    root, first, _ = tree
    clock = FakeClock()
    first.write_text(str(round(last_j * 1e6)))
    source = CpuHost(root, clock).sources()[0]
    source.poll()
    clock.sleep(pause_s)
    first.write_text(str(round(now_j * 1e6)))
    samples = {one.channel: float(one.value[0]) for one in source.poll()}
    assert samples["energy_counter_j"] == pytest.approx(used_j or 0.0, abs=1e-3)
    assert samples.get("power_w") == (None if used_j is None else pytest.approx(used_j / pause_s, rel=1e-3))
    clock.sleep(0.05)
    first.write_text(str(round(now_j * 1e6) + 3_000_000))
    samples = {one.channel: float(one.value[0]) for one in source.poll()}
    assert samples["energy_counter_j"] == pytest.approx((used_j or 0.0) + 3.0, abs=1e-3)
    assert samples["power_w"] == pytest.approx(60.0)


@pytest.mark.thorough
@pytest.mark.parametrize("range_uj", [None, "", "0"])
def test_a_package_without_a_range_is_named_and_figures_say_of_how_many_they_are(tree, range_uj):
    root, first, second = tree
    place = second.with_name("max_energy_range_uj")
    place.unlink() if range_uj is None else place.write_text(range_uj)
    host = CpuHost(root)
    assert host.info.details["packages"] == ["package-0"]
    assert "without package-1, whose max_energy_range_uj can't be read" in host.capabilities()[0].note
    clock = FakeClock()
    source = RaplSource("cpu", find_packages(root)[0], clock)
    rows = []
    for k in range(100):
        first.write_text(str(10**6 + 3 * 10**6 * k))
        rows += [
            {"time_ns": int(one.time_ns[0]), "device": "cpu", "channel": one.channel, "value": float(one.value[0])}
            for one in source.poll()
        ]
        clock.sleep(0.05)
    run = Run(kind="import", devices=[host.info], channels=list(source.channels))
    run.samples = tables.from_rows(rows, "samples")
    said = " ".join(str(analyse(run)).split())
    assert "294.0 ± 2.9 J in 4.9 s" in said
    assert "(1 of 2 packages)" in said
    assert "without package-1, whose max_energy_range_uj can't be read" in said
    first.with_name("max_energy_range_uj").unlink()
    if range_uj is None:
        with pytest.raises(RaplMissingError, match="no max_energy_range_uj of package-0, package-1"):
            find_packages(root)
