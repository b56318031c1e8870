"""Removing and repeating operator calls while the rest runs on right data. Imports torch.

A removed call launches nothing and hands on what it left behind in an ordinary pass. New outputs
come from there. What it would have written over one of its inputs must be seen by all who read
that memory later, but not by whoever writes it earlier in the next iteration: so all later calls
are *redirected* from the input's storage to a copy of it.

Copies must stay as they are, or each replay would go on from where the last one stopped. So when
a later call writes over one (a residual sum in place, on the output of a removed convolution), its
form that writes elsewhere is called, which is the same kernel, and later calls are redirected once
more.

A detached call runs into memory that nobody reads, and hands on what is stored as a removed one does.
Only a later detached call (the next residual sum of a chain) reads from there, as it would in the model.

A repeated call that writes in place is repeated into memory that nobody reads, by the same form.
Repetitions run before the launch that counts: their outputs are gone by then and the allocator
hands out the same memory as without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves, tree_map_only

from jouletrace.steps.base import DETACHED, VariantRefusedError
from jouletrace.steps.operator_mode import OperatorMode
from jouletrace.steps.operators import describe, is_idempotent, out_form, storage_key, tensors_in, written
from jouletrace.steps.stored import Geometry, Output, Stored
from jouletrace.steps.structure import ChangedCallsError, Structure

_ALIGNMENT = 512
"""Bytes; where torch's allocators start a storage, and what kernels choose their width of access by."""


class Surgery(OperatorMode):  # type: ignore[no-untyped-call]  # torch's __init_subclass__
    """One iteration with some of its calls removed or repeated.

    Args:
        structure: The iteration's calls.
        multiplicities: Launches for one, by place; 1 where there is none.
        stored: What the calls with 0 or ``DETACHED`` left behind, by place.
        device: Where it runs.
        strict: Whether to hold each call's shapes against the structure, not its operator alone.
        observe: Called with the place before and after each call that runs.

    Attributes:
        place: How many calls there have been.
    """

    def __init__(
        self,
        structure: Structure,
        multiplicities: Mapping[int, int],
        stored: Mapping[int, Stored],
        device: torch.device,
        *,
        strict: bool = False,
        observe: Callable[[int | None], None] | None = None,
    ) -> None:
        super().__init__(device)
        self.place = 0
        self._structure = structure
        self._multiplicities = multiplicities
        self._stored = stored
        self._strict = strict
        self._observe = observe
        self._redirected: dict[int, torch.UntypedStorage] = {}
        # A key must not be used again while it is redirected; a weak reference sees to that.
        self._held: list[StorageWeakRef] = []
        self._frozen = {storage._cdata for one in stored.values() for storage in _storages(one)}
        self._read: set[int] = set()
        self._alone_at: dict[int, torch.UntypedStorage] = {}

    def finish(self, outputs: Any) -> Any:
        """Say that the iteration has ended; returns its outputs, tensors where their values now are.

        Raises:
            ChangedCallsError: If calls are missing.
        """
        if self.place != len(self._structure.calls):
            raise ChangedCallsError(f"an iteration of {self.place} operators; there were {len(self._structure.calls)}")
        if not self._redirected:
            return outputs
        return tree_map_only(torch.Tensor, lambda tensor: self._resolve(tensor, {}), outputs)

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call as often as it is to run."""
        place = self.place
        self.place += 1
        calls = self._structure.calls
        if place >= len(calls) or calls[place].func is not func:
            raise ChangedCallsError(
                f"operator {place} is {func}; it was {calls[place].func if place < len(calls) else 'none'}"
            )
        if self._strict and describe(tensors_in((args, kwargs))) != calls[place].key[1]:
            raise ChangedCallsError(f"operator {place}, {func}, has other shapes than before")
        multiplicity = self._multiplicities.get(place, 1)
        if multiplicity == 1 and not self._frozen and self._observe is None:
            return func(*args, **kwargs)
        given: dict[int, torch.Tensor] = {}
        if self._redirected:
            args, kwargs = tree_map_only(torch.Tensor, lambda tensor: self._resolve(tensor, given), (args, kwargs))
        if multiplicity == DETACHED:
            self._alone(place, func, args, kwargs)
        if multiplicity in (0, DETACHED):
            return self._hand_on(self._stored[place], func, args, kwargs, given)
        if self._observe is not None:
            self._observe(None)
        for _ in range(multiplicity - 1):
            self._repeat(func, args, kwargs)
        out = self._launch(func, args, kwargs) if self._frozen else func(*args, **kwargs)
        if self._observe is not None:
            self._observe(place)
        # An operator in place returns its argument: the caller's own, not what it was redirected to.
        return tree_map_only(torch.Tensor, lambda one: given.get(id(one), one), out) if given else out

    def view(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Look at the memory where the values are; what changes a tensor object gets the caller's own."""
        if self._redirected and torch.Tag.inplace_view not in func.tags:
            args, kwargs = tree_map_only(torch.Tensor, lambda one: self._resolve(one, {}), (args, kwargs))
        return func(*args, **kwargs)

    def _alone(self, place: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        args, kwargs = tree_map_only(torch.Tensor, self._left_alone, (args, kwargs))
        if self._observe is not None:
            self._observe(None)
        out = self._repeat(func, args, kwargs)
        if self._observe is not None:
            self._observe(place)
        stored = self._stored[place]
        if not stored.chained:
            return
        if out is None:  # it wrote over what is kept, which the next detached call and the next replay read
            text = f"{func} writes over its input: it can't run detached from what the model computes"
            raise VariantRefusedError("in_place", text)
        kept, made = (tree_leaves(one) for one in (stored.outputs, out))
        pairs = [
            (output.kept, tensor)
            for output, tensor in zip(kept, made, strict=False)
            if isinstance(output, Output) and isinstance(tensor, torch.Tensor)
        ]
        pairs += [(copy, made[0]) for copy in stored.written if made and _covers(made[0])]
        for copy, tensor in pairs:
            if copy is not None and copy.nbytes() == tensor.untyped_storage().nbytes():
                self._alone_at[copy._cdata] = tensor.untyped_storage()

    def _left_alone(self, tensor: torch.Tensor) -> torch.Tensor:
        """A stored tensor where the detached call itself left it, if it is kept."""
        storage = self._alone_at.get(storage_key(tensor))
        return tensor if storage is None else Geometry.of(tensor).on(storage)

    def _hand_on(
        self, stored: Stored, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[int, torch.Tensor]
    ) -> Any:
        inputs = list(tensors_in((args, kwargs)))
        if stored.written:
            for tensor, copy in zip(written(func, args, kwargs), stored.written, strict=True):
                if copy is not None:
                    self._redirect(tensor, copy)

        def make(output: Output) -> torch.Tensor:
            if output.argument is None:
                storage = output.kept
                if storage is None:  # nobody reads it: memory as ever, without the kernel
                    storage = torch.empty(output.nbytes, dtype=torch.uint8, device=output.device).untyped_storage()
                return output.geometry.on(storage)
            argument = inputs[output.argument]
            if output.same:
                return given.get(id(argument), argument)
            return output.geometry.on(self._final(argument))

        if isinstance(stored.outputs, Output):
            return make(stored.outputs)
        return tree_map_only(Output, make, stored.outputs)

    def _launch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call that may write over a copy that has to stay as it is."""
        frozen = [tensor for tensor in written(func, args, kwargs) if storage_key(tensor) in self._frozen]
        if not frozen:
            if self._structure.calls[self.place - 1].looks:
                self._read.update(storage_key(tensor) for tensor in tensors_in((args, kwargs)))
            return func(*args, **kwargs)
        form = out_form(func, self._backend)
        if form is not None and _covers(frozen[0]):
            elsewhere = _like(frozen[0])
            form(*args, **kwargs, out=elsewhere)
            self._redirect(frozen[0], elsewhere.untyped_storage())
            return args[0]
        # What leaves the same a second time may write over a copy, unless somebody reads it before.
        if is_idempotent(func, args, kwargs) and not any(storage_key(tensor) in self._read for tensor in frozen):
            return func(*args, **kwargs)
        raise VariantRefusedError(
            "overwritten", f"{func} writes over what a removed operator hands on, and has no other form"
        )

    def _repeat(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call once more, to no effect; returns what it made, None if that is no new memory."""
        overwritten = list(written(func, args, kwargs))
        form = out_form(func, self._backend)
        if form is not None:
            elsewhere = _like(overwritten[0])
            form(*args, **kwargs, out=elsewhere)
            return elsewhere
        if not overwritten or is_idempotent(func, args, kwargs):
            out = func(*args, **kwargs)
            return None if overwritten else out
        raise VariantRefusedError("in_place", f"{func} writes over its input and can't be repeated")

    def _redirect(self, tensor: torch.Tensor, to: torch.UntypedStorage) -> None:
        self._held.append(StorageWeakRef(tensor.untyped_storage()))  # type: ignore[no-untyped-call]
        self._redirected[storage_key(tensor)] = to

    def _final(self, tensor: torch.Tensor) -> torch.UntypedStorage:
        storage = tensor.untyped_storage()
        while (further := self._redirected.get(storage._cdata)) is not None:
            storage = further
        return storage

    def _resolve(self, tensor: torch.Tensor, given: dict[int, torch.Tensor]) -> torch.Tensor:
        if storage_key(tensor) not in self._redirected:
            return tensor
        found = Geometry.of(tensor).on(self._final(tensor))
        given[id(found)] = tensor
        return found


def _storages(stored: Stored) -> list[torch.UntypedStorage]:
    found = [storage for storage in stored.written if storage is not None]
    tree_map_only(Output, lambda output: found.append(output.kept) if output.kept is not None else None, stored.outputs)
    return found


def _covers(tensor: torch.Tensor) -> bool:
    """Whether writing a tensor leaves nothing of its storage as it was."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """New memory in the layout and alignment of a tensor, for the same kernel to write to."""
    geometry = Geometry.of(tensor)
    size = tensor.element_size()
    extent = 1 + sum((length - 1) * step for length, step in zip(geometry.size, geometry.stride, strict=True))
    offset = geometry.offset % (_ALIGNMENT // size) if _ALIGNMENT % size == 0 else 0
    flat = torch.empty(offset + extent, dtype=tensor.dtype, device=tensor.device)
    return flat.as_strided(geometry.size, geometry.stride, offset)
