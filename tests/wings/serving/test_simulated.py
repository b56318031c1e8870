"""A simulated server: its energies against the truth, and what it can't serve."""

from contextlib import closing

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from commands import command
from jouletrace.devices import open_device
from jouletrace.wings.serving.analysis.steady import requests_of
from jouletrace.wings.serving.client.bench import BenchSettings, bench
from jouletrace.wings.serving.client.load import Lengths, open_levels
from jouletrace.wings.serving.client.simulated import SimulatedServer

PROMPT, ANSWER = 64, 32


def served(gpu, rates, seconds, seed):
    """A Run, and for each load its true energy in the window and per output token at the offered rate, in joules."""
    levels = open_levels(rates, "poisson", seconds, 1, (Lengths(PROMPT, PROMPT), Lengths(ANSWER, ANSWER)), seed)
    with closing(open_device(gpu)) as device:
        run = bench(BenchSettings("llama-1b", levels, pause_s=2.0, seed=seed), [device])
        active_j = SimulatedServer(device, "llama-1b", levels).schedule.at(1.0, 1.0).active_j
        found = []
        for number, rate in enumerate(rates):
            requests, unit = requests_of(run, number), unit_of(run, number)
            start = float(requests.sent[0]) + run.result("time_settling_s", unit).value
            ends_ns = [requests.nanoseconds(at) for at in (start, start + run.result("time_s", unit).value)]
            idle_w = device.truth.idle_w(sum(ends_ns) // 2)
            found.append((device.truth.energy_j(*ends_ns), (idle_w / rate + active_j) / ANSWER))
    return run, found


def unit_of(run, number):
    name = run.workload["serving"]["levels"][number]["name"]
    return next(unit["id"] for unit in run.units.to_pylist() if unit["name"] == name)


@pytest.mark.thorough
def test_energies_of_a_simulated_server_hold_their_truth():
    run, truth = served("sim:h100?cap=off&seed=4", (1, 3), 30, 1)
    for number, (energy_j, token_j) in enumerate(truth):
        unit = unit_of(run, number)
        for metric, true_j in (("energy_total_j", energy_j), ("energy_per_output_token_j", token_j)):
            found = run.result(metric, unit)
            assert found.low <= true_j <= found.high, (metric, found, true_j)
            assert found.high - found.low < 0.05 * true_j
    requests = requests_of(run, 1)
    assert (requests.sent < requests.first).all()
    assert (requests.first < requests.last).all()
    assert (requests.sent[1:] < requests.last[:-1]).any(), "some wait for others"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["llama-1b"], "or a workload on a simulated GPU (--device sim:h100)?"),
        (["llama-1b", "-d", "cpu"], "is not an http:// or https:// address"),
        (["llama-1b", "-d", "sim:h100", "-d", "sim:a100"], "runs on one GPU"),
        (["llama-1b", "-d", "sim:h100?realtime=1"], "runs in virtual time"),
        (["llama-1b", "-d", "sim:h100", "--steps", "log"], "writes no log"),
        (["llama-1b", "-d", "sim:h100", "--model", "gpt2"], "--model gpt2: a simulated server has llama-1b alone"),
        (["llama-1b", "-d", "sim:h100", "--concurrency", "1"], "open loop"),
        (["nothing", "-d", "sim:h100"], "unknown workload 'nothing'"),
    ],
)
def test_what_can_not_be_simulated_is_refused_in_one_line(given, words, capsys):
    said = command(capsys, "bench", *given, "--rate", "1")
    assert words in said.complaint
    assert said.code == 2
