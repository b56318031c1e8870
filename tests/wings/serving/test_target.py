"""Servers as a target of ``tune``: loads and flags, starts and ends of the server, and what fails."""

import json
import math
import os
import sys
import time
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest

import served_program
from commands import command
from jouletrace.analysis import analyse
from jouletrace.campaign import parse_limits, parse_over, run_tune, target_of
from jouletrace.campaign.loop import DamagedError
from jouletrace.errors import BadInputError, BrokenOffError, NotPossibleError
from jouletrace.profiler import ProfileSettings
from jouletrace.report.tune import render, to_dict
from jouletrace.run import load, save
from jouletrace.wings.serving import target as servers
from jouletrace.wings.serving.request_options import SHARES, RequestOptions
from jouletrace.wings.serving.target import ServerTarget, Started, check_free
from serving_runs import Truth, level_of, serving_run

pytest.importorskip("aiohttp")

KEY = "sk-abcdefgh12345678"
REAL_TIME = ProfileSettings(device="sim:h100?realtime=1")


@pytest.fixture
def spent(tmp_path):
    """The file of the tokens of a server that is a command; what it started is gone at the end."""
    yield tmp_path / "spent"
    gone(tmp_path / "spent")


def alive(spent):
    """Processes of the last server that run; one that has ended and isn't collected doesn't."""
    pids = spent.with_name("spent.pids").read_text().split() if spent.with_name("spent.pids").exists() else []
    states = []
    for pid in pids:
        if os.path.exists(f"/proc/{pid}/stat"):
            with open(f"/proc/{pid}/stat") as file:
                states += [file.read().rpartition(")")[2].split()[0]]
    return [state for state in states if state not in "ZX"]


def gone(spent):
    """Wait for the ends of all that was killed."""
    deadline = time.monotonic() + 10
    while alive(spent):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def starts(spent):
    """The values with which the server was started, in order."""
    return [tuple(line.split()) for line in spent.with_name("spent.started").read_text().splitlines()]


def tuned(folder, words, over, limit="", settings=REAL_TIME, seconds=20.0, **options):
    limits = parse_limits(limit or None, shares=SHARES)
    dimensions = parse_over(over)
    target = target_of(
        words, settings, limits, options.pop("limit_s", 30.0), dimensions, asdict(RequestOptions(seconds, "64", "32"))
    )
    return run_tune(target, dimensions, folder, limits=limits, **options)


@pytest.fixture
def measured(monkeypatch, spent):
    """Loads that are Runs of a server whose power is known: a server of size 64 takes a tenth less than another."""
    seen = []

    def bench(settings, devices, *, folder):
        (level,), size = settings.levels, starts(spent)[-1][0] if spent.with_name("spent.started").exists() else ""
        truth = Truth(output_j=0.54 if size == "64" else 0.6, output_s=0.02)
        rng = np.random.default_rng(settings.seed)
        rate = 2.0 * (level.concurrency or level.rate_per_s)
        run, _ = serving_run(
            truth, [level_of(truth, rate, 30.0, (64, 64), (32, 32), rng)], names={0: level.name}, rates=(rate,)
        )
        seen.append((level.name, size, settings.seed))
        save(analyse(run), folder)
        return load(folder)

    monkeypatch.setattr(servers, "bench", bench)
    return seen


@pytest.mark.thorough
def test_flags_vary_by_starting_the_server_again_in_each_round_and_loads_do_not(tmp_path, spent, measured):
    port = served_program.free_port()
    over = ["max-num-seqs=16,64", "MODE=fast", "concurrency=1,4"]
    words = [f"http://127.0.0.1:{port}", *served_program.command(port, spent, "{max-num-seqs}")]
    found, ended_by = tuned(tmp_path / "tuned", words, over)
    assert ended_by is None
    assert found.rows[found.reference].setting == {"max_num_seqs": "16", "MODE": "fast", "concurrency": "1"}
    best = found.rows[found.best]
    assert best.setting == {"max_num_seqs": "64", "MODE": "fast", "concurrency": "4"}
    assert {mode for _, mode in starts(spent)} == {"fast"}
    visited = Counter((seed, size) for _, size, seed in measured)
    first = Counter(size for size, _ in starts(spent)[:3])
    assert first == {"16": 2, "64": 1} or first == {"16": 1, "64": 1}, "the reference may keep its process"
    assert len(starts(spent)) <= len(visited) + 1 < len(measured)
    assert found.processes == len({seed for *_, seed in measured}) >= 3
    assert found.command.startswith("MODE=fast ")
    assert found.command.endswith(" 64")
    said = render(found)
    assert "per output token" in said
    assert "the server ran throughout" not in said
    assert to_dict(found)["settings"][0]["ttft_p95"]["value"] == pytest.approx(64 * 0.0004, rel=0.05)


@pytest.mark.thorough
def test_a_flag_with_which_the_server_dies_is_a_row_and_its_key_is_not_written(tmp_path, spent, measured, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    port = served_program.free_port()
    words = [f"http://127.0.0.1:{port}", *served_program.command(port, spent), "--api-key", KEY]
    over = ["size=16,dies", "concurrency=1,4"]
    found, _ = tuned(tmp_path / "tuned", words, over)
    dead = [row for row in found.rows if row.setting["size"] == "dies"]
    assert [row.outcome for row in dead] == ["vanished"] * 2
    assert "ended with code 1 before it answered (its log ends: no such size; the key is ***)" in dead[0].reason
    assert Counter(size for size, _ in starts(spent))["dies"] == 1
    assert found.rows[found.best].setting == {"size": "16", "concurrency": "4"}
    assert KEY not in render(found) + found.command
    assert not [
        path for path in (tmp_path / "tuned").rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()
    ]


@pytest.mark.thorough
def test_a_server_that_runs_already_is_visited_in_rounds_and_the_result_says_so(tmp_path, measured):
    from completion_server import Server, answering

    with answering(Server()) as server:
        found, _ = tuned(tmp_path / "tuned", [server.url], ["rate=1,4"], "ttft<0.1,tpot<30ms")
        assert found.limit == "ttft<100ms,tpot<30ms"
        assert found.rows[found.best].setting == {"rate": "4"}
        assert found.rows[found.best].over.value == 0
        assert found.command == ""
        assert "the server ran throughout" in render(found)
        before = len(measured)
        again, _ = tuned(tmp_path / "tuned", [server.url], ["rate=1,4"], "ttft<0.1,tpot<30ms")
        assert (again.best, again.saving, len(measured)) == (found.best, found.saving, before)
        none, _ = tuned(tmp_path / "none", [server.url], ["rate=1,4"], "ttft<0.1,tpot<10ms")
    assert none.outcome == "none"
    assert none.processes == 1
    assert "nearest: rate" in render(none)
    assert "100 % of its requests over it" in " ".join(render(none).split())


def test_a_request_must_meet_all_limits_together(tmp_path, measured):
    from completion_server import Server, answering

    limits = parse_limits("tpot<25ms,e2e<0.66", shares=SHARES)
    with answering(Server()) as server:
        target = ServerTarget(server.url, [], REAL_TIME, 10.0, RequestOptions(), limits)
        target.measure({"rate": "4"}, 1.0, tmp_path / "run", 0)
    figures = target.figures(load(tmp_path / "run"))
    assert figures.limited == pytest.approx(figures.latencies_s / 0.66, rel=1e-6)
    assert np.all(figures.limited > figures.beside["tpot"] / 0.025)
    assert figures.energy.value == pytest.approx(load(tmp_path / "run").result("energy_per_output_token_j", 1).value)


@pytest.mark.slow
def test_a_workload_on_a_simulated_gpu_is_tuned_as_a_server_and_an_overloaded_rate_is_a_row(tmp_path, capsys):
    words = ["tune", "gpt2", "-d", "sim:h100", "--over", "rate=8,200", "--limit", "ttft<100us", "--duration", "4"]
    lengths = ["--input-tokens", "8", "--output-tokens", "16", "-o", str(tmp_path / "tuned")]
    said = command(capsys, *words, *lengths)
    assert said.code == 0, said.err
    shown = " ".join(said.out.split())
    assert "SIMULATED: gpt2" in shown
    assert "none of 2 settings meets ttft<100us; nearest: rate 8, 100 % of its requests over it (1 process" in shown
    assert "200/s: overloaded" in shown
    page = json.loads((tmp_path / "tuned" / "result.json").read_text())
    run = load(tmp_path / "tuned" / "visits" / "0" / "00-rate-8")
    truth = run.result("energy_per_output_token_j", 1).value
    assert page["settings"][0]["cost"]["value"] == pytest.approx(truth, rel=1e-6)


@pytest.mark.thorough
def test_a_server_ends_with_all_that_it_started(spent):
    port = served_program.free_port()
    base = f"http://127.0.0.1:{port}/v1"
    server = Started(served_program.command(port, spent, "16"), {}, base, 30.0)
    assert len(alive(spent)) == 2
    assert server.ended() is None
    with pytest.raises(BadInputError, match="another server has the port"):
        check_free(base)
    server.close()
    gone(spent)
    check_free(base)


@pytest.mark.thorough
def test_a_server_that_never_answers_is_ended_at_the_deadline(spent):
    port = served_program.free_port()
    with pytest.raises(TimeoutError, match=r"doesn't answer at http://127.0.0.1:\d+/v1 after 2 s"):
        Started(served_program.command(port, spent, "hangs"), {}, f"http://127.0.0.1:{port}/v1", 2.0)


def test_a_damaged_visit_is_no_missing_one(tmp_path):
    target = ServerTarget("gpt2", [], ProfileSettings(device="sim:h100"), 30.0, RequestOptions())
    assert not target.is_there({"rate": "1"}, tmp_path)
    (tmp_path / "run.json").write_text('{"schema":')
    with pytest.raises(DamagedError, match=r"run\.json"):
        target.is_there({"rate": "1"}, tmp_path)


def test_a_key_that_no_header_can_carry_is_refused_in_a_line(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "schlüssel")
    with pytest.raises(BadInputError, match="OPENAI_API_KEY holds characters that no header can carry"):
        tuned(tmp_path / "tuned", ["http://127.0.0.1:9"], ["concurrency=1,4"])


def test_a_server_that_goes_to_the_background_is_refused_with_the_reason():
    port = served_program.free_port()
    with pytest.raises(BrokenOffError, match=r"ended with code 0 before it answered; .* keep it in the foreground"):
        Started([sys.executable, "-c", ""], {}, f"http://127.0.0.1:{port}/v1", 30.0)


def test_a_server_that_still_loads_its_model_is_waited_for(tmp_path):
    """It answers 503 until it has: those of its first health checks."""
    code = """
import http.server, pathlib, sys
asked = pathlib.Path(sys.argv[2])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        loads = self.path == "/health" and len(asked.read_text()) < 2
        asked.write_text(asked.read_text() + "x" * loads)
        self.send_response(503 if loads else 200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
    asked, port = tmp_path / "asked", served_program.free_port()
    asked.write_text("")
    Started([sys.executable, "-c", code, str(port), str(asked)], {}, f"http://127.0.0.1:{port}/v1", 30.0).close()
    assert asked.read_text() == "xx"


@pytest.mark.thorough
def test_a_server_that_dies_under_a_load_is_why_that_fails(tmp_path, spent, monkeypatch):
    port = served_program.free_port()
    target = ServerTarget(
        f"http://127.0.0.1:{port}", served_program.command(port, spent), REAL_TIME, 30.0, RequestOptions()
    )

    def bench(settings, devices, *, folder):
        os.kill(int(spent.with_name("spent.pids").read_text().split()[0]), 9)
        time.sleep(0.2)
        raise NotPossibleError("cannot connect")

    monkeypatch.setattr(servers, "bench", bench)
    with pytest.raises(BrokenOffError, match="the server was killed by signal 9"):
        target.measure({"size": "16", "concurrency": "1"}, 1.0, tmp_path / "run", 0)


@pytest.mark.thorough
def test_an_interrupt_leaves_no_server(tmp_path, spent, monkeypatch):
    port = served_program.free_port()

    def bench(settings, devices, *, folder):
        assert len(alive(spent)) == 2
        raise KeyboardInterrupt

    monkeypatch.setattr(servers, "bench", bench)
    words = [f"http://127.0.0.1:{port}", *served_program.command(port, spent)]
    result, ended_by = tuned(tmp_path / "tuned", words, ["size=16,64", "concurrency=1"])
    assert result is None
    assert isinstance(ended_by, KeyboardInterrupt)
    gone(spent)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["http://127.0.0.1:9", "--over", "concurrency=1,4"], "can't be reached"),
        (["http://127.0.0.1:9", "--over", "concurrency=1", "--over", "rate=1"], "name one load"),
        (["http://127.0.0.1:9", "--over", "size=1,2", "--", "sh"], "name a load"),
        (["http://127.0.0.1:9", "--over", "concurrency=1", "--over", "size=1,2"], "add -- SERVER COMMAND"),
        (["http://127.0.0.1:9", "--over", "concurrency=1", "--", "sh", "{size}"], "the command has {size}"),
        (["http://127.0.0.1:9", "--over", "concurrency=1", "--", "no-such-server"], "there is no such program"),
        (["http://127.0.0.1:9", "--over", "concurrency=1.5"], "write whole numbers"),
        (["http://127.0.0.1:9", "--over", "rate=fast"], "write different numbers above 0"),
        (["http://127.0.0.1:9", "--over", "rate=1", "--limit", "p99<20ms"], "ttft, tpot, e2e"),
        (["http://127.0.0.1:9", "--over", "rate=1", "--duration", "0"], "--duration 0"),
        (["http://192.0.2.1:9", "--over", "rate=1"], "but the GPU to record is here"),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_is_sent(tmp_path, capsys, words, says):
    said = command(capsys, "tune", "-d", REAL_TIME.device, "-o", str(tmp_path / "tuned"), *words)
    assert said.code in (2, 3)
    assert says in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert not (tmp_path / "tuned").exists()


@pytest.mark.slow
def test_a_server_that_is_started_has_the_energy_per_token_that_it_takes(tmp_path, spent, capsys):
    port = served_program.free_port()
    with served_program.metered(spent) as url:
        said = command(
            *(capsys, "tune", f"http://127.0.0.1:{port}", "-d", url, "--over", "size=16,64", "--over", "concurrency=1"),
            *("--duration", "4", "--input-tokens", "8", "--output-tokens", "16", "--budget", "1s"),
            *("-o", str(tmp_path / "tuned"), "--", *served_program.command(port, spent)),
        )
    assert said.code == 0, said.err
    for place in (tmp_path / "tuned" / "visits").glob("*/*"):
        run = load(place)
        seconds = 1 / run.result("tokens_per_s", 1).value
        bytes_ = 1 if "64" in place.name else 2
        truth = served_program.IDLE_W * seconds + served_program.TOKEN_J * bytes_
        assert math.isclose(run.result("energy_per_output_token_j", 1).value, truth, rel_tol=0.06)
