"""Parts of both recorders, and the recorder of virtual time."""

import heapq

import numpy as np
import pytest

from fake_devices import FakeDevice
from jouletrace.devices import RealClock
from jouletrace.errors import BadInputError, RecorderDiedError
from jouletrace.recording import InProcessRecorder, ProcessRecorder, open_recorder
from jouletrace.recording.collector import Collector, SampleStream, fresh_part
from jouletrace.recording.worker import Deadlines
from jouletrace.run import SAMPLES, SpoolWriter, read_spool

START_NS = 1_790_000_000_000_000_000


class Timer:
    def __init__(self, interval_ns, call):
        self.interval_ns, self.call, self.active = interval_ns, call, True

    def cancel(self):
        self.active = False


class VirtualClock:
    virtual = True

    def __init__(self):
        self.now_ns = START_NS
        self.heap = []

    def time_ns(self):
        return self.now_ns

    def monotonic_ns(self):
        return self.now_ns - START_NS

    def ahead_ns(self):
        return 0

    def every(self, interval_s, call):
        timer = Timer(round(interval_s * 1e9), call)
        heapq.heappush(self.heap, (self.now_ns + timer.interval_ns, id(timer), timer))
        return timer

    def sleep(self, seconds):
        end = self.now_ns + round(seconds * 1e9)
        while self.heap and self.heap[0][0] <= end:
            due, _, timer = heapq.heappop(self.heap)
            if timer.active:
                self.now_ns = due
                timer.call()
                heapq.heappush(self.heap, (due + timer.interval_ns, id(timer), timer))
        self.now_ns = end


def virtual(spec="board"):
    clock = VirtualClock()
    return FakeDevice(spec, clock), clock


def column(table, channel):
    rows = table.to_pylist()
    return [row["time_ns"] for row in rows if row["channel"] == channel]


class Every:
    def __init__(self, interval_s):
        self.interval_s = interval_s


def test_equal_paces_come_together_and_a_late_one_skips_what_it_missed():
    fast, slow = Every(0.1), Every(1.0)
    schedule = Deadlines([fast, slow], 0)
    assert schedule.wake_ns() == 100_000_000
    assert schedule.due(99_999_999) == []
    schedule.advance(950_000_000, [fast, slow])
    assert schedule.due(1_000_000_000) == [fast, slow]
    schedule.advance(5_555_000_000, [fast, slow])
    assert schedule.wake_ns() == 5_600_000_000
    schedule.advance(5_600_000_000, [slow])
    assert schedule.due(10**12) == [slow]


def test_a_source_that_changes_its_pace_is_asked_at_the_new_one():
    source = Every(0.015)
    schedule = Deadlines([source], 0)
    source.interval_s = 5.0
    schedule.advance(20_000_000, [source])
    assert schedule.wake_ns() == 5_000_000_000
    source.interval_s = 0.02
    schedule.restart(1_000_000_000)
    assert schedule.wake_ns() == 1_020_000_000


def test_virtual_time_records_everything_without_holes(tmp_path):
    device, clock = virtual("board?full=1&interval=1.0")
    recorder = open_recorder([device], tmp_path)
    assert isinstance(recorder, InProcessRecorder)
    recorder.start()
    assert {c.name for c in recorder.channels} >= {"power_w", "state_0", "energy_counter_j"}
    clock.sleep(10.0)
    end = clock.time_ns()
    cost = recorder.stop()
    table = recorder.samples()
    assert table.schema.equals(SAMPLES)
    stamps = np.array(column(table, "power_w"))
    assert np.all(np.diff(stamps) == 20_000_000)
    assert stamps[0] <= START_NS
    assert stamps[-1] >= end
    assert len(column(table, "state_3")) == pytest.approx(103, abs=3)
    assert cost.samples == len(table)
    assert cost.wall_s == pytest.approx(10.3)


def test_a_source_that_changes_its_pace_keeps_it_in_virtual_time(tmp_path):
    device, clock = virtual("board?full=1")
    recorder = InProcessRecorder([device], tmp_path)
    recorder.start()
    clock.sleep(40.0)
    stamps = column(recorder.samples(), "energy_counter_j")
    assert np.diff(stamps) == pytest.approx([20e6] * 4 + [30e9] + [20e6] * 4)
    end = clock.time_ns()
    recorder.stop()
    tail = [t for t in column(recorder.samples(), "energy_counter_j") if t >= end]
    assert np.diff(tail)[:4] == pytest.approx(20e6)  # the end is a reason to be asked closely again


def test_waiting_lets_virtual_time_pass_until_the_record_has_arrived(tmp_path):
    device, clock = virtual("board?interval=1.0&latency=0.1")
    recorder = InProcessRecorder([device], tmp_path)
    recorder.start()
    wanted = clock.time_ns() + 50_000_000
    assert recorder.wait_until(wanted)
    assert clock.time_ns() - START_NS < 200_000_000
    assert max(column(recorder.samples(), "power_w")) >= wanted
    assert not recorder.wait_until(clock.time_ns() + 10**12, timeout_s=1.0)


def test_after_stop_no_timer_is_left_and_stop_may_come_twice(tmp_path):
    device, clock = virtual()
    recorder = InProcessRecorder([device], tmp_path)
    assert recorder.stop().samples == 0
    recorder.start()
    clock.sleep(1.0)
    cost = recorder.stop()
    count = len(recorder.samples())
    clock.sleep(5.0)
    assert len(recorder.samples()) == count
    assert recorder.stop() is cost


def test_a_sensor_that_fails_is_reported_and_what_it_gave_is_kept(tmp_path):
    device, clock = virtual("board?fail=1.0&full=1")
    recorder = InProcessRecorder([device], tmp_path)
    recorder.start()
    clock.sleep(3.0)
    with pytest.raises(RecorderDiedError, match="recording of power_w of board ended: the GPU is lost"):
        recorder.check()
    with pytest.raises(RecorderDiedError):
        recorder.stop()
    assert recorder.stop().samples == len(recorder.samples())
    assert len(column(recorder.samples(), "power_w")) > 30
    assert max(column(recorder.samples(), "state_0")) >= START_NS + 3_000_000_000  # the others went on


def test_two_slices_of_one_gpu_record_it_once(tmp_path):
    clock = VirtualClock()
    slices = [FakeDevice("MIG-1?parent=GPU-1", clock), FakeDevice("MIG-2?parent=GPU-1", clock)]
    recorder = InProcessRecorder(slices, tmp_path)
    recorder.start()
    clock.sleep(1.0)
    recorder.stop()
    stamps = column(recorder.samples(), "power_w")
    assert len(stamps) == len(set(stamps)) > 0
    assert [c.device for c in recorder.channels] == ["GPU-1"]


def test_a_second_recording_in_a_spool_adds_to_the_first(tmp_path):
    total = 0
    for _ in range(2):
        device, clock = virtual()
        recorder = InProcessRecorder([device], tmp_path)
        recorder.start()
        clock.sleep(1.0)
        total += recorder.stop().samples
    assert len(read_spool(tmp_path, "samples")) == total
    assert fresh_part(tmp_path) == "0002"


def test_real_and_virtual_time_are_not_mixed(tmp_path):
    with pytest.raises(BadInputError, match="can't be recorded together"):
        open_recorder([virtual()[0], FakeDevice("real", RealClock())], tmp_path)
    assert isinstance(open_recorder([FakeDevice("real")], tmp_path), ProcessRecorder)


def test_a_growing_stream_is_read_batch_by_batch_and_half_a_batch_waits(tmp_path):
    channels = list(FakeDevice("b").sources()[0].channels)
    rows = {"time_ns": [1, 2, 3], "device": ["b"] * 3, "channel": ["power_w"] * 3, "value": [1.0, 2.0, 3.0]}
    writer = SpoolWriter(tmp_path, "samples")
    writer.append(rows)
    whole = writer.path.read_bytes()
    writer.append({**rows, "time_ns": [4, 5, 6]})
    both = writer.path.read_bytes()
    growing = tmp_path / "growing"
    growing.write_bytes(b"")
    stream = SampleStream(growing, channels)
    seen = []
    for size in range(0, len(both), 8):
        with growing.open("r+b") as file:
            file.write(both[:size])
        seen.append(len(stream.table()))
    growing.write_bytes(both)
    assert len(stream.table()) == 6
    assert seen == sorted(seen)
    assert set(seen) == {0, 3}
    assert seen.count(3) == pytest.approx((len(both) - len(whole)) / 8, abs=1)
    assert stream.power_until() == 6
    assert stream.table()["value"].to_pylist() == [1.0, 2.0, 3.0] * 2


def test_readings_that_are_held_take_no_more_than_their_columns(tmp_path):
    channels = list(FakeDevice("b").sources()[0].channels)
    count = 10_000
    rows = {"time_ns": np.arange(count), "device": ["b"] * count, "channel": ["power_w"] * count}
    with SpoolWriter(tmp_path, "samples") as writer:
        writer.append(rows | {"value": np.ones(count)})
    held = SampleStream(writer.path, channels).table()
    buffers = [buffer for name in ("time_ns", "value") for buffer in held[name].chunk(0).buffers() if buffer]
    assert all(buffer.parent is None for buffer in buffers)


def test_a_full_disk_is_one_clear_line(tmp_path, monkeypatch):
    collector = Collector([virtual("board?full=1")[0]], tmp_path, "0000")

    def full(columns):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(collector._writer, "append", full)
    collector.poll_all()
    with pytest.raises(RecorderDiedError, match="No space left on device"):
        collector.flush()
    (tmp_path / "file").write_text("")
    with pytest.raises(RecorderDiedError, match="can't be written"):
        Collector([virtual()[0]], tmp_path / "file" / "spool", "0000")
