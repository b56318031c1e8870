"""Outputs of an ordinary pass, kept so that later operators see right data when one is removed.

Imports torch. What is kept are copies of storages (a tensor's memory) and the geometry of the
tensors on them: torch attaches its own state to tensor objects, so that each use gets a new one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from jouletrace.steps.base import VariantRefusedError
from jouletrace.steps.operator_mode import OperatorMode
from jouletrace.steps.operators import storage_key, tensors_in, written
from jouletrace.steps.structure import ChangedCallsError, Structure
from jouletrace.workloads.base import Built


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where a tensor lies on its storage, and of what kind it is for autograd."""

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conjugate: bool
    negative: bool
    inference: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Geometry:
        """That of a tensor."""
        return cls(
            tensor.dtype,
            tuple(tensor.size()),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
            tensor.is_conj(),
            tensor.is_neg(),
            tensor.is_inference(),
        )

    def on(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """A new tensor of this geometry on a storage; launches nothing."""
        with torch.inference_mode(self.inference):
            tensor = torch.empty(0, dtype=self.dtype, device=storage.device)
            tensor.set_(storage, self.offset, self.size, self.stride)
        if self.conjugate:
            tensor = torch._conj(tensor)
        return torch._neg_view(tensor) if self.negative else tensor


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor among the outputs of a removed call.

    Attributes:
        geometry: Of the tensor.
        argument: Which tensor argument it shares its storage with, if any; None: it is new.
        same: Whether it is that argument itself.
        kept: Copy of its storage; None if nobody reads it.
        nbytes: Size of its storage.
        device: Where it is.
    """

    geometry: Geometry
    argument: int | None
    same: bool
    kept: torch.UntypedStorage | None
    nbytes: int
    device: torch.device


@dataclass(frozen=True, slots=True)
class Stored:
    """What a call left behind in an ordinary pass.

    Attributes:
        outputs: Its outputs, an ``Output`` for each tensor, other values as they are.
        written: For each tensor that it wrote over, in the order of ``operators.written``, a copy of
            the storage as it was then; None if nobody reads it.
        chained: Whether it is detached, and so is a later call that reads what it leaves behind.
    """

    outputs: Any
    written: tuple[torch.UntypedStorage | None, ...]
    chained: bool = False


def store_outputs(
    built: Built,
    i: int,
    structure: Structure,
    removed: Collection[int],
    device: torch.device,
    running: Collection[int] = (),
) -> dict[int, Stored]:
    """Run iteration ``i`` once and keep what the calls at ``removed`` leave behind, as far as it is read.

    Those of them in ``running`` are going to run all the same: they read too.

    Raises:
        VariantRefusedError: If a result that is read lies on the host.
        ChangedCallsError: If a call is not made.
    """
    if not removed:
        return {}
    keep = _Keep(structure, removed, running, device)
    with keep:
        built.call(i)
    if missed := set(removed) - keep.stored.keys():
        raise ChangedCallsError(f"operator {min(missed)} was not called this time")
    return keep.stored


class _Keep(OperatorMode):  # type: ignore[no-untyped-call]  # torch's __init_subclass__
    def __init__(
        self, structure: Structure, removed: Collection[int], running: Collection[int], device: torch.device
    ) -> None:
        super().__init__(device)
        self.stored: dict[int, Stored] = {}
        self._structure = structure
        self._removed = frozenset(removed)
        self._needed = structure.needed(removed, running)
        self._chained = structure.chained(running)
        self._place = 0

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        place, self._place = self._place, self._place + 1
        out = func(*args, **kwargs)
        if place in self._removed:
            self.stored[place] = self._store(place, func, args, kwargs, out)
        return out

    def _store(self, place: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Stored:
        needed = place in self._needed
        inputs = list(tensors_in((args, kwargs)))
        arguments = {storage_key(tensor): position for position, tensor in reversed(list(enumerate(inputs)))}
        copies: dict[int, torch.UntypedStorage] = {}

        def copied(tensor: torch.Tensor) -> torch.UntypedStorage | None:
            if not needed:
                return None
            if tensor.device.type != self.device.type:
                text = f"{self._structure.calls[place].key[0]} hands on numbers in {tensor.device} memory"
                raise VariantRefusedError("host_output", f"{text}: it can't be removed")
            key = storage_key(tensor)
            if key not in copies:
                copies[key] = _copy(tensor.untyped_storage())
            return copies[key]

        def output(tensor: torch.Tensor) -> Output:
            argument = arguments.get(storage_key(tensor))
            same = next((position for position, one in enumerate(inputs) if one is tensor), None)
            return Output(
                geometry=Geometry.of(tensor),
                argument=argument if same is None else same,
                same=same is not None,
                kept=copied(tensor) if argument is None else None,
                nbytes=tensor.untyped_storage().nbytes(),
                device=tensor.device,
            )

        return Stored(
            outputs=tree_map_only(torch.Tensor, output, out),
            written=tuple(copied(tensor) for tensor in written(func, args, kwargs)),
            chained=place in self._chained,
        )


def _copy(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    return bytes_of(storage).clone().untyped_storage()


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """A storage as a tensor of bytes."""
    tensor = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return tensor.set_(storage, 0, (storage.nbytes(),), (1,))
