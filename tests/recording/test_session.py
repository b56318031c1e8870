"""A recording in progress: what is on disk at every moment, and how it ends."""

import json

import numpy as np
import pytest

from boards import board_step
from jouletrace.errors import BadInputError, RecorderDiedError
from jouletrace.recording import Session
from jouletrace.recording.spooled import SpooledRows
from jouletrace.run import load, read_spool, tables
from jouletrace.simulator.boards import SimulatedGpu


def session_on(folder=None, spec="sim:h100", **keys):
    return Session("profile", [SimulatedGpu(spec)], folder=folder, **keys)


def window(session, start, end):
    session.add_window(variant="untouched", multiplicity=1.0, block=0, replays=3, start_ns=start, end_ns=end)


def test_an_interrupt_right_after_the_header_keeps_the_run(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    session = session_on(tmp_path / "run")
    monkeypatch.setattr("jouletrace.run.spool.SpoolWriter.__init__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        session.open()
    assert not load(tmp_path / "run").complete


def test_a_finished_run_is_complete_and_the_spool_is_gone(tmp_path):
    with session_on(tmp_path / "run", command="jouletrace x", workload={"name": "x"}) as session:
        with session.phase("deep idle"):
            session.clock.sleep(2.0)
        window(session, 1, 2)
        session.finish()
    run = load(tmp_path / "run")
    assert run.complete
    assert (run.command, run.workload) == ("jouletrace x", {"name": "x"})
    assert [row["name"] for row in run.spans.to_pylist()] == ["deep idle"]
    assert run.windows["replays"].to_pylist() == [3]
    assert len(run.series(run.devices[0].id, "power_w")[0]) > 90
    assert run.recorder["samples"] == len(run.samples)
    assert len(run.clock_pairs) == 2
    assert "python" in run.versions
    assert not (tmp_path / "run" / "spool").exists()


def test_from_the_first_moment_a_crash_leaves_a_run(tmp_path, monkeypatch):
    """Even one between the header and the recorder's first reading."""
    session = session_on(tmp_path / "run")
    monkeypatch.setattr(session.recorder, "start", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        session.__enter__()
    run = load(tmp_path / "run")
    assert not run.complete
    assert [warning.code for warning in run.warnings] == ["interrupted"]


def test_what_a_killed_process_leaves_can_be_read(tmp_path):
    """Nothing is closed here: this is the disk as a SIGKILL leaves it."""
    session = session_on(tmp_path / "run").__enter__()
    session.run.workload = {"name": "x", "items": 8}
    session.save_header()
    with session.phase("deep idle"):
        session.clock.sleep(2.5)
    window(session, 1, 2)
    run = load(tmp_path / "run")
    assert not run.complete
    assert run.workload["items"] == 8
    assert len(run.spans) == len(run.windows) == 1
    assert len(run.series(run.devices[0].id, "power_w")[0]) > 40
    assert run.channel(run.devices[0].id, "power_w") is not None


def ends_with(session, error, name="warm-up"):
    """A recording whose work raises after a second."""
    with session, session.phase(name):
        session.clock.sleep(1.0)
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("two\nlines")])
def test_whatever_ends_it_early_is_kept_and_said(tmp_path, error):
    with pytest.raises(type(error)):
        ends_with(session_on(tmp_path / "run"), error)
    run = load(tmp_path / "run")
    assert not run.complete
    assert [warning.code for warning in run.warnings] == ["interrupted"]
    assert type(error).__name__ in run.warnings[0].message
    assert "\n" not in run.warnings[0].message
    assert [row["name"] for row in run.spans.to_pylist()] == ["warm-up"]
    assert len(run.samples) > 0


def test_a_recorder_that_died_fails_loudly_and_keeps_what_there_is(tmp_path, monkeypatch):
    session = session_on(tmp_path / "run").__enter__()
    session.clock.sleep(2.0)
    stop = session.recorder.stop

    def died():
        stop()
        raise RecorderDiedError("killed by signal 9")

    monkeypatch.setattr(session.recorder, "stop", died)
    with pytest.raises(RecorderDiedError, match="signal 9"):
        session.finish()
    run = load(tmp_path / "run")
    assert not run.complete
    assert [warning.code for warning in run.warnings] == ["failed"]
    assert len(run.samples) > 0


def test_a_dead_recorder_noticed_on_the_way_is_reported_once(tmp_path, monkeypatch):
    error = RecorderDiedError("killed by signal 9")
    session = session_on(tmp_path / "run")
    monkeypatch.setattr(session.recorder, "stop", lambda: (_ for _ in ()).throw(error))
    with pytest.raises(RecorderDiedError):
        ends_with(session, error)
    assert [warning.code for warning in load(tmp_path / "run").warnings] == ["failed"]


def test_finishing_twice_is_finishing_once(tmp_path):
    with session_on(tmp_path / "run") as session:
        first = session.finish()
        assert session.finish() is first


def test_in_memory_nothing_is_left_on_disk():
    with session_on() as session:
        home = session._home
        assert home.exists()
        session.finish()
    assert not home.exists()


def test_a_place_that_cannot_be_written_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="cannot write"):
        session_on(tmp_path / "file" / "run").__enter__()


def test_iterations_lie_end_to_end():
    with session_on() as session:
        session.add_span("phase", "latency", 5, 6, "profile")
        session.add_iterations(1_000, np.array([1e-6, 2e-6, 3e-6]), "latency")
        run = session.finish()
    rows = run.spans.to_pylist()
    assert [(row["start_ns"], row["end_ns"]) for row in rows[1:]] == [(1_000, 2_000), (2_000, 4_000), (4_000, 7_000)]
    assert [row["id"] for row in rows] == [0, 1, 2, 3]


def test_a_snapshot_converts_only_what_is_new(tmp_path, monkeypatch):
    rows = SpooledRows(tmp_path, "spans")
    converted = []
    from_rows = tables.from_rows
    monkeypatch.setattr(tables, "from_rows", lambda fresh, name: converted.append(len(fresh)) or from_rows(fresh, name))
    for i in range(4):
        rows.append([{"id": i, "kind": "phase", "name": f"p{i}", "start_ns": i, "end_ns": i + 1}])
        assert rows.table()["id"].to_pylist() == list(range(i + 1))
        rows.table()
    assert converted == [1, 1, 1, 1]
    assert len(rows) == 4
    rows.close()
    assert read_spool(tmp_path, "spans").equals(rows.table())


def test_rows_that_the_disk_does_not_take_are_not_lost_quietly(tmp_path, monkeypatch):
    rows = SpooledRows(tmp_path, "spans")
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(rows._spool, "append", lambda columns: (_ for _ in ()).throw(full))
    with pytest.raises(RecorderDiedError, match="No space left"):
        rows.append([{"id": 0, "kind": "phase", "name": "x", "start_ns": 0, "end_ns": 1}])


def test_power_since_a_time_is_that_of_the_record():
    device, step = board_step()
    with Session("profile", [device]) as session:
        step.replay(2000)
        since = session.clock.time_ns()
        session.clock.sleep(1.0)
        session.recorder.wait_until(since + 980_000_000)
        stamps, watts = session.power(since)
        session.finish()
    assert stamps.min() >= since
    assert len(stamps) == pytest.approx(50, abs=3)
    assert watts[-10:].mean() == pytest.approx(125, abs=10)


def test_the_header_names_the_format(tmp_path):
    session_on(tmp_path / "run").__enter__()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["format"] == "jouletrace-run"
