"""Opens the partitioning of a GPU by the user's name of it."""

from __future__ import annotations

from contextlib import closing

from jouletrace.devices import open_device
from jouletrace.devices.mig import MigBackend
from jouletrace.devices.nvml.mig_backend import NvmlMigBackend
from jouletrace.errors import SIMULATE_GPU, BadInputError, NotPossibleError
from jouletrace.profiler.board_store import cache_folder
from jouletrace.simulator.boards.mig_state import SimulatedMig


def open_backend(device: str) -> MigBackend:
    """Open the partitioning of a GPU.

    Args:
        device: "auto", "cuda:N", a GPU's UUID, "sim:NAME"; a MIG instance stands for its GPU. Changes of a
            simulated GPU are kept in the cache folder between commands.

    Raises:
        BadInputError: If the device doesn't exist, or is a CPU.
        NotPossibleError: If the driver is missing, or the GPU has no MIG.
    """
    if device.startswith("sim:"):
        name = SimulatedMig(device).info.id
        return SimulatedMig(device, cache_folder() / f"{name}-mig-state.json")
    with closing(open_device(device)) as opened:
        info = opened.info
        board = str(getattr(opened, "parent", info.id))
    if info.kind == "cpu":
        if "no_gpu" in info.details:
            raise NotPossibleError(f"no GPU that can be divided: {info.details['no_gpu']}; {SIMULATE_GPU}")
        raise BadInputError(f"--device {device}: only an NVIDIA GPU can be divided")
    return NvmlMigBackend(board)
