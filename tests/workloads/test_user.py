"""The user's own models and callables, and every way in which they can be wrong."""

import re
import sys
import textwrap

import pytest

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.workloads import ObjectWorkload, WorkloadOptions, resolve
from jouletrace.workloads.environment import require_transformers

torch = pytest.importorskip("torch")

SOURCE = """
    import torch
    import helper_beside_it

    NUMBER = 3

    def make():
        return torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout(0.5)), torch.ones(5, 4)

    def sized(batch=1, *, seq_len=7, dtype="fp32", device=None, seed=None):
        assert device == "cpu"
        assert seed == 0
        return torch.nn.Linear(seq_len, 2), (torch.randn(batch, seq_len),)

    def demanding(batch, colour):
        return None

    def shaped(batch, width=4, bias=True):
        return torch.nn.Linear(2, width, bias=bias), torch.ones(batch, 2)

    def plain():
        return max, (1, 2)

    def keywords():
        return lambda a, *, b: a - b, {"a": 5, "b": 3}

    def wrong():
        return torch.nn.Linear(1, 1)

    def wrong_first():
        return 3, 4

    def wrong_length():
        return 1, 2, 3

    def fails():
        raise ValueError("no such\\nweights")

    def hungry():
        return torch.empty(1 << 60), ()

    class Zoo:
        @staticmethod
        def cat():
            return (lambda: "meow"), ()
"""


@pytest.fixture
def user_file(tmp_path):
    (tmp_path / "helper_beside_it.py").touch()
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(SOURCE))
    return path


def build(spec, **options):
    return resolve(str(spec)).build("cpu", WorkloadOptions(**options))


def test_a_model_in_a_file_runs_in_eval_mode_as_it_was_made(user_file):
    built = build(f"{user_file}:make")
    out = built.call(0)
    assert out.shape == (5, 2)
    assert torch.equal(out, built.call(1))
    assert built.items == built.facts["batch"] == 5
    assert built.facts["dtype"] == "fp32"
    assert built.facts["weights"].startswith("as given by ")


def test_a_callable_in_a_module_is_imported_from_the_current_folder(user_file, monkeypatch):
    (user_file.parent / "pack").mkdir()
    user_file.rename(user_file.parent / "pack" / "inner_of_pack.py")
    monkeypatch.chdir(user_file.parent)
    assert build("pack.inner_of_pack:plain").call(0) == 2


def test_a_callable_gets_the_options_that_it_has_parameters_for(user_file):
    built = build(f"{user_file}:sized", batch=3)
    assert built.call(0).shape == (3, 2)
    assert built.items == 3
    assert build(f"{user_file}:sized", seq_len=9).call(0).shape == (1, 2)


def test_weights_repeat_with_the_seed(user_file):
    a, b = build(f"{user_file}:sized"), build(f"{user_file}:sized")
    assert torch.equal(a.call(0), b.call(0))


def test_a_plain_callable_counts_as_one_item(user_file):
    built = build(f"{user_file}:plain")
    assert (built.call(0), built.items, built.module) == (2, 1, None)


def test_a_mapping_becomes_keyword_arguments(user_file):
    assert build(f"{user_file}:keywords").call(0) == 2


def test_a_callable_inside_a_class_can_be_named(user_file):
    assert build(f"{user_file}:Zoo.cat").call(0) == "meow"


def test_a_dtype_casts_model_and_inputs(user_file):
    built = build(f"{user_file}:make", dtype="bf16")
    assert built.call(0).dtype == torch.bfloat16
    assert built.facts["dtype"] == "bf16"


@pytest.mark.thorough
def test_a_user_s_model_can_be_built_and_run_as_shapes(user_file):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        built = build(f"{user_file}:make", dtype="fp16")
        assert built.call(0).dtype == torch.float16
    meta = ObjectWorkload(torch.nn.Linear(4, 2), torch.ones(3, 4)).build("meta", WorkloadOptions(dtype="bf16"))
    assert (meta.call(0).dtype, meta.call(0).shape) == (torch.bfloat16, (3, 2))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mak", {}, r"has no 'mak'; did you mean 'make'\?"),
        ("NUMBER", {}, r"NUMBER isn't callable but of type int"),
        ("wrong", {}, r"returned Linear, not \(model, inputs\) or \(callable, args\)"),
        ("wrong_first", {}, r"returned int first, which can't be called"),
        ("wrong_length", {}, r"returned a tuple of 3, not"),
        ("fails", {}, r"raised ValueError: no such weights \(mine\.py, line \d+: raise ValueError"),
        ("demanding", {}, r"needs an argument 'batch': give --batch"),
        ("demanding", {"batch": 1}, r"needs an argument 'colour': it may ask for batch, seq_len"),
        ("make", {"batch": 2}, r"--batch 2: .* has no parameter 'batch'"),
        ("make", {"input_sets": 2}, r"--input-sets 2: .* one set of inputs"),
        ("make", {"config": {"a": "1"}}, r"--config a: .* has no parameter 'a' of its own"),
        (
            "demanding",
            {"batch": 1, "config": {"batch": "2"}},
            r"--config batch: .* has no parameter 'batch' of its own",
        ),
        ("shaped", {"config": {"witdh": "7"}}, r"has no parameter 'witdh' of its own to take it; did you mean 'width'"),
        ("shaped", {"config": {"width": "wide"}}, r"--config width=wide: must read as int, such as 4"),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(user_file, name, options, message):
    with pytest.raises(BadInputError, match=message) as info:
        build(f"{user_file}:{name}", **options)
    assert "\n" not in str(info.value)


def test_a_callable_takes_config_by_the_names_of_its_parameters_in_the_types_of_their_defaults(user_file):
    built = build(f"{user_file}:shaped", batch=3, config={"width": "7", "bias": "false"})
    assert built.call(0).shape == (3, 7)
    assert built.module.bias is None
    assert built.facts["config"] == {"width": 7, "bias": False}


def test_memory_that_runs_out_in_the_user_s_code_is_not_possible(user_file):
    with pytest.raises(NotPossibleError, match=rf"{re.escape(str(user_file))}:hungry on cpu: out of memory"):
        build(f"{user_file}:hungry")


def test_a_module_that_is_not_there_is_distinguished_from_one_that_it_lacks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lacking_something.py").write_text("import not_installed_anywhere")
    with pytest.raises(BadInputError, match=r"^no module named 'not_here_at_all'"):
        build("not_here_at_all:make")
    with pytest.raises(BadInputError, match=r"lacking_something can't be imported: .*'not_installed_anywhere'"):
        build("lacking_something:make")


def test_code_that_fails_while_imported_is_bad_input(tmp_path):
    path = tmp_path / "half.py"
    path.write_text("def make(:\n")
    with pytest.raises(BadInputError, match=r"half\.py can't be imported: SyntaxError"):
        build(f"{path}:make")


def test_objects_that_exist_already_can_be_a_workload():
    model = torch.nn.Linear(4, 2)
    built = ObjectWorkload(model, {"input": torch.ones(3, 4)}).build("cpu", WorkloadOptions())
    assert built.call(0).shape == (3, 2)
    assert built.facts["name"] == "Linear"
    assert built.module is model


def test_a_method_of_a_model_brings_its_model_along():
    model = torch.nn.Linear(4, 2).train()
    built = ObjectWorkload(model.forward, torch.ones(3, 4)).build("cpu", WorkloadOptions(dtype="fp64"))
    assert built.module is model
    assert built.call(0).dtype == torch.float64
    assert not model.training


def test_a_model_in_train_mode_is_named_where_eval_mode_computes_something_else():
    net, plain = torch.nn.Sequential(torch.nn.Dropout(0.5)), torch.nn.Sequential(torch.nn.Linear(4, 2))
    said = [ObjectWorkload(one).warnings() for one in (net, net.forward, lambda t: 2 * net(t), plain, abs)]
    assert [len(one) for one in said] == [1, 1, 1, 0, 0]
    assert "ran in eval mode" in said[1][0].message
    assert "ran net in train mode" in said[2][0].message
    net.eval()
    assert not ObjectWorkload(lambda t: 2 * net(t)).warnings()


@pytest.mark.parametrize(
    ("options", "message"), [({"batch": 2}, r"--batch 2: Linear comes with its own inputs"), ({"task": "x"}, "no task")]
)
def test_objects_refuse_options_that_they_can_not_honour(options, message):
    with pytest.raises(BadInputError, match=message):
        ObjectWorkload(torch.nn.Linear(4, 2), torch.ones(3, 4)).build("cpu", WorkloadOptions(**options))


def test_an_object_that_can_not_be_called_is_refused():
    with pytest.raises(BadInputError, match=r"a model or callable is required, not Tensor"):
        ObjectWorkload(torch.ones(1))


def test_modules_that_contain_one_another_are_refused_in_one_line():
    one, other = torch.nn.Sequential(torch.nn.Linear(4, 2)), torch.nn.Sequential()
    one.other, other.one = other, one
    with pytest.raises(BadInputError, match="a module contains itself, perhaps indirectly"):
        ObjectWorkload(one, torch.ones(3, 4)).build("cpu", WorkloadOptions())


def test_random_weights_are_refused_where_the_callable_brings_its_own(user_file):
    with pytest.raises(BadInputError, match=r"--random: .*:make comes with its own weights"):
        resolve(f"{user_file}:make").build("cpu", WorkloadOptions(random=True))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('half installed')", r"transformers can't be imported \(half installed\): pip install"),
        ("raise SystemExit", r"transformers can't be imported \(SystemExit\): pip install"),
        ("", r"transformers is another module here, .*__init__\.py: rename that"),
    ],
)
def test_a_broken_library_or_a_file_of_its_name_is_not_possible(tmp_path, monkeypatch, code, said):
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text(code)
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with pytest.raises(NotPossibleError, match=said):
            require_transformers()
    finally:
        sys.modules.pop("transformers", None)
