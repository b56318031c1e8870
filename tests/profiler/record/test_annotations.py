"""Ranges that a program marks for other profilers: NVTX, by torch and by its own package, and record_function."""

import contextlib
import sys
from types import ModuleType

import pytest

import jouletrace as jt
from jouletrace.profiler.record import Annotations, Marks

torch = pytest.importorskip("torch")
REAL = "sim:h100?realtime=1&load=0.5:300"


class Library:
    """The module that torch's NVTX functions call in a build for CUDA."""

    def __init__(self):
        self.calls = []

    def rangePushA(self, message):
        self.calls.append(("push", message))
        return 0

    def rangePop(self):
        self.calls.append(("pop",))
        return 0

    def markA(self, message):
        self.calls.append(("mark", message))


@pytest.fixture
def library(monkeypatch):
    found = Library()
    monkeypatch.setattr(torch.cuda.nvtx, "_nvtx", found)
    return found


@pytest.fixture
def marks():
    now = iter(range(1_000, 10_000_000, 1_000))
    return Marks(lambda: next(now))


@contextlib.contextmanager
def taken(marks):
    annotations = Annotations(marks)
    annotations.attach()
    try:
        yield annotations
    finally:
        annotations.detach()


def paths(marks):
    return ["/".join(span.path) for span in sorted(marks.take(), key=lambda span: span.id)]


@pytest.mark.thorough
def test_ranges_of_all_makers_nest_in_one_another_in_a_recording(library):
    with jt.record(device=REAL) as recording, torch.cuda.nvtx.range("epoch {}", 3):
        with jt.range("forward"), torch.profiler.record_function("attention"):
            pass
        torch.cuda.nvtx.range_push("backward")
        jt.step()
        torch.cuda.nvtx.range_pop()
    rows = {row["id"]: row for row in recording.run.spans.to_pylist() if row["kind"] in ("range", "iteration")}
    parent = {row["name"]: rows[row["parent"]]["name"] if row["parent"] else None for row in rows.values()}
    assert parent == {
        "epoch 3": None,
        "forward": "epoch 3",
        "attention": "forward",
        "backward": "epoch 3",
        "step": "backward",
    }
    assert not recording.run.warnings
    assert library.calls == [("push", "epoch 3"), ("push", "backward"), ("pop",), ("pop",)], "NVTX has them too"


@pytest.mark.thorough
def test_all_is_put_back_after_the_recording(library):
    before = (torch.cuda.nvtx._nvtx, torch.profiler.record_function.__enter__, torch.profiler.record_function.__exit__)
    with jt.record(device=REAL):
        assert torch.cuda.nvtx._nvtx is not library
        assert torch.profiler.record_function.__enter__ is not before[1]
    assert (
        torch.cuda.nvtx._nvtx,
        torch.profiler.record_function.__enter__,
        torch.profiler.record_function.__exit__,
    ) == before


@pytest.mark.thorough
def test_they_can_be_left_alone(library):
    with jt.record(device=REAL, annotations=False) as recording:
        assert torch.cuda.nvtx._nvtx is library
        with torch.cuda.nvtx.range("a"):
            pass
    assert not any(row["kind"] == "range" for row in recording.run.spans.to_pylist())


def test_functions_that_were_imported_by_name_count_too(library, marks):
    from torch.cuda.nvtx import range_pop, range_push

    with taken(marks):
        range_push("a")
        range_pop()
        torch.cuda.nvtx.mark("passed on")
    assert paths(marks) == ["a"]
    assert library.calls[-1] == ("mark", "passed on")


def test_a_range_that_nvtx_refuses_is_none(marks):
    """A build without NVTX raises, and the program sees what it would see without us."""
    with taken(marks), pytest.raises(RuntimeError, match="NVTX functions not installed"):
        torch.cuda.nvtx.range_push("a")
    assert not marks.still_open()


def test_a_pop_without_a_push_in_the_recording_ends_nothing(library, marks):
    torch.cuda.nvtx.range_push("before")
    with taken(marks):
        mine = marks.begin("mine")
        torch.cuda.nvtx.range_pop()
        marks.end(mine)
    assert paths(marks) == ["mine"]
    assert not marks.warnings()


def test_ranges_that_overlap_wrongly_are_named(library, marks):
    with taken(marks):
        torch.cuda.nvtx.range_push("outer")
        inner = marks.begin("inner")
        torch.cuda.nvtx.range_pop()
        marks.end(inner)
    assert sorted(paths(marks)) == ["outer", "outer/inner"]
    ((code, message),) = marks.warnings()
    assert code == "ranges_crossed"
    assert "'outer' and 'inner' (once)" in message


def test_a_record_function_may_be_entered_again_before_it_is_left(marks):
    @torch.profiler.record_function("half")
    def halve(n):
        return n if n < 2 else halve(n // 2)

    with taken(marks):
        assert halve(4) == 1
    assert paths(marks) == ["half", "half/half", "half/half/half"]


@pytest.mark.thorough
@pytest.mark.parametrize("hooked", [False, True])
def test_ranges_that_torch_marks_inside_of_itself_are_left_out(marks, monkeypatch, hooked):
    """Also by way of the tracer's hooks, which run in a bare dict."""
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.grad = torch.ones(2)
    with taken(marks):
        if hooked:
            hooks = {"begin": torch.profiler.record_function.__enter__}
            exec("def outside(it): return begin(it)", hooks)
            monkeypatch.setattr(torch.profiler.record_function, "__enter__", hooks["outside"])
        with torch.profiler.record_function("mine"):
            optimizer.step()
        monkeypatch.undo()
    assert paths(marks) == ["mine"]


def test_what_ends_after_the_recording_does_no_harm(marks):
    entered = torch.profiler.record_function("late")
    with taken(marks):
        entered.__enter__()
    entered.__exit__(None, None, None)
    assert [opened.name for opened in marks.still_open()] == ["late"]


@pytest.fixture
def nvtx(monkeypatch):
    """NVIDIA's own package, as far as it is asked: without a profiler attached its functions do nothing."""
    module = ModuleType("nvtx.nvtx")

    class annotate:
        def __init__(self, message=None, **_):
            self.init_args = (message, None)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

    module.annotate = annotate
    module.push_range = lambda message=None, color="blue", domain=None: None
    module.pop_range = lambda domain=None: None
    package = ModuleType("nvtx")
    for name in ("annotate", "push_range", "pop_range"):
        setattr(package, name, getattr(module, name))
    monkeypatch.setitem(sys.modules, "nvtx", package)
    monkeypatch.setitem(sys.modules, "nvtx.nvtx", module)
    return package


def test_the_nvtx_package_is_heard_too(nvtx, marks):
    push = nvtx.push_range
    with taken(marks):
        with nvtx.annotate("a", color="red"):
            nvtx.push_range("b", domain="mine")
            nvtx.pop_range(domain="mine")
        with nvtx.annotate():
            pass
    assert paths(marks) == ["a", "a/b", "range"]
    assert nvtx.push_range is push


def test_what_is_imported_while_it_is_on_is_detected(nvtx, marks, monkeypatch):
    module = sys.modules["nvtx.nvtx"]
    monkeypatch.delitem(sys.modules, "nvtx.nvtx")
    with taken(marks) as annotations:
        with nvtx.annotate("too early"):
            pass
        monkeypatch.setitem(sys.modules, "nvtx.nvtx", module)
        annotations.attach()
        with nvtx.annotate("seen"):
            pass
    assert paths(marks) == ["seen"]
