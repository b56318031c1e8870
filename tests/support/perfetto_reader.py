"""Reads Perfetto traces back with Perfetto's own message classes, as its trace processor would."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

NEEDS_STATE = pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
CLEARED = pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED


@dataclass
class Slice:
    name: str
    category: str
    track: int
    start_ns: int
    args: dict[str, Any]
    flows: list[int]
    ending_flows: list[int]
    end_ns: int | None = None
    depth: int = 0


@dataclass
class Trace:
    base_ns: int = 0
    tracks: dict[int, Any] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    instants: list[Slice] = field(default_factory=list)
    counters: dict[int, list[tuple[int, float]]] = field(default_factory=dict)

    def name(self, uuid: int) -> str:
        track = self.tracks[uuid]
        return track.process.process_name if track.HasField("process") else track.name

    def process(self, uuid: int) -> str:
        return self.name(self.tracks[uuid].parent_uuid)

    def line(self, name: str) -> list[tuple[int, float]]:
        (uuid,) = [uuid for uuid in self.counters if self.name(uuid) == name]
        return self.counters[uuid]


@dataclass
class _State:
    now_ns: int = 0
    track: int = 0
    words: dict[str, dict[int, str]] = field(default_factory=dict)
    open: list[Slice] = field(default_factory=list)


def read(path: Path | str) -> Trace:
    """Decode a trace; an assertion fails where it breaks a rule of the format."""
    data = Path(path).read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    raw = pb.Trace.FromString(data)
    raw.DiscardUnknownFields()
    assert raw.ByteSize() == len(data), "there are fields that Perfetto doesn't know"
    trace, states = Trace(), {}
    for packet in raw.packet:
        sequence = packet.trusted_packet_sequence_id
        assert sequence, "every packet belongs to a sequence"
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            assert descriptor.uuid not in trace.tracks
            assert not descriptor.parent_uuid or descriptor.parent_uuid in trace.tracks
            trace.tracks[descriptor.uuid] = descriptor
            continue
        if packet.sequence_flags & CLEARED:
            assert packet.trace_packet_defaults.timestamp_clock_id == 64
            states[sequence] = _State(track=packet.trace_packet_defaults.track_event_defaults.track_uuid)
            continue
        state = states[sequence]
        if packet.HasField("clock_snapshot"):
            clocks = {clock.clock_id: clock for clock in packet.clock_snapshot.clocks}
            assert {id for id, clock in clocks.items() if clock.is_incremental} == {64}
            state.now_ns = clocks[1].timestamp
            trace.base_ns = trace.base_ns or state.now_ns
            assert {clock.timestamp for clock in clocks.values()} == {trace.base_ns}, "no clock goes back"
            continue
        assert packet.sequence_flags & NEEDS_STATE
        for table in ("event_categories", "event_names", "debug_annotation_names"):
            for word in getattr(packet.interned_data, table):
                assert word.iid not in state.words.setdefault(table, {})
                state.words[table][word.iid] = word.name
        for word in packet.interned_data.debug_annotation_string_values:
            state.words.setdefault("texts", {})[word.iid] = word.str.decode()
        if packet.HasField("track_event"):
            assert packet.HasField("timestamp")
            state.now_ns += packet.timestamp
            _event(trace, state, packet.track_event)
    for state in states.values():
        assert not state.open, "every slice ends"
    return trace


def _event(trace: Trace, state: _State, event: Any) -> None:
    assert state.track in trace.tracks
    if event.type == event.TYPE_COUNTER:
        trace.counters.setdefault(state.track, []).append((state.now_ns, event.double_counter_value))
    elif event.type == event.TYPE_SLICE_END:
        state.open.pop().end_ns = state.now_ns
    else:
        found = Slice(
            state.words["event_names"][event.name_iid],
            "".join(state.words["event_categories"][iid] for iid in event.category_iids),
            state.track,
            state.now_ns,
            {
                state.words["debug_annotation_names"][arg.name_iid]: _value(state, arg)
                for arg in event.debug_annotations
            },
            list(event.flow_ids),
            list(event.terminating_flow_ids),
            depth=len(state.open),
        )
        if event.type == event.TYPE_INSTANT:
            trace.instants.append(found)
        else:
            assert event.type == event.TYPE_SLICE_BEGIN
            trace.slices.append(found)
            state.open.append(found)


def _value(state: _State, arg: Any) -> Any:
    kind = arg.WhichOneof("value")
    return state.words["texts"][arg.string_value_iid] if kind == "string_value_iid" else getattr(arg, kind)
