"""The reference server of the examples, under a load on the CPU."""

import socket
import subprocess
import sys

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("transformers", minversion="5.0")

from commands import PATIENCE_S, wait_for
from jouletrace.profiler.serving.bench import BenchSettings, Client
from jouletrace.profiler.serving.load import Lengths, open_levels
from places import REPOSITORY


@pytest.fixture
def reference():
    """URL of the server with its tiny model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [sys.executable, str(REPOSITORY / "examples" / "serve_reference.py"), "--port", str(port)]
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
def test_continuous_batching_answers_every_request_with_its_tokens(reference, api):
    (level,) = open_levels([10], "constant", 2, 1, (Lengths(5, 40), Lengths(2, 12)), 1)
    client = Client()
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
