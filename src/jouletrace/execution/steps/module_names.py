"""The module of a model that is running: in forward by hooks, in backward by autograd's sequence numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from jouletrace.workloads.base import BETWEEN, DATA, DECODE, OPTIMIZER, PREFILL, Built, mark

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class CallSite:
    """The place of a call in a model.

    Attributes:
        module: Qualified name of the innermost running module; "" outside of all.
        call: Number of the call within the iteration for each module in the qualified name: "1.3" for the third call of
            ``block.fc``, made in the first of ``block``. 0 where a module isn't running: containers that are never
            called, and the parents of a shared module that others call.
    """

    module: str = ""
    call: str = ""


OUTSIDE = CallSite()


def paths_of(module: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """The modules of a model by their paths: torch's names, and "" for the model itself.

    Where these would begin with the number of a child, as in a ``Sequential``, they begin with the model's class.
    """
    root = type(module).__name__ if any(name.isdecimal() for name, _ in module.named_children()) else ""
    return {".".join(filter(None, (root, name))): submodule for name, submodule in module.named_modules()}


class ModuleNames:
    """Follows a model's modules during one iteration, as a context.

    The hooks are torch's global ones: hooks of their own would make some modules take another path, such
    as ``nn.TransformerEncoderLayer`` one without its fused kernel.

    Autograd numbers the nodes of its graph as forward creates them; the work of a node in backward
    belongs to the module in which it was created.

    Args:
        module: The model; None without one, so that every name is "".
    """

    def __init__(self, module: torch.nn.Module | None) -> None:
        self._names = (
            {id(submodule): name for name, submodule in paths_of(module).items()} if module is not None else {}
        )
        self._calls: dict[str, int] = {}
        self._stack: list[tuple[CallSite, Mapping[str, int]]] = []
        self._made_in: dict[int, CallSite] = {}
        self._hooks: list[Any] = []

    @property
    def current(self) -> CallSite:
        """The innermost module running in forward, or a mark."""
        if mark():
            return CallSite(mark())
        return self._stack[-1][0] if self._stack else OUTSIDE

    def locate(self) -> tuple[CallSite, bool]:
        """The place to which a call made now belongs, and whether autograd makes it."""
        import torch

        node = torch._C._current_autograd_node()
        if node is None:
            self._made_in.setdefault(torch._C._autograd._get_sequence_nr() - 1, self.current)
            return self.current, False
        return self._made_in.get(node._sequence_nr(), OUTSIDE), True

    def __enter__(self) -> Self:
        """Hook all modules. A module with several names is listed under its first."""
        if self._names:
            from torch.nn.modules import module

            self._hooks.append(module.register_module_forward_pre_hook(self._enter))
            self._hooks.append(module.register_module_forward_hook(self._leave, always_call=True))
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._stack.clear()

    def _enter(self, module: Any, _inputs: Any) -> None:
        running = self._stack[-1][1] if self._stack else {}
        name = self._names.get(id(module))
        if name is None:  # a module outside the model belongs to its caller
            self._stack.append((self.current, running))
            return
        self._calls[name] = self._calls.get(name, 0) + 1
        running = {**running, name: self._calls[name]}
        self._stack.append((CallSite(name, _call(name, running)), running))

    def _leave(self, _module: Any, _inputs: Any, _output: Any) -> None:
        if self._stack:
            self._stack.pop()


def _call(name: str, running: Mapping[str, int]) -> str:
    """Numbers of the innermost running calls of a module and its parents."""
    words = name.split(".") if name else []
    return ".".join(str(running.get(".".join(words[: depth + 1]), 0)) for depth in range(len(words)))


Phase = Callable[[CallSite, bool], str]
"""Maps the place of an operator call, and whether autograd makes it, to its phase."""


def phases_of(built: Built) -> Phase:
    """The function that recognises the phases of a workload."""
    return phase_of_generation if built.generation is not None else phase_of_step


def phase_of_step(site: CallSite, backward: bool) -> str:
    """Phase in an inference or a training step: "data", "forward", "backward" or "optimizer"."""
    return "backward" if backward else {DATA: "data", OPTIMIZER: "optimizer"}.get(site.module, "forward")


def phase_of_generation(site: CallSite, backward: bool) -> str:
    """Phase in an iteration that generates: the first forward is prefill, later ones are decode."""
    numbers = [int(word) for word in site.call.split(".") if word and word != "0"]
    return BETWEEN if not numbers else PREFILL if numbers[0] == 1 else DECODE
