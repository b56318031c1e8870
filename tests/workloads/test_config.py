"""``--config key=value``: typed by the value it replaces, refused where it makes no sense."""

import pytest

from jouletrace.errors import BadInputError
from jouletrace.workloads import WorkloadOptions, resolve, typed_overrides

pytest.importorskip("torch")
pytest.importorskip("transformers")


class Config:
    def __init__(self):
        self.attribute_map = {"num_hidden_layers": "n_layer"}

    def to_dict(self):
        return {
            "n_layer": 12,
            "layer_norm_eps": 1e-5,
            "use_cache": True,
            "hidden_act": "gelu",
            "depths": [2, 2],
            "n_inner": None,
            "head_dim": 64,
            "sink_size": -1,
            "pad_token_id": 0,
            "feature_layer": 3,
            "id2label": {0: "a"},
        }


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("key", "text", "field", "value"),
    [
        ("n_layer", "3", "n_layer", 3),
        ("num_hidden_layers", "3", "n_layer", 3),
        ("layer_norm_eps", "1e-6", "layer_norm_eps", 1e-6),
        ("use_cache", "False", "use_cache", False),
        ("use_cache", "1", "use_cache", True),
        ("hidden_act", "relu", "hidden_act", "relu"),
        ("depths", "[1, 3]", "depths", [1, 3]),
        ("depths", "1,3", "depths", [1, 3]),
        ("n_inner", "64", "n_inner", 64),
        ("n_inner", "wide", "n_inner", "wide"),
        ("id2label", '{"0": "b"}', "id2label", {"0": "b"}),
        ("num_labels", "7", "num_labels", 7),
    ],
)
def test_a_value_reads_as_the_type_that_it_replaces(key, text, field, value):
    typed = typed_overrides(Config(), {key: text}, "m")
    assert typed == {field: value}
    assert type(typed[field]) is type(value)


@pytest.mark.parametrize(
    ("key", "text"),
    [("n_layer", "1.5"), ("use_cache", "maybe"), ("layer_norm_eps", "small"), ("depths", "[1,"), ("id2label", "3")],
)
def test_a_value_of_another_type_is_refused(key, text):
    with pytest.raises(BadInputError, match=rf"--config {key}=.*: must read as"):
        typed_overrides(Config(), {key: text}, "m")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("n_layer", "-3"),
        ("num_hidden_layers", "-3"),
        ("head_dim", "-8"),
        ("depths", "[-1, 3]"),
        ("n_inner", "-64"),
        ("num_labels", "-1"),
    ],
)
def test_what_counts_something_is_not_below_0(key, text):
    with pytest.raises(BadInputError) as caught:
        typed_overrides(Config(), {key: text}, "m")
    assert str(caught.value) == f"--config {key}={text}: a count can't be below 0"


@pytest.mark.parametrize("text", ["-1", "0"])
@pytest.mark.parametrize("key", ["pad_token_id", "feature_layer", "sink_size"])
def test_a_number_below_0_may_mean_something_else(key, text):
    assert typed_overrides(Config(), {key: text}, "m") == {key: int(text)}


@pytest.mark.thorough
def test_a_model_without_layers_is_one():
    built = resolve("bert-base").build("meta", WorkloadOptions(config={"num_hidden_layers": "0"}))
    assert len(built.module.bert.encoder.layer) == 0


def test_a_layer_without_width_is_refused():
    text = r"llama-tiny can't be built with --config intermediate_size=0: model\.layers\.0\..* would hold no numbers"
    with pytest.raises(BadInputError, match=text):
        resolve("llama-tiny").build("meta", WorkloadOptions(config={"intermediate_size": "0"}))


def test_an_unknown_key_offers_the_nearest():
    with pytest.raises(
        BadInputError, match=r"--config num_layers: m has no such setting; did you mean .*num_hidden_layers"
    ):
        typed_overrides(Config(), {"num_layers": "3"}, "m")


@pytest.mark.thorough
def test_what_a_configuration_derives_from_a_setting_follows_it():
    built = resolve("swin-tiny").build("meta", WorkloadOptions(config={"embed_dim": "48"}))
    assert built.module.classifier.in_features == 48 * 8
    assert built.call(0).logits.shape == (1, 1000)


def test_a_configuration_that_its_own_checks_refuse_is_bad_input():
    with pytest.raises(BadInputError, match=r"^llama-tiny can't be built with --config hidden_size=63: .*multiple.*$"):
        resolve("llama-tiny").build("meta", WorkloadOptions(config={"hidden_size": "63"}))


def test_a_configuration_that_the_model_refuses_is_bad_input():
    with pytest.raises(BadInputError, match=r"bert-base can't be built with --config hidden_size=100: .*multiple"):
        resolve("bert-base").build("meta", WorkloadOptions(config={"hidden_size": "100"}))
