"""Removing and repeating operators of a forward leaves all others with right data, replay after replay."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fake_capture import CPU  # noqa: E402
from jouletrace.errors import BadInputError  # noqa: E402
from jouletrace.steps.altered import alter, record_structures  # noqa: E402
from jouletrace.steps.base import DETACHED, VariantRefusedError  # noqa: E402
from jouletrace.steps.operators import storage_key  # noqa: E402
from jouletrace.steps.structure import ChangedCallsError  # noqa: E402
from jouletrace.steps.units import Unit  # noqa: E402
from surgery import (  # noqa: E402
    captured,
    check,
    new_memory_is_not_a_number,
    same,
    tensors,
    units_of,
    workload,
)

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True)
def _undefined_memory_shows():
    with new_memory_is_not_a_number():
        yield


class Residual(nn.Module):
    """A residual sum and an activation, both in place, on the output of a normalisation."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.norm(self.conv(x))
        out += x
        return self.relu(out)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16, bias=False)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (t.view(2, 6, 4, 4).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 6, 16)
        return x + self.out(y), y.mean()


class Odd(nn.Module):
    """Several outputs, looks into tables, complex numbers, and writes into parts of a tensor."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.register_buffer("cache", torch.zeros(4, 8))

    def forward(self, i):
        x = self.table(i)
        values, places = x.max(dim=-1)
        top, order = torch.topk(x, 3)
        var, mean = torch.var_mean(x, dim=-1)
        spectrum = torch.fft.fft(x).conj() * 2
        joined = torch.cat([x, top], dim=-1)
        joined[:, :4] = mean[:, None]
        self.cache[torch.tensor([0, 2])] = x[:2]
        filled = torch.zeros(4, 8).masked_fill_(x > 0, 1.5)
        return values + places, order, var, spectrum.real, joined, self.cache.sum(), filled.clamp_(0, 1)


class Accumulating(nn.Module):
    """Sums in place: into its own output over and over, and into a buffer that it fills anew."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.register_buffer("sum", torch.ones(3, 8))

    def forward(self, x):
        h = self.up(x)
        before = h * 2
        h.mul_(0.5).add_(x).div_(3.0)
        view = h.view(2, 12)
        view.sub_(1.0)
        self.sum.zero_()
        self.sum.add_(h)
        torch.mul(h, 2.0, out=self.sum[:3])
        self.sum.addcmul_(h, x)
        return before, h, view.sigmoid_(), self.sum + 0, torch.addmm(x[:, :3], x, h.t())


MODELS = {
    "residual": lambda: workload(Residual().eval(), torch.randn(2, 4, 6, 6)),
    "attention": lambda: workload(Attention(), torch.randn(2, 6, 16)),
    "odd": lambda: workload(Odd(), torch.tensor([1, 4, 4, 9])),
    "accumulating": lambda: workload(Accumulating(), torch.randn(3, 8)),
    "lstm": lambda: workload(nn.LSTM(4, 5, num_layers=2, batch_first=True), torch.randn(2, 3, 4)),
    "encoder": lambda: workload(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), torch.randn(2, 5, 16)),
    "no_grad": lambda: workload(Residual().eval().requires_grad_(False), torch.randn(2, 4, 6, 6), inference=False),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("multiplicity", [DETACHED, 0, 1, 2, 3])
def test_every_unit_can_be_changed_and_all_others_compute_what_they_did(name, multiplicity):
    built = MODELS[name]()
    structures = record_structures(built, CPU)
    plain, _ = captured(alter(built, structures, {}, CPU)[0])
    for unit in structures[0].units():
        tape = check(built, {unit: multiplicity}, structures)
        assert len(tape.launches) == len(plain.launches) + (abs(multiplicity) - 1) * unit.count, unit


@pytest.mark.parametrize("name", MODELS)
def test_an_empty_step_launches_nothing_and_still_returns_the_outputs(name):
    built = MODELS[name]()
    assert check(built, dict.fromkeys(units_of(built), 0)).launches == []


@pytest.mark.parametrize("name", MODELS)
def test_several_units_can_be_changed_at_once(name):
    built = MODELS[name]()
    units = units_of(built)
    check(built, {unit: i % 3 for i, unit in enumerate(units)})
    check(built, {unit: (i + 1) % 2 for i, unit in enumerate(units)})


def test_a_sum_in_place_on_a_removed_output_does_not_grow_from_replay_to_replay():
    built = MODELS["residual"]()
    (norm,) = units_of(built, "aten.native_batch_norm")
    tape = check(built, {norm: 0})
    assert "add.out" in tape.names
    assert "add_.Tensor" not in tape.names


def test_a_removed_sum_in_place_is_seen_by_all_that_read_the_memory_later():
    built = MODELS["accumulating"]()
    (added,) = [unit for unit in units_of(built, "aten.add_") if unit.count == 2]
    tape = check(built, {added: 0})
    assert "add_.Tensor" not in tape.names


def test_a_repeated_sum_in_place_goes_into_memory_that_nobody_reads():
    built = MODELS["accumulating"]()
    (added,) = units_of(built, "aten.add_")
    names = check(built, {added: 3}).names
    assert names.count("add_.Tensor") == 2
    assert names.count("add.out") == 4


class Chain(nn.Module):
    """Sums that each read the one before, and are read by others too."""

    def __init__(self, in_place):
        super().__init__()
        self.in_place = in_place

    def forward(self, x):
        first = (x * 1).add_(1) if self.in_place else x + 1
        between = first * 2
        second = first.add_(1) if self.in_place else first + 1
        return between, second * 2


@pytest.mark.parametrize("in_place", [False, True])
def test_detached_calls_of_a_chain_read_each_other_and_all_others_what_is_stored(in_place):
    built = workload(Chain(in_place), torch.randn(2, 4))
    structures = record_structures(built, CPU)
    (unit,) = units_of(built, "aten.add_" if in_place else "aten.add")
    assert unit.count == 2
    altered, call = alter(built, structures, {unit: DETACHED}, CPU)
    stored = [call.stored[0][place] for place in sorted(call.stored[0])]
    assert [one.chained for one in stored] == [True, False]
    wanted = tensors(built.call(0))
    # A wrong number in what is stored reaches those who read it there, and no detached call.
    wrong = torch.full((2, 4), 7.0)
    for one in stored:
        for kept in one.written if in_place else (one.outputs.kept,):
            kept.copy_(wrong.untyped_storage())
    tape, outputs = captured(altered)
    same(outputs, [wrong * 2, wrong * 2])
    sums = [out for (_, _, _, out), name in zip(tape.launches, tape.names, strict=True) if name.startswith("add")]
    same(sums[-1:], [wanted[1] / 2])


def test_repetitions_come_before_the_launch_that_counts():
    built = workload(lambda a, b: (a @ b).add_(1), torch.randn(4, 4), torch.randn(4, 4))
    (product,) = units_of(built, "aten.mm")
    tape = check(built, {product: 3})
    products = [out for func, _, _, out in tape.launches if func.name() == "aten::mm"]
    added = next(args[0] for func, args, _, _ in tape.launches if func.name() == "aten::add_.Tensor")
    assert storage_key(added) == storage_key(products[2])


def test_a_written_part_of_a_removed_output_is_refused_when_the_rest_would_be_lost():
    def forward(x, w):
        y = x @ w
        y[:, :2] += 1
        return y

    built = workload(forward, torch.randn(4, 4), torch.randn(4, 4))
    product, added = units_of(built)[:2]
    with pytest.raises(VariantRefusedError, match=r"aten\.add_\.Tensor writes over what") as refused:
        check(built, {product: 0})
    assert refused.value.reason == "overwritten"
    check(built, {added: 0})
    check(built, {product: 3, added: 3})


def test_an_activation_in_place_on_a_removed_output_that_was_read_before_is_refused():
    built = workload(lambda x: ((y := x.exp()).neg(), y.relu_()), torch.randn(4))
    with pytest.raises(VariantRefusedError, match="relu_"):
        check(built, {units_of(built, "aten.exp")[0]: 0})


def test_a_repetition_does_not_write_over_what_a_removed_operator_hands_on():
    built = workload(lambda x: (y := x.exp(), y.neg(), y.clamp_(0.0, 0.5))[1:], torch.randn(4))
    exp, _, clamp = units_of(built)
    assert "clamp_" not in check(built, {exp: 0, clamp: 3}).names


def test_what_cannot_be_repeated_is_refused_with_a_reason_and_can_still_be_removed():
    total = [torch.zeros(3), torch.zeros(5)]

    def forward(x):
        for one in total:
            one.zero_()
        torch._foreach_add_(total, 1.0)
        return [one + x for one in total]

    built = workload(forward, torch.randn(1))
    (added,) = units_of(built, "aten._foreach_add_")
    with pytest.raises(VariantRefusedError, match="writes over its input and can't be repeated") as refused:
        check(built, {added: 2})
    assert refused.value.reason == "in_place"
    check(built, {added: 0})


def test_a_chain_of_calls_that_write_in_place_without_another_form_is_refused_in_one_line():
    """As in mixtures of experts, whose masks are filled in place one after another."""

    def forward(x):
        masked = (x * 1).masked_fill_(x > 1, 0.0)
        return masked.masked_fill_(x < -1, 0.0).exp()

    built = workload(forward, torch.randn(3, 4))
    (filled,) = units_of(built, "aten.masked_fill_")
    assert filled.count == 2
    check(built, {filled: 0})
    with pytest.raises(VariantRefusedError, match="writes over its input: it can't run detached") as refused:
        check(built, {filled: DETACHED})
    assert refused.value.reason == "in_place"


def test_unknown_units_and_negative_multiplicities_are_refused():
    built = MODELS["residual"]()
    with pytest.raises(BadInputError, match=r"the step has no unit aten\.mm f16\[3\] in head"):
        check(built, {Unit("aten.mm", "f16[3]", "head"): 0})
    with pytest.raises(BadInputError, match=r"0 or more, or -1 \(detached\), not -2"):
        check(built, {units_of(built)[0]: -2})


def test_only_outputs_that_somebody_reads_are_kept():
    built = workload(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()), torch.randn(8, 64))
    structures = record_structures(built, CPU)
    units = structures[0].units()

    def kept(*removed):
        _, call = alter(built, structures, dict.fromkeys(removed, 0), CPU)
        return [stored.outputs.kept is not None for _, stored in sorted(call.stored[0].items())]

    assert kept(units[0]) == [True]
    assert kept(units[0], units[1]) == [False, True]
    assert kept(*units) == [False, False, False, True]


def test_a_workload_that_changes_its_operators_is_noticed():
    calls = []

    def forward(x):
        calls.append(1)
        return x.exp() if len(calls) < 3 else x.sin()

    built = workload(forward, torch.randn(4))
    structures = record_structures(built, CPU)
    built.call(0)
    with pytest.raises(ChangedCallsError, match=r"operator 0 is aten\.sin\.default; it was aten\.exp\.default"):
        alter(built, structures, {}, CPU)


def test_a_pass_that_makes_fewer_calls_than_are_to_be_stored_is_noticed():
    steps = iter([2, 1])

    def forward(x):
        for _ in range(next(steps)):
            x = x.exp()
        return x

    built = workload(forward, torch.randn(4))
    structures = record_structures(built, CPU)
    with pytest.raises(ChangedCallsError, match="operator 1 was not called this time"):
        alter(built, structures, dict.fromkeys(structures[0].units(), 0), CPU)


def test_an_iteration_with_fewer_operators_or_other_shapes_is_noticed():
    sizes = iter([4, 4, 5, 0])

    def forward():
        n = next(sizes)
        return torch.ones(n).exp() if n else None

    built = workload(forward)
    structures = record_structures(built, CPU)
    alter(built, structures, {}, CPU)
    with pytest.raises(ChangedCallsError, match="other shapes"):
        alter(built, structures, {}, CPU)
    with pytest.raises(ChangedCallsError, match="an iteration of 0 operators; there were 2"):
        alter(built, structures, {}, CPU)


def test_autocast_acts_on_the_parts_of_operators_as_without_a_mode():
    a, b = torch.randn(4, 4), torch.randn(4, 4)

    def forward(x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return torch.einsum("ij,jk->ik", x, y), F.linear(x, y), F.layer_norm(x, (4,)), (x @ y).softmax(-1)

    built = workload(forward, a, b)
    plain = tensors(built.call(0))
    assert plain[0].dtype == torch.bfloat16
    for unit in units_of(built):
        check(built, {unit: 0})
    assert [one.dtype for one in tensors(alter(built, record_structures(built, CPU), {}, CPU)[0].call(0))] == [
        one.dtype for one in plain
    ]


def test_the_models_own_state_is_not_touched_by_what_is_kept():
    built = MODELS["residual"]()
    before = [tensor.clone() for tensor in built.module.state_dict().values()]
    for unit in units_of(built):
        check(built, {unit: 0})
    same(before, list(built.module.state_dict().values()))
    assert not built.module.conv._forward_hooks
