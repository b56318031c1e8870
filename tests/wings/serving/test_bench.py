"""``bench`` against local servers: what is sent, what is recorded, and what goes wrong."""

import itertools
import socket

import numpy as np
import pytest

pytest.importorskip("aiohttp")

from completion_server import Server, answering
from jouletrace.analysis import analyse
from jouletrace.devices import open_devices
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run import load, tables
from jouletrace.wings.serving.client.bench import BenchSettings, ClientProcess, bench, requests_of
from jouletrace.wings.serving.client.client import ALL_FAILED
from jouletrace.wings.serving.client.load import Lengths, OfferedLoad, PlannedRequest, closed_levels, open_levels
from thinned import thinned

GPU = "sim:h100?realtime=1"


def lengths(inputs="5:20", outputs="3:6"):
    return Lengths.parse(inputs, "in"), Lengths.parse(outputs, "out")


def measured(server, levels, folder=None, **changes):
    devices = open_devices([GPU])
    try:
        settings = BenchSettings(server.url, levels, **{"pause_s": 0.3, "timeout_s": 10.0, **changes})
        return bench(settings, devices, folder=folder, command="jouletrace bench")
    finally:
        for device in devices:
            device.close()


def asked(server, level, model="", api="auto", timeout_s=10.0):
    """Rows of a level, and its facts, without a recording; and what the server took."""
    client = ClientProcess()
    try:
        settings = BenchSettings(server.url, [level], model, api, timeout_s=timeout_s)
        taken = client.start(f"{server.url}/v1", settings)
        events = list(client.level(0, level, lambda: None))
        rows = requests_of(row for event in events for row in event.get("rows", ()))
        return rows, events[-1]["done"], taken
    finally:
        client.close()


def at(*times, output_tokens=4):
    return OfferedLoad(
        "x", "open", "trace", None, None, max(times) + 0.1, [PlannedRequest(t, 8, output_tokens) for t in times]
    )


@pytest.mark.thorough
def test_a_run_holds_requests_and_power_and_is_computed_again_from_the_disk(tmp_path):
    page = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n"
    with answering(Server(metrics=page)) as server:
        levels = [*open_levels([40], "poisson", 2, 1, lengths(), 1), *closed_levels([3], 1, lengths(), 1)]
        run = measured(server, levels, tmp_path / "run", slo_s={"ttft": 5.0})
    again = load(tmp_path / "run")
    assert again.kind == "bench"
    assert again.complete
    assert again.requests.equals(run.requests)
    assert [one["name"] for one in again.workload["serving"]["levels"]] == ["40/s", "3 at once"]
    rows = run.requests.to_pylist()
    assert len([row for row in rows if row["level"] == 0]) == len(levels[0].requests)
    assert {row["status"] for row in rows} == {"ok"}
    for row in rows:
        assert row["scheduled_ns"] <= row["sent_ns"] <= row["first_ns"] <= row["last_ns"]
        assert row["output_tokens"] == row["chunks"]
        assert 5 <= row["input_tokens"] <= 20
    assert {one["channel"] for one in run.samples.to_pylist()} >= {"power_w", "server_running"}
    assert run.result("share_within_slo", 1).value == 1.0
    assert run.result("energy_total_j", 1).value > 0
    results = run.results
    assert analyse(again).results.equals(results)
    assert sum(run.steps["new_tokens"].to_pylist()) == sum(row["input_tokens"] for row in rows)
    assert sum(run.steps["decoding"].to_pylist()) == sum(row["chunks"] - 1 for row in rows)
    assert run.workload["serving"]["streamed"] > 0
    facts = run.workload["serving"]["levels"][0]
    assert 0 < facts["client_cpu_s"] < 2 * facts["client_wall_s"]


@pytest.mark.thorough
def test_a_log_of_steps_that_cannot_be_used_costs_no_recording(tmp_path):
    with answering(Server()) as server:
        levels = open_levels([40], "poisson", 1, 1, lengths(), 1)
        run = measured(server, levels, tmp_path / "run", steps=tmp_path / "none.jsonl")
    warning = next(one for one in run.warnings if one.code == "steps_not_read")
    assert warning.message.endswith("none.jsonl: No such file or directory; jouletrace bill can join a log later")
    assert len(load(tmp_path / "run").requests) == len(levels[0].requests)


@pytest.mark.thorough
def test_an_open_loop_sends_at_its_times_whatever_answers_do():
    times = [0.05 * n for n in range(20)]
    with answering(Server(first_s=1.5)) as server:  # all are still open when the last is sent
        rows, _, _ = asked(server, at(*times))
    rows.sort(key=lambda row: row["id"])
    due = np.array([row["scheduled_ns"] for row in rows])
    assert np.diff(due) / 1e9 == pytest.approx(np.diff(times), abs=1e-6)
    assert max(row["sent_ns"] for row in rows) < min(row["first_ns"] for row in rows)
    assert all(row["sent_ns"] >= row["scheduled_ns"] for row in rows)


@pytest.mark.thorough
def test_a_closed_loop_keeps_so_many_open():
    (level,) = closed_levels([4], 1.0, lengths(), 0)
    with answering(Server(first_s=0.02)) as server:
        rows, _, _ = asked(server, level)
    edges = sorted([(row["sent_ns"], 1) for row in rows] + [(row["last_ns"], -1) for row in rows])
    open_ = list(itertools.accumulate(step for _, step in edges))
    assert max(open_) == 4
    assert len(rows) > 8


@pytest.mark.thorough
def test_chat_only_servers_and_servers_without_extensions_are_spoken_to():
    with answering(Server(chat_only=True)) as server:
        rows, _, taken = asked(server, at(0.0, 0.1))
        assert taken["api"] == "chat"
        assert {row["status"] for row in rows} == {"ok"}
        assert "messages" in server.asked[-1]
    with answering(Server(ids=False, ignore_eos=False)) as server:
        rows, _, taken = asked(server, at(0.0))
        assert (taken["token_ids"], taken["ignore_eos"], taken["usage"]) == (False, False, True)
        assert rows[0]["input_tokens"] == 8
    with answering(Server(models=None)) as server:
        assert asked(server, at(0.0))[2]["model"] == ""


@pytest.mark.thorough
def test_without_usage_figures_chunks_are_counted_and_that_is_reported():
    with answering(Server(usage=False)) as server:
        run = measured(server, [at(*[0.02 * n for n in range(30)])])
    assert {row["output_tokens"] for row in run.requests.to_pylist()} == {4}
    assert any(one.code == "no_usage" and "30 answers without usage" in one.message for one in run.warnings)


def test_answers_that_end_early_are_reported():
    with answering(Server(most_tokens=3)) as server:
        _, done, _ = asked(server, at(0.0, 0.1, output_tokens=9))
    assert done["short"] == 2


@pytest.mark.thorough
@pytest.mark.parametrize("count", thinned([-5, 10**15, 10**20, 2**63 + 5], 2), ids=str)
def test_a_run_with_impossible_usage_figures_can_be_opened(tmp_path, count):
    with answering(Server(counted=count)) as server:
        measured(server, [at(0.0, 0.1)], tmp_path / "run")
    run = load(tmp_path / "run")
    assert run.complete
    assert run.requests["status"].to_pylist() == ["ok", "ok"]
    assert run.requests["output_tokens"].to_pylist() == [4, 4]
    assert any(one.code == "no_usage" and "2 answers without usage" in one.message for one in run.warnings)


@pytest.mark.thorough
def test_answers_with_more_tokens_than_asked_for_are_reported(tmp_path):
    with answering(Server(counted=1_000_000)) as server:
        measured(server, [at(0.0, 0.1)], tmp_path / "run")
    run = load(tmp_path / "run")
    found = [one.message for one in run.warnings if one.code == "more_tokens"]
    assert len(found) == 1
    assert found[0].startswith("x: 2 answers have more tokens than asked for")
    assert any(one.code == "more_tokens" for one in analyse(run).warnings)


@pytest.mark.thorough
def test_requests_that_no_reader_accepts_are_left_out_and_counted(tmp_path, monkeypatch):
    rows = ClientProcess.level

    def spoilt(self, *arguments):
        for event in rows(self, *arguments):
            for row in event.get("rows", ())[:1]:
                row[tables.REQUESTS.names.index("chunks")] = -1
            yield event

    monkeypatch.setattr(ClientProcess, "level", spoilt)
    with answering(Server()) as server:
        measured(server, [at(0.0)], tmp_path / "run")
    run = load(tmp_path / "run")
    assert len(run.requests) == 0
    assert [one.message for one in run.warnings if one.code == "requests_left_out"] == [
        "1 row of requests had impossible values and was left out"
    ]


def test_a_deeply_nested_list_of_models_is_none():
    with answering(Server(listed_text='{"data": ' + "[" * 100_000)) as server:
        rows, _, taken = asked(server, at(0.0))
    assert taken["model"] == ""
    assert rows[0]["status"] == "ok"


def test_the_name_of_a_model_is_cut_but_sent_whole():
    name = "m" * 300_000
    with answering(Server(models=(name,))) as server:
        _, _, taken = asked(server, at(0.0))
        assert server.asked[-1]["model"] == name
    assert len(taken["model"]) == 80
    with answering(Server(models=(name, "other"))) as server:
        assert len(refused(server)[1]) < 400


def refused(server, **changes):
    client = ClientProcess()
    try:
        with pytest.raises((BadInputError, NotPossibleError)) as caught:
            client.start(f"{server.url}/v1", BenchSettings(server.url, [], **changes))
        text = str(caught.value)
        assert "\n" not in text
        return caught.type, text
    finally:
        client.close()


def test_a_server_that_is_down_is_reported():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    kind, text = refused(Server(url=url))
    assert kind is NotPossibleError
    assert text.startswith(f"{url}/v1: cannot connect: ")


def test_a_server_that_does_not_answer_in_time_is_reported():
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        _, text = refused(Server(url=f"http://127.0.0.1:{mute.getsockname()[1]}"), timeout_s=0.5)
    assert text.endswith("no end within 0.5 s")


def test_a_wrong_key_is_reported(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with answering(Server(key="right")) as server:
        _, text = refused(server)
        assert text.endswith("HTTP 401: wrong key: set OPENAI_API_KEY")
        monkeypatch.setenv("OPENAI_API_KEY", "right")
        assert asked(server, at(0.0))[0][0]["status"] == "ok"


def test_a_model_that_is_not_served_is_reported_with_those_that_are():
    with answering(Server(models=("one", "two"))) as server:
        assert refused(server, model="three")[1].endswith("no model 'three'; it serves one, two")
        assert refused(server)[1].endswith("it serves one, two: choose one with --model")
        assert asked(server, at(0.0), model="two")[0][0]["status"] == "ok"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"dies_after": 3}, "the server closed the connection before the end of the answer"),
        ({"error_after": 3}, "error in the stream: out of memory"),
        ({"status_after": 3}, "HTTP 503: overloaded"),
    ],
)
def test_requests_that_fail_in_the_middle_have_their_reason(fault, said):
    with answering(Server(**fault)) as server:
        rows, done, _ = asked(server, at(*[0.03 * n for n in range(8)]))
    rows.sort(key=lambda row: row["id"])
    assert {row["error"] for row in rows[4:]} == {said}
    assert {row["status"] for row in rows[4:]} == {"failed"}
    assert all(row["last_ns"] >= row["sent_ns"] for row in rows)
    assert not done["given_up"]


def test_slow_answers_are_given_up_after_the_timeout():
    with answering(Server(first_s=0.01, token_s=0.01)) as server:
        rows, _, _ = asked(server, at(0.0, output_tokens=300), timeout_s=0.6)
    assert rows[0]["error"] == "no end within 0.6 s"
    assert rows[0]["first_ns"] is not None


@pytest.mark.thorough
def test_a_level_is_given_up_if_nothing_is_answered_any_more():
    with answering(Server(status_after=5)) as server:
        run = measured(server, [at(*[0.01 * n for n in range(200)]), at(0.0)])
    assert len(run.requests) < 5 + 4 * ALL_FAILED
    assert set(run.requests["level"].to_pylist()) == {0}
    codes = {one.code: one.message for one in run.warnings}
    assert "the server stopped answering at x: later loads were left out" in codes["given_up"]
    assert "HTTP 503: overloaded" in codes["requests_failed"]


def test_a_server_elsewhere_needs_a_monitor_there():
    devices = open_devices([GPU])
    with pytest.raises(
        BadInputError, match=r"the server is on 192\.0\.2\.1, but the GPU to record is here: .*--device http"
    ):
        bench(BenchSettings("http://192.0.2.1:8000", []), devices)
    devices[0].close()


def test_virtual_time_is_refused():
    devices = open_devices(["sim:h100"])
    with pytest.raises(BadInputError, match=r"a server takes real time; write sim:h100.realtime=1"):
        bench(BenchSettings("http://127.0.0.1:8000", []), devices)


@pytest.mark.thorough
def test_an_interruption_keeps_what_was_recorded(tmp_path, monkeypatch):
    seen = []

    def interrupt(self):
        seen.append(1)
        if len(seen) > 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("jouletrace.recording.process.ProcessRecorder.check", interrupt)
    with answering(Server()) as server, pytest.raises(KeyboardInterrupt):
        measured(server, open_levels([30], "constant", 60, 1, lengths(), 1), tmp_path / "run")
    run = load(tmp_path / "run")
    assert not run.complete
    assert len(run.requests) > 0
    analyse(run)
    assert run.result("requests_per_s", 1).value > 0


def test_the_client_s_process_ends_with_its_input():
    client = ClientProcess()
    client._child.stop()
    assert client._child.hear() is None
    assert client._child.how_it_ended() == "ended with code 0"
    client.close()
