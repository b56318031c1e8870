"""Which module calls what, and in which of its calls."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.modules import module as torch_module  # noqa: E402

from jouletrace.execution.steps.module_names import ModuleNames, paths_of  # noqa: E402

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


def test_paths_are_the_names_of_torch_below_a_class_where_they_would_begin_with_a_number():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.GELU()))
    assert list(paths_of(model)) == ["Sequential", "Sequential.0", "Sequential.1", "Sequential.1.0"]
    assert list(paths_of(Tree())) == ["", "fc"]
    seen = []
    with ModuleNames(model) as names:
        model[1][0].forward = lambda x: seen.append(names.current) or x
        model(X)
        model(X)
    assert [(site.module, site.call) for site in seen] == [("Sequential.1.0", f"{n}.{n}.{n}") for n in (1, 2)]
