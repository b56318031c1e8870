"""``jouletrace bench`` on the command line: its options, and what is refused before anything is sent."""

import json

import pytest

from commands import command
from jouletrace.errors import BadInputError
from jouletrace.wings.serving.client.bench import in_use
from jouletrace.wings.serving.request_options import slo_of
from shown import name_of, rows

GPU = "sim:h100?realtime=1"


@pytest.fixture(autouse=True)
def place(workspace):
    return workspace


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["localhost:8000", "--rate", "1"], "did you mean http://localhost:8000"),
        (["http://127.0.0.1:9"], "give --rate 1,2,4 (open loop), --concurrency 1,4,16 (closed loop) or --trace FILE"),
        (["http://127.0.0.1:9", "--rate", "0"], "--rate 0: write different numbers above 0"),
        (["http://127.0.0.1:9", "--rate", "1,1"], "--rate 1,1: write different numbers above 0"),
        (["http://127.0.0.1:9", "--rate", "1e6"], "of at most 100000"),
        (["http://127.0.0.1:9", "--rate", "fast"], "--rate fast"),
        (["http://127.0.0.1:9", "--concurrency", "1.5"], "write whole numbers"),
        (["http://127.0.0.1:9", "--rate", "1", "--arrivals", "often"], "must be poisson, constant or bursts:N"),
        (["http://127.0.0.1:9", "--rate", "1", "--arrivals", "poisson:3"], "must be poisson, constant or bursts:N"),
        (["http://127.0.0.1:9", "--rate", "1", "--input-tokens", "9:1"], "--input-tokens 9:1"),
        (["http://127.0.0.1:9", "--rate", "1", "--slo", "ttft=1"], "--slo 'ttft=1': write limits such as"),
        (["http://127.0.0.1:9", "--rate", "1", "--duration", "0"], "--duration 0"),
        (["http://127.0.0.1:9", "--rate", "1", "--pause", "nan"], "--pause nan"),
        (["http://127.0.0.1:9", "--rate", "1", "--api", "rest"], "--api rest: must be completions, chat or auto"),
        (["http://127.0.0.1:9", "--rate", "1", "-d", GPU, "--monitor", "http://a"], "give one of them"),
        (["http://127.0.0.1:9", "--trace", "none.csv"], "--trace none.csv: No such file"),
        (["http://127.0.0.1:9", "--rate", "1", "-d", "sim:h100?realtime=0"], "a server takes real time"),
    ],
)
def test_wrong_use_is_refused_in_one_line(capsys, place, options, said):
    found = command(capsys, "bench", *options)
    assert found.code == 2
    assert said in found.err
    assert len(found.err.strip().splitlines()) == 1
    assert not list(place.glob("runs/*"))


def test_limits_are_in_seconds_or_milliseconds():
    assert slo_of("ttft<0.5,tpot<50ms, e2e <= 10s") == {"ttft": 0.5, "tpot": 0.05, "e2e": 10.0}
    assert slo_of("") == {}
    for wrong in ("ttft<0", "itl<1", "ttft<1,ttft<2", "ttft<1e3", "ttft", "p99<20ms", "ttft<+3%"):
        with pytest.raises(BadInputError):
            slo_of(wrong)


def test_idle_gpus_beside_the_server_s_are_left_out():
    class Gpu:
        def __init__(self, spec, pids):
            self.spec, self.pids = spec, pids

        def processes(self):
            return self.pids

    one, two, three = Gpu("cuda:0", []), Gpu("cuda:1", [1]), Gpu("cuda:2", [])
    said = []
    assert in_use([one, two, three], said.append) == [two]
    assert said == ["recording cuda:1: no process runs on the other 2 GPUs; --device chooses others"]
    assert in_use([one, three]) == [one, three]  # where processes can't be seen
    assert in_use([two]) == [two]


@pytest.mark.thorough
def test_a_server_under_load_from_end_to_end(capsys, place):
    pytest.importorskip("aiohttp")
    from completion_server import Server, answering

    with answering(Server(first_s=0.01, token_s=0.002)) as server:
        found = command(
            *(capsys, "bench", server.url, "--rate", "20,40", "--duration", "1.5", "--pause", "0.3", "-d", GPU),
            *("--input-tokens", "5:50", "--output-tokens", "2:10", "--slo", "ttft<5", "-o", "run", "--json"),
        )
    assert found.code == 0, found.err
    printed = json.loads(found.out)
    assert [name_of(row) for row in rows(printed, "request")] == ["20/s", "40/s"]
    assert printed["simulated"] is True
    shown = command(capsys, "show", "run")
    assert shown.code == 0
    assert "Loads, in their steady state" in shown.out


@pytest.mark.thorough
def test_a_server_that_is_down_is_one_line_and_leaves_nothing(capsys, place):
    pytest.importorskip("aiohttp")
    found = command(capsys, "bench", "http://127.0.0.1:9", "--rate", "1", "-d", GPU)
    assert found.code == 3
    assert "cannot connect" in found.err
    assert not list(place.glob("runs/*"))
