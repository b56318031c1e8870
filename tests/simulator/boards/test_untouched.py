"""A simulated GPU needs shapes alone: the user's model is afterwards what it was before."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import jouletrace as jt  # noqa: E402
from jouletrace.errors import BadInputError  # noqa: E402
from thinned import thinned  # noqa: E402


class Caching(nn.Module):
    """Keeps what it computed, in a buffer and in an attribute."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.register_buffer("last", torch.zeros(4, 16))
        self.mask = None

    def forward(self, x):
        self.mask = torch.ones_like(x)
        self.last = self.linear(x) * self.mask
        return self.last


def linear():
    return nn.Linear(16, 16), (torch.randn(4, 16),)


def normed():
    return nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.1)), (torch.randn(4, 16),)


def caching():
    return Caching(), (torch.randn(4, 16),)


def bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100
    )
    return transformers.BertModel(config), {"input_ids": torch.randint(0, 100, (2, 8))}


def profiled(target, inputs, **options):
    return jt.profile(target, inputs, device="sim:h100", warmup_s=0.1, max_time_s=4, latency_s=0.1, **options)


def call(model, inputs):
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "dtype"),
    thinned(
        [(linear, None), (linear, "bf16"), *((one, of) for one in (normed, caching, bert) for of in ("bf16", None))], 2
    ),
)
def test_a_profiled_model_can_be_used_as_before(make, dtype):
    model, inputs = make()
    model.train()
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    values = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    run = profiled(model, inputs, dtype=dtype)
    assert run.workload["dtype"] == (dtype or "fp32")
    after = dict(model.named_parameters()) | dict(model.named_buffers())
    assert all(after[name] is tensor for name, tensor in tensors.items())
    assert all(torch.equal(tensor, values[name]) for name, tensor in model.state_dict().items())
    assert all(part.training for part in model.modules())
    assert getattr(model, "mask", None) is None

    model.half()
    model.to(torch.float64)
    model.to("cpu", torch.float32)
    model.load_state_dict(values)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    out = call(model, inputs)
    out = out if torch.is_tensor(out) else out.last_hidden_state
    # what a norm puts out adds up to the same whatever goes in: a plain sum has no gradient but by rounding
    (out * torch.linspace(0, 1, out.shape[-1])).sum().backward()
    optimizer.step()
    assert not torch.equal(next(model.parameters()), next(iter(values.values())))


@pytest.mark.thorough
def test_a_model_inside_a_callable_can_be_used_as_before():
    model, (x,) = linear()
    profiled(lambda x: model(x).relu(), (x,))
    model.half()
    model.to("cpu", torch.float32)
    assert model(x).shape == (4, 16)


def test_a_model_whose_forward_raises_is_as_before_too():
    model, _ = linear()
    weight = model.weight
    with pytest.raises(BadInputError, match="Linear, batch 4: its forward raised RuntimeError: a and b must have"):
        profiled(model, (torch.randn(4, 3),), name="Linear")
    assert model.weight is weight
    assert model.half().weight.dtype == torch.float16
