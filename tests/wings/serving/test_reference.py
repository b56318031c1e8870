"""The reference server of the examples, under a load on the CPU."""

import socket
import subprocess
import sys

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("transformers", minversion="5.0")

from commands import PATIENCE_S, wait_for
from jouletrace.wings.serving.analysis.streams import steps_of, stream_of
from jouletrace.wings.serving.client.bench import BenchSettings, ClientProcess, requests_of
from jouletrace.wings.serving.client.load import Lengths, open_levels
from jouletrace.wings.serving.client.steps import read_steps
from places import REPOSITORY


@pytest.fixture
def reference(tmp_path):
    """URL of the server with its tiny model; it logs its steps to steps.jsonl."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [sys.executable, str(REPOSITORY / "examples" / "serve_reference.py"), "--port", str(port)]
    program += ["--steps", str(tmp_path / "steps.jsonl")]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def listening():
        assert process.poll() is None, "the server ended"
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(listening)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(PATIENCE_S)


@pytest.mark.slow
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_continuous_batching_answers_every_request_with_its_tokens(reference, tmp_path, api):
    (level,) = open_levels([10], "constant", 2, 1, (Lengths(5, 40), Lengths(2, 12)), 1)
    client = ClientProcess()
    try:
        taken = client.start(f"{reference}/v1", BenchSettings(reference, [level], api=api))
        events = list(client.level(0, level, lambda: None))
    finally:
        client.close()
    rows = sorted((row for event in events for row in event.get("rows", ())), key=lambda row: row[0])
    assert (taken["model"], taken["api"], taken["usage"]) == ("llama-tiny", api, True)
    assert len(rows) == 20
    for row, wanted in zip(rows, level.requests, strict=True):
        assert row[9] == "ok", row[10]
        assert (row[6], row[7], row[8]) == (wanted.input_tokens, wanted.output_tokens, wanted.output_tokens)
    steps = read_steps(tmp_path / "steps.jsonl").to_pylist()
    steps = [one for one in steps if one["end_ns"] > min(row[3] for row in rows)]  # without that of the first contact
    assert sum(one["new_tokens"] for one in steps) == sum(row[6] for row in rows)
    assert sum(one["prefilling"] for one in steps) == len(rows)
    assert sum(one["decoding"] for one in steps) == sum(row[7] - 1 for row in rows)
    assert all((one["context_tokens"] > 0) == (one["decoding"] > 0) for one in steps)
    shown, together = steps_of([stream_of(one, row[-1]) for one, row in zip(requests_of(rows), rows, strict=True)])
    assert 0.5 < together < 1.5
    for name in ("new_tokens", "prefilling", "decoding", "context_tokens"):
        assert sum(shown[name].to_pylist()) == sum(one[name] for one in steps)
