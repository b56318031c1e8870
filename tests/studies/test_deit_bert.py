"""Latency and power of DeiT and BERT, on one A100 in mixed precision: a test for each thing that study does."""

import csv
import io
import json
from datetime import datetime
from itertools import pairwise

import pytest

from commands import command, done
from fake_nvml import FakeNvml, h100
from jouletrace.devices import cuda_order
from jouletrace.devices.nvml import api
from jouletrace.run import load

pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.thorough

BOARD = "sim:a100-40"
ONE_LAYER = ("--config", "num_hidden_layers=1")
QUICK = ("-d", BOARD, "--dtype", "amp", "--max-time", "1", "--warmup", "0.5", *ONE_LAYER)
IDLE_W, WORKING_W = 61, 87
LENGTHS = (128, 256, 384)
LOGGED_W = [IDLE_W] * 30 + [WORKING_W] * 60 + [IDLE_W] * 20
POWER_LOG = "time_s,power_w,utilization_gpu_pct\n" + "".join(
    f"{k},{watts},{40 if watts > IDLE_W else 0}\n" for k, watts in enumerate(LOGGED_W)
)


def figures(said):
    return json.loads(said.out)["model"]


@pytest.fixture(scope="module")
def deit(study):
    """DeiT of three widths, one layer of each."""
    names = ("deit-t", "deit-s", "deit-b")
    return {name: figures(done("profile", name, *QUICK, "--json", "-o", name)) for name in names}


@pytest.fixture(scope="module")
def bert(study):
    """BERT of two widths, and of three sequence lengths."""
    asked = [("bert-b", length) for length in LENGTHS] + [("bert-l", 128)]
    return {
        (name, length): figures(
            done("profile", name, "--seq-len", str(length), *QUICK, "--json", "-o", f"{name}-{length}")
        )
        for name, length in asked
    }


@pytest.fixture(scope="module")
def watched(study):
    """A GPU that rests for 20 s and works for 60 s, watched in steps of a second."""
    log = done(
        "monitor",
        "-d",
        f"{BOARD}?realtime=0&load=20:{IDLE_W},60:{WORKING_W}",
        "--duration",
        "80",
        "-f",
        "csv",
        "-o",
        "log",
    )
    return list(csv.DictReader(io.StringIO(log.out)))


def test_latency_of_deit_tiny_small_and_base(deit):
    for name, one in deit.items():
        latency = one["latency_ms"]
        assert latency["p25"] <= latency["median"] <= latency["p75"]
        assert latency["iqr"] == pytest.approx(latency["p75"] - latency["p25"])
        assert latency["n"] >= 100
        assert load(name).workload["batch"] == 1
    parameters = [load(name).workload["parameters"] for name in deit]
    assert parameters == sorted(parameters)
    energies = [one["energy_j"]["active_over_context_idle"]["value"] for one in deit.values()]
    assert energies == sorted(energies)


@pytest.mark.slow
def test_latency_of_bert_by_sequence_length(bert):
    assert {load(f"bert-b-{length}").workload["seq_len"] for length in LENGTHS} == set(LENGTHS)
    assert load("bert-l-128").workload["model"] == "BertForSequenceClassification"
    energies = [bert["bert-b", length]["energy_j"]["active_over_context_idle"]["value"] for length in LENGTHS]
    assert energies == sorted(energies)
    large = bert["bert-l", 128]["energy_j"]["active_over_context_idle"]["value"]
    assert large > energies[0]


def test_a_measurement_is_the_mean_of_100_runs(deit, capsys):
    said = command(capsys, "show", "deit-b", "-v")
    (line,) = [one for one in said.out.splitlines() if one.strip().startswith("means of 100:")]
    assert "median" in line
    assert "iqr" in line
    assert line.endswith(f"n {deit['deit-b']['latency_ms']['n'] // 100}")


def test_models_run_in_mixed_precision(deit):
    workload = load("deit-b").workload
    assert (workload["dtype"], workload["autocast"]) == ("amp", "bfloat16")


def test_power_utilization_and_clocks_are_logged_every_second(watched):
    times = [datetime.fromisoformat(row["time"]).timestamp() for row in watched]
    assert {round(after - before, 3) for before, after in pairwise(times)} == {1.0}
    for channel in ("power_W", "temp_°C", "SM_clock_MHz", "mem_clock_MHz"):
        assert all(float(row[channel]) > 0 for row in watched), channel
    assert {float(row["util_%"]) for row in (watched[5], watched[-5])} == {0.0, 100.0}


def test_the_gpu_is_chosen_by_its_index(capsys, monkeypatch):
    monkeypatch.setattr(api, "_library", lambda: FakeNvml(h100(uuid="GPU-first"), h100(uuid="GPU-second")))
    monkeypatch.setattr(cuda_order, "cuda_uuids", lambda: ["GPU-first", "GPU-second"])
    found = json.loads(command(capsys, "doctor", "-d", "cuda:1", "--json").out)
    assert [one["info"]["id"] for one in found["devices"]] == ["GPU-second"]


def test_idle_power_working_power_and_their_difference(watched):
    run = load("log")
    found = {name: run.result(f"power_{name}_w", 1) for name in ("idle", "working", "difference")}
    for name, watts in (("idle", IDLE_W), ("working", WORKING_W), ("difference", WORKING_W - IDLE_W)):
        assert found[name].value == pytest.approx(watts, abs=0.5), name
        assert found[name].low <= found[name].value <= found[name].high


def test_the_log_is_a_table_for_other_programs(watched, capsys):
    said = command(capsys, "export", "log", "-f", "csv", "-o", "tables")
    assert said.code == 0, said.err
    rows = list(csv.DictReader(open("tables/samples.csv")))  # noqa: SIM115
    watts = [float(row["value [by channel]"]) for row in rows if row["channel"] == "power_w"]
    assert len(watts) > 10 * len(watched), "every reading, not one a second"
    assert min(watts) < IDLE_W + 2 < WORKING_W - 2 < max(watts)


def test_energy_is_latency_times_the_difference_of_a_log(study, capsys):
    (study / "log.csv").write_text(POWER_LOG)
    said = command(capsys, "import", "log.csv", "--latency", "4.37ms", "-o", "by-hand")
    assert said.code == 0, said.err
    energy = load("by-hand").result("energy_per_inference_j")
    assert energy.value == pytest.approx(113.62e-3)
    assert "113.6" in said.out


def test_a_profile_gives_that_energy_in_one_command(deit):
    for one in deit.values():
        above_idle_w = one["power_w"]["value"] - one["baseline_w"]["deep_idle"]["value"]
        energy = one["energy_j"]["active_over_deep_idle"]
        seconds = one["energy_j"]["total"]["value"] / one["power_w"]["value"]
        assert energy["value"] == pytest.approx(above_idle_w * seconds, rel=1e-3)
        assert energy["low"] < energy["value"] < energy["high"]
