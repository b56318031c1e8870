"""Servers of a workload on a simulated GPU or slices of it, in virtual time: each answers a request after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError
from jouletrace.execution.steps.base import schedule_of
from jouletrace.profiler.prepare import check_own_time, prepare
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.simulator.boards import SimulatedGpu
from jouletrace.wings.serving.client.client import Row
from jouletrace.wings.serving.client.load import BenchSettings, OfferedLoad
from jouletrace.wings.serving.client.queues import Queue, Together
from jouletrace.workloads import resolve

_DRAIN = 20
"""Requests for whose answers a server has time at the end, beyond those that wait by then."""


class SimulatedServer:
    """A workload that is served.

    Args:
        device: The GPU, or a slice of one.
        workload: Its name.
        levels: The loads, of one length of prompts and answers.
        task: "generate", or "infer" for a workload whose answers have no tokens.

    Attributes:
        schedule: An answer as kernels.
        period_s: Its length at the highest clock.

    Raises:
        BadInputError: If it can't serve such loads.
        NotPossibleError: If its operators can't be counted, or the GPU has too little memory.
    """

    def __init__(self, device: Device, workload: str, levels: Sequence[OfferedLoad], task: str = "generate") -> None:
        lengths = {(one.input_tokens, one.output_tokens) for level in levels for one in level.requests}
        if len(lengths) > 1:
            raise BadInputError(
                "a simulated server answers requests of one length: give --input-tokens N, not LOW:HIGH"
            )
        if any(level.kind != "open" for level in levels):
            raise BadInputError("--concurrency: simulated servers take an open loop, --rate")
        settings = ProfileSettings(task=task, mode="graph")
        if task == "generate":
            ((prompt, new),) = lengths
            settings = ProfileSettings(task=task, mode="graph", seq_len=prompt, max_new_tokens=new)
        prepared = prepare(resolve(workload), device, settings)
        self.schedule = schedule_of(prepared.step)
        self.period_s = self.schedule.at(1.0, 1.0).period_s
        first = prepared.make_first_token() if prepared.make_first_token else prepared.step
        self._until_first = schedule_of(first).at(1.0, 1.0).period_s / self.period_s
        self._generates = task == "generate"

    def queue(self, level: OfferedLoad, seconds: float) -> Queue:
        """The requests of a load, until ``seconds`` have passed."""
        return Queue(self.schedule, [one.at_s for one in level.requests], seconds)

    def seconds(self, level: OfferedLoad) -> float:
        """Seconds that a load and its last answers take, at most."""
        return max(level.seconds, len(level.requests) * self.period_s) + _DRAIN * self.period_s

    def rows(self, number: int, level: OfferedLoad, served: Queue, start_ns: int) -> list[Row]:
        """Requests as a client reports them; none has times of chunks."""

        def ns(seconds: float) -> int:
            return start_ns + round(seconds * 1e9)

        found: list[Row] = []
        for id, planned in enumerate(level.requests):
            due, tokens = ns(planned.at_s), (planned.input_tokens, planned.output_tokens)
            prompt, new = tokens if self._generates else (0, 0)
            if id < len(served.ends_s):
                begin, end = served.starts_s[id], served.ends_s[id]
                first = ns(begin + self._until_first * (end - begin))
                found.append([id, number, due, due, first, ns(end), prompt, new, new, "ok", None, []])
            else:
                over, why = ns(served.reached[-1][0]), "no end until the load was over"
                found.append([id, number, due, due, None, over, prompt, 0, 0, "failed", why, []])
        return found


def serve(
    board: SimulatedGpu, servers: Sequence[SimulatedServer], loads: Mapping[int, OfferedLoad]
) -> tuple[int, int, dict[int, Queue]]:
    """Send loads to servers on one GPU at once, by their places; start and end in nanoseconds, and what each served."""
    seconds = max(servers[place].seconds(level) for place, level in loads.items())
    queues = {place: servers[place].queue(level, seconds) for place, level in loads.items()}
    return *board.board.run_load(Together(list(queues.values()))), queues


class SimulatedClient:
    """A server on a whole simulated GPU and its client, with the methods of ``bench.ClientProcess``.

    Attributes:
        server: The server, once started: its truth, for tests.
    """

    def __init__(self, workload: str, devices: Sequence[Device]) -> None:
        if len(devices) > 1:
            raise BadInputError(f"{workload}: a simulated server runs on one GPU: name one by --device")
        (self._device,) = devices
        check_own_time(self._device)

    def close(self) -> None:
        """Does nothing."""

    def start(self, base: str, settings: BenchSettings) -> dict[str, Any]:
        """Count an answer; the model, whose name is ``base``."""
        if settings.steps is not None:
            raise BadInputError("--steps: a simulated server writes no log of its steps")
        if settings.model:
            raise BadInputError(f"--model {settings.model}: a simulated server has {base} alone")
        self.server = SimulatedServer(self._device, base, settings.levels)
        return {"model": base}

    def level(self, number: int, level: OfferedLoad, check: Callable[[], object]) -> Iterator[dict[str, Any]]:
        """Run a level; see ``ClientProcess.level``."""
        assert isinstance(self._device, SimulatedGpu)  # checked before it is called
        start_ns, _, queues = serve(self._device, [self.server], {0: level})
        check()
        yield {"rows": self.server.rows(number, level, queues[0], start_ns)}
        yield {"done": {"start_ns": start_ns}}
