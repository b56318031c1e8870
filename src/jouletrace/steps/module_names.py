"""Which module of a model is running, in forward by hooks and in backward by autograd's sequence numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import torch


class ModuleNames:
    """Follows a model's modules while it is entered.

    The hooks are torch's global ones: with hooks of their own some modules take another path, such
    as ``nn.TransformerEncoderLayer`` one without its fused kernel.

    Autograd numbers the nodes of its graph as forward makes them; what a node does in backward
    belongs to the module in which it was made.

    Args:
        module: The model; None if there is none, so that every name is "".
    """

    def __init__(self, module: torch.nn.Module | None) -> None:
        named = module.named_modules() if module is not None else ()
        self._names = {id(one): name for name, one in named}
        self._stack: list[str] = []
        self._made_in: dict[int, str] = {}
        self._hooks: list[Any] = []

    @property
    def current(self) -> str:
        """Qualified name of the innermost module that runs in forward; "" outside of all."""
        return self._stack[-1] if self._stack else ""

    def locate(self) -> tuple[str, bool]:
        """The module to which what is called now belongs, and whether autograd calls it."""
        import torch

        node = torch._C._current_autograd_node()
        if node is None:
            self._made_in.setdefault(torch._C._autograd._get_sequence_nr() - 1, self.current)
            return self.current, False
        return self._made_in.get(node._sequence_nr(), ""), True

    def __enter__(self) -> Self:
        """Hook all modules. A module under several names goes by its first."""
        if self._names:
            from torch.nn.modules import module

            self._hooks.append(module.register_module_forward_pre_hook(self._enter))
            self._hooks.append(module.register_module_forward_hook(self._leave, always_call=True))
        return self

    def __exit__(self, *_: object) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._stack.clear()

    def _enter(self, module: Any, _inputs: Any) -> None:
        # one that isn't the model's belongs to the one that calls it
        self._stack.append(self._names.get(id(module), self.current))

    def _leave(self, _module: Any, _inputs: Any, _output: Any) -> None:
        if self._stack:
            self._stack.pop()
