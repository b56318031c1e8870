"""A recording among threads, forks and callbacks: each has marks of its own, and none of them ends it."""

import asyncio
import os
import threading
import time
from collections import Counter

import pytest

import jouletrace as jt
from commands import PATIENCE_S, wait_for
from jouletrace.errors import BadInputError
from jouletrace.profiler.record import recording as recordings
from jouletrace.profiler.record.launch_marks import LaunchMarks
from live_runs import REAL, spans_of


@pytest.mark.thorough
def test_threads_have_ranges_and_steps_of_their_own():
    def work(name):
        for _ in range(3):
            with jt.range(name):
                time.sleep(0.01)
            jt.step()

    with jt.record(device=REAL) as recording:
        threads = [threading.Thread(target=work, args=(name,), name=name) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in ("one", "two"):
        lanes = {row["lane"] for row in spans_of(recording.run, "range") if row["name"] == name}
        assert len(lanes) == 1
        assert lanes.pop().startswith(name)
    assert all(row["parent"] is None for row in spans_of(recording.run, "range"))
    # The first mark of another thread only says where its second step begins.
    assert len(spans_of(recording.run, "iteration")) == 4


@pytest.mark.thorough
def test_tasks_have_ranges_and_steps_of_their_own():
    shared = jt.range("shared")  # one object that all tasks enter

    async def work(name, pause_s):
        for _ in range(3):
            with jt.range(name):
                await asyncio.sleep(pause_s)
                with shared:
                    await asyncio.sleep(pause_s)
            await asyncio.to_thread(in_a_thread)
            jt.step()

    def in_a_thread():
        with jt.range("below"):
            time.sleep(0.001)

    async def main():
        with jt.range("all"):
            await asyncio.gather(*(work(f"task {n}", 0.005 + 0.0013 * n) for n in range(4)))

    with jt.record(device=REAL) as recording:
        asyncio.run(main())
    spans = {row["id"]: row for row in spans_of(recording.run, "range")}
    counts = Counter()
    for row in spans.values():
        around, path = spans.get(row["parent"]), row["name"]
        if around is not None:
            assert around["start_ns"] <= row["start_ns"] <= row["end_ns"] <= around["end_ns"], row
        while around is not None:
            path, around = f"{around['name']}/{path}", spans.get(around["parent"])
        counts[path] += 1
    each = {f"all/task {n}{below}": 3 for n in range(4) for below in ("", "/shared")}
    assert counts == {"all": 1, "all/below": 12, **each}
    ranges = [row["count"] for row in recording.run.units.to_pylist() if row["level"] == "range"]
    assert sorted(ranges) == [1, 3, 3, 3, 3, 3, 3, 3, 3, 12, 12]  # and the steps, as a row
    assert len(spans_of(recording.run, "iteration")) == 12
    assert recording.run.warnings == []


@pytest.mark.thorough
def test_a_task_that_outlives_the_range_in_which_it_began_is_named():
    async def later():
        with jt.range("inner"):
            await asyncio.sleep(0.05)

    async def main():
        with jt.range("outer"):
            task = asyncio.create_task(later())
            await asyncio.sleep(0.01)
        await task

    with jt.record(device=REAL) as recording:
        asyncio.run(main())
    (said,) = [one.message for one in recording.run.warnings if one.code == "ranges_crossed"]
    assert "'outer' and 'inner' (once)" in said


def test_the_tracer_has_the_ranges_of_the_task_that_marked_last():
    pushed = []
    marks = LaunchMarks(time.time_ns, pushed.append, pushed.pop)

    async def work(name):
        with_it = marks.begin(name)
        assert pushed == ["all", name]
        await asyncio.sleep(0)
        inner = marks.begin("inner")
        assert pushed == ["all", name, "inner"]
        await asyncio.sleep(0)
        marks.end(inner)
        assert pushed == ["all", name]
        marks.end(with_it)
        assert pushed == ["all"]

    async def main():
        outer = marks.begin("all")
        await asyncio.gather(work("a"), work("b"))
        marks.end(outer)

    asyncio.run(main())
    assert pushed == []


@pytest.mark.thorough
def test_marks_of_other_threads_while_a_recording_begins_do_nothing():
    failed, over = [], threading.Event()

    def work():
        while not over.is_set():
            try:
                with jt.range("early"):
                    jt.step()
                time.sleep(1e-4)
            except Exception as error:
                failed.append(error)
                return

    thread = threading.Thread(target=work)
    thread.start()
    with jt.record(device=REAL):
        pass
    over.set()
    thread.join()
    assert not failed


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [SystemExit, KeyboardInterrupt])
def test_an_update_that_asks_to_exit_does_not_end_the_recording(wrong):
    asked = threading.Event()

    def update(_):
        asked.set()
        raise wrong

    with jt.record(device=REAL, on_update=update, update_s=0.1) as recording:
        assert asked.wait(PATIENCE_S)
        time.sleep(0.3)
        assert recording._flusher.is_alive()
    assert any(warning.code == "update_failed" for warning in recording.run.warnings)


@pytest.mark.thorough
def test_an_update_cannot_end_the_recording_and_one_that_hangs_does_not_hold_it(monkeypatch):
    monkeypatch.setattr(recordings, "_PATIENCE_S", 0.2)
    over = threading.Event()
    asked = []

    def update(_):
        with pytest.raises(BadInputError, match="can't be ended by on_update"):
            recording.__exit__(None, None, None)
        asked.append(True)
        over.wait(PATIENCE_S)

    recording = jt.record(device=REAL, on_update=update, update_s=0.1)
    with recording:
        wait_for(lambda: asked)
    assert not over.is_set()
    over.set()
    assert any("had not returned" in warning.message for warning in recording.run.warnings)


@pytest.mark.thorough
def test_several_threads_may_end_a_recording():
    recording = jt.record(device=REAL).__enter__()
    failed = []

    def end():
        try:
            recording.__exit__(None, None, None)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=end) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert recording.run is not None


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_does_not_write_into_its_parents_recording():
    with jt.record(device=REAL) as recording:
        child = os.fork()
        if child == 0:
            try:
                recording.now()
            except BadInputError as error:
                os._exit(0 if "belongs to process" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
