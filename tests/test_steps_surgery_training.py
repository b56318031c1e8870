"""Operators of forward, backward and optimizer removed and repeated: what a training step computes stays."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fake_capture import CPU  # noqa: E402
from jouletrace.steps.altered import alter, record_structures  # noqa: E402
from jouletrace.steps.base import DETACHED, VariantRefusedError  # noqa: E402
from jouletrace.workloads.base import Built  # noqa: E402
from surgery import new_memory_is_not_a_number, same, tensors, workload  # noqa: E402

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True)
def _undefined_memory_shows():
    with new_memory_is_not_a_number():
        yield


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        h = F.relu(self.norm(self.conv(x)), inplace=True).mean(-1)
        return F.cross_entropy(self.head(h), torch.tensor([0, 1, 1]))


def training(optimizer, to_none=True, clip=False):
    """A training step at learning rate 0: every iteration computes the same."""
    model = Trained()
    x = torch.randn(3, 3, 8)
    optimizer = optimizer(model.parameters())

    def call(_i):
        optimizer.zero_grad(set_to_none=to_none)
        loss = model(x)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        grads = [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
        return loss.detach(), grads

    built = Built(call, model, [((x,), {})], {"name": "training"})
    built.call(0)
    return built


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.0, foreach=False),
    "sgd_foreach": lambda parameters: torch.optim.SGD(parameters, lr=0.0, momentum=0.9, foreach=True),
    "adamw_fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.0, weight_decay=0.0, fused=True),
}


# What follows a removed one in place has no form that writes elsewhere.
REFUSED = {
    ("sgd_foreach", 0): {"aten._foreach_mul_"},
    ("sgd_foreach", 2): {"aten._foreach_mul_", "aten._foreach_add_"},
    ("adamw_fused", 2): {"aten._fused_adamw_", "aten._foreach_add_"},
}


@pytest.mark.parametrize(
    ("name", "to_none"), [("sgd", True), ("sgd", False), ("sgd_foreach", True), ("adamw_fused", False)]
)
def test_every_unit_of_a_training_step_can_be_removed_and_repeated(name, to_none):
    built = training(OPTIMIZERS[name], to_none)
    structures = record_structures(built, CPU)
    wanted = [tensor.clone() for tensor in tensors(built.call(0))]
    units = structures[0].units()
    assert any(unit.backward and unit.op == "aten.convolution_backward" and unit.module == "conv" for unit in units)
    for multiplicity in (DETACHED, 0, 2):
        refused = []
        for unit in units:
            try:
                altered, _ = alter(built, structures, {unit: multiplicity}, CPU)
            except VariantRefusedError:
                refused.append(unit.op)
                continue
            for _ in range(2):
                same(wanted, tensors(altered.call(0)))
        assert set(refused) == REFUSED.get((name, 2 if multiplicity == DETACHED else multiplicity), set())


def test_clipping_gradients_in_place_keeps_backward_from_being_removed_but_not_from_being_repeated():
    built = training(OPTIMIZERS["sgd"], clip=True)
    structures = record_structures(built, CPU)
    (unit,) = [one for one in structures[0].units() if one.op == "aten.convolution_backward"]
    with pytest.raises(VariantRefusedError, match="foreach_mul_"):
        alter(built, structures, {unit: 0}, CPU)
    wanted = [tensor.clone() for tensor in tensors(built.call(0))]
    same(wanted, tensors(alter(built, structures, {unit: 4}, CPU)[0].call(0)))


def test_random_operators_can_be_removed_and_repeated():
    torch.manual_seed(3)
    built = workload(nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5)).train(), torch.ones(8, 64), inference=False)
    structures = record_structures(built, CPU)
    for unit in structures[0].units():
        for multiplicity in (0, 2):
            out = alter(built, structures, {unit: multiplicity}, CPU)[0].call(0)
            assert 0.3 < float((out == 0).float().mean()) < 0.7, unit
