"""The cheapest setting within a limit: what varies, what is chosen and promised, and what the user reads."""

import csv
import io
import json
import math
import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import jouletrace as jt
from jouletrace.campaign import parse_limits, parse_over, run_tune, target_of
from jouletrace.campaign import tune as tuning
from jouletrace.campaign.child import Doing
from jouletrace.campaign.results import printed
from jouletrace.campaign.targets import WorkloadTarget, applied, setting_of
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.execution.steps.trial import largest_difference
from jouletrace.profiler import ProfileSettings, Progress, gpu_settings
from jouletrace.report import FORMATS
from jouletrace.report.tune import render
from jouletrace.run import load, save, tables
from jouletrace.workloads import resolve
from make_runs import e, profile_run, result
from records import iterations, windows

SETTINGS = ProfileSettings(device="sim:h100")


class Gpu:
    """Stands in for workers: Runs of a GPU whose energies and latencies are known, with an effect of each process.

    Energy per sample is least at the largest batch; batches in ``failing`` run out of memory.
    """

    def __init__(self, name):
        type(self).started += 1
        self.process, self.said, self.code = self.started, {}, 0
        type(self).alive = self.alive | {self.process}

    failing, has_libraries = (), True
    started, alive, orders = 0, frozenset(), ()
    over = True

    @staticmethod
    def latency_s(batch):
        return 1e-3 + 1e-4 * batch

    def begin(self, order):
        settings = order["settings"]
        type(self).orders += ((self.process, order["do"]),)
        if order["do"] == "libraries":
            self.said = {"is": "done"} if self.has_libraries else {"is": "failed", "reason": "failed", "text": "no"}
        elif order["do"] == "outputs":
            self.said = {"is": "done", "differ": self.differ(settings), "why": ""}
        elif settings["batch"] in self.failing:
            self.said = {"is": "failed", "reason": "out_of_memory", "text": "CUDA out of memory", "code": 3}
        else:
            save(self.run(settings), Path(order["folder"]))
            self.said = {"is": "done"}

    def differ(self, settings):
        return [0.0 if one["dtype"] in (None, "fp32") else 0.002 for one in settings]

    def run(self, settings):
        batch = settings["batch"] or 1
        rng = np.random.default_rng([self.process, batch, settings["mode"] == "graph"])
        latency_s = self.latency_s(batch)
        joules = 300 * latency_s * np.exp(rng.normal(0, 0.004)) * (0.9 if settings["mode"] == "graph" else 1)
        run = profile_run(batch=batch)
        run.workload |= {"items": batch, "name": resolve("deit-t").name, "mode": settings["mode"]}
        run.settings = settings
        run.devices = [replace(device, simulated=True) for device in run.devices]  # each process has times of its own
        run.spans = tables.from_rows(iterations(1000, latency_s), "spans")
        figures = [
            result(0, "energy_total_j", e(joules, 0.004 * joules)),
            result(0, "iteration_time_s", e(latency_s, 0.001 * latency_s)),
            result(0, "latency_s", e(latency_s, 0.001 * latency_s)),
        ]
        run.results = tables.from_rows(figures, "results")
        return run

    def close(self, now=False):
        type(self).alive = self.alive - {self.process}


@pytest.fixture
def start():
    """Workers of that GPU."""
    return type("Worker", (Gpu,), {})


class Quiet:
    """Receives the progress of a child and ignores it."""

    def begin(self, *_, **__):
        pass

    start = note = expect = advance = begin


def tuned(folder, start, over=("batch=1,8,64",), limit="", settings=SETTINGS, **options):
    limits = parse_limits(limit) if limit else ()
    target = WorkloadTarget("deit-t", settings, 60.0, start=start)
    return run_tune(target, parse_over(over), folder, limits=limits, **options)


def test_ranges_are_powers_of_two_with_their_ends():
    over = parse_over(["batch=1..256", "batch-like=3..20", "mode=eager,graph"])
    assert over["batch"] == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert over["batch_like"] == (3, 4, 8, 16, 20)
    assert over["mode"] == ("eager", "graph")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch", "NAME=A,B"),
        ("batch=", "NAME=A,B"),
        ("batch=8..2", "smaller number first"),
        ("batch=a,b", "whole numbers"),
        ("batch=1,,2", "missing between commas"),
        ("seq_len=8,16", "other work"),
    ],
)
def test_what_may_vary_is_checked_in_one_line(text, says):
    with pytest.raises(BadInputError, match=says) as caught:
        parse_over([text])
    assert "\n" not in str(caught.value)


def test_a_dimension_of_the_configuration_is_set_there_and_others_are_options():
    settings = applied({"batch": 4, "mode": "graph", "attention": "eager", "layers": "2"}, SETTINGS)
    assert (settings.batch, settings.mode) == (4, "graph")
    assert settings.config == {"attn_implementation": "eager", "layers": "2"}


def test_the_reference_is_what_the_options_say_unless_another_is_named():
    over = parse_over(["batch=1,8", "mode=eager,graph"])
    assert setting_of(replace(SETTINGS, batch=2), over, {}) == {"batch": 2, "mode": "eager"}
    assert setting_of(SETTINGS, over, {"mode": "graph"}) == {"batch": None, "mode": "graph"}
    configured = replace(SETTINGS, config={"attn_implementation": "sdpa", "layers": "2"})
    over = parse_over(["attention=eager,sdpa", "layers=1,2"])
    assert setting_of(configured, over, {}) == {"attention": "sdpa", "layers": "2"}
    with pytest.raises(BadInputError, match="names no dimension"):
        setting_of(SETTINGS, over, {"dtype": "fp16"})


@pytest.mark.thorough
def test_the_least_is_chosen_and_promised_against_the_reference(tmp_path, start):
    found, ended_by = tuned(tmp_path, start)
    assert ended_by is None
    assert found.outcome == "chosen"
    assert found.rows[found.best].setting == {"batch": 64}
    assert found.rows[found.reference].setting == {"batch": 1}, "the default is batch 1, which is one of the settings"
    costs = {row.setting["batch"]: row.cost.value for row in found.rows}
    low, high = found.saving
    assert low < 1 - costs[64] / costs[1] < high
    assert found.rows[found.best].processes >= 3, "seen in two processes beyond the one that chose it"
    assert found.command == "jouletrace profile deit-t --device sim:h100 --batch 64"


@pytest.mark.thorough
def test_the_chosen_and_the_reference_are_runs_of_several_processes(tmp_path, start):
    found, _ = tuned(tmp_path, start)
    chosen, reference = load(tmp_path / "chosen"), load(tmp_path / "reference")
    assert chosen.workload["batch"] == 64
    assert reference.workload["batch"] == 1
    assert chosen.settings["repeats"] == found.rows[found.best].processes - 1, "those after the first, short one"


@pytest.mark.thorough
def test_processes_import_their_libraries_together_before_one_of_them_measures(tmp_path, start, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    found, _ = tuned(tmp_path, start)
    assert found.processes > 1
    measured = [at for at, (_, what) in enumerate(start.orders) if what == "profile"]
    first, second, *_ = (process for process, what in dict.fromkeys(start.orders) if what == "profile")
    imported = [start.orders.index((process, "libraries")) for process in (first, second)]
    assert max(imported) < measured[0]
    assert start.alive == frozenset(), "also those that weren't needed"


@pytest.mark.thorough
def test_a_process_that_cannot_import_ahead_says_why_in_its_turn(tmp_path, start):
    start.has_libraries = False
    found, _ = tuned(tmp_path, start)
    assert found.outcome == "chosen"
    assert start.alive == frozenset()


@pytest.mark.thorough
def test_a_limit_rules_out_what_is_over_it(tmp_path, start):
    found, _ = tuned(tmp_path, start, limit="p99<3ms")
    assert [row.p50.value for row in found.rows] == pytest.approx([1.1e-3, 1.8e-3, 7.4e-3])
    assert found.rows[found.best].setting == {"batch": 8}
    assert found.rows[found.best].over.high <= 0.01
    assert "over the limit" in render(found)


@pytest.mark.thorough
def test_a_limit_that_nothing_meets_is_stated_with_the_nearest(tmp_path, start):
    found, _ = tuned(tmp_path, start, limit="p99<1us")
    assert found.outcome == "none"
    assert found.best is None
    assert "none of 3 settings meets p99<1us; nearest: batch 1" in render(found)
    assert found.processes == 1, "said after the first visits"


@pytest.mark.thorough
def test_a_setting_that_runs_out_of_memory_is_a_result(tmp_path, start):
    start.failing = (64,)
    found, ended_by = tuned(tmp_path, start)
    assert ended_by is None
    assert found.rows[2].outcome == "out_of_memory"
    assert found.rows[found.best].setting == {"batch": 8}
    assert "batch 64: CUDA out of memory" in render(found)


@pytest.mark.thorough
def test_a_setting_of_the_gpu_that_is_not_in_force_is_a_row_but_no_choice(tmp_path, start, monkeypatch):
    """The driver locks 900 MHz instead of 960. The GPU takes the least energy at the lowest clock."""
    monkeypatch.setattr(gpu_settings, "SETTLE_S", 0.1)

    def run(self, settings):
        mhz = open_device(settings["device"]).clock_mhz()
        mhz = 1980.0 if mhz == 345.0 else mhz  # idle, as a load isn't
        made = Gpu.run(self, settings)
        energy = made.results["value"].to_pylist()
        figures = [value * mhz / 1980 if n == 0 else value for n, value in enumerate(energy)]
        scaled = [result(0, "energy_total_j", e(figures[0], 0.004 * figures[0]))]
        scaled += [result(0, name, e(1e-3, 1e-6)) for name in ("iteration_time_s", "latency_s")]
        made.results = tables.from_rows(scaled, "results")
        made.windows = tables.from_rows(
            [{**one, "counted_mhz": mhz, "time_s": 1.0} for one in windows([(0, 1)])], "windows"
        )
        return made

    start.run = run
    device = "sim:h100?rounds=300"
    options = {"over": ("clock=960,1200,1500",), "settings": replace(SETTINGS, device=device)}
    with pytest.raises(BadInputError, match="to 960, 1200, 1500 MHz in turn: add --yes"):
        tuned(tmp_path, start, **options)
    found, ended_by = tuned(tmp_path, start, permitted=True, **options)
    assert ended_by is None
    rows = {row.setting["clock"]: row for row in found.rows}
    assert rows[960].outcome == "setting_not_in_force"
    assert rows[960].reason == "SM clock of 960 MHz not in force: the driver read 900 MHz; measured: 900 MHz"
    assert found.rows[found.best] is rows[1200]
    assert rows[1200].read == {"clock read (MHz)": 1200.0, "SM clock (MHz)": 1200.0}
    assert found.rows[found.reference] is rows[None]
    assert rows[None].read == {"SM clock (MHz)": 1980.0}
    assert found.command.startswith("sudo nvidia-smi -i SIM-h100-80-0 -lgc 1200 && jouletrace profile deit-t")
    assert "clock 1200 MHz" in render(found)
    assert json.loads(render(found, "json"))["settings"][0]["outcome"] == "setting_not_in_force"
    again, _ = tuned(tmp_path, start, permitted=True, **options)
    assert [row.outcome for row in again.rows] == [row.outcome for row in found.rows], "as resumed"
    assert again.best == found.best
    assert open_device(device).clock_mhz() == 345.0


def test_settings_of_the_gpu_are_no_options_of_a_profile_nor_variables_of_a_program():
    over = parse_over(["clock=900,1200", "power-limit=300", "N=1,2"])
    assert over == {"clock": (900, 1200), "power_limit": (300,), "N": ("1", "2")}
    assert applied({"clock": 900, "power_limit": None, "batch": 2}, SETTINGS) == replace(SETTINGS, batch=2)
    target = target_of([sys.executable, "x.py"], SETTINGS, (), 1.0)
    assert target.reference(over, {"power-limit": "300"}) == {"clock": None, "power_limit": 300, "N": "1"}
    assert target.command({"clock": 900, "power_limit": 300, "N": "1"}).startswith("N=1 ")
    with pytest.raises(BadInputError, match="whole numbers"):
        parse_over(["clock=fast"])


def test_a_reference_that_fails_ends_it(tmp_path, start):
    start.failing = (None,)
    with pytest.raises(NotPossibleError, match="out of memory"):
        tuned(tmp_path, start)


@pytest.mark.thorough
def test_a_campaign_goes_on_where_it_ended_and_says_the_same(tmp_path, start):
    first, _ = tuned(tmp_path, start)
    start.started = 0
    again, _ = tuned(tmp_path, start)
    assert start.started == 0, "all visits were there"
    assert replace(again, seconds=first.seconds) == first


def test_a_folder_of_another_campaign_is_refused(tmp_path, start):
    tuned(tmp_path, start, budget_s=1e-9)
    with pytest.raises(BadInputError, match="other settings"):
        tuned(tmp_path, start, over=("batch=1,8",))


def test_a_folder_of_a_campaign_with_more_dimensions_is_refused(tmp_path, start):
    tuned(tmp_path, start, over=("batch=1,8", "mode=eager,graph"), budget_s=1e-9)
    with pytest.raises(BadInputError, match="other settings"):
        tuned(tmp_path, start, over=("batch=1,8",))


@pytest.mark.thorough
def test_a_default_that_no_run_states_has_a_place_among_numbers(tmp_path, start):
    found, _ = tuned(tmp_path, start, over=("depth=1..4",))
    assert [row.setting["depth"] for row in found.rows] == [1, 2, 4, None]
    assert found.rows[found.reference].setting == {"depth": None}
    assert found.outcome == "chosen"


@pytest.mark.thorough
def test_a_limit_missed_by_less_than_a_hundredth_counts_as_met(tmp_path, start):
    start.latency_s = staticmethod(lambda batch: 1.005e-3 if batch == 8 else 0.9e-3 if batch == 1 else 9e-3)
    found, _ = tuned(tmp_path, start, limit="p99<1ms")
    assert found.rows[found.best].setting == {"batch": 8}
    assert found.rows[found.best].processes >= 3
    assert "over the limit" not in next(line for line in render(found).splitlines() if " chosen" in line)


@pytest.mark.thorough
def test_the_command_that_applies_it_has_all_options(tmp_path, start):
    settings = replace(SETTINGS, mode="graph", dtype="bf16", config={"depth": "2"})
    found, _ = tuned(tmp_path, start, settings=settings)
    assert found.command.endswith("--batch 64 --dtype bf16 --mode graph --config depth=2")


def test_a_dimension_that_the_workload_lacks_ends_it(tmp_path, start):
    def begin(self, order):
        if order["do"] == "profile" and order["settings"]["config"]:
            self.said = {"is": "failed", "reason": "bad_input", "text": "--config foo: no such setting", "code": 2}
        else:
            Gpu.begin(self, order)

    start.begin = begin
    with pytest.raises(BadInputError, match="--config foo: no such setting"):
        tuned(tmp_path, start, over=("foo=1,2",))


def test_paths_may_vary():
    assert parse_over(["dir=../a,../b"])["dir"] == ("../a", "../b")


def test_a_spent_budget_ends_it_between_processes(tmp_path, start):
    found, _ = tuned(tmp_path, start, budget_s=1e-9)
    assert found.processes <= 1
    assert "the budget of 0 s is spent" in render(found)


def test_no_visit_begins_after_the_budget(tmp_path, start):
    def begin(self, order):
        if order["do"] == "profile":
            time.sleep(0.05)
        Gpu.begin(self, order)

    start.begin = begin
    found, _ = tuned(tmp_path, start, over=("batch=1,2,4,8,16,32,64,128",), budget_s=0.12)
    orders = [do for _, do in start.orders if do == "profile"]
    assert len(orders) <= 4
    assert "not measured: batch" in render(found)


@pytest.mark.parametrize(("limit", "apart"), [("", False), ("time<5ms", False), ("tpot<20ms", True)])
def test_the_first_token_is_timed_where_a_limit_is_on_tokens(limit, apart):
    settings = replace(SETTINGS, task="generate", seq_len=32, max_new_tokens=4)
    target = target_of(["llama-1b"], settings, parse_limits(limit or None), 60.0)
    orders = []
    target._order = lambda order, place: orders.append(order["settings"])
    target.measure({"batch": 1}, 1.0, Path("none"), 0)
    assert orders[0]["first_token"] is apart


def test_too_many_settings_are_asked_about(tmp_path, start):
    with pytest.raises(BadInputError, match="--yes"):
        tuned(tmp_path, start, over=("batch=" + ",".join(map(str, range(1, 300))),))


@pytest.mark.parametrize("limit", ["ttft<1s", "p99<1ms,time<+3%", "time<5ms"])
def test_limits_of_other_loads_are_refused(tmp_path, start, limit):
    with pytest.raises(BadInputError, match="--limit"):
        tuned(tmp_path, start, limit=limit)


@pytest.mark.thorough
def test_the_product_with_time_is_another_objective(tmp_path, start):
    energy, _ = tuned(tmp_path / "energy", start)
    product, _ = tuned(tmp_path / "product", start, objective="edp")
    row, other = product.rows[0], energy.rows[0]
    assert row.cost.value == pytest.approx(other.cost.value * other.time.value, rel=0.05)
    with pytest.raises(BadInputError, match="edp"):
        tuned(tmp_path / "x", start, objective="power")


@pytest.mark.thorough
def test_every_form_has_every_setting(tmp_path, start):
    found, _ = tuned(tmp_path, start)
    stated = json.loads(render(found, "json"))
    assert [row["setting"] for row in stated["settings"]] == [{"batch": 1}, {"batch": 8}, {"batch": 64}]
    assert stated["best"] == {"batch": 64}
    assert 0 < stated["saves_at_least"] < stated["saves_at_most"] < 1
    assert {row["batch"] for row in csv.DictReader(io.StringIO(render(found, "csv")))} == {"1", "8", "64"}
    assert "SIMULATED" in render(found)
    assert "| 64 |" in render(found, "markdown")


@pytest.mark.thorough
def test_the_front_has_what_nothing_undercuts_in_both(tmp_path, start):
    found, _ = tuned(tmp_path, start)
    front = [found.rows[n] for n in found.front]
    assert [row.p50.value for row in front] == sorted(row.p50.value for row in front)
    assert [row.cost.value for row in front] == sorted((row.cost.value for row in front), reverse=True)


def test_outputs_are_compared_relative_to_the_largest():
    torch = pytest.importorskip("torch")
    ours = [torch.tensor([1.0, -4.0]).double()]
    assert largest_difference(ours, [torch.tensor([1.0, -3.0]).double()]) == 0.25
    assert largest_difference(ours, [torch.tensor([1.0, math.nan]).double()]) == math.inf
    assert largest_difference(ours, [torch.tensor([1.0]).double()]) is None
    masked = [torch.tensor([1.0, -math.inf]).double()]
    assert largest_difference(masked, masked) == 0, "masked logits are no wrong answer"
    assert largest_difference([], []) is None


def test_outputs_of_a_narrower_type_differ_and_of_the_same_do_not(tmp_path):
    pytest.importorskip("torch")
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\ndef make(batch=4):\n    return torch.nn.Linear(64, 64), (torch.randn(batch, 64),)\n"
    )
    settings = asdict(ProfileSettings(device="cpu"))
    order = {
        "workload": f"{model}:make",
        "settings": [{**settings, "dtype": name} for name in ("fp32", "fp32", "bf16")],
    }
    same, again, narrow = Doing(Quiet()).outputs(order)["differ"]
    assert same == again == 0
    assert 1e-4 < narrow < 0.05


@pytest.mark.thorough
def test_outputs_that_are_no_numbers_are_no_choice(tmp_path, start):
    start.differ = lambda _, settings: [math.inf if one["dtype"] == "bf16" else 0.0 for one in settings]
    found, _ = tuned(tmp_path, start, over=("dtype=fp32,bf16",), settings=replace(SETTINGS, dtype="fp32"))
    assert found.rows[1].outcome == "not_finite"
    assert found.best == 0
    assert "keep fp32" in render(found)


@pytest.mark.thorough
def test_how_far_outputs_differ_is_stated_beside_the_choice(tmp_path, start):
    found, _ = tuned(tmp_path, start, over=("batch=1,64", "dtype=fp32,bf16"), settings=replace(SETTINGS, dtype="fp32"))
    assert [row.differs for row in found.rows] == [0.0, 0.002, 0.0, 0.002]
    assert "0.2" in render(found)


@pytest.mark.thorough
def test_a_program_is_tuned_by_its_arguments_and_environment(tmp_path):
    words = [
        sys.executable,
        "-c",
        "import os, sys, time; time.sleep(float(sys.argv[1]) * int(os.environ['TIMES']))",
        "{s}",
    ]
    target = target_of(words, ProfileSettings(device="sim:h100?load=1000:300"), (), 60.0)
    over = parse_over(["s=0.9,0.3", "TIMES=1,2"])
    found, ended_by = run_tune(target, over, tmp_path)
    assert ended_by is None
    assert found.rows[found.reference].setting == {"s": "0.9", "TIMES": "1"}
    assert found.rows[found.best].setting == {"s": "0.3", "TIMES": "1"}
    low, high = found.saving
    assert 0.2 < low < high < 0.7
    assert found.command.startswith("TIMES=1 ")
    assert found.command.endswith(" 0.3")
    assert "of the program" in render(found)


def test_a_program_with_a_name_that_nothing_fills_is_refused(tmp_path):
    target = target_of(["python", "x.py", "{size}"], SETTINGS, (), 60.0)
    with pytest.raises(BadInputError, match="size"):
        run_tune(target, parse_over(["batch=1,2"]), tmp_path)


def test_a_name_that_no_variable_can_have_is_refused(tmp_path):
    target = target_of(["python", "x.py"], SETTINGS, (), 60.0)
    with pytest.raises(BadInputError, match=r"--over batch size: neither {batch size} in the command"):
        run_tune(target, parse_over(["batch size=1,2"]), tmp_path)


def test_iterations_of_a_program_have_no_limit(tmp_path):
    target = target_of(["python", "x.py"], SETTINGS, (), 60.0)
    with pytest.raises(BadInputError, match="aren't timed"):
        run_tune(target, parse_over(["batch=1,2"]), tmp_path, limits=parse_limits("p99<1s"))


def program(folder, text, limit_s=60.0):
    """A target of a program with that text, whose word is the value of ``n``."""
    script = folder / "program.py"
    script.write_text(text)
    return target_of(
        [sys.executable, str(script), "{n}"], ProfileSettings(device="sim:h100?load=1000:300"), (), limit_s
    )


@pytest.mark.thorough
def test_no_secret_of_a_program_is_written(tmp_path):
    text = "import sys, time\ntime.sleep(0.5)\nif sys.argv[1] == '3': sys.exit(' '.join(sys.argv[2:]))\n"
    (tmp_path / "program.py").write_text(text)
    words = [sys.executable, str(tmp_path / "program.py"), "{n}", "--api-key", "hunter2-Xk93-valley"]
    device = ProfileSettings(device="sim:h100?load=1000:300")
    target = target_of(words, device, (), 60.0)
    for _ in range(2):  # the second resumes it
        found, _ = run_tune(target, parse_over(["n=1,3"]), tmp_path / "tuned")
    assert [row.outcome for row in found.rows] == ["done", "vanished"]
    assert found.workload.endswith("--api-key '***'")
    assert target.command({"n": "1"}).endswith("--api-key '***'")
    files = [path for path in (tmp_path / "tuned").rglob("*") if path.is_file()]
    assert not [path for path in files if words[-1].encode() in path.read_bytes()]


@pytest.mark.thorough
def test_a_program_that_fails_is_no_choice_then_or_when_resumed(tmp_path):
    target = program(tmp_path, "import sys, time\nif sys.argv[1] == '2': sys.exit(7)\ntime.sleep(0.6)\n")
    for _ in range(2):
        found, _ = run_tune(target, parse_over(["n=1,2"]), tmp_path / "tuned")
        assert found.rows[1].outcome == "vanished"
        assert "exit code 7" in found.rows[1].reason
        assert found.best == 0


@pytest.mark.thorough
def test_a_program_that_takes_too_long_is_ended_with_its_own_processes(tmp_path):
    mark = tmp_path / "alive"
    loop = f"    pathlib.Path({str(mark)!r}).write_text(str(time.time())); time.sleep(0.05)\n"
    text = f"import pathlib, sys, time\nif sys.argv[1] == '1': time.sleep(0.5); sys.exit()\nwhile True:\n{loop}"
    found, _ = run_tune(program(tmp_path, text, 8.0), parse_over(["n=1,2"]), tmp_path / "tuned")
    assert found.rows[1].outcome == "timed_out"
    last = mark.read_text()
    time.sleep(0.5)
    assert mark.read_text() == last


@pytest.mark.slow
@pytest.mark.thorough
def test_a_program_of_one_word_that_prints_anything_is_run(tmp_path):
    script = tmp_path / "job"
    script.write_bytes(b"#!/bin/sh\nsleep $n\nprintf '\\377\\376'\n")
    script.chmod(0o755)
    target = target_of([str(script)], ProfileSettings(device="sim:h100?load=1000:300"), (), 10.0)
    found, _ = run_tune(target, parse_over(["n=0.4,0.8"]), tmp_path / "tuned")
    assert [row.outcome for row in found.rows] == ["done", "done"]
    assert "keep n 0.4" in render(found)


@pytest.mark.thorough
def test_the_folder_shows_what_the_command_printed(tmp_path, start):
    start.failing = (256,)
    found, _ = tuned(tmp_path, start, over=("batch=1,8,64,256", "mode=eager,graph"), limit="p99<3ms")
    for form in FORMATS:
        assert printed(tmp_path, form) == (render(found, form), tmp_path / "visits")
    tuned(tmp_path / "spent", start, budget_s=1e-9)
    assert "nothing else was measured" in printed(tmp_path / "spent", "table")[0]
    assert printed(tmp_path / "visits", "table") is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    "damage",
    [
        lambda stated: stated.clear(),
        lambda stated: stated.update(per=None),
        lambda stated: stated["settings"][0].update(outcome=5),
        lambda stated: stated["settings"][0].update(cost="x"),
        lambda stated: stated["settings"][0]["cost"].update(low=-1e308),
    ],
)
def test_a_damaged_result_is_refused_in_a_line(tmp_path, start, damage):
    tuned(tmp_path, start)
    stated = json.loads((tmp_path / "result.json").read_bytes())
    damage(stated)
    (tmp_path / "result.json").write_text(json.dumps(stated))
    with pytest.raises(BadInputError, match=r"result\.json can't be read"):
        printed(tmp_path, "table")


@pytest.mark.thorough
def test_a_result_that_cannot_be_written_ends_it_in_a_line(tmp_path, start):
    tuned(tmp_path, start)
    (tmp_path / "result.json").unlink()
    (tmp_path / "result.json").mkdir()
    with pytest.raises(BadInputError, match=r"cannot write .*result\.json: Is a directory"):
        tuned(tmp_path, start)


@pytest.mark.thorough
def test_a_folder_in_which_nothing_was_measured_is_free_for_another_command(tmp_path, start):
    start.failing = (1,)
    with pytest.raises(NotPossibleError):
        tuned(tmp_path, start, against={"batch": "1"})
    found, _ = tuned(tmp_path, start, against={"batch": "8"})
    assert found.best is not None


def test_what_a_spent_budget_left_is_named_with_how_to_go_on(tmp_path, start):
    found, _ = tuned(tmp_path, start, budget_s=1e-9)
    said = " ".join(render(found).split())
    assert "nothing else was measured" in said
    assert "not measured: batch 8; batch 64; the same command with -o" in said


class Notes(Progress):
    """Receives what the user should know."""

    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


@pytest.mark.thorough
def test_damaged_visits_are_measured_again_as_a_line_states(tmp_path, start):
    first, _ = tuned(tmp_path, start)
    cut, emptied = sorted((tmp_path / "visits" / "0").iterdir())[1:3]
    (cut / "spans.parquet").write_bytes((cut / "spans.parquet").read_bytes()[:100])
    for file in emptied.iterdir():
        file.unlink()
    start.started, notes = 0, Notes()
    again, ended_by = tuned(tmp_path, start, progress=notes)
    assert ended_by is None
    assert start.started > 0
    (said,) = notes.said
    assert "is measured again: " in said
    assert "spans.parquet" in said
    assert again.rows[again.best].setting == first.rows[first.best].setting


@pytest.mark.thorough
def test_a_campaign_that_is_interrupted_at_its_first_visit_has_no_result_and_goes_on(tmp_path, start):
    def begin(self, order):
        raise KeyboardInterrupt

    usual, start.begin = start.begin, begin
    found, ended_by = tuned(tmp_path, start)
    assert found is None
    assert isinstance(ended_by, KeyboardInterrupt)
    start.begin = usual
    assert tuned(tmp_path, start)[0].outcome == "chosen"


@pytest.mark.parametrize(("value", "says"), [("x", "whole numbers"), ("1..8", "one value"), ("", "missing")])
def test_what_is_wrong_with_the_reference_names_its_option(value, says):
    with pytest.raises(BadInputError, match=says) as caught:
        setting_of(SETTINGS, parse_over(["batch=1,8"]), {"batch": value})
    assert str(caught.value).startswith(f"--against 'batch={value}': ")


def test_python_takes_a_value_a_list_or_a_text_for_a_dimension(tmp_path, monkeypatch):
    asked = []

    def run_tune(target, over, folder, **options):
        asked.append(over)
        return None, KeyboardInterrupt()

    monkeypatch.setattr(tuning, "run_tune", run_tune)
    over = {"batch": 8, "mode": ["eager", "graph"], "dtype": "fp16,bf16"}
    with pytest.raises(KeyboardInterrupt):
        jt.tune("deit-tiny", over, folder=tmp_path / "tuned", device="sim:h100")
    assert asked == [{"batch": (8,), "mode": ("eager", "graph"), "dtype": ("fp16", "bf16")}]
