"""Which module calls what, and in which of its calls."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.modules import module as torch_module  # noqa: E402

from jouletrace.experiments.parts import make_parts, unit_rows  # noqa: E402
from jouletrace.steps.counting import count_workload  # noqa: E402
from jouletrace.steps.module_names import ModuleNames  # noqa: E402
from jouletrace.steps.structure import record_structure  # noqa: E402
from jouletrace.steps.units import Unit, group  # noqa: E402
from jouletrace.workloads import ObjectWorkload, WorkloadOptions  # noqa: E402
from jouletrace.workloads.base import Built  # noqa: E402

CPU = torch.device("cpu")
X = torch.randn(2, 4)


class Tree(nn.Module):
    """Calls itself."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, depth=1):
        x = self.fc(x)
        return self(x, depth - 1).exp() if depth else x.sin()


class Shared(nn.Module):
    """``a.fc`` is called by ``a``, and by ``b`` while ``a`` doesn't run; ``b`` twice."""

    def __init__(self):
        super().__init__()
        self.a = nn.Sequential()
        self.a.fc = nn.Linear(4, 4)
        self.b = nn.ModuleList([nn.Sequential(self.a.fc, nn.GELU())])
        self.stranger = [nn.Linear(4, 4)]  # in no list of modules: belongs to whom it is called by

    def forward(self, x):
        x = self.a(x)
        for _ in range(2):
            x = self.b[0](x)
        return self.stranger[0](x)


def sites(model, *inputs):
    found = record_structure(Built(lambda _: model(*inputs), model, [()], {}), 0, CPU)
    return [(call.key[0].removeprefix("aten."), call.key[2], call.call) for call in found.calls if call.launches]


@pytest.mark.thorough
def test_a_module_that_calls_itself_gives_each_operator_to_the_innermost_call():
    model = nn.Sequential(Tree())
    assert sites(model, X) == [
        ("addmm", "0.fc", "1.1"),
        ("addmm", "0.fc", "2.2"),
        ("sin", "0", "2"),
        ("exp", "0", "1"),
    ]


def test_a_shared_module_says_when_those_around_it_do_not_run():
    assert sites(Shared(), X) == [
        ("addmm", "a.fc", "1.1"),
        ("addmm", "a.fc", "0.2"),
        ("gelu", "b.0.1", "0.1.1"),
        ("addmm", "a.fc", "0.3"),
        ("gelu", "b.0.1", "0.2.2"),
        ("addmm", "", ""),
    ]


def test_backward_belongs_to_the_call_of_its_forward():
    model = nn.Sequential(nn.Linear(4, 4))
    built = Built(lambda _: model(model(X).sin()).sum().backward(), model, [()], {})
    built.call(0)
    found = record_structure(built, 0, CPU)
    backward = [call.call for call in found.calls if call.key[3] and call.key[2] == "0" and call.key[0] == "aten.mm"]
    assert backward == ["2", "2", "1"]


def test_a_simulated_board_has_the_same_calls():
    _, operators = count_workload(ObjectWorkload(Shared(), X), WorkloadOptions())
    assert [(o.op.removeprefix("aten."), o.module, o.call) for o in operators] == sites(Shared().eval(), X)


def test_hooks_go_and_the_stack_is_empty_when_forward_raises():
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    model = nn.Sequential(nn.Identity(), Broken())
    names = ModuleNames(model)
    with names:
        with pytest.raises(ValueError, match="no"):
            model(X)
        assert names.current.module == ""
    assert not torch_module._global_forward_hooks
    assert not torch_module._global_forward_pre_hooks


def test_units_keep_the_calls_and_the_order_of_their_first():
    keys = [("b", "", "m", False), ("a", "", "n", False), ("b", "", "m", False), ("b", "", "m", False)]
    b, a = group(keys, ["1", "1", "2", "2"])
    assert (b.sites, b.count, b.place) == ((("1", 1), ("2", 2)), 3, 0)
    assert (a.sites, a.place) == ((("1", 1),), 1)
    assert b == Unit("b", "", "m", 3)  # what an experiment changes is known by its key and count


def test_sites_are_rows_in_the_order_of_launches_whatever_is_grouped():
    modules = ["0", "1", "2", "3"]
    keys = [(op, "", module, False) for op, module in zip("abab", modules, strict=True)]
    rows = unit_rows(make_parts(group(keys, ["1", "1", "1", "1"]), 1), [], 0)
    assert [(row["module"], row["call"]) for row in rows if row["level"] == "site"] == [(m, "1") for m in modules]
