"""``jt.LayerProfiler`` and ``jt.KernelProfiler``: models profiled part by part in Python."""

import csv
from types import SimpleNamespace

import pytest

import jouletrace as jt
from jouletrace.errors import BadInputError
from jouletrace.profiler.detail.rows import PartRow, by_cost, costliest, records
from jouletrace.profiler.detail.summary import Summary
from jouletrace.run import Estimate

torch = pytest.importorskip("torch")
pd = pytest.importorskip("pandas")

from torch import nn  # noqa: E402

pytestmark = pytest.mark.thorough

SIM = "sim:h100?seed=4"
QUICK = {"warmup": 1.0, "detail_time": 5.0, "idle_s": 0.6, "latency_s": 0.1, "max_time": 2.0, "calibrated": False}
LAYER_COLUMNS = "layer_name,exec_id,start_time,end_time,duration_ms,start_power_w,end_power_w,avg_power_w,energy_j"
KERNEL_COLUMNS = "kernel_name,exec_id,duration_ms,avg_power_w,energy_j"


class Mlp(nn.Module):
    """A container with operators of its own, a module that is called twice, dropout, and a hook."""

    def __init__(self, width=2048):
        super().__init__()
        self.twice = nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5))

    def forward(self, x):
        x = self.twice(x)
        return self.twice(self.inner(x) + x)


class Net(nn.Module):
    def __init__(self, width=2048):
        super().__init__()
        self.body = Mlp(width)
        self.head = nn.Linear(width, width)

    def forward(self, x):
        return self.head(self.body(x))


def net():
    torch.manual_seed(0)
    return Net().half(), torch.randn(16384, 2048).half()


@pytest.fixture(scope="module")
def layers(known_rates):
    model, x = net()
    calls = []
    model.body.register_forward_hook(lambda *_: calls.append(1))
    model.head.eval()
    profiler = jt.LayerProfiler(model, SIM, mode="graph").profile(x, runs=2, **QUICK)
    return SimpleNamespace(model=model, profiler=profiler, table=profiler.to_pandas(), calls=calls)


@pytest.fixture(scope="module")
def kernels(known_rates):
    model, x = net()
    return jt.KernelProfiler(model, SIM).profile((x,), **QUICK)


def test_the_columns_are_those_that_users_know_and_more(layers, kernels):
    assert ",".join(layers.table.columns).startswith(LAYER_COLUMNS)
    assert ",".join(kernels.to_pandas().columns).startswith(KERNEL_COLUMNS)
    assert layers.table["exec_id"].tolist() == list(range(len(layers.table)))


def test_rows_add_up_to_the_iteration_and_no_container_is_among_them(layers):
    first = layers.table[layers.table["run"] == 0]
    assert set(zip(first["layer_name"], first["part"], strict=True)) == {
        ("body", "own operators"),
        ("body.twice", "call 1"),
        ("body.twice", "call 2"),
        ("body.inner.0", "module"),
        ("head", "module"),
        ("(idle)", "rest"),
    }
    assert len(first) == 6
    assert first["share"].sum() == pytest.approx(1, abs=0.08)
    run = layers.profiler.runs[0]
    assert first["duration_ms"].sum() == pytest.approx(1e3 * run.result("iteration_time_s").value, rel=0.01)
    products = first[first["layer_name"].isin(["body.inner.0", "head"])]
    assert products["energy_j"].max() / products["energy_j"].min() < 1.1
    assert (first["energy_low_j"] < first["energy_j"]).all()


def test_power_is_energy_over_time(layers):
    known = layers.table[layers.table["part"] != "rest"]
    power = known["energy_j"] / known["duration_ms"] * 1e3
    assert power.tolist() == pytest.approx(known["avg_power_w"].tolist(), rel=1e-6)


def test_the_summary_has_a_row_a_layer_with_spread_across_runs(layers):
    summary = layers.profiler.summary()
    table = summary.to_pandas().set_index("layer_name")
    assert table.loc["body.twice", "count"] == 2
    assert "body (own operators)" in table.index
    assert "body" not in table.index
    of_runs = layers.table[layers.table["layer_name"] == "body.twice"].groupby("run")["energy_j"].sum()
    twice = table.loc["body.twice"]
    assert twice["energy_j_total"] == pytest.approx(of_runs.mean())
    assert twice["energy_j_mean"] == pytest.approx(of_runs.mean() / 2)
    assert twice["energy_j_std"] == pytest.approx(of_runs.std() / 2)
    assert (twice["energy_j_min"], twice["energy_j_max"]) == pytest.approx((of_runs.min() / 2, of_runs.max() / 2))
    assert twice["energy_j_low"] < twice["energy_j_total"] < twice["energy_j_high"]
    text = str(summary)
    for words in (
        "Layer profile, 2 runs",
        "SIMULATED",
        "H100",
        "per iteration",
        "Mean power",
        "Closure",
        "train mode",
        "body.twice",
    ):
        assert words in text


def test_the_costliest_come_first_and_the_last_run_is_the_one_shown(layers):
    top = layers.profiler.top(2)
    assert len(top) == 2
    assert set(top["run"]) == {1}
    last = layers.table[layers.table["run"] == 1]
    assert top["energy_j"].tolist() == sorted(last["energy_j"], reverse=True)[:2]
    with pytest.raises(BadInputError, match=r"top\(0\)"):
        layers.profiler.top(0)


def test_files_say_what_is_empty_and_why(layers, tmp_path):
    table, top = layers.profiler.to_csv(tmp_path / "deep" / "mine.csv")
    assert [path.name for path in (table, top)] == ["mine.csv", "mine_top10_energy.csv"]
    rows = list(csv.DictReader(table.open()))
    assert len(rows) == len(layers.table)
    assert {row["SIMULATED"] for row in rows} == {"True"}
    assert float(rows[0]["energy_j"]) == layers.table["energy_j"][0]
    assert {row["start_power_w"] for row in rows} == {""}
    assert len(list(csv.DictReader(top.open()))) == min(10, len(rows) // 2)
    with pytest.raises(BadInputError, match="exists"):
        layers.profiler.to_csv(tmp_path / "deep" / "mine.csv")
    layers.profiler.to_csv(tmp_path / "deep" / "mine", overwrite=True)
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == sorted([p.name for p in (table, top)])


def test_the_model_is_left_as_it_was_and_train_mode_is_reported(layers):
    model = layers.model
    assert model.training
    assert not model.head.training
    assert len(model.body._forward_hooks) == 1
    assert layers.calls  # the hook ran with the model
    assert all("train_mode" in [warning.code for warning in run.warnings] for run in layers.profiler.runs)
    assert "body.inner.1" not in set(layers.table["layer_name"])  # dropout does nothing in eval mode
    model.half()
    model.to("cpu")


def test_kernels_have_their_operator_and_module_and_add_up(kernels):
    table = kernels.to_pandas()
    products = table[table["op"] == "aten.addmm"]
    assert set(products["module"]) == {"body.twice", "body.inner.0", "head"}
    assert set(products["part"]) == {"kernel"}
    assert products["count"].tolist() == [2, 1, 1]
    assert "(idle)" in set(table["kernel_name"])
    assert table["duration_ms"].sum() == pytest.approx(1e3 * kernels.run.result("iteration_time_s").value, rel=0.02)
    assert kernels.summary().rows[0].name == "addmm_fp16"
    assert kernels.summary().rows[0].count == 4
    assert kernels.summary().rows[0].energy.std is None


@pytest.fixture
def one_thread():
    """Two that wait for each other on a busy machine take a second for a millisecond."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_a_cpu_without_a_power_sensor_has_times_and_says_why_no_energy(no_rapl, one_thread, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.Linear(1024, 1024))
    quick = {"warmup": 0.2, "detail_time": 1.0, "latency_s": 0.1, "idle_s": 0.1, "max_time": 0.5}
    profiler = jt.LayerProfiler(model, "cpu").profile(torch.randn(512, 256), **quick)
    table = profiler.to_pandas().set_index("layer_name")
    assert table.loc[["Sequential.0", "Sequential.1", "(idle)"], "duration_ms"].notna().all()
    assert table.loc["Sequential.1", "duration_ms"] > 0
    assert table["share"].sum() > 0.5
    assert table["energy_j"].isna().all()
    assert profiler.top(1)["layer_name"].tolist() == ["Sequential.1"]
    assert "Energy        – (no RAPL energy counter here)\n" in str(profiler.summary())
    assert "(J)" not in str(profiler.summary()), "no columns of what isn't known"
    written, _ = profiler.to_csv(tmp_path / "cpu")
    missing = list(csv.DictReader(written.open()))
    assert [row["layer_name"] for row in missing] == table.index.tolist()
    assert all(row["reason"] for row in missing)


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        self.fc(x)
        raise ValueError("the cat sat on the model")


@pytest.mark.parametrize("device", ["cpu", SIM])
def test_what_forward_raises_is_reported_in_its_own_words_and_nothing_is_left_behind(device):
    from torch.nn.modules import module

    model = Broken()
    with pytest.raises(BadInputError, match="ValueError: the cat sat on the model") as info:
        jt.LayerProfiler(model, device).profile(torch.randn(4, 8), **QUICK)
    assert "\n" not in str(info.value)
    assert model.training
    assert not module._global_forward_hooks
    assert not module._global_forward_pre_hooks
    with pytest.raises(ValueError, match="the cat"):
        model(torch.randn(4, 8))


def test_a_model_on_several_devices_is_refused_with_what_is_supported():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, device="meta"))
    with pytest.raises(BadInputError, match=r"several devices \(cpu, meta\): only a model on one device is supported"):
        jt.LayerProfiler(model)
    spread = nn.Linear(4, 4)
    spread.hf_device_map = {"a": 0, "b": 1}
    with pytest.raises(BadInputError, match=r"cpu, cuda:0, cuda:1"):
        jt.KernelProfiler(spread)


def test_what_has_no_layers_is_refused_by_the_one_that_distinguishes_them():
    with pytest.raises(BadInputError, match="required to distinguish layers, not builtin_function_or_method"):
        jt.LayerProfiler(torch.relu)
    jt.KernelProfiler(torch.relu)
    jt.LayerProfiler(nn.Linear(2, 2).forward)


def test_before_a_profile_there_is_nothing_to_show():
    profiler = jt.KernelProfiler(nn.Linear(2, 2))
    for call in (
        profiler.summary,
        profiler.to_pandas,
        profiler.top,
        lambda: profiler.to_csv("x"),
        lambda: profiler.run,
    ):
        with pytest.raises(BadInputError, match=r"call KernelProfiler\.profile\(inputs\) first"):
            call()
    with pytest.raises(BadInputError, match="runs=0"):
        profiler.profile(torch.randn(1, 2), runs=0)


def row(name, energy, time=1.0):
    estimate = energy if isinstance(energy, Estimate) else Estimate(energy, energy - 0.1, energy + 0.1, 8, "x")
    return PartRow(name, "module", 1, Estimate(time), estimate, Estimate(100.0))


def summary(*tables):
    run = SimpleNamespace(
        devices=[SimpleNamespace(name="Board")],
        simulated=False,
        warnings=[],
        result=lambda _: Estimate(2.0, 1.9, 2.1, 8),
    )
    return Summary([run] * len(tables), tables, "layer")


def test_a_row_without_energy_says_why_and_is_ranked_and_shared_by_time():
    unknown = Estimate.null("no_power_sensor")
    run = SimpleNamespace(simulated=False, result=lambda name: unknown if "energy" in name else Estimate(4.0))
    rows = [row("short", unknown, 1.0), row("long", unknown, 3.0)]
    found = records([run], [rows], "layer")
    assert [(one["energy_j"], one["reason"], one["share"]) for one in found] == [
        (None, "no_power_sensor", 0.25),
        (None, "no_power_sensor", 0.75),
    ]
    assert "SIMULATED" not in found[0]
    assert [one["layer_name"] for one in costliest(found, [rows], 1)] == ["long"]


def test_the_wider_of_spread_and_own_interval_is_given():
    (calm,) = summary([row("a", 1.0)], [row("a", 1.0)], [row("a", 1.0)]).rows
    assert calm.energy.high - calm.energy.low == pytest.approx(0.2)
    (wild,) = summary([row("a", 1.0)], [row("a", 2.0)], [row("a", 3.0)]).rows
    assert wild.energy.high - wild.energy.low == pytest.approx(2 * 4.303 / 3**0.5, rel=1e-3)


def test_a_sum_with_an_unknown_term_is_unknown_and_ranks_last():
    rows = [row("a", Estimate.null("no_power_sensor")), row("a", 1.0), row("b", 0.5)]
    found = summary(rows).rows
    assert [(one.name, one.energy.total) for one in found] == [("b", 0.5), ("a", None)]
    assert [rows[i].name for i in by_cost(rows)] == ["a", "b", "a"]
    assert by_cost(rows)[-1] == 0


def test_a_printed_summary_fits_80_columns(layers):
    text = str(layers.profiler.summary())
    assert max(map(len, text.splitlines())) <= 80
    assert "body.twice" in text
    assert "±" in text
    assert "no kernel running" in text
