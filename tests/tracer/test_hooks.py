"""The Python that the native library runs in a program: Python functions stand in for the library's."""

import ast
import contextlib
import copy
import ctypes
import functools
import gc
import shutil
import subprocess
import sys
import threading
import types
import weakref
from pathlib import Path

import pytest

import jouletrace

torch = pytest.importorskip("torch")
pytest.importorskip("torch.fx")
from torch import nn  # noqa: E402

from traced import FAKES  # noqa: E402

TEXT = Path(jouletrace.__file__).with_name("tracer") / "hooks.py"
IN_CHILD = f"""
import torch, threading
here = dict(enter=lambda mark: 0, leave=lambda depth: None, mark=lambda *words: 1, cost=lambda: (0, 1), text=print)
here.update(within=lambda module: 0, marked=lambda number: 1, remember=lambda *words: None)
here["OPERATORS"] = here["RANGES"] = 1
here.update(dict.fromkeys(("push", "pop", "span", "sampling", "pause", "resume", "quicken"), lambda *words: None))
exec(compile(open({str(TEXT)!r}).read(), "hooks", "exec"), here)
here["STATE"] = "ITT"
here["look"]()
model = torch.nn.Linear(2, 2)
"""


class Library:
    """Records the calls of what stands for the library's functions; each thread has a stack of marks."""

    def __init__(self):
        self.names = []
        self.called = []
        self.lines = []
        self.said = []
        self.spent = (0, 1)
        self.marks = {}
        self.quick = []
        self._here = threading.local()

    @property
    def stack(self):
        return self._here.__dict__.setdefault("stack", [])

    def functions(self):
        def enter(mark):
            self.stack.append(mark)
            if mark:
                self.called.append(self.names[mark - 1])
            return len(self.stack) - 1

        def leave(depth):
            del self.stack[depth:]

        def within(module):
            return enter(self.marks[id(module)]) if self.marks.get(id(module)) else -1

        def mark(parent, kind, name):
            assert (parent, kind) == (0, "m")
            if name not in self.names:
                self.names.append(name)
            return self.names.index(name) + 1

        def saying(word):
            return lambda *args: self.said.append((word, *args))

        plain = {word: saying(word) for word in ("push", "pop", "span", "sampling", "pause", "resume")}
        own = {"enter": enter, "leave": leave, "mark": mark, "text": self.lines.append, "cost": lambda: self.spent}
        own |= {"within": within, "marked": lambda key: self.marks.get(key, 0), "remember": self.marks.__setitem__}
        own["quicken"] = self.quick.append
        return {**plain, **own, "OPERATORS": 1, "RANGES": 1}

    def starting(self, key):
        return [line for line in self.lines if line.startswith(key)]


@contextlib.contextmanager
def hooked(library, **more):
    """The hooks in a bare dict, as the library runs them; torch's build for CPUs has the state for ITT alone."""
    here = {**library.functions(), **more}
    exec(compile(TEXT.read_text(), "hooks", "exec"), here)
    here["STATE"] = "ITT"
    here["look"]()
    try:
        yield here
    finally:
        here["end"]()


@pytest.fixture
def library():
    return Library()


def native():
    """The library's own functions for marks of modules: from Python 3.12 on C stands for the call of these."""
    calls = ctypes.PyDLL(str(TEXT.with_name("native.so")))
    calls.jt_functions.restype = ctypes.py_object
    names = ("enter", "leave", "mark", "within", "marked", "remember", "quicken")
    return {name: function for name, function in calls.jt_functions().items() if name in names}


@pytest.fixture
def hooks(library):
    with hooked(library) as here:
        yield here


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(torch.relu(self.linear(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Other(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.layers = nn.ModuleList([inner])

    def forward(self, x):
        return self.layers[0](x)


class Holder(nn.Module):
    def __init__(self, **held):
        super().__init__()
        for name, module in held.items():
            self.add_module(name, module)

    def forward(self, x):
        return next(self.children())(x)


BLOCK = ["Model.layers.0", "Model.layers.0.linear", "Model.layers.0.norm"]
X = torch.ones(2, 4)


def state():
    return torch._C._autograd._profiler_type().name


@pytest.mark.thorough
def test_text_is_python_3_8_and_imports_the_standard_library_alone():
    tree = ast.parse(TEXT.read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= sys.stdlib_module_names


def test_modules_have_qualified_names_and_the_outermost_its_class(library, hooks):
    Model()(X)
    assert library.called == ["Model", *BLOCK, *(name.replace("0", "1") for name in BLOCK)]
    assert not library.stack


def test_child_keeps_its_name_in_the_largest_module_that_holds_it(library, hooks):
    model = Model()
    model.layers[0](X)
    assert library.called == ["Block", "Block.linear", "Block.norm"]
    model(X)
    library.called.clear()
    model.layers[0](X)
    Other(model.layers[0])(X)
    assert library.called == [*BLOCK, "Other", *BLOCK]


def test_models_that_share_names_differ_by_class(library, hooks):
    Model()(X)
    library.called.clear()
    Other(Block())(X)
    Model()(X)
    other = ["Other", *(name.replace("Model", "Other") for name in BLOCK)]
    assert library.called[:8] == [*other, "Model", *BLOCK], "a second model of one class has the marks of the first"


def test_wrappers_have_no_names(library, hooks):
    wrapped = Holder(module=Holder(_orig_mod=Other(Holder(_fsdp_wrapped_module=Block()))))
    wrapped(X)
    assert library.called == ["Other"] * 3 + ["Other.layers.0"] + [name.replace("Model", "Other") for name in BLOCK]


@pytest.mark.thorough
def test_compiled_model_has_the_name_of_what_is_compiled(library, hooks):
    torch.compile(Model(), backend="eager")(X)
    assert set(library.called) == {"Model"}


def test_module_that_is_called_module_beside_others_is_no_wrapper(library, hooks):
    Holder(module=nn.ReLU(), other=nn.ReLU())(X)
    assert library.called == ["Holder", "Holder.module"]


def test_module_that_was_added_later_is_named(library, hooks):
    model = Model()
    model(X)
    model.layers.append(nn.ReLU())
    library.called.clear()
    model(X)
    assert library.called[-1] == "Model.layers.2"


def references():
    return sum(type(one) is weakref.KeyedRef for one in gc.get_objects())


@pytest.mark.thorough
def test_short_lived_modules_belong_to_their_caller_and_leave_nothing(library, hooks):
    class Inner(nn.Module):
        def forward(self, x):
            return nn.ReLU()(x)

    model, before = Inner(), references()
    for _ in range(100):
        model(X)
        copy.deepcopy(Model())(X)
        nn.GELU()(X)
    gc.collect()
    assert set(library.called) == {"Inner", "Model", "GELU", *BLOCK, *(name.replace("0", "1") for name in BLOCK)}
    assert references() == before + 1


def test_module_outside_with_children_is_named_by_its_class(library, hooks):
    outside = [Block()]

    class Inner(nn.Module):
        def forward(self, x):
            return outside[0](x)

    Inner()(X)
    assert library.called == ["Inner", "Block", "Block.linear", "Block.norm"]


def test_fault_of_the_program_leaves_no_mark(library, hooks):
    class Faulty(nn.Module):
        def forward(self, x):
            raise KeyError(x)

    with pytest.raises(KeyError):
        Holder(inner=Faulty())(X)
    assert not library.stack


def test_c_stands_for_torchs_own_call_of_modules(library, hooks):
    assert library.quick == [nn.Module.__call__]


def test_call_of_modules_that_the_program_has_replaced_goes_on(library, monkeypatch):
    original, seen = nn.Module.__call__, []

    @functools.wraps(original)
    def programs(module, x):
        seen.append(type(module).__name__)
        return original(module, x)

    monkeypatch.setattr(nn.Module, "__call__", programs)
    with hooked(library):
        Holder(inner=nn.ReLU())(X)
    assert seen == ["Holder", "ReLU"]
    assert library.called == ["Holder", "Holder.inner"]
    assert not library.quick


def test_model_whose_own_methods_fail_is_named_by_its_class(library, hooks):
    class Own(Holder):
        def named_modules(self, *args, **options):
            raise RuntimeError

    Own(inner=nn.ReLU())(X)
    assert library.called == ["Own"]
    assert not library.starting("w")


def test_fault_of_ours_disables_the_hooks_and_never_the_program(library):
    def fail(*words):
        raise ValueError("a\nb")

    original = nn.Module.__call__
    with hooked(library, mark=fail):
        assert nn.Module.__call__ is not original
        assert Model()(X).shape == (2, 4)
        assert nn.Module.__call__ is original
    assert library.starting("w") == ["w hooks_failed ValueError: a b"]


def test_all_is_put_back_at_the_end(library):
    profiler, loader = torch.autograd.profiler, torch.utils.data.dataloader._BaseDataLoaderIter
    places = [(nn.Module, "__call__"), (profiler, "_prepare_profiler"), (profiler, "_enable_profiler")]
    places += [(profiler.record_function, "__enter__"), (profiler.record_function, "__exit__"), (loader, "__next__")]
    before = [getattr(*place) for place in places]
    with hooked(library):
        assert all(getattr(*place) is not one for place, one in zip(places, before, strict=True))
        Model()(X)
    assert [getattr(*place) for place in places] == before
    assert state() == "NONE"


def test_module_that_is_still_imported_waits(library, monkeypatch):
    original = nn.Module.__call__
    monkeypatch.setattr(torch.__spec__, "_initializing", True, raising=False)
    with hooked(library) as here:
        assert nn.Module.__call__ is original
        assert not here["look"]()
        monkeypatch.setattr(torch.__spec__, "_initializing", False)
        assert here["look"]()
        assert nn.Module.__call__ is not original


def test_program_without_torch_has_no_operators_and_why(library, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    with hooked(library) as here:
        assert not here["look"]()
    assert library.lines == [f"i python {sys.version.split()[0]}", "i operators the program imported no torch"]


def test_nothing_is_marked_where_no_operators_are_asked_for(library):
    with hooked(library, OPERATORS=0):
        Model()(X)
    assert not library.called
    assert not library.starting("i operators")
    assert library.starting("i torch") == [f"i torch {torch.__version__}"]


def with_function(model):
    def function(x):
        return model(x)

    return torch.compile(function, backend="eager", fullgraph=True)


def in_place(model):
    model.compile(backend="eager", fullgraph=True)
    return model


COMPILES = {
    "model": lambda model: torch.compile(model, backend="eager", fullgraph=True),
    "model.compile": in_place,
    "function": with_function,
}


@pytest.mark.thorough
@pytest.mark.parametrize("how", COMPILES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_torch_compile_sees_one_graph(library, how, when):
    from torch._dynamo.utils import counters

    class Ranged(Model):
        def forward(self, x):
            with torch.profiler.record_function("range"):
                return super().forward(x)

    def graphs(around):
        torch._dynamo.reset()
        counters.clear()
        compiled = COMPILES[how](Ranged())
        with torch.no_grad():
            if when == "after":
                compiled(X)
            with around:
                compiled(X)
                compiled(X)
        return {name: dict(counters[name]) for name in ("stats", "graph_break")}

    assert graphs(hooked(library, **native())) == graphs(contextlib.nullcontext())
    assert not library.starting("w")


@pytest.mark.thorough
def test_module_calls_use_up_no_compilations(library):
    """torch compiles one code a few times only, and the code of the replaced call is that of all modules."""
    from torch._dynamo.utils import counters

    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            kinds = (nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.ELU, nn.CELU, nn.Mish, nn.SELU, nn.Softplus)
            self.layers = nn.ModuleList([Holder(inner=kind()) for kind in kinds])

        @torch._dynamo.disable(recursive=False)
        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    def graphs(around):
        torch._dynamo.reset()
        counters.clear()
        with torch.no_grad(), around:
            torch.compile(Loop(), backend="eager")(X)
        return dict(counters["stats"])

    assert graphs(hooked(library, **native())) == graphs(contextlib.nullcontext())


class Ranged(Model):
    def forward(self, x):
        with torch.profiler.record_function("range"):
            return super().forward(x)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "of",
    [
        lambda: [node.name for node in torch.fx.symbolic_trace(Model()).graph.nodes],
        lambda: torch.fx.symbolic_trace(Model())(X).shape,
        lambda: [node.name for node in torch.export.export(Ranged(), (X,)).graph.nodes],
        lambda: [node.name for node in torch.export.export(Ranged(), (X,), strict=True).graph.nodes],
        lambda: [node.kind() for node in torch.jit.trace(Model(), X).inlined_graph.nodes()],
        lambda: [node.kind() for node in torch.jit.script(Block()).inlined_graph.nodes()],
        lambda: torch.jit.script(Block())(X).shape,
        lambda: torch.func.vmap(Model())(X).shape,
    ],
    ids=["fx", "fx call", "export", "strict export", "trace", "script", "script call", "vmap"],
)
@pytest.mark.filterwarnings("ignore")
def test_other_ways_of_going_through_a_model_are_as_without(library, of):
    without = of()
    with hooked(library, **native()):
        assert of() == without
    assert not library.starting("w")


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_function_with_a_range_can_be_scripted(library, hooks):
    class Scripted(nn.Module):
        def forward(self, x):
            with torch.profiler.record_function("range"):
                return x + 1

    assert torch.jit.script(Scripted())(X).sum() == 16


def test_operators_are_marked_in_the_first_calls_then_for_a_share_of_time(library, hooks):
    model, seen = nn.ReLU(), []
    # Milliseconds of events, and of all time, since the call before: 1 % is theirs, and 20 ms are saved up.
    turns = [(0, 0)] * 3 + [(0, 1000), (19, 0), (2, 0), (0, 600), (0, 600), (0, 3_600_000), (21, 0)]
    for events, passed in turns:
        before = library.spent
        library.spent = before[0] + int(events * 10**6 / hooks["EVENT_NS"]), before[1] + passed * 10**6
        model(X)
        seen.append(state() == "ITT")
    assert seen == [True] * 5 + [False, False, True, True, False]
    assert library.said == [("sampling", True), ("sampling", False)] * 2


def test_first_calls_of_each_outermost_module_count(library, hooks):
    library.spent = 10**6, 10**6
    model = Model()
    seen = []
    for module in (model, model, model, model, nn.ReLU(), model):
        module(X)
        seen.append(state() == "ITT")
    assert seen == [True, True, True, False, True, False]


def test_threads_switch_their_own_state(library, hooks):
    library.spent = 10**6, 10**6
    model, seen = nn.ReLU(), {}

    def work(name):
        seen[name] = []
        for _ in range(2):
            model(X)
            seen[name].append(state())

    for name in ("first", "second"):
        thread = threading.Thread(target=work, args=(name,))
        thread.start()
        thread.join()
    assert seen == {"first": ["ITT", "ITT"], "second": ["ITT", "NONE"]}
    assert state() == "NONE"


def test_threads_that_outlive_the_hooks_end_their_state(library):
    plain, model, seen = nn.Module.__call__, nn.ReLU(), []
    go_on, waits = threading.Event(), threading.Event()

    def work():
        for _ in range(2):
            model(X)
            seen.append(state())
            waits.set()
            go_on.wait(60)

    with hooked(library) as here:
        thread = threading.Thread(target=work)
        thread.start()
        waits.wait(60)
        here["end"]()
        assert nn.Module.__call__ is not plain
        go_on.set()
        thread.join()
    assert seen == ["ITT", "NONE"]
    assert nn.Module.__call__ is plain
    assert library.said == [("sampling", True), ("sampling", False)]


def test_thread_that_outlives_the_hooks_can_profile(library):
    model, seen = nn.ReLU(), []
    go_on, waits = threading.Event(), threading.Event()

    def work():
        model(X)
        waits.set()
        go_on.wait(60)
        with torch.autograd.profiler.emit_itt():
            seen.append(state())
        seen.append(state())

    with hooked(library) as here:
        thread = threading.Thread(target=work)
        thread.start()
        waits.wait(60)
        here["end"]()
        go_on.set()
        thread.join()
    assert seen == ["ITT", "NONE"]
    assert library.said == [("sampling", True), ("sampling", False)]


def test_nothing_is_replaced_after_the_end(library):
    owner = types.SimpleNamespace(run=len)
    with hooked(library) as here:
        here["end"]()
        here["put"](owner, "run", lambda: None)
    assert owner.run is len


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["model(x)", "t = threading.Thread(target=model, args=(x,)); t.start(); t.join()"])
def test_nothing_is_left_for_torch_to_complain_about(how):
    script = f"{IN_CHILD}\nx = torch.ones(2, 2)\n{how}\nprint(torch._C._autograd._profiler_type().name)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert not done.stderr
    assert done.stdout.splitlines()[-1] == ("NONE" if "thread" in how else "ITT")


@pytest.mark.thorough
def test_last_facts_are_written_as_the_interpreter_ends():
    done = subprocess.run([sys.executable, "-c", IN_CHILD], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "i operators no torch module was called"


def test_operators_are_left_alone_under_a_dispatch_mode(library, hooks):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Mode():
        nn.ReLU()(X)
        assert state() == "NONE"
    hooks["end"]()
    assert library.starting("i operators") == ["i operators the program runs under a dispatch mode of its own"]


def test_backward_keeps_the_state_of_its_forward(library, hooks):
    from torch.utils.checkpoint import checkpoint

    model, seen = Model(), []
    model.layers[0].linear.register_forward_hook(lambda *words: seen.append(state()))
    out = checkpoint(model, X.clone().requires_grad_(), use_reentrant=False)
    library.spent = 10**6, 10**6
    out.sum().backward()
    assert seen == ["ITT", "ITT"]


def test_build_without_nvtx_is_reported(library, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    with hooked(library) as here:
        here["STATE"] = "NVTX"
        for _ in range(2):
            nn.ReLU()(X)
    (line,) = library.starting("i operators")
    assert line.startswith("i operators torch doesn't emit them: Can't use NVTX profiler")


def test_program_whose_torch_uses_no_gpu_has_no_operators_and_why(library):
    with hooked(library) as here:
        here["STATE"] = "NVTX"
        nn.ReLU()(X)
    assert library.starting("i operators") == ["i operators torch runs nothing on a GPU"]


@pytest.mark.parametrize(
    ("ranges", "why"),
    [(0, "torch's ranges were used before the recording began"), (1, "torch's ranges go to another library")],
)
def test_operators_that_do_not_arrive_are_given_up_and_why(library, monkeypatch, ranges, why):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    with hooked(library, RANGES=ranges) as here:
        model = nn.ReLU()
        model(X)
        here["STATE"] = "NVTX"  # its copy of NVTX has gone elsewhere: there are no events
        for _ in range(3):
            model(X)
        torch.autograd.profiler._disable_profiler()  # that for ITT, which began
        model(X)
        assert state() == "NONE"
    assert library.starting("i operators") == [f"i operators {why}"]
    assert library.said == [("sampling", True), ("sampling", False)]


def test_operators_that_are_given_up_end_in_all_threads(library, monkeypatch):
    model, seen = nn.ReLU(), []
    go_on, waits = threading.Event(), threading.Event()

    def work():
        for _ in range(2):
            model(X)
            seen.append(state())
            waits.set()
            go_on.wait(60)

    with hooked(library) as here:
        thread = threading.Thread(target=work)
        thread.start()
        waits.wait(60)
        here["operators"][0]._possible = False
        go_on.set()
        thread.join()
    assert seen == ["ITT", "NONE"]


def refused():
    raise RuntimeError("operation would make the legacy stream depend on a capturing blocking stream")


@pytest.mark.parametrize("captures", [lambda: True, refused])
def test_nothing_is_switched_while_a_stream_captures(library, hooks, monkeypatch, captures):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", captures)
    nn.ReLU()(X)
    assert not library.starting("w")
    assert state() == "NONE"
    assert not library.said


CPU = [torch.profiler.ProfilerActivity.CPU]
HELD = [("sampling", True), ("sampling", False), ("pause",), ("resume",)]


@pytest.mark.thorough
def test_program_profiles_itself_as_without_us(library, hooks):
    model = Model()
    for _ in range(2):
        model(X)
        with torch.profiler.profile(activities=CPU) as profile:
            model(X)
        assert any(event.key == "aten::addmm" for event in profile.key_averages())
    model(X)
    assert library.said == [*HELD, *HELD, ("sampling", True)]
    (line,) = library.starting("w")
    assert line.startswith("w profiler_inside torch's profiler, which the program uses, holds CUPTI meanwhile")


@pytest.mark.thorough
def test_scheduled_profile_works(library, hooks):
    model = Model()
    model(X)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=2)
    with torch.profiler.profile(activities=CPU, schedule=schedule) as profile:
        for _ in range(6):
            model(X)
            profile.step()
    model(X)
    assert [said for said in library.said if said[0] != "sampling"] == [("pause",), ("resume",)] * 2
    assert state() == "ITT"


def test_profiler_that_fails_to_start_holds_nothing(library, hooks):
    with pytest.raises(TypeError):
        torch.autograd.profiler._prepare_profiler(None, None)
    assert library.said == [("pause",), ("resume",)]


def test_operators_that_the_program_emits_itself_count(library, hooks):
    model = nn.ReLU()
    model(X)
    with torch.autograd.profiler.emit_itt():
        model(X)
        assert state() == "ITT"
    assert state() == "NONE"
    model(X)
    assert library.said == [("sampling", True), ("sampling", False)] * 2 + [("sampling", True)]


def test_ranges_of_the_program_are_marked_and_those_of_torch_are_not(library, hooks):
    @torch.profiler.record_function("decorated")
    def decorated():
        with torch.autograd.profiler.record_function("inner"):
            pass

    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    with torch.profiler.record_function("outer"):
        torch.optim.SGD([weight], lr=0.1).step()
        decorated()
    assert library.said == [("push", "outer"), ("push", "decorated"), ("push", "inner"), *[("pop",)] * 3]


@pytest.mark.parametrize("ranges", [0, 1])
def test_ranges_begin_outside_of_our_state(library, monkeypatch, ranges):
    seen, begin = [], torch.profiler.record_function.__enter__

    def beginning(self):
        seen.append(state())
        return begin(self)

    monkeypatch.setattr(torch.profiler.record_function, "__enter__", beginning)
    with hooked(library, RANGES=ranges):
        model = nn.Linear(4, 4)
        model(X)
        assert state() == "ITT"
        with torch.profiler.record_function("outer"), torch.profiler.record_function("inner"):
            assert state() == "ITT"
            model(X)
    assert seen == ["NONE", "NONE"]
    assert library.said.count(("push", "outer")) == ranges


@pytest.mark.thorough
@pytest.mark.skipif(not shutil.which("g++"), reason="the state for NVTX needs a stand-in for CUDA")
def test_range_that_spans_our_switching_is_none_of_torchs_complaints(tmp_path):
    """Torch's state for NVTX, which its build for CPUs has with a stand-in for CUDA, complains on stderr."""
    home, stub = Path(torch.__file__).parent, tmp_path / "stub.so"
    headers = ["-I", home / "include", "-L", home / "lib", "-ltorch_cpu", "-lc10"]
    subprocess.run(
        ["g++", "-std=c++20", "-shared", "-fPIC", FAKES / "nvtx_state.cpp", "-o", stub, *headers], check=True
    )
    script = (
        IN_CHILD.replace('"ITT"', '"NVTX"')
        + f"""
import ctypes
ctypes.CDLL({str(stub)!r})
torch.cuda.is_initialized, torch.cuda.is_current_stream_capturing = (lambda: True), (lambda: False)
for _ in range(2):
    model(torch.ones(2, 2))
print(torch._C._autograd._profiler_type().name)
with torch.profiler.record_function("range"):
    for _ in range(3):
        model(torch.ones(2, 2))
print(torch._C._autograd._profiler_type().name)
"""
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert [line for line in done.stdout.splitlines() if line.isupper()] == ["NVTX", "NONE"]
    assert not done.stderr


def test_range_from_before_the_hooks_is_not_ended(library):
    with contextlib.ExitStack() as before:
        before.enter_context(torch.profiler.record_function("before"))
        with hooked(library):
            before.close()
    assert not library.said


def test_waits_for_data_are_written(library, hooks):
    loader = torch.utils.data.DataLoader(torch.arange(4), batch_size=2)
    assert len(list(loader)) == 2
    assert [(word, kind) for word, kind, _, _ in library.said] == [("span", 4)] * 3, "the last finds the end"
    assert all(begin <= end for _, _, begin, end in library.said)


def test_rank_is_written_once_the_program_is_one_of_several(library, hooks, monkeypatch):
    import torch.distributed

    hooks["look"]()
    assert not library.starting("i rank")
    for name, value in (("is_initialized", True), ("get_world_size", 2), ("get_rank", 1)):
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    hooks["look"]()
    hooks["look"]()
    assert library.starting("i rank") == ["i rank 1"]


GENERATED = """
async_compile = AsyncCompile()


# kernel path: /tmp/torchinductor/aa/caa.py
# Topologically Sorted Source Nodes: [x, y], Original ATen: [aten.relu, prims.convert_element_type, aten.add]
# Source node to ATen node mapping:
#   x => relu
# Graph fragment:
#   %relu : [num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%arg0,), kwargs = {})
triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0', '''
import triton
''', device_str='cuda')


# Source Nodes: [w], Original ATen: [aten._softmax]
# w => exp, sub
triton_per_fused__softmax_1 = async_compile.triton('triton_per_fused__softmax_1', '''
''', device_str='cuda')


def call(args):
    # Topologically Sorted Source Nodes: [z], Original ATen: [aten.addmm]
    extern_kernels.addmm(arg1, arg0, alpha=1, beta=1, out=buf0)
    # Topologically Sorted Source Nodes: [x, y], Original ATen: [aten.relu, prims.convert_element_type, aten.add]
    triton_poi_fused_add_relu_0.run(buf0, 8, stream=stream0)
"""


def test_kernels_of_the_compiler_are_written_with_their_operators(library, hooks, monkeypatch, tmp_path):
    file = tmp_path / "generated.py"
    file.write_text(GENERATED)
    cache = types.ModuleType("torch._inductor.codecache")
    modules = [types.SimpleNamespace(__file__=str(path)) for path in (file, tmp_path / "gone.py")]
    cache.PyCodeCache = types.SimpleNamespace(modules=modules)
    monkeypatch.setitem(sys.modules, cache.__name__, cache)
    hooks["look"]()
    hooks["end"]()
    assert library.starting("k") == [
        "k triton_poi_fused_add_relu_0 relu+convert_element_type+add",
        "k triton_per_fused__softmax_1 _softmax",
    ]
