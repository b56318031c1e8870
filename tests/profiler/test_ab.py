"""Two workloads in turn on one GPU."""

import json
import math

import numpy as np
import pytest

import jouletrace as jt
from commands import command, only_run
from compare_runs import stated
from covering import fewest
from jouletrace import load
from jouletrace.cli import main
from jouletrace.comparing import DIFFERENT, lane
from jouletrace.comparing.paired import paired
from jouletrace.comparing.pairs import LOWER
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError
from jouletrace.profiler import AbSettings, ProfileSettings, run_ab
from jouletrace.profiler import ab as profiler
from jouletrace.run import ALIASED, Parts, tables
from jouletrace.stats import student
from jouletrace.workloads import ObjectWorkload
from records import DEVICE, START, make_run, readings

torch = pytest.importorskip("torch")

SPEC = "sim:h100?seed=3"
SHORT = AbSettings(first_stage=4, window_s=0.3)
TOY = """
import torch

def _times(rows):
    w = torch.randn(1024, 1024).half()
    return (lambda x: x @ w), (torch.randn(rows, 1024).half(),)

def plain():
    return _times(2048)

def more():
    return _times(2458)
"""


def product(rows):
    """A callable whose work is in proportion to ``rows``."""
    torch.manual_seed(0)
    w = torch.randn(1024, 1024).half()
    return ObjectWorkload(lambda x: x @ w, torch.randn(rows, 1024).half(), f"product of {rows}")


def by_hand(blocks, *, slope=0.0, noise=0.0, more=0.0, seed=0):
    """A Run of ``ab`` whose power rises by ``slope`` a second, with ``more`` of it for B, in all blocks or in each."""
    rng = np.random.default_rng(seed)
    power, windows, spans = [], [], []
    at = 1.0
    shares = np.broadcast_to(more, blocks)
    for block in range(blocks):
        for turn, side in enumerate("abba"):
            watts = 300 * (1 + slope * at) * (1 + shares[block] * (side == "b")) * (1 + noise * rng.normal())
            power.append(watts)
            edges = {"start_ns": START + round(at * 1e9), "end_ns": START + round((at + 1) * 1e9)}
            windows.append({"variant": side, "block": block, "order": 4 * block + turn, "replays": 100, **edges})
            for i in range(5):
                start = START + round((at + 0.01 * i) * 1e9)
                span = {"id": len(spans), "kind": "iteration", "name": "iteration", "device": DEVICE, "start_ns": start}
                spans.append({**span, "lane": lane(side, block), "end_ns": start + 10_000_000})
            at += 1
    levels = np.array([power[0], *power, power[-1]])
    record = readings(lambda t: levels[np.clip(np.floor(t).astype(int), 0, len(levels) - 1)], at + 1)
    run = make_run(record, spans=spans, window_rows=windows)
    run.kind = "ab"
    return run


@pytest.mark.thorough
def test_a_module_against_a_callable_of_it_is_compared_per_iteration():
    run = by_hand(4, noise=0.001)
    run.workload |= {"a": {"name": "net", "batch": 64, "items": 64}, "b": {"name": "lambda", "batch": None, "items": 1}}
    found = paired(run)
    assert found.row("energy_total_j").change.value == pytest.approx(0.0, abs=0.01)
    assert "B states no batch: iterations are compared" in stated(found)["notes"]


@pytest.mark.thorough
def test_a_model_that_was_in_train_mode_qualifies_trust():
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.5))
    found = jt.ab(net, lambda t: 2 * net(t), torch.randn(8, 64), device=SPEC, max_time=0.5, progress=False)
    codes = [warning.code for warning in found.runs[0].warnings]
    assert codes.count("train_mode") == 2


def true_change(run, board):
    """Energy that B's windows really took more than A's, by the GPU's own truth."""
    joules = {"a": [], "b": []}
    for row in run.windows.to_pylist():
        joules[row["variant"]].append(board.truth.energy_j(row["start_ns"], row["end_ns"]) / row["replays"])
    return np.mean(joules["b"]) / np.mean(joules["a"]) - 1


@pytest.mark.thorough
def test_one_percent_is_detected_within_a_minute(monkeypatch):
    boards = []
    monkeypatch.setattr(profiler, "open_device", lambda spec: boards.append(open_device(spec)) or boards[-1])
    run, found = run_ab(product(2048), product(2079), ProfileSettings(device=SPEC, calibrated=False))
    row, truth = found.row("energy_total_j"), true_change(run, boards[0])
    assert truth == pytest.approx(0.01, abs=0.002)
    assert row.verdict == "worse"
    assert row.change.low < truth < row.change.high
    assert row.change.half_width < 0.005
    assert (run.clock_pairs[-1]["monotonic_ns"] - run.clock_pairs[0]["monotonic_ns"]) / 1e9 <= 60
    assert found.simulated


@pytest.mark.thorough
def test_the_same_thing_twice_shows_no_difference():
    _, found = run_ab(product(2048), product(2048), ProfileSettings(device=SPEC, calibrated=False), SHORT)
    assert {row.verdict for row in found.rows} == {"no difference shown"}
    assert [row.metric for row in found.rows] == ["latency_s", "iteration_time_s", "power_w", "energy_total_j"]


@pytest.mark.thorough
def test_a_step_as_long_as_the_samples_are_apart_is_flagged_and_gets_no_false_verdict():
    w = torch.zeros(4096, 2048, dtype=torch.half)

    def copies_and_a_product(x):
        for _ in range(8):
            x = x.clone()
        return x @ w

    steps = ObjectWorkload(copies_and_a_product, torch.zeros(10440, 4096, dtype=torch.half))
    device = "sim:h100?seed=1&sensor=sampled&given=sample_rate_hz:1225.3"
    settings = ProfileSettings(device=device, mode="graph", calibrated=False, warmup_s=0.5)
    run, found = run_ab(steps, steps, settings, AbSettings(first_stage=3, max_time_s=2, latency_s=0.02))
    assert 1 / found.row("iteration_time_s").a.value == pytest.approx(1225, abs=5)
    assert not {row.verdict for row in found.rows} & set(DIFFERENT)
    flags = {row.metric: row.flags for row in found.rows}
    assert flags["energy_total_j"] == flags["power_w"] == (ALIASED,)
    assert flags["latency_s"] == flags["iteration_time_s"] == ()
    assert ALIASED in run.result("energy_total_j", 1).flags


@pytest.mark.thorough
def test_a_step_of_another_length_is_not_flagged():
    rows = paired(by_hand(4)).rows
    assert {row.flags for row in rows} == {()}


@pytest.mark.thorough
def test_drift_cancels_within_blocks():
    straight = paired(by_hand(8, slope=0.01)).row("energy_total_j")
    assert abs(straight.change.value) < 0.002
    drifting = by_hand(8, slope=0.01, more=0.02)
    assert paired(drifting).row("energy_total_j").change.value == pytest.approx(0.02, abs=0.003)


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_the_interval_covers_the_difference(seeds):
    covered = [
        (row := paired(by_hand(8, noise=0.004, more=0.01, seed=seed)).row("energy_total_j")).change.low
        <= 0.01
        <= row.change.high
        for seed in range(seeds)
    ]
    assert sum(covered) >= fewest(seeds)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("later", "spread_of"), [([0.01, 0.011, 0.009, 0.01], slice(4)), ([0.1, -0.1, 0.1, -0.1], slice(8))]
)
def test_the_spread_is_that_of_the_first_blocks_unless_all_scatter_more(later, spread_of):
    """As with windows: what the first blocks say decides how many there are, so their freedom counts."""
    logs = np.array([0.010, 0.014, 0.006, 0.012, *later])
    run = by_hand(8, more=np.expm1(logs))
    run.settings["first_stage"] = 4
    contrast = paired(run).row("energy_total_j").contrast
    assert contrast.b / contrast.a == pytest.approx(math.exp(logs.mean()), rel=1e-3)
    half = student(0.975, contrast.df) * math.sqrt(contrast.var_b) / contrast.b
    spread = logs[spread_of]
    assert half == pytest.approx(student(0.975, len(spread) - 1) * spread.std(ddof=1) / math.sqrt(8), rel=0.05)
    assert contrast.df == 3


@pytest.mark.thorough
def test_too_few_blocks_are_inconclusive_with_the_reason():
    found = paired(by_hand(2))
    assert {(row.verdict, row.reason) for row in found.rows} == {("inconclusive", "few_blocks")}


@pytest.mark.thorough
def test_a_block_that_lost_a_window_is_left_out():
    run = by_hand(6)
    rows = run.windows.to_pylist()
    del rows[1]
    run.windows = tables.from_rows(rows, "windows")
    found = paired(run)
    assert "5 blocks" in stated(found)["method"]
    assert found.row("energy_total_j").verdict == "no difference shown"


@pytest.mark.thorough
def test_checks_work_as_in_compare():
    run = by_hand(6, more=0.1, noise=0.002)
    outcomes = [check.outcome for check in paired(run, fail_if=["energy>5%", "latency>5%", "energy>10%"]).checks]
    assert outcomes == ["failed", "passed", "inconclusive"]


@pytest.mark.thorough
def test_without_a_power_sensor_time_is_compared_and_energy_says_why(no_rapl):
    settings = ProfileSettings(device="cpu", warmup_s=0.2)
    how = AbSettings(window_s=0.05, ramp_s=0.02, latency_s=0.02, first_stage=3, max_time_s=1)
    one, other = (ObjectWorkload(torch.nn.Linear(8, 8), torch.zeros(4, 8), name) for name in ("one", "other"))
    _, found = run_ab(one, other, settings, how)
    assert found.row("energy_total_j").reason == "rapl_absent"
    assert found.row("iteration_time_s").a.value > 0


@pytest.mark.thorough
def test_from_python_functions_are_compared_and_the_result_prints_itself():
    x = torch.randn(2048, 1024).half()
    w = torch.randn(1024, 1024).half()
    found = jt.ab(lambda x: x @ w, lambda x: (x @ w) @ w, x, device=SPEC, max_time=10)
    assert found.row("iteration_time_s").verdict == "worse"
    assert "✗ worse" in str(found)


@pytest.mark.thorough
def test_another_number_of_samples_is_compared_per_sample():
    layer = torch.nn.Linear(1024, 1024).half()
    x = torch.randn(4096, 1024).half()
    found = jt.ab(layer, layer, x, inputs_b=x[:2048], device=SPEC, max_time=10)
    assert abs(found.row("energy_total_j").change.value) < 0.2
    assert any("per sample" in note for note in stated(found)["notes"])
    assert found.row("latency_s").verdict == LOWER  # of half the samples: neither better nor worse


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"margin": 0}, "--margin 0"),
        ({"max_time_s": math.inf}, "--max-time"),
        ({"first_stage": 2}, "at least 3 blocks"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keys, said):
    with pytest.raises(BadInputError, match=said):
        AbSettings(**keys)


def test_an_unknown_option_is_refused():
    with pytest.raises(BadInputError, match="bacth"):
        jt.ab(len, len, (), bacth=3)


@pytest.mark.thorough
def test_the_command_saves_a_run_that_can_be_shown(capsys, workspace):
    (workspace / "toy.py").write_text(TOY)
    said = command(
        capsys, "ab", "toy.py:plain", "toy.py:more", "-d", SPEC, "--max-time", "9", "--fail-if", "energy>5%", "--json"
    )
    assert said.code == 1
    found = json.loads(said.out)
    assert found["simulated"] is True
    assert found["checks"][0]["outcome"] == "failed"
    place = only_run(workspace)
    assert load(place).kind == "ab"
    assert "B takes" in command(capsys, "show", str(place)).out
    shown = command(capsys, "show", str(place), "-v")
    assert "B: toy.py:more" in shown.out
    assert shown.out.index("worse") < shown.out.index("Ranges")
    assert json.loads(command(capsys, "show", str(place), "--json").out)["comparison"]["rows"] == found["rows"]
    again = paired(load(place)).row("energy_total_j")
    assert again.change.value == pytest.approx(
        next(r for r in found["rows"] if r["metric"] == "energy_total_j")["change"]["value"]
    )


@pytest.mark.thorough
def test_b_may_have_a_batch_of_its_own(capsys, workspace):
    (workspace / "mine.py").write_text(
        "import torch\ndef mlp(batch=1):\n    return torch.nn.Linear(64, 64), (torch.ones(batch, 64),)\n"
    )
    code = main.run(
        [
            *("ab", "mine.py:mlp", "mine.py:mlp", "-d", "sim:h100"),
            *("--batch", "1", "--batch-b", "8", "--max-time", "4", "--warmup", "1"),
        ]
    )
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "per sample" in out
    assert "A: mine.py:mlp · batch 1  →  B: mine.py:mlp · batch 8" in out


@pytest.mark.thorough
def test_batches_of_workloads_that_choose_them_are_stated_where_they_differ(capsys, workspace):
    (workspace / "mine.py").write_text(
        "import torch\n"
        "def one(batch=2):\n    return torch.nn.Linear(64, 64), (torch.ones(batch, 64),)\n"
        "def other():\n    return torch.nn.Linear(64, 64), (torch.ones(16, 64),)\n"
    )
    said = command(capsys, "ab", "mine.py:one", "mine.py:other", "-d", "sim:h100", "--max-time", "4", "--warmup", "1")
    assert said.code == 0
    assert "A: mine.py:one · batch 2  →  B: mine.py:other · batch 16" in " ".join(said.out.split("\n"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--batch", "64", "--batch-b", "99999999999999999999"), "B: --batch-b 99999999999999999999: must be at most"),
        (("--batch", "99999999999999999999"), "--batch 99999999999999999999: must be at most"),
        (("--dtype-b", "fp7"), "B: --dtype-b fp7: must be one of"),
        (("--mode-b", "fast"), "B: --mode-b fast: must be one of"),
    ],
)
def test_a_wrong_value_is_refused_under_the_name_of_its_option(capsys, options, said):
    found = command(capsys, "ab", "deit-t", "deit-t", "-d", SPEC, *options)
    assert found.code == 2
    assert said in found.err
    assert len(found.err.splitlines()) == 1


@pytest.mark.thorough
def test_a_batch_of_b_that_does_not_fit_is_named_by_its_option(capsys, workspace):
    found = command(capsys, "ab", "deit-t", "deit-t", "-d", SPEC, "--batch", "1", "--batch-b", "10000000")
    assert found.code == 3
    assert "try a smaller --batch-b" in found.err


@pytest.mark.thorough
def test_kernels_recorded_after_the_windows_say_why_the_sides_differ(tmp_path):
    torch.manual_seed(0)
    first, middle, last = (torch.nn.Linear(*sizes) for sizes in ((1024, 4096), (4096, 4096), (4096, 1024)))
    a = torch.nn.Sequential(first, torch.nn.GELU(), last).half()
    b = torch.nn.Sequential(first, torch.nn.GELU(), middle, torch.nn.GELU(), last).half()
    given = {"device": SPEC, "max_time": 10.0, "progress": False}
    found = jt.ab(a, b, torch.randn(2048, 1024).half(), detail_time=3.0, save_to=tmp_path / "run", **given)
    why, energy = found.why, found.row("energy_total_j")
    assert why.kernels
    (product, *_) = why.first
    assert product.role == "product"
    more = energy.b.value - energy.a.value
    assert product.value == pytest.approx(more, rel=0.15), "the product that A lacks is most of it, its GELU the rest"
    assert sum(row.value for row in why.rows) == pytest.approx(more, rel=0.01)
    run = load(tmp_path / "run")
    recorded = [run.workload[side]["recordings"][0] for side in "ab"]
    assert recorded[0]["start_ns"] > max(run.windows["end_ns"].to_pylist()), "no window runs while kernels are traced"
    assert [row.value for row in paired(run).why.rows] == pytest.approx([row.value for row in why.rows])
    assert not Parts(run).units("op"), "kernels are of the sides, not of the Run"
