"""``--task train``: forward, backward and optimizer of a step, whose weights stay as they are."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.devices import open_device
from jouletrace.errors import BadInputError
from jouletrace.profiler import ProfileSettings, profile_workload
from jouletrace.profiler.prepare import prepare
from jouletrace.report import render, to_json_object
from jouletrace.workloads import ObjectWorkload, WorkloadOptions, resolve
from printed_sums import sums_of
from shown import name_of, rows
from step_truth import steady_step

pytestmark = pytest.mark.thorough

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

SMALL = {
    "deit-t": {"num_hidden_layers": "1", "image_size": "32"},
    "bert-b": {"num_hidden_layers": "1", "hidden_size": "64", "num_attention_heads": "2", "intermediate_size": "64"},
    "gpt2": {"n_layer": "1", "n_embd": "64", "n_head": "2", "vocab_size": "100"},
    "resnet50": {"depths": "[1,1,1,1]", "hidden_sizes": "[8,8,8,8]", "embedding_size": "8"},
}
OPTIONS = WorkloadOptions(task="train", batch=4)


def built(name, **changes):
    return resolve(name).build("cpu", replace(OPTIONS, config=SMALL[name], **changes))


@pytest.mark.parametrize("name", SMALL)
def test_a_step_computes_gradients_and_leaves_the_weights(name):
    one = built(name)
    before = [parameter.detach().clone() for parameter in one.module.parameters()]
    losses = [float(one.call(i)) for i in range(3)]
    assert all(np.isfinite(losses))
    assert one.module.training
    assert all(parameter.grad is not None for parameter in one.module.parameters() if parameter.requires_grad)
    for then, now in zip(before, one.module.parameters(), strict=True):
        assert torch.equal(then, now)


def test_label_smoothing_changes_the_loss_and_the_optimizer_is_stated():
    plain, smooth = built("deit-t"), built("deit-t", label_smoothing=0.2, optimizer="sgd")
    assert float(plain.call(0)) != float(smooth.call(0))
    assert (plain.facts["optimizer"], smooth.facts["optimizer"]) == ("adamw", "sgd")
    assert smooth.facts["label_smoothing"] == 0.2
    assert plain.facts["task"] == "train"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"optimizer": "lion"}, "--optimizer lion"),
        ({"label_smoothing": 1.5}, "--label-smoothing 1.5"),
        ({"label_smoothing": float("nan")}, "--label-smoothing nan: must be at least 0 and less than 1"),
        ({"task": "infer", "optimizer": "sgd"}, "for --task train"),
    ],
)
def test_options_of_training_that_make_no_sense_are_refused(changes, words):
    with pytest.raises(BadInputError, match=words):
        built("deit-t", **changes)


class Loss(torch.nn.Module):
    """A model of the user's that returns its loss."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        return {"loss": self.inner(x).square().mean()}


def test_a_users_model_trains_on_the_loss_that_it_returns():
    one = ObjectWorkload(Loss(), (torch.randn(4, 8),)).build("cpu", WorkloadOptions(task="train"))
    assert one.call(0).dim() == 0
    assert one.module.inner.weight.grad.abs().sum() > 0


def test_of_a_model_without_a_loss_it_is_reported_what_is_needed():
    with pytest.raises(BadInputError, match="must return its loss"):
        ObjectWorkload(torch.nn.Linear(4, 4), (torch.randn(2, 4),)).build("cpu", WorkloadOptions(task="train")).call(0)
    with pytest.raises(BadInputError, match="no parameters to train"):
        ObjectWorkload(torch.add, (torch.randn(2), torch.randn(2))).build("cpu", WorkloadOptions(task="train"))


SETTINGS = ProfileSettings(
    task="train",
    device="sim:h100?cap=off&seed=5",
    batch=512,
    mode="graph",
    detail="phase",
    detail_time_s=8.0,
    warmup_s=3.0,
    config={"num_hidden_layers": "1"},
)


@pytest.fixture(scope="module")
def trained(known_rates):
    return profile_workload("deit-t", SETTINGS)


def phases(run):
    return {unit["name"]: unit["id"] for unit in run.units.to_pylist() if unit["level"] == "phase"}


def test_phases_close_and_hold_their_truth(trained):
    ids = phases(trained)
    assert list(ids) == ["forward", "backward", "optimizer"]
    closure = trained.result("closure_kernels")
    assert closure.low <= 1 <= closure.high
    device = open_device(SETTINGS.device)
    prepared = prepare(resolve("deit-t"), device, SETTINGS)
    truth = steady_step(device, prepared.step.schedule)
    busy = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
    for call, seconds in zip(prepared.traceable().listing().calls, truth.kernel_s, strict=True):
        busy[call.phase] += seconds
    for name, seconds in busy.items():
        assert trained.result("time_s", ids[name]).value == pytest.approx(seconds, rel=0.03)


def test_printed_rows_make_up_the_row_above_them_and_the_whole(trained):
    assert sums_of(trained) == []


def test_backward_operators_belong_to_the_modules_of_their_forward(trained):
    sites = [row for row in trained.units.to_pylist() if row["level"] == "site" and row["phase"] == "backward"]
    named = sum(row["count"] for row in sites if row["module"])
    assert named >= 0.9 * sum(row["count"] for row in sites)


def test_phases_are_in_the_table_and_in_the_json_object(trained):
    text = render([trained], detail="phase", width=100, verbose=True)
    for words in ("forward", "backward", "optimizer", "idle", "Parts / untraced whole"):
        assert words in text
    found = to_json_object(trained)
    assert [name_of(row) for row in rows(found, "phase", "phase")] == ["forward", "backward", "optimizer"]
    assert sum(row["share"]["value"] for row in rows(found, "phase")) == pytest.approx(1, abs=0.05)
