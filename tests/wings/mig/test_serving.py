"""Servers on several slices at once: energies against the truth of a simulated GPU, real clients, and refusals."""

import json
from contextlib import ExitStack, closing

import numpy as np
import pytest
from jsonschema import Draft202012Validator

pytest.importorskip("aiohttp")

from commands import command
from completion_server import Server, answering
from jouletrace.analysis import analyse
from jouletrace.analysis.serving.steady import requests_of
from jouletrace.devices import open_device
from jouletrace.devices.base import one_sample
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.profiler.serving.bench import BenchSettings
from jouletrace.profiler.serving.load import Lengths, open_levels
from jouletrace.report import json_schema, render, tariff, to_json_object
from jouletrace.run import Parts
from jouletrace.run import load as load_run
from jouletrace.wings.mig.activity import ActivityRecorder
from jouletrace.wings.mig.apply import open_backend
from jouletrace.wings.mig.divide import ACTIVITY
from jouletrace.wings.mig.jobs import Slice
from jouletrace.wings.mig.serving import HttpServers, bench_slices, open_servers
from jouletrace.wings.mig.simulated import profiles
from shown import verdict_of

GPU = "sim:h100?cap=off&seed=4"
PROFILES = ("3g.40gb", "2g.20gb", "1g.10gb")


def each(rates, seconds, count, tokens=("64", "32")):
    lengths = Lengths.parse(tokens[0], "in"), Lengths.parse(tokens[1], "out")
    own = [open_levels(rates, "poisson", seconds, 1, lengths, place) for place in range(count)]
    return [list(load) for load in zip(*own, strict=True)]


@pytest.fixture(scope="module")
def served():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    models = ["llama-1b", "llama-1b", "gpt2-large"]
    levels = each((1, 2.5), 25, 3)
    with closing(open_backend(GPU)) as backend, closing(open_servers(models, PROFILES, backend, GPU)) as servers:
        settings = BenchSettings("", [one for load in levels for one in load], pause_s=2.0)
        return bench_slices(servers, settings, levels), servers.history


def unit_of(run, number):
    name = run.workload["serving"]["levels"][number]["name"]
    return next(unit["id"] for unit in run.units.to_pylist() if unit["name"] == name)


def truth_j(history, group, place, start_ns, end_ns):
    """Energy over context idle that a slice caused in a window."""
    began_ns, queues = history[group]
    elapsed, _, joules = np.array(queues[place].reached).T
    first, last = np.interp([(start_ns - began_ns) / 1e9, (end_ns - began_ns) / 1e9], elapsed, joules)
    return last - first


def window_ns(run, number):
    """The window of a load, from its settling time and its length."""
    requests, unit = requests_of(run, number), unit_of(run, number)
    start = float(requests.sent[0]) + run.result("time_settling_s", unit).value
    return requests.nanoseconds(start), requests.nanoseconds(start + run.result("time_s", unit).value)


def together(run):
    return [(n, one) for n, one in enumerate(run.workload["serving"]["levels"]) if not one["alone"]]


@pytest.mark.thorough
def test_energy_of_each_slice_holds_its_truth(served):
    run, history = served
    covered = []
    for number, load in together(run):
        unit = unit_of(run, number)
        found = run.result("energy_active_j", unit)
        true_j = truth_j(history, load["group"], load["server"], *window_ns(run, number))
        assert found.value == pytest.approx(true_j, rel=0.05), load["name"]
        covered.append(found.low <= true_j <= found.high)
    assert len(covered) == 6
    assert sum(covered) >= 5, covered


@pytest.mark.thorough
def test_energies_of_all_slices_and_idle_are_the_gpus(served):
    run, _ = served
    sizes = [server["slices"] for server in run.workload["serving"]["servers"]]
    for group in (3, 4):
        members = [(n, one) for n, one in together(run) if one["group"] == group]
        windows = {window_ns(run, n) for n, _ in members}
        assert len(windows) == 1
        (start_ns, end_ns), seconds = windows.pop(), run.result("time_s", unit_of(run, members[0][0])).value
        stamps, watts = run.series(run.devices[0].id, "power_w")
        drawn_j = watts[(stamps > start_ns) & (stamps <= end_ns)].mean() * seconds
        idle_w = run.result("baseline_context_idle_w", unit_of(run, members[0][0])).value
        parts_j = sum(run.result("energy_total_j", unit_of(run, n)).value for n, _ in members)
        unused_j = idle_w * (1 - sum(sizes) / 7) * seconds
        assert parts_j + unused_j == pytest.approx(drawn_j, rel=0.005)


@pytest.mark.thorough
def test_latency_and_throughput_are_those_of_each_servers_queue(served):
    run, history = served
    for number, load in together(run):
        served_by = history[load["group"]][1][load["server"]]
        requests = requests_of(run, number)
        assert len(requests) == len(served_by.ends_s)
        assert requests.last + requests.origin_ns / 1e9 - history[load["group"]][0] / 1e9 == pytest.approx(
            np.array(served_by.ends_s), abs=1e-6
        )
        assert (requests.first > requests.sent).all()
        assert (requests.last > requests.first).all()
    fast, slow = (run.result("tpot_p50_s", unit_of(run, n)).value for n in (3, 4))
    assert slow > fast, "another model, and a smaller slice"


@pytest.mark.thorough
def test_loads_are_shown_and_computed_again(served):
    run, _ = served
    text = render([run], detail="model", width=150, verbose=True)
    for words in ("1/s on 3g.40gb", "2.5/s on 1g.10gb", "divided among slices by their activity"):
        assert words in text
    assert "alone" not in text
    found = to_json_object(run)
    Draft202012Validator(json.loads(json_schema())).validate(found)
    assert len(found["parts"]["request"]) == 9
    results = run.results
    assert analyse(run).results.equals(results)


@pytest.mark.thorough
def test_the_verdict_has_each_server_by_itself_and_the_whole_gpu(served):
    run, _ = served
    results = Parts(run)
    lines = verdict_of(run, tariff("0.3EUR/kWh", None))
    assert sum("modelled: at " in line for line in lines) == 3, "models aren't ranked against each other"
    assert "slices by their activity" not in lines[0]
    for rate in ("1/s", "2.5/s"):
        (line,) = (line for line in lines if line.startswith(f"whole GPU at {rate}: "))
        assert line.endswith("W of it context idle of slices without a server")
    number, load = together(run)[0]
    unit = unit_of(run, number)
    mine = [unit_of(run, n) for n, one in together(run) if one["group"] == load["group"]]
    parts_w = sum(results[one].get("power_w").value for one in mine)
    unused_w = results[unit].get("baseline_context_idle_w").value / 7
    assert parts_w + unused_w == pytest.approx(results[unit].get("power_gpu_w").value, rel=1e-6)
    assert sum("EUR per million output tokens" in line for line in lines) == 3


class Steady:
    """Activity of slices that never changes."""

    interval_s = 0.05

    def __init__(self, shares, clock):
        self.shares, self.clock = shares, clock

    def poll(self):
        now = self.clock.time_ns()
        return [(uuid, one_sample(ACTIVITY, now, share)) for uuid, share in self.shares.items()]


@pytest.mark.thorough
def test_real_servers_are_put_under_load_at_once_and_the_run_is_stored(tmp_path):
    table = {one.name: one for one in profiles("h100-80")}
    slices = [Slice(f"MIG-{name}", table[name], n) for n, name in enumerate(PROFILES[:2])]
    board = open_device("sim:h100?realtime=1")
    activity = ActivityRecorder([Steady({"MIG-3g.40gb": 0.6, "MIG-2g.20gb": 0.2}, board.clock)])
    levels = each((30,), 2, 2, ("5:9", "3:6"))
    with ExitStack() as stack:
        one, two = (stack.enter_context(answering(Server(first_s=first_s))) for first_s in (0.0, 0.05))
        servers = stack.enter_context(closing(HttpServers(board, slices, activity, [one.url, two.url])))
        run = bench_slices(servers, BenchSettings("", levels[0], pause_s=0.4), levels, folder=tmp_path / "run")
    again = load_run(tmp_path / "run")
    assert again.requests.equals(run.requests)
    served = again.workload["serving"]
    assert [server["url"] for server in served["servers"]] == [f"{one.url}/v1", f"{two.url}/v1"]
    assert [one["name"] for one in served["levels"]][2:] == ["30/s on 3g.40gb", "30/s on 2g.20gb"]
    quick, slow = (requests_of(again, n) for n in (2, 3))
    assert len(quick) == len(levels[0][0].requests)
    assert len(slow) == len(levels[0][1].requests)
    assert quick.sent[0] < slow.last[-1]
    assert quick.nanoseconds(quick.sent[0]) < slow.nanoseconds(slow.last[-1])
    assert slow.nanoseconds(slow.sent[0]) < quick.nanoseconds(quick.last[-1]), "at the same time"
    assert slow.ttft.min() > 0.05 > np.median(quick.ttft)
    assert again.result("activity", unit_of(again, 2)).value == pytest.approx(0.6)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["llama-1b", "--slices", "3g.40gb,2g.20gb"], "names 2 slices for 1 servers"),
        (["http://127.0.0.1:1", "--slices", "3g.40gb"], "a simulated GPU runs simulated servers"),
        (["llama-1b", "llama-1b", "--slices", "7g.80gb,7g.80gb"], "don't fit"),
        (["llama-1b", "--slices", "9g.1gb"], "9g.1gb"),
        (["bert-base", "--slices", "3g.40gb"], "with a head that generates"),
        (["llama-1b", "--slices", "3g.40gb", "--input-tokens", "5:9"], "requests of one length"),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(given, words, capsys):
    said = command(capsys, "mig", "bench", *given, "--device", "sim:h100", "--rate", "1")
    assert words in said.complaint
    assert said.code == 2


def test_a_server_that_is_down_is_named(tmp_path):
    table = {one.name: one for one in profiles("h100-80")}
    board = open_device("sim:h100?realtime=1")
    servers = HttpServers(board, [Slice("MIG-a", table["3g.40gb"], 1)], ActivityRecorder([]), ["http://127.0.0.1:1"])
    levels = each((5,), 1, 1)
    with closing(servers), pytest.raises(NotPossibleError, match=r"http://127.0.0.1:1/v1: cannot connect"):
        bench_slices(servers, BenchSettings("", levels[0], pause_s=0.1), levels)


def test_a_slice_that_is_not_there_is_refused():
    from jouletrace.wings.mig.serving import _chosen

    table = {one.name: one for one in profiles("h100-80")}
    there = [Slice("MIG-a", table["3g.40gb"], 1), Slice("MIG-b", table["3g.40gb"], 2)]
    assert [one.uuid for one in _chosen(["MIG-b", "3g.40gb"], there, "GPU")] == ["MIG-b", "MIG-a"]
    assert [one.uuid for one in _chosen(["3g"], there, "GPU")] == ["MIG-a"]
    with pytest.raises(BadInputError, match=r"--slices 3g.40gb: GPU has no such slice left; there are: none"):
        _chosen(["3g.40gb"] * 3, there, "GPU")


@pytest.mark.thorough
def test_damaged_facts_of_a_load_on_slices_cost_no_traceback(served):
    """A Run file is not trusted: a server that isn't there, no servers' activity, a load's totals without times."""
    run, _ = served
    kept = json.dumps(run.workload["serving"])
    try:
        for load in run.workload["serving"]["levels"]:
            load["server"] = 99
        for server in run.workload["serving"]["servers"]:
            server["slice"] = "MIG-gone"
        run.workload["serving"]["levels"].append({"name": "x", "totals": {}, "stated": {"nonsense": 1.0}})
        analyse(run)
        found = run.result("energy_active_j", unit_of(run, 3))
        assert (found.value, found.reason) == (None, "no_activity")
        assert "nonsense" in json.dumps(to_json_object(run))
        render([run], verbose=True)
    finally:
        run.workload["serving"] = json.loads(kept)
        analyse(run)
