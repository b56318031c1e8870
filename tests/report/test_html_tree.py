"""Where the energy goes: the tree behind the icicle, and the figures that are drawn of it."""

import pytest

from jouletrace.report.charts import icicle, plain
from jouletrace.report.tree import by_name, widths
from jouletrace.run import Estimate, Parts, Run, tables
from make_runs import e, profile_run, result
from shown import nodes_of
from timeline_runs import timeline_run


def run_of(units: list[dict], energies: dict[int, float], times: dict[int, float] | None = None) -> Run:
    rows = [result(unit, "energy_total_j", e(value, abs(value) / 50)) for unit, value in energies.items()]
    rows += [result(unit, "time_s", e(value, value / 50)) for unit, value in (times or {}).items()]
    whole = [{"id": 0, "level": "model", "name": "net"}]
    return Run(units=tables.from_rows(whole + units, "units"), results=tables.from_rows(rows, "results"))


def op(id: int, module: str, name: str = "aten.mm", parent: int = 0, count: int = 1) -> dict[str, object]:
    return {"id": id, "parent": parent, "level": "op", "name": name, "op": name, "module": module, "count": count}


def paths(run: Run) -> dict[str, float | None]:
    """Joules of each node by the labels on the way to it."""
    nodes = nodes_of(run)
    way = {(): ""}
    for node in nodes:
        way[node.path] = f"{way[node.parent]}/{node.label}"
    return {way[node.path]: node.energy.value for node in nodes}


def test_operators_without_layers_lie_within_their_modules():
    units = [op(1, "body.layers.*.fc1"), op(2, "body.layers.*.fc2"), op(3, "head")]
    found = paths(run_of(units, {0: 10.0, 1: 6.0, 2: 2.5, 3: 1.0}))
    assert found["/net/body/layers.*"] == pytest.approx(8.5)
    assert found["/net/body/layers.*/fc1/mm"] == 6.0
    assert found["/net/head"] == 1.0


def test_layers_hold_their_part_of_operators_that_share_an_experiment():
    layers = [
        {"id": 10 + i, "parent": 0, "level": "layer", "name": name, "module": name, "count": 1}
        for i, name in enumerate(("blocks", "blocks.0", "blocks.1"))
    ]
    layers[1]["parent"] = layers[2]["parent"] = 10
    sites = [
        {"id": 20 + i, "parent": 1, "level": "site", "name": "aten.mm", "module": f"blocks.{i}", "count": 1}
        for i in range(2)
    ]
    kernel = {"id": 30, "parent": 1, "level": "kernel", "name": "gemm", "op": "aten.mm", "count": 2}
    run = run_of(
        [op(1, "blocks.*", count=2), *layers, *sites, kernel], {0: 9.0, 1: 8.0, 10: 8.0, 11: 4.0, 12: 4.5, 30: 8.0}
    )
    found = paths(run)
    assert found["/net/blocks/blocks.0/mm"] == pytest.approx(4.0)
    assert found["/net/blocks/blocks.1/mm/gemm"] == pytest.approx(4.0)
    assert "/net/mm" not in found  # reported once
    shared = [node for node in nodes_of(run) if node.level in ("op", "kernel")]
    assert all("50 %" in node.how for node in shared)


def test_what_lies_within_something_else_is_not_drawn_beside_it():
    """As an imported trace has it: functions within functions, and kernels beside the operators that ran them."""
    stack = [{"id": i, "parent": 0, "level": "range", "name": f"call {i}", "count": 1} for i in (1, 2)]
    beside = [op(3, "", "aten.mm"), {"id": 4, "parent": 0, "level": "kernel", "name": "gemm", "count": 1}]
    run = run_of(stack + beside, {}, {0: 9.0, 1: 8.0, 2: 7.0, 3: 2.0, 4: 2.0})
    assert list(paths(run)) == ["/net", "/net/gemm"]
    assert [unit.name for unit in Parts(run).units("kernel")] == ["gemm"]
    apart = run_of(stack, {}, {0: 9.0, 1: 5.0, 2: 4.0})
    assert list(paths(apart)) == ["/net", "/net/call 1", "/net/call 2"]


def layer(id: int, module: str, parent: int = 0, name: str = "") -> dict[str, object]:
    return {"id": id, "parent": parent, "level": "layer", "name": name or module, "module": module, "count": 1}


def test_phases_and_layers_are_not_drawn_beside_one_another():
    """Of a training step: one division, into phases with what runs in them; each joule once."""
    phases = [{"id": i, "parent": 0, "level": "phase", "name": name} for i, name in ((10, "forward"), (11, "backward"))]
    ops = [
        op(1, "body.*") | {"phase": "forward"},
        op(2, "body.*") | {"phase": "backward"},
        op(3, "head", "aten.add", parent=5) | {"phase": "backward"},
        op(4, "", "idle") | {"op": None, "module": None},
        op(5, "", "2 operators together") | {"op": None, "module": None},
    ]
    sites = [op(20, "body.0") | {"parent": 1, "level": "site"}]
    energies = {0: 10.0, 10: 3.0, 11: 5.0, 1: 3.0, 2: 4.0, 4: 2.0, 5: 1.0, 30: 8.0}
    run = run_of([*phases, *ops, layer(30, "body"), *sites], energies, {3: 0.1})
    found = paths(run)
    assert sum(joules for path, joules in found.items() if path.count("/") == 2) == pytest.approx(10.0)
    assert found["/net/forward/body.*/mm"] == 3.0
    assert found["/net/backward/body.*/mm"] == 4.0
    assert found["/net/backward/head/add"] is None  # known in a pool alone
    assert found["/net/no kernel running"] == 2.0


def test_phases_of_a_generation_hold_their_idle_time():
    phases = [{"id": i, "parent": 0, "level": "phase", "name": name} for i, name in ((10, "prefill"), (11, "decode"))]
    token = {"id": 12, "parent": 11, "level": "length", "name": "one token"}
    context = {"id": 13, "parent": 0, "level": "context", "name": "prompt of 128 tokens"}
    ops = [op(1, "body") | {"phase": "decode"}, op(4, "", "idle") | {"op": None, "module": None}]
    energies = {0: 10.0, 10: 2.0, 11: 8.0, 12: 0.1, 13: 2.0, 1: 1.0, 4: 9.0}
    run = run_of([*phases, token, context, *ops, layer(30, "body")], energies)
    run.workload["generation"] = {}
    assert list(paths(run)) == ["/net", "/net/prefill", "/net/decode", "/net/decode/body", "/net/decode/body/mm"]


def test_calls_of_a_layer_are_not_drawn_beside_the_layers_in_it():
    layers = [layer(1, "body"), layer(2, "body", 1, "body (call 1)"), layer(3, "body.fc", 1)]
    assert list(paths(run_of(layers, {0: 9.0, 1: 8.0, 2: 4.0, 3: 7.0}))) == ["/net", "/net/body", "/net/body/fc"]


def test_what_is_in_no_layer_comes_behind_the_layers():
    gaps = {"id": 1, "parent": 0, "level": "op", "name": "launch and gaps", "count": 1}
    layer = {"id": 2, "parent": 0, "level": "layer", "name": "body", "module": "body", "count": 1}
    assert list(paths(run_of([gaps, layer], {0: 9.0, 1: 1.0, 2: 8.0}))) == ["/net", "/net/body", "/net/launch and gaps"]


def test_next_to_nothing_does_not_set_the_scale_of_colours():
    units = [op(1, "a"), op(2, "b"), op(3, "c")]
    run = run_of(units, {0: 9.0, 1: 5.0, 2: 4.0, 3: 1e-6}, {0: 3.0, 1: 1.6, 2: 1.4, 3: 1e-9})
    low, high = icicle(nodes_of(run), "energy")["watts"]
    assert high < 4.0
    assert low > 2.0


def test_each_node_is_wide_enough_for_its_children_and_negative_ones_have_no_width():
    run = run_of([op(1, "a"), op(2, "a", "aten.add"), op(3, "b", "aten.sub")], {0: 9.0, 1: 6.0, 2: 5.0, 3: -0.5})
    nodes = nodes_of(run)
    found = dict(zip([node.label for node in nodes], widths(nodes, "energy"), strict=True))
    assert found["net"] == pytest.approx(11.0)  # its parts come to more than the whole
    assert found["sub"] == 0.0
    drawn = icicle(nodes, "energy")["nodes"]
    for number, (*_, room, _power, _level) in enumerate(drawn):
        assert sum(row[4] for row in drawn if row[0] == number) <= room * (1 + 1e-5)
    negative = next(row for row, node in zip(drawn, nodes, strict=True) if node.label == "sub")
    assert "−500" in negative[2]  # what is written is what was measured


def test_parts_of_one_path_are_one():
    found = paths(run_of([op(1, "a"), op(2, "a"), op(3, "b")], {0: 9.0, 1: 4.0, 2: 2.0, 3: 3.0}))
    assert found["/net/a/mm"] == pytest.approx(6.0)
    assert found["/net/a"] == pytest.approx(6.0)


def test_a_run_without_parts_shows_what_the_idle_gpu_takes():
    found = paths(profile_run())
    total = found.pop("/deit-base")
    assert sum(found.values()) == pytest.approx(total)
    assert found["/deit-base/work"] == pytest.approx(4.652 - 125.0 * 0.006712)


def test_a_trace_is_summed_by_name():
    run = timeline_run()
    run.units, run.results = tables.empty("units"), tables.empty("results")
    gemm = [kernel for kernel in by_name(run) if kernel.name == "gemm"]
    assert sum(kernel.count for kernel in gemm) == 3
    assert sum(kernel.total_s for kernel in gemm) == pytest.approx((1002 + 1000 + 1000) / 1e9)
    assert len({kernel.device for kernel in gemm}) == 2


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("void cudnn::detail::dgrad_engine<float, 512>(int, kernel_grad_params)", "cudnn::dgrad_engine"),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "gemm bf16 192x192 bias TNN"),
        ("void at::native::<unnamed>::layer_norm<(int)1>(T1)", "layer_norm"),
        ("[CUDA memcpy Device-to-Device]", "[CUDA memcpy Device-to-Device]"),
        ("<odd>", "<odd>"),
    ],
)
def test_a_kernel_is_written_briefly_and_reported_in_full(name, shown):
    kernels = [{"id": i, "parent": 0, "level": "kernel", "name": text} for i, text in ((1, name), (2, "gemm"))]
    run = run_of(kernels, {1: 2.0, 2: 1.0})
    _, label, _, tip, *_ = icicle(nodes_of(run), "energy")["nodes"][1]
    assert label == shown
    assert name[:50] in label + tip


def test_tags_in_names_stay_text_in_figures_of_plotly():
    assert plain("a<b>&\x1b") == "a&lt;b&gt;&amp;\\x1b"


def test_a_null_energy_leaves_the_time():
    run = run_of([op(1, "a"), op(2, "b")], {}, {0: 3.0, 1: 1.0, 2: 2.0})
    run.results = tables.from_rows(
        [*run.results.to_pylist(), result(0, "energy_total_j", Estimate.null("no_power_sensor"))], "results"
    )
    nodes = nodes_of(run)
    assert icicle(nodes, "energy") is None
    assert icicle(nodes, "time")["nodes"][0][2].startswith("3")
