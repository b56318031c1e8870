"""A small OpenAI-compatible server with continuous batching, to try ``jouletrace bench`` on.

    pip install 'jouletrace[torch,serving]'
    python examples/serve_reference.py --size tiny                   # on the CPU
    python examples/serve_reference.py --size 1b --device cuda       # Llama 1B, random weights
    jouletrace bench http://127.0.0.1:8000 --rate 1,2,4,8 --input-tokens 32:256 --output-tokens 16:64

The model has random weights, and words in place of a tokenizer: what it answers is noise, at the speed and power of a
real one. Batches are those of transformers: requests join and leave at every step.

With ``--steps steps.jsonl`` it logs its steps, by which ``bench --steps`` and ``jouletrace bill`` bill each request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import zlib
from pathlib import Path
from typing import Any

import torch
from aiohttp import web
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

SIZES: dict[str, dict[str, int]] = {
    "tiny": {
        "vocab_size": 2000,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    "1b": {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}
PAGE = {"tiny": ContinuousBatchingConfig(num_blocks=256, max_batch_tokens=512, use_cuda_graph=False)}


class StepLog:
    """Writes what each step of a manager did; the manager must wait for a step before it prepares the next one.

    Args:
        manager: Not started yet.
        path: The log.
    """

    def __init__(self, manager: Any, path: str) -> None:
        self.manager, self.path, self.step = manager, path, manager._generation_step
        Path(path).write_text("")
        manager._generation_step = self.logged

    def logged(self) -> None:
        """Carry a step out and write it down."""
        batch = self.manager.batch_processor.inputs_and_outputs.requests_in_batch
        reads = [one.query_length for one in batch if not one.state.generated_len()]
        caches = [one.state.position_offset for one in batch if one.state.generated_len()]
        start_ns = time.time_ns()
        self.step()
        row = {"start_ns": start_ns, "end_ns": time.time_ns(), "new_tokens": sum(reads), "prefilling": len(reads)}
        with open(self.path, "a") as log:
            log.write(json.dumps({**row, "decoding": len(caches), "context_tokens": sum(caches)}) + "\n")


def batching(size: str, device: str, steps: str | None = None) -> Any:
    """A manager of batches of a model with random weights, not started; with ``steps`` it logs these there."""
    torch.manual_seed(0)
    torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN makes a new plan for each number of tokens
    config = LlamaConfig(**SIZES[size], max_position_embeddings=16384)
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    with torch.device(device):  # a CPU takes long to draw the weights
        model = LlamaForCausalLM(config).to(dtype).eval()
    settings = GenerationConfig(max_new_tokens=16, do_sample=False, eos_token_id=-1, pad_token_id=0)
    pages = PAGE.get(size)
    if steps:
        pages = pages or ContinuousBatchingConfig()
        pages.use_async_batching = False
    manager = model.init_continuous_batching(generation_config=settings, continuous_batching_config=pages)
    if steps:
        StepLog(manager, steps)
    return manager


class Server:
    """The endpoints around a model whose batches run in a thread of transformers' own."""

    def __init__(self, size: str, manager: Any) -> None:
        self.name, self.vocabulary, self.manager = f"llama-{size}", manager.model.config.vocab_size, manager
        self.manager.start()
        self.open = self.count = 0

    def application(self) -> web.Application:
        """Its endpoints."""
        app = web.Application()
        app.router.add_post("/v1/completions", self.generate)
        app.router.add_post("/v1/chat/completions", self.generate)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/metrics", self.metrics)
        return app

    def tokens(self, prompt: Any) -> list[int]:
        """Ids of a prompt: as given, or one for each word."""
        if isinstance(prompt, list) and all(isinstance(one, int) for one in prompt):
            return [one % self.vocabulary for one in prompt]
        return [zlib.crc32(word.encode()) % self.vocabulary for word in str(prompt).split()] or [0]

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Answer a completion or a chat as server-sent events."""
        body = await request.json()
        chat = request.path.endswith("chat/completions")
        if body.get("model") != self.name:
            return web.json_response({"error": {"message": f"there is no model {body.get('model')!r}"}}, status=404)
        ids = self.tokens(body["messages"][-1]["content"] if chat else body["prompt"])
        queue: asyncio.Queue[Any] = asyncio.Queue()
        count = int(body.get("max_tokens") or 16)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.count += 1
        key = f"request-{self.count}"
        self.manager.register_result_handler(key, queue.put_nowait)  # before a first token can be lost
        self.manager.add_request(ids, key, max_new_tokens=count, streaming=True)
        self.open += 1
        sent = 0
        try:
            while sent < count:
                result = await queue.get()
                if result.error:
                    await response.write(event({"error": {"message": str(result.error)}}))
                    return response
                for token in result.generated_tokens[sent:count]:
                    sent += 1
                    reason = "length" if sent == count else None
                    part = {"delta": {"content": f" {token}"}} if chat else {"text": f" {token}"}
                    await response.write(event({"choices": [{"index": 0, **part, "finish_reason": reason}]}))
                if result.is_finished():
                    break
        finally:
            self.open -= 1
            if sent < count:  # the client has gone
                self.manager.cancel_request(key)
        if (body.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": len(ids), "completion_tokens": sent}
            await response.write(event({"choices": [], "usage": usage}))
        await response.write(b"data: [DONE]\n\n")
        return response

    async def models(self, request: web.Request) -> web.Response:
        """The one model."""
        return web.json_response({"data": [{"id": self.name, "object": "model", "created": int(time.time())}]})

    async def metrics(self, request: web.Request) -> web.Response:
        """Running requests, under vLLM's name."""
        return web.Response(text=f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {self.open}\n")


def event(content: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return f"data: {json.dumps(content)}\n\n".encode()


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--steps", metavar="FILE", help="Log the steps of the scheduler.")
    options = parser.parse_args()
    server = Server(options.size, batching(options.size, options.device, options.steps))
    print(f"serving {server.name} at http://127.0.0.1:{options.port}", flush=True)
    web.run_app(server.application(), host="127.0.0.1", port=options.port, print=None)
    server.manager.stop(block=True)


if __name__ == "__main__":
    main()
