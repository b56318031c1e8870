"""A local OpenAI-compatible server whose speed and faults tests choose; in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Server:
    """How it answers.

    Attributes:
        models: What /v1/models lists; None for no such page.
        key: If set, what requests must bring.
        first_s, token_s: Seconds to the first token, and between tokens.
        usage, ids, ignore_eos: Whether it states usage, takes token ids, takes ``ignore_eos``.
        chat_only: Whether /v1/completions is missing.
        dies_after: Requests after which it breaks connections off in the middle.
        error_after: Requests after which streams hold an error.
        status_after: Requests after which it answers 503.
        most_tokens: Tokens of an answer at most.
        counted: What it states of the tokens of prompts and answers after the first answer; None for the truth.
        listed_text: Text of /v1/models in place of ``models``.
        metrics: Text of /metrics; None for no such page.
        asked: Bodies of all requests.
        port: Where it listens; 0 for any that is free.
    """

    models: tuple[str, ...] | None = ("little",)
    key: str = ""
    first_s: float = 0.005
    token_s: float = 0.001
    usage: bool = True
    ids: bool = True
    ignore_eos: bool = True
    chat_only: bool = False
    dies_after: int = 10**9
    error_after: int = 10**9
    status_after: int = 10**9
    most_tokens: int = 10**9
    counted: object = None
    listed_text: str | None = None
    metrics: str | None = None
    asked: list[dict] = field(default_factory=list)
    url: str = ""
    port: int = 0

    def refused(self, request, body):
        """A refusal of a request, or None."""
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "wrong key"}}, status=401)
        if body is None:
            return None
        if self.models is not None and self.listed_text is None and body.get("model") not in self.models:
            return web.json_response({"error": {"message": f"no {body.get('model')}"}}, status=404)
        if not self.ids and isinstance(body.get("prompt"), list):
            return web.json_response({"error": {"message": "prompt must be a string"}}, status=422)
        if not self.ignore_eos and "ignore_eos" in body:
            return web.json_response({"error": {"message": "unknown field ignore_eos"}}, status=400)
        if len(self.asked) > self.status_after:
            return web.json_response({"error": {"message": "overloaded"}}, status=503)
        return None

    async def answer(self, request):
        """Stream an answer."""
        body = await request.json()
        self.asked.append(body)
        if (refusal := self.refused(request, body)) is not None:
            return refusal
        chat = request.path.endswith("chat/completions")
        number = len(self.asked)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        count = min(body["max_tokens"], self.most_tokens)
        if chat:
            await response.write(_event({"choices": [{"delta": {"role": "assistant", "content": ""}}]}))
        await asyncio.sleep(self.first_s)
        for n in range(count):
            if n:
                await asyncio.sleep(self.token_s)
            reason = "length" if n == count - 1 else None
            part = {"delta": {"content": " w"}} if chat else {"text": " w"}
            await response.write(_event({"choices": [{"index": 0, **part, "finish_reason": reason}]}))
            if n == count // 2 and number > self.error_after:
                await response.write(_event({"error": {"message": "out of memory"}}))
                return response
            if n == count // 2 and number > self.dies_after:
                request.transport.abort()
                return response
        if self.usage and body.get("stream_options"):
            prompt = body.get("prompt") or body["messages"][0]["content"]
            size = len(prompt if isinstance(prompt, list) else prompt.split())
            if self.counted is not None and number > 1:
                size = count = self.counted
            await response.write(_event({"choices": [], "usage": {"prompt_tokens": size, "completion_tokens": count}}))
        await response.write(b"data: [DONE]\n\n")
        return response

    async def listed(self, request):
        """The models."""
        if (refusal := self.refused(request, None)) is not None:
            return refusal
        if self.listed_text is not None:
            return web.Response(text=self.listed_text)
        if self.models is None:
            return web.Response(status=404)
        return web.json_response({"data": [{"id": name} for name in self.models]})

    async def page(self, request):
        """The metrics."""
        return web.Response(status=404) if self.metrics is None else web.Response(text=self.metrics)


def _event(value):
    return f"data: {json.dumps(value)}\n\n".encode()


@contextmanager
def answering(server):
    """The server, listening at ``server.url``, until the end of the block."""
    loop = asyncio.new_event_loop()

    async def start():
        app = web.Application()
        if not server.chat_only:
            app.router.add_post("/v1/completions", server.answer)
        app.router.add_post("/v1/chat/completions", server.answer)
        app.router.add_get("/v1/models", server.listed)
        app.router.add_get("/metrics", server.page)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", server.port)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    runner = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
