"""Python that the native library runs inside a program's process: it marks what torch does there.

The library executes this text in a bare dict that holds the functions declared below, then calls ``look`` now and then,
and ``end`` once. It imports the standard library alone, since the program's Python may lack all else (3.8 or later);
what the program has imported is looked up in ``sys.modules``. A fault disables the hooks, never the program.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    def enter(mark: int) -> int: ...
    def leave(depth: int) -> None: ...
    def mark(parent: int, kind: str, name: str) -> int: ...
    def push(name: str) -> None: ...
    def pop() -> None: ...
    def span(kind: int, start_ns: int, end_ns: int) -> None: ...
    def text(line: str) -> None: ...
    def cost() -> tuple[int, int]: ...
    def sampling(on: bool) -> None: ...
    def pause() -> None: ...
    def resume() -> None: ...


STATE = "NVTX"
"""State of torch's profiler in which torch emits the names of its operators."""

EVENT_NS, MOST, AGAIN = 500, 0.03, 0.02
"""Cost of an operator's event, the share of time above which no more are emitted, and below which they are again."""

FIRST = 3
"""Calls of each outermost module whose operators are always marked."""

LOAD = 4
"""Kind of a row: a wait for the data loader."""

WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""Names under which wrappers of modules hold what they wrap; "module", where it is the only child, is one too."""

INSIDE = "torch's profiler, which the program uses, holds CUPTI meanwhile: kernels of that time are like those"

_KERNEL = re.compile(r"\b(?:triton|cpp)_\w+")
_ATEN = re.compile(r"#.*Original ATen: \[(.*?)\]")


class Here(threading.local):
    """State of one thread: whether our state of the profiler is on, or the program's; its outermost module by id."""

    on = theirs = False
    root = 0


class Hooks:
    """What was replaced, and what is known so far."""

    def __init__(self) -> None:
        self.here = Here()
        self.over = self.held = self.sampled = False
        self.reason = "no torch module was called"
        self.said: set[str] = set()
        self.done: set[str] = set()
        self.read: set[str] = set()
        self._put: list[tuple[Any, str, Any, Any]] = []

    def say(self, key: str, value: object) -> None:
        """Write a line of the file of text, once for each key."""
        if key not in self.said:
            self.said.add(key)
            text(f"{key} {' '.join(str(value).split())}")

    def put(self, owner: Any, name: str, new: Any) -> None:
        """Replace a function."""
        original = getattr(owner, name)
        functools.update_wrapper(new, original)
        self._put.append((owner, name, original, new))
        setattr(owner, name, new)

    def fail(self, error: BaseException) -> None:
        """Put all back for good."""
        self.say("w hooks_failed", f"{type(error).__name__}: {error}")
        self.undo()

    def undo(self) -> None:
        """Put back what others haven't replaced since."""
        self.over = True
        while self._put:
            owner, name, original, new = self._put.pop()
            if vars(owner).get(name) is new:
                setattr(owner, name, original)


hooks = Hooks()


def safely(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, of which no fault reaches the program; it gives 0 then."""

    def safe(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            hooks.fail(error)
            return 0

    return safe


def settle(torch: Any) -> None:
    """Give all code here the name of a file among torch's modules.

    As with those, torch's compiler goes through such code within a function that it compiles, and never compiles it by
    itself, which would use up the number of times for which it compiles one code.
    """
    place = os.path.join(os.path.dirname(torch.__file__), "nn", "modules", "jouletrace.py")

    def placed(code: Any) -> Any:
        parts = tuple(placed(part) if hasattr(part, "co_filename") else part for part in code.co_consts)
        return code.replace(co_filename=place, co_consts=parts)

    for owner in (globals(), *(vars(kind) for kind in (Hooks, Names, Operators))):
        for function in list(owner.values()):
            if getattr(function, "__globals__", None) is globals():
                function.__code__ = placed(function.__code__)


class Names:
    """Marks of modules by their names: that in the largest outermost module that holds them, or its class.

    Attributes:
        marks: By id of the module; a module that dies takes its entry along.
    """

    def __init__(self) -> None:
        self.marks: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._refs: dict[int, Any] = {}
        self._misses: dict[int, int] = {}
        self._kinds: dict[str, str] = {}

    def of(self, module: Any) -> int:
        """The mark of a module that has none yet; 0 for one without children outside the outermost module.

        The kernels of such a module, often short-lived, belong to its caller.
        """
        depth = enter(0)
        leave(depth)
        if depth:
            key = hooks.here.root
            root = self._refs[key]() if key in self._refs else None
            if root is not None:  # a module may have been added to it since
                self._misses[key] = misses = self._misses.get(key, 0) + 1
                if not misses & (misses - 1):
                    self._name(root)
            if id(module) not in self.marks and next(module.children(), None) is None:
                return 0
        if id(module) not in self.marks:
            self._name(module)
        return self.marks[id(module)]

    def _name(self, root: Any) -> None:
        """Give marks to a module and to all that it holds."""
        kind, paths = qualified(root)
        for path, module in paths:
            key = id(module)
            if self._sizes.get(key, 0) >= len(paths):
                continue
            name = path or kind
            if self._kinds.setdefault(name, kind) != kind:
                name = f"{kind}.{name}"
            self.marks[key], self._sizes[key] = mark(0, "m", name), len(paths)
            if key not in self._refs:
                self._refs[key] = weakref.KeyedRef(module, self._gone, key)

    def _gone(self, ref: Any) -> None:
        for known in (self.marks, self._sizes, self._refs, self._misses):
            known.pop(ref.key, None)


def qualified(root: Any) -> tuple[str, list[tuple[str, Any]]]:
    """The class of a module, and the qualified names of what it holds, without those of wrappers."""
    named = dict(root.named_modules())
    clean = {"": ""}
    kind = root
    for name, module in named.items():
        if name:
            parent, _, last = name.rpartition(".")
            above = clean.get(parent, parent)
            alone = last == "module" and parent in named and sum(1 for _ in named[parent].children()) == 1
            clean[name] = above if last in WRAPPERS or alone else f"{above}.{last}" if above else last
            kind = kind if clean[name] else module
    scripted = getattr(kind, "original_name", None) if type(kind).__module__.startswith("torch.jit") else None
    return str(scripted or type(kind).__name__), [(clean[name], module) for name, module in named.items()]


class Operators:
    """Switches torch's names of operators in the thread that calls an outermost module, for a share of the time."""

    def __init__(self, profiler: Any) -> None:
        self._torch, self._profiler = sys.modules["torch"], profiler
        self._enable, self._disable = profiler._enable_profiler, profiler._disable_profiler
        self._config: Any = None
        self._calls: dict[int, int] = {}
        self.possible = os.environ.get("JOULETRACE_OPERATORS") != "0"
        low: Any = self._torch._C  # type: ignore[attr-defined]
        self._type = low._autograd._profiler_type
        self._node = getattr(low, "_current_autograd_node", lambda: None)
        self._modes = getattr(low, "_len_torch_dispatch_stack", lambda: 0)

    def outermost(self, module: Any, number: int) -> None:
        """Decide for the time until the thread's next call of an outermost module."""
        hooks.here.root = id(module)
        if not self.possible or self._node() is not None:  # backward has the state of its forward
            return
        cuda: Any = self._torch.cuda
        ready = cuda.is_initialized()
        if ready and cuda.is_current_stream_capturing():
            return
        ready = ready or STATE != "NVTX"
        on = hooks.here.on
        wanted = ready and not hooks.held and not self._modes()
        if self._modes():
            hooks.reason = "the program runs under a dispatch mode of its own"
        elif wanted:
            calls = self._calls.get(number, 0)
            if calls < FIRST:
                self._calls[number] = calls + 1
            else:
                events, ns = cost()
                wanted = events * EVENT_NS < (MOST if on else AGAIN) * ns
        if wanted and not on:
            self._start()
        elif on and not wanted:
            self.stop()

    def _start(self) -> None:
        if self._type().name != "NONE":
            return
        make = self._profiler
        try:
            if self._config is None:
                state = getattr(make.ProfilerState, STATE)
                self._config = make.ProfilerConfig(state, False, False, False, False, False, make._ExperimentalConfig())
            self._enable(self._config, set())
        except Exception as error:
            self.possible = False
            hooks.say("i operators", f"torch doesn't name them: {error}")
            return
        hooks.here.on = hooks.sampled = True
        sampling(True)

    def stop(self) -> None:
        """End our state in this thread."""
        if hooks.here.on:
            hooks.here.on = False
            if self._type().name == STATE:
                self._disable()
            sampling(False)


def wrap_profiler(module: Any) -> None:
    """Leave CUPTI, and the state of a thread, to the program's profiler."""
    global operators
    operators = Operators(module)
    prepare, enable, disable = module._prepare_profiler, module._enable_profiler, module._disable_profiler

    def hold() -> None:
        operators.stop()
        if not hooks.held:
            hooks.held = True
            pause()
            hooks.say("w profiler_inside", f"{INSIDE} before and after it")

    def release() -> None:
        if hooks.held:
            hooks.held = False
            resume()

    holding, releasing, stopping = safely(hold), safely(release), safely(operators.stop)

    def preparing(*args: Any, **options: Any) -> Any:
        holding()
        try:
            return prepare(*args, **options)
        except BaseException:
            releasing()
            raise

    def enabling(*args: Any, **options: Any) -> Any:
        stopping()
        try:
            result = enable(*args, **options)
        except BaseException:
            releasing()
            raise
        if not hooks.held:  # emit_nvtx, which takes no CUPTI: its names of operators reach the library
            hooks.here.theirs = True
            sampling(True)
        return result

    def disabling(*args: Any, **options: Any) -> Any:
        try:
            return disable(*args, **options)
        finally:
            if hooks.here.theirs:
                hooks.here.theirs = False
                sampling(False)
            releasing()

    hooks.put(module, "_prepare_profiler", preparing)
    hooks.put(module, "_enable_profiler", enabling)
    hooks.put(module, "_disable_profiler", disabling)


operators: Operators


def wrap_ranges(module: Any) -> None:
    """Mark ranges of ``record_function``, save those of torch itself, which the program didn't mark."""
    kind = module.record_function
    begin, finish = kind.__enter__, kind.__exit__

    def entering(self: Any) -> Any:
        result = begin(self)
        frame = sys._getframe(1)
        own = str(frame.f_globals.get("__name__", "")).startswith("torch.")
        if not own:
            push(str(self.name or "range"))
        # One object may be entered again before its exit.
        self.__dict__.setdefault("_jouletrace", []).append(0 if own else threading.get_ident())
        return result

    def leaving(self: Any, *error: Any) -> Any:
        held = self.__dict__.get("_jouletrace")
        if held and held.pop() == threading.get_ident():
            pop()
        return finish(self, *error)

    hooks.put(kind, "__enter__", entering)
    hooks.put(kind, "__exit__", leaving)


def wrap_modules(module: Any) -> None:
    """Mark the calls of modules."""
    compiler, dynamo = getattr(sys.modules["torch"], "compiler", None), sys.modules.get("torch._dynamo")
    older = getattr(dynamo, "is_compiling", lambda: False)
    is_compiling: Callable[[], bool] = getattr(compiler, "is_compiling", older)
    original, names = module.Module.__call__, Names()
    get, named, outermost = names.marks.get, safely(names.of), safely(operators.outermost)
    entering, leaving = enter, leave

    def call(self: Any, *args: Any, **options: Any) -> Any:
        if is_compiling():
            return original(self, *args, **options)
        number = get(id(self)) or named(self)
        if not number:
            return original(self, *args, **options)
        depth = entering(number)
        try:
            if not depth:
                outermost(self, number)
            return original(self, *args, **options)
        finally:
            leaving(depth)

    hooks.put(module.Module, "__call__", call)


def wrap_loader(module: Any) -> None:
    """Write the times in which the program waits for its data loader."""
    kind = module._BaseDataLoaderIter
    following = kind.__next__

    def timed(self: Any) -> Any:
        begin = time.time_ns()
        try:
            return following(self)
        finally:
            span(LOAD, begin, time.time_ns())

    hooks.put(kind, "__next__", timed)


def complete(name: str) -> Any:
    """A module that the program has imported wholly; None before."""
    module = sys.modules.get(name)
    started = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if module is None or started else module


def see_rank(distributed: Any) -> None:
    """Write the rank of this process, once it is one of several."""
    if "i rank" not in hooks.said and distributed.is_available() and distributed.is_initialized():
        if distributed.get_world_size() > 1:
            hooks.say("i rank", distributed.get_rank())


def see_compiled(cache: Any) -> None:
    """Write the operators of each kernel in what torch's compiler has generated since."""
    kind = cache.PyCodeCache
    for module in list(getattr(kind, "modules", None) or getattr(kind, "cache", {}).values()):
        path = getattr(module, "__file__", None)
        if path and path not in hooks.read:
            hooks.read.add(path)
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    source = file.read()
            except OSError:
                continue
            for kernel, names in fused(source):
                hooks.say(f"k {kernel}", names)


def fused(source: str) -> Iterator[tuple[str, str]]:
    """Each kernel of a generated module, and the operators that a comment above it names."""
    names = ""
    for line in source.splitlines():
        above = _ATEN.search(line)
        if above:
            words = [word.strip().split(".") for word in above.group(1).split(",") if word.strip()]
            names = "+".join(dict.fromkeys(word[1] if len(word) > 1 else word[0] for word in words))
        elif names and not line.lstrip().startswith("#"):
            kernel = _KERNEL.search(line)
            if kernel:
                yield kernel.group(), names
            if kernel or "extern_kernels." in line or "torch.ops." in line:
                names = ""


PLACES: list[tuple[str, Callable[[Any], None]]] = [
    ("torch.autograd.profiler", wrap_profiler),
    ("torch.autograd.profiler", wrap_ranges),
    ("torch.nn.modules.module", wrap_modules),
    ("torch.utils.data.dataloader", wrap_loader),
]
SEEN: list[tuple[str, Callable[[Any], None]]] = [
    ("torch.distributed", see_rank),
    ("torch._inductor.codecache", see_compiled),
]


def look() -> bool:
    """Hook what the program has imported since; whether there is nothing more to hook in torch's core."""
    if hooks.over:
        return True
    try:
        torch = complete("torch")
        if torch is None:
            return False
        if "i torch" not in hooks.said:
            settle(torch)
            hooks.say("i torch", torch.__version__)
        for name, act in PLACES:
            module = complete(name)
            if module is not None and act.__name__ not in hooks.done:
                hooks.done.add(act.__name__)
                act(module)
        see()
        return True
    except Exception as error:
        hooks.fail(error)
        return True


def see() -> None:
    """Write the facts that are known by now."""
    for name, act in SEEN:
        module = complete(name)
        if module is not None:
            act(module)


def end() -> None:
    """Write the last facts, and put all back."""
    try:
        if not hooks.over:
            see()
            if "wrap_profiler" in hooks.done:
                operators.stop()
            if not hooks.sampled:
                hooks.say("i operators", hooks.reason if "i torch" in hooks.said else "the program imported no torch")
            hooks.undo()
    except Exception as error:
        hooks.fail(error)


try:
    hooks.say("i python", sys.version.split()[0])
except Exception as error:
    hooks.fail(error)
