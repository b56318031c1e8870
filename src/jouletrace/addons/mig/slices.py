"""The present slices of a GPU, and the bench that runs jobs on them."""

from __future__ import annotations

from collections.abc import Sequence

from jouletrace.addons.mig.activity import Activity, ActivitySource
from jouletrace.addons.mig.bench import Bench, Slice
from jouletrace.addons.mig.dcgm import DcgmExporter
from jouletrace.addons.mig.real_bench import RealBench
from jouletrace.addons.mig.simulated_bench import SimulatedBench
from jouletrace.devices import open_device
from jouletrace.devices.mig import MigBackend
from jouletrace.devices.nvml.mig_activity import instance_activity
from jouletrace.errors import NotPossibleError
from jouletrace.simulator.boards.device import SimulatedGpu


def slices_of(backend: MigBackend) -> list[Slice]:
    """A slice for each compute instance that CUDA can use, by placement."""
    profiles = {profile.name: profile for profile in backend.profiles()}
    whole = max(profile.slices for profile in profiles.values())
    return [
        Slice(compute.uuid, profiles[instance.profile], instance.id, whole)
        for instance in backend.instances()
        for compute in instance.compute
        if compute.uuid is not None
    ]


def open_bench(backend: MigBackend, slices: Sequence[Slice], dcgm_url: str | None, gpu: SimulatedGpu | None) -> Bench:
    """A bench on these slices.

    Args:
        backend: The GPU.
        slices: Slices of that GPU.
        dcgm_url: URL of a dcgm-exporter; None for GPM.
        gpu: The simulated GPU; None for a real one.

    Raises:
        NotPossibleError: If the exporter doesn't answer or doesn't report the slices.
    """
    if gpu is not None:
        return SimulatedBench(gpu, slices)
    if not slices:
        raise NotPossibleError(f"{backend.info.name} has no MIG instance that CUDA can use")
    sources: list[ActivitySource] = []
    if dcgm_url is not None:
        known = {one.instance: (one.uuid, one.profile.memory_mib << 20) for one in slices}
        exporter = DcgmExporter(dcgm_url, backend.info.id, backend.info.index, known)
        exporter.check()
        sources.append(exporter)
    else:
        sources += instance_activity(backend.info.id, {one.uuid: one.instance for one in slices})
    return RealBench(open_device(backend.info.id), slices, Activity(sources))
