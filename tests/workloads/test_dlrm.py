"""The recommendation model."""

import pytest

from jouletrace.errors import BadInputError
from jouletrace.workloads import WorkloadOptions, resolve

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("short_passes")

SMALL = {"tables": "4", "rows": "50", "dim": "8"}


def build(device="cpu", **options):
    return resolve("dlrm").build(device, WorkloadOptions(**{"batch": 6, "config": SMALL} | options))


def test_it_computes_what_its_definition_says():
    built = build(dtype="fp64")
    dense, indices, offsets = built.inputs[0][0]
    model, logits = built.module, built.call(0)
    with torch.inference_mode():
        bottom = model.bottom(dense)
        for sample in range(6):
            vectors = [bottom[sample]]
            for table, index, offset in zip(model.tables, indices, offsets, strict=True):
                end = offset[sample + 1] if sample < 5 else len(index)
                bag = index[offset[sample] : end]
                assert 1 <= len(bag) <= 20
                vectors.append(table.weight[bag].sum(0))
            products = [vectors[i] @ vectors[j] for i in range(5) for j in range(i)]
            expected = model.top(torch.cat([bottom[sample], torch.stack(products)]))
            torch.testing.assert_close(logits[sample], expected)


@pytest.mark.parametrize("config", [{"tables": "1000000000"}, {"rows": "99999999999"}])
def test_tables_that_fit_nowhere_are_refused_before_they_are_made(config):
    with pytest.raises(BadInputError, match=r"dlrm: --config tables=.* numbers; at most 10000 tables"):
        build("meta", config=config)


def test_it_is_as_large_as_it_says():
    built = resolve("dlrm").build("meta", WorkloadOptions())
    sizes = [(layer.in_features, layer.out_features) for layer in built.module.bottom if hasattr(layer, "in_features")]
    assert sizes == [(13, 512), (512, 256), (256, 128)]
    sizes = [(layer.in_features, layer.out_features) for layer in built.module.top if hasattr(layer, "in_features")]
    assert sizes == [(479, 1024), (1024, 1024), (1024, 512), (512, 256), (256, 1)]
    assert [tuple(table.weight.shape) for table in built.module.tables] == [(100_000, 128)] * 26
    assert built.facts["batch"] == built.items == 2048


def test_shapes_do_not_depend_on_whether_there_are_values():
    real, shapes = build(), build("meta")
    for one, other in zip(real.inputs[0][0][1], shapes.inputs[0][0][1], strict=True):
        assert one.shape == other.shape


def test_input_sets_differ_and_the_seed_decides():
    built, again = build(input_sets=2, seed=4), build(input_sets=2, seed=4)
    assert not torch.equal(built.inputs[0][0][0], built.inputs[1][0][0])
    for one, other in zip(built.inputs[1][0][1], again.inputs[1][0][1], strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_it_trains_on_binary_labels(optimizer):
    built = build(task="train", optimizer=optimizer)
    loss = built.call(0)
    assert 0.3 < float(loss) < 1.5  # ln 2 where nothing is learned
    assert all(float(table.weight.grad.abs().sum()) > 0 for table in built.module.tables)


def test_smoothed_binary_labels_are_between_0_and_1():
    plain, smoothed = (build(task="train", label_smoothing=smoothing).call(0) for smoothing in (0.0, 0.5))
    assert not torch.equal(plain, smoothed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": {"row": "3"}}, r"--config row: dlrm has no such setting; did you mean 'rows'\?"),
        ({"config": {"rows": "0"}}, r"--config rows=0: dlrm needs a whole number"),
        ({"seq_len": 3}, r"--seq-len 3: dlrm has no such length"),
        ({"task": "generate"}, r"--task generate: dlrm"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        build(**options)


@pytest.mark.thorough
def test_a_look_up_moves_the_rows_that_it_reads():
    """On a simulated GPU, a table costs what its indices fetch, and not all that it holds."""
    from jouletrace.execution.steps import count_workload

    built, operators = count_workload(resolve("dlrm"), WorkloadOptions(batch=64, dtype="fp16"))
    bags = [operator for operator in operators if "embedding_bag" in operator.op]
    assert len(bags) == 26
    for bag, indices in zip(bags, built.inputs[0][0][1], strict=True):
        rows = indices.numel() * 128 * 2
        assert rows <= bag.bytes_moved <= rows + indices.numel() * 32 + 64 * 1024
    assert [bag.module for bag in bags] == [f"tables.{i}" for i in range(26)]


@pytest.mark.thorough
@pytest.mark.parametrize("device", ["cpu", "sim:h100"])
def test_it_is_profiled_by_layer(device, no_rapl):
    from jouletrace.profiler import ProfileSettings, profile_workload

    settings = ProfileSettings(
        device=device,
        detail="layer",
        batch=32,
        config={"rows": "200", "tables": "3"},
        warmup_s=0.5,
        idle_s=0.3,
        latency_s=0.2,
        max_time_s=0.5,
        detail_time_s=1.0,
    )
    run = profile_workload("dlrm", settings)
    units = run.units.to_pylist()
    assert {f"tables.{i}" for i in range(3)} | {"bottom.0", "top.0"} <= {unit["name"] for unit in units}
    assert run.result("energy_total_j").value is not None or device == "cpu"
