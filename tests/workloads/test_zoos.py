"""Models of torchvision and timm: by stand-ins, since neither is needed to test what is asked of them."""

import functools
import sys
import types

import pytest

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.workloads import WorkloadOptions, resolve

torch = pytest.importorskip("torch")
pytest.importorskip("transformers").GenerationMixin  # noqa: B018  # it looks for torchvision: before a stand-in is there


class Tiny(torch.nn.Module):
    """Channels to logits."""

    def __init__(self, classes=1000):
        super().__init__()
        self.head = torch.nn.Linear(3, classes)

    def forward(self, x):
        """Means of channels through one layer."""
        return self.head(x.mean((2, 3)))


class Weights:
    """As torchvision states how its weights were evaluated."""

    DEFAULT = types.SimpleNamespace(transforms=functools.partial(dict, crop_size=40))


def unknown(name):
    raise ValueError(name)


@pytest.fixture
def zoos(monkeypatch):
    """torchvision and timm, of a model or two each."""
    made = {"net40": Tiny, "net": Tiny, "vit": Tiny}

    def get_model(name, weights):
        assert weights is None
        model = made[name]()
        if name == "vit":
            model.image_size = 24
        return model

    torchvision = types.ModuleType("torchvision")
    torchvision.__version__ = "9.1"
    torchvision.models = types.SimpleNamespace(
        list_models=lambda module: list(made),
        get_model=get_model,
        get_model_weights=lambda name: Weights if name != "net" else unknown(name),
    )
    timm = types.ModuleType("timm")
    timm.__version__ = "9.2"

    def create_model(name, pretrained):
        assert not pretrained
        model = Tiny(384 if name == "features" else 1000)
        model.default_cfg = {"input_size": (3, 32, 48)}
        model.num_classes, model.num_features = (0, 384) if name == "features" else (1000, 3)
        return model

    timm.list_models, timm.create_model = lambda: ["resnet50", "features"], create_model
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    monkeypatch.setitem(sys.modules, "timm", timm)


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ("torchvision:net", [3, 224, 224]),
        ("torchvision:net40", [3, 40, 40]),
        ("torchvision:vit", [3, 24, 24]),
        ("timm:resnet50", [3, 32, 48]),
        ("timm:resnet50.a1_in1k", [3, 32, 48]),
    ],
)
def test_images_are_of_the_size_that_the_model_is_for(zoos, spec, shape):
    built = resolve(spec).build("cpu", WorkloadOptions(batch=2, dtype="bf16"))
    assert built.inputs[0][0][0].shape == (2, *shape)
    assert built.call(0).dtype == torch.bfloat16
    assert (built.facts["name"], built.facts["sample_shape"], built.items) == (spec, shape, 2)
    assert built.facts["weights"] == "random, seed 0"
    assert built.facts["source"].startswith(spec.partition(":")[0] + " 9.")


@pytest.mark.parametrize("spec", ["torchvision:net40", "timm:resnet50", "timm:features"])
def test_they_train(zoos, spec):
    built = resolve(spec).build("cpu", WorkloadOptions(batch=3, task="train"))
    loss = built.call(0)
    assert loss.dim() == 0
    assert torch.isfinite(loss)
    assert built.module.head.weight.grad.abs().sum() > 0


def test_the_same_seed_draws_the_same(zoos):
    first, again, other = (
        resolve("timm:resnet50").build("cpu", WorkloadOptions(seed=seed)).call(0) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_an_unknown_name_offers_the_nearest(zoos):
    with pytest.raises(BadInputError, match=r"timm 9\.2 has no such .*; did you mean 'resnet50'\?"):
        resolve("timm:resnet5").build("cpu", WorkloadOptions())
    with pytest.raises(BadInputError, match=r"torchvision 9\.1 has no such .*; did you mean 'net'"):
        resolve("torchvision:nett").build("cpu", WorkloadOptions())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seq_len": 8}, r"--seq-len 8: timm:resnet50 takes images"),
        ({"config": {"depth": "3"}}, r"--config depth: timm:resnet50 has no such setting"),
        ({"task": "generate"}, r"isn't a transformers model with a head that generates"),
        ({"task": "train", "data": "."}, r"--data"),
    ],
)
def test_options_that_have_no_meaning_are_refused(zoos, options, message):
    with pytest.raises(BadInputError, match=message):
        resolve("timm:resnet50").build("cpu", WorkloadOptions(**options))


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_a_package_that_is_not_installed_says_what_to_install(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(NotPossibleError, match=rf"^{package}:net: .*: pip install {package}$"):
        resolve(f"{package}:net").build("cpu", WorkloadOptions())


def test_a_prefix_alone_is_refused():
    with pytest.raises(BadInputError, match=r"write timm:NAME, such as timm:resnet50"):
        resolve("timm:")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("torchvison:resnet50", "torchvision:resnet50"),
        ("tim:resnet50", "timm:resnet50"),
        ("hff:org/name", "hf:org/name"),
        ("dlmr", "dlrm"),
    ],
)
def test_a_misspelt_prefix_is_corrected(workspace, wrong, meant):
    with pytest.raises(BadInputError, match=rf"unknown workload '{wrong}'; did you mean '{meant}'\?"):
        resolve(wrong)


def test_a_module_whose_name_is_near_a_prefix_is_the_users(workspace):
    (workspace / "tim.py").write_text("def make():\n    return (lambda x: x), (1,)\n")
    assert resolve("tim:make").name == "tim:make"
