"""Python that the native library runs inside a program's process: it marks what torch does there.

The library executes this text in a bare dict that holds its functions, ``OPERATORS`` and ``RANGES``, and calls ``look``
now and then. It may call ``end``, which the interpreter's end does otherwise. Only the standard library is imported, of
Python 3.8 or later; what the program has imported is looked up in ``sys.modules``. A fault disables the hooks, never
the program.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import sys
import threading
import time
import types
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

library: Any = types.SimpleNamespace(**globals())

STATE = "NVTX"
"""State of torch's profiler in which torch emits the names of its operators."""

FIRST, EVENT_NS, MOST, SAVED_NS = 3, 2500, 0.01, 20_000_000
"""Operators are marked in the first calls of an outermost module; then while their events, at so many ns each, cost
less than a share of the time, of which so many ns are saved up at most. An event takes 0.7 to 2.6 µs, by the host."""

WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""Names under which wrappers hold what they wrap; "module", where it is the only child, is one too."""

ENDING = ("__call__", "_enable_profiler")
"""Names of functions that a thread calls before its state of torch's profiler must be off."""

INSIDE = "torch's profiler, which the program uses, holds CUPTI meanwhile: kernels of that time are like those"

SILENT = (
    "torch's ranges were used before the recording began",
    "torch's ranges go to another library",
)
"""Why torch's operators don't arrive, in a process that records itself and in others: NVTX binds at its first use."""

_FUSED = re.compile(r"^#.*Original ATen: \[(.+)\]\n(?:#.*\n)*\w+ = async_compile\.\w+\('(\w{8,})'", re.MULTILINE)
"""Operators and name of a kernel in what torch's compiler generates."""

said: set[str] = set()
done: set[Any] = set()
replaced: list[tuple[Any, str, Any, Any]] = []


def say(key: str, value: object) -> None:
    """Write a line, once for each key."""
    if key not in said:
        said.add(key)
        library.text(f"{key} {' '.join(str(value).split())}")


def put(owner: Any, name: str, new: Any) -> None:
    """Replace a function, unless all has been put back meanwhile by another thread."""
    if "all" in done:
        return
    original = getattr(owner, name)
    replaced.append((owner, name, original, functools.update_wrapper(new, original)))
    setattr(owner, name, new)


def undo() -> None:
    """Put back, for good, what others haven't replaced since.

    A thread alone can end its state of torch's profiler: what does so stays until all have.
    """
    done.add("all")
    atexit.unregister(end)
    needed = ENDING if any(ours.on for ours in operators) else ()
    for one in replaced[::-1]:
        owner, name, original, new = one
        if name not in needed:
            replaced.remove(one)
            if vars(owner).get(name) is new:
                setattr(owner, name, original)


def safely(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without faults: after one, all is put back. It gives 0 then."""

    def safe(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            say("w hooks_failed", f"{type(error).__name__}: {error}")
            undo()
            return 0

    return safe


def settle(torch: Any) -> None:
    """Give all code here the name of a file among torch's modules.

    torch's compiler goes through such code within a function that it compiles, as through what the code replaces. It
    doesn't compile such code by itself, which would use up how often it compiles the one code of all modules' calls.
    """
    place = os.path.join(os.path.dirname(torch.__file__), "nn", "modules", "jouletrace.py")

    def placed(code: Any) -> Any:
        parts = tuple(placed(part) if hasattr(part, "co_filename") else part for part in code.co_consts)
        return code.replace(co_filename=place, co_consts=parts)

    for owner in (globals(), *(vars(kind) for kind in (Names, Operators, Thread))):
        for function in list(owner.values()):
            if getattr(function, "__globals__", None) is globals():
                function.__code__ = placed(function.__code__)


class Names:
    """Marks of modules, by id: the class of the largest outermost module that holds one, and its name in there."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._misses: dict[int, int] = {}
        self._refs: dict[int, weakref.KeyedRef[int, Any]] = {}

    def mark(self, module: Any) -> int:
        """The mark of a module that has none yet; 0 if its caller's counts: without children, outside the root."""
        depth, root = library.enter(0), here.thread.root
        library.leave(depth)
        if depth and root in self._refs:  # modules may have been added to it since
            self._misses[root] = misses = self._misses.get(root, 0) + 1
            if not misses & (misses - 1):
                self._name(self._refs[root]())
        if not library.marked(id(module)) and (not depth or vars(module).get("_modules")):
            self._name(module)
        return int(library.marked(id(module)))

    def _name(self, root: Any) -> None:
        kind, paths = qualified(root)
        for path, module in paths:
            key = id(module)
            if self._sizes.get(key, 0) < len(paths):
                name = f"{kind}.{path}" if path else kind
                library.remember(key, library.mark(0, "m", name))
                self._sizes[key] = len(paths)
                if key not in self._refs:
                    self._refs[key] = weakref.KeyedRef(module, self._gone, key)

    def _gone(self, ref: Any) -> None:
        library.remember(ref.key, 0)
        for known in (self._sizes, self._misses, self._refs):
            known.pop(ref.key, None)


def qualified(root: Any) -> tuple[str, list[tuple[str, Any]]]:
    """The class of a module; the names of all that it holds, without those of wrappers, and of itself, ""."""
    try:
        named = {"": root, **dict(root.named_modules())}
    except Exception:  # the program's own method
        named = {"": root}
    clean, inner = {"": ""}, root
    for name, module in named.items():
        if name:
            parent, _, last = name.rpartition(".")
            alone = last == "module" and parent in named and len(vars(named[parent]).get("_modules") or ()) == 1
            above = clean.get(parent, parent)
            clean[name] = above if alone or last in WRAPPERS else f"{above}.{last}" if above else last
            inner = inner if clean[name] else module
    kind = type(inner)
    scripted = getattr(inner, "original_name", "") if str(kind.__module__).startswith("torch.jit") else ""
    return scripted or kind.__name__, [(clean[name], module) for name, module in named.items()]


class Thread:
    """A thread: our state of torch's profiler is ``on``, or the program's; ``root`` is its outermost module, by id."""

    on = theirs = False
    root = 0

    def __del__(self) -> None:
        for ours in operators if self.on else ():  # torch complains if a thread that ends leaves it on
            safely(ours.stop)(self)


class Here(threading.local):
    """The state of each thread."""

    def __init__(self) -> None:
        self.thread = Thread()


class Operators:
    """Switches the state in which torch emits operators, in the thread that calls an outermost module."""

    def __init__(self, torch: Any, profiler: Any) -> None:
        low, self._cuda, self._profiler = torch._C, torch.cuda, profiler
        self._enable, self._disable = profiler._enable_profiler, profiler._disable_profiler
        self._type = low._autograd._profiler_type
        self._node = getattr(low, "_current_autograd_node", lambda: None)
        self._modes = getattr(low, "_len_torch_dispatch_stack", lambda: 0)
        self._calls: dict[int, int] = {}
        self._held, self._possible = False, True
        self.on: weakref.WeakSet[Thread] = weakref.WeakSet()
        self._credit, self._seen = float(SAVED_NS), library.cost()
        self.reason = ""

    def outermost(self, module: Any) -> None:
        """Decide for the time until the thread's next call of an outermost module."""
        if "all" in done:
            self.stop()
            undo()
            return
        thread, ready = here.thread, self._cuda.is_initialized()
        thread.root = id(module)
        # Backward has the state of its forward.
        if self._node() is not None or (ready and self._captures()):
            return
        if not self._possible:
            wanted = False
        elif self._modes():
            wanted, self.reason = False, "the program runs under a dispatch mode of its own"
        elif not ready and STATE == "NVTX":
            wanted, self.reason = False, "torch runs nothing on a GPU"
        else:
            wanted = not self._held
            number = library.marked(id(module))
            calls = self._calls[number] = self._calls.get(number, 0) + wanted
            if calls > FIRST and thread.on and STATE == "NVTX" and not library.cost()[0]:
                self._possible = wanted = False
                library.text(f"i operators {SILENT[library.RANGES]}")
            elif wanted:
                wanted = self._affordable(thread.on) or calls <= FIRST
        if thread.on and not wanted:
            self.stop()
        elif wanted and not thread.on and self._type().name == "NONE":
            self.start(thread)

    def _affordable(self, on: bool) -> bool:
        """True if the share of the time is left for events; again once half of what is saved up at most is there."""
        events, ns = library.cost()
        self._credit += MOST * (ns - self._seen[1]) - EVENT_NS * (events - self._seen[0])
        self._credit, self._seen = min(self._credit, SAVED_NS), (events, ns)
        return self._credit > (0 if on else SAVED_NS / 2)

    def _captures(self) -> bool:
        try:
            return bool(self._cuda.is_current_stream_capturing())
        except RuntimeError:  # CUDA doesn't say so of its default stream while another captures
            return True

    def start(self, thread: Thread) -> None:
        """Begin our state in this thread."""
        make = self._profiler
        try:
            state = getattr(make.ProfilerState, STATE)
            config = make.ProfilerConfig(state, False, False, False, False, False, make._ExperimentalConfig())
            self._enable(config, set())
        except Exception as error:
            self._possible = False
            say("i operators", f"torch doesn't emit them: {error}")
        else:
            thread.on = True
            self.on.add(thread)
            library.sampling(True)
            said.add("i operators")

    def stop(self, thread: Thread | None = None) -> None:
        """End our state in this thread."""
        thread = thread or here.thread
        if thread.on:
            thread.on = False
            self.on.discard(thread)
            if self._type().name == STATE:
                self._disable()
            library.sampling(False)

    def hold(self) -> None:
        """Leave CUPTI to the program's profiler."""
        self.stop()
        if not self._held:
            self._held = True
            library.pause()
            say("w profiler_inside", f"{INSIDE} before and after it")

    def began(self) -> None:
        """Note a state of the program's that takes no CUPTI, as emit_nvtx: the library gets what it emits."""
        if not self._held and "all" not in done:
            here.thread.theirs = True
            library.sampling(True)

    def release(self) -> None:
        """Take back what was left to the program's profiler."""
        if here.thread.theirs:
            here.thread.theirs = False
            library.sampling(False)
        if self._held:
            self._held = False
            library.resume()


here = Here()
operators: list[Operators] = []


def around(function: Any, before: Any, after: Any, failed: Any) -> Any:
    """The function with others called before and after it, without their faults."""
    before, after, failed = (safely(one) for one in (before, after, failed))

    def call(*args: Any, **options: Any) -> Any:
        before()
        try:
            result = function(*args, **options)
        except BaseException:
            failed()
            raise
        after()
        return result

    return call


def wrap_profiler(module: Any) -> None:
    """Leave CUPTI, and the state of a thread, to the program's profiler."""
    ours, skip = Operators(sys.modules["torch"], module), lambda: None
    operators.append(ours)
    put(module, "_prepare_profiler", around(module._prepare_profiler, ours.hold, skip, ours.release))
    put(module, "_enable_profiler", around(module._enable_profiler, ours.stop, ours.began, ours.release))
    put(module, "_disable_profiler", around(module._disable_profiler, skip, ours.release, ours.release))


def wrap_ranges(module: Any) -> None:
    """Mark ranges of ``record_function``, save torch's own, which the program didn't mark; all begin outside our state.

    Torch ends a range in the state in which it began, and complains where that is off by then.
    """
    kind, ident, ours = module.record_function, threading.get_ident, operators[0]
    begin, finish = kind.__enter__, kind.__exit__
    pause, resume = safely(ours.stop), safely(ours.start)

    def outside(self: Any) -> Any:
        thread = here.thread
        if not thread.on:
            return begin(self)
        pause()
        try:
            return begin(self)
        finally:
            if "all" not in done:
                resume(thread)

    def entering(self: Any) -> Any:
        result = outside(self)
        own = str(sys._getframe(1).f_globals.get("__name__", "")).startswith("torch.")
        if not own:
            library.push(str(self.name or "range"))
        # One object may be entered again before its exit.
        self.__dict__.setdefault("_jouletrace", []).append(0 if own else ident())
        return result

    def leaving(self: Any, *error: Any) -> Any:
        held = self.__dict__.get("_jouletrace")
        if held and held.pop() == ident():
            library.pop()
        return finish(self, *error)

    if not library.RANGES:  # a recording in this process has wrapped it
        put(kind, "__enter__", outside)
        return
    put(kind, "__enter__", entering)
    put(kind, "__exit__", leaving)


def wrap_modules(module: Any) -> None:
    """Mark the calls of modules, save in code that torch compiles."""
    compiler: Any = getattr(sys.modules["torch"], "compiler", None)
    older = getattr(sys.modules.get("torch._dynamo"), "is_compiling", lambda: False)
    compiles, flags = getattr(compiler, "is_compiling", older), types.SimpleNamespace(_is_compiling_flag=False)
    if hasattr(compiler, "_is_compiling_flag") and hasattr(compiler, "is_dynamo_compiling"):
        compiles, flags = compiler.is_dynamo_compiling, compiler  # both as is_compiling, and faster
    original, enter, within, leave = module.Module.__call__, library.enter, library.within, library.leave
    known = original is getattr(module.Module, "_wrapped_call_impl", None)  # torch's own, whose frame can be saved
    named, outermost = safely(Names().mark), safely(operators[0].outermost)

    def call(self: Any, *args: Any, **options: Any) -> Any:
        if compiles() or flags._is_compiling_flag:
            return original(self, *args, **options)
        depth = within(self)
        if depth < 0:
            number = named(self)
            if not number:
                return original(self, *args, **options)
            depth = enter(number)
        try:
            if not depth:
                outermost(self)
            if known and self._compiled_call_impl is None:
                return self._call_impl(*args, **options)
            return original(self, *args, **options)
        finally:
            leave(depth)

    if library.OPERATORS:
        put(module.Module, "__call__", call)
        if known:
            library.quicken(call)  # C calls the same two methods


def wrap_loader(module: Any) -> None:
    """Write the times in which the program waits for its data loader, rows of kind 4."""
    kind = module._BaseDataLoaderIter
    following = kind.__next__

    def timed(self: Any) -> Any:
        begin = time.time_ns()
        try:
            return following(self)
        finally:
            library.span(4, begin, time.time_ns())

    put(kind, "__next__", timed)


def see_rank(distributed: Any) -> bool:
    """Write the rank of this process, once it is one of several; true before."""
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        say("i rank", distributed.get_rank())
    return "i rank" not in said


def see_compiled(cache: Any) -> bool:
    """Write the operators of each kernel in what torch's compiler has generated since; true, since more may come."""
    kind = cache.PyCodeCache
    for module in list(getattr(kind, "modules", None) or getattr(kind, "cache", {}).values()):
        path = getattr(module, "__file__", "")
        if path not in done:
            done.add(path)
            with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
                for fused, kernel in _FUSED.findall(file.read()):
                    names = (name.rpartition(".")[2] for name in fused.split(", "))
                    say(f"k {kernel}", "+".join(dict.fromkeys(names)))
    return True


HOOKS: tuple[tuple[str, Callable[[Any], object]], ...] = (
    ("torch.autograd.profiler", wrap_profiler),
    ("torch.autograd.profiler", wrap_ranges),
    ("torch.nn.modules.module", wrap_modules),
    ("torch.utils.data.dataloader", wrap_loader),
    ("torch.distributed", see_rank),
    ("torch._inductor.codecache", see_compiled),
)
"""Modules, and what to do with each once the program has imported it, again while that returns true."""


def complete(name: str) -> Any:
    """A module that the program has imported wholly; None before."""
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


@safely
def look() -> bool:
    """Hook what the program has imported since, and write what is known; false as long as it has no torch."""
    torch = complete("torch")
    if torch is None or "all" in done:
        return torch is not None
    if "i torch" not in said:
        settle(torch)
        say("i torch", torch.__version__)
    for name, act in HOOKS:
        module = complete(name) if act not in done else None
        if module is not None and not act(module):
            done.add(act)
    return True


@safely
def end() -> None:
    """Write the last facts, and put all back."""
    if "all" not in done:
        look()
        reason = operators[0].reason if operators else "the program imported no torch"
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
        if not reason and counters and counters["stats"]["unique_graphs"]:
            reason = "the program compiles its code: kernels have the compiler's names"
        if library.OPERATORS:
            say("i operators", reason or "no torch module was called")
        for ours in operators:
            ours.stop()
        undo()


say("i python", sys.version.split()[0])
atexit.register(end)  # in the main thread, whose state torch would complain of
