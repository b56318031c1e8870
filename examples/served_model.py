"""A model behind HTTP that counts its work for Prometheus, as inference servers do.

    python examples/served_model.py --port 8000 --requests-per-s 20 --gpu &
    jouletrace monitor --per http://127.0.0.1:8000/metrics#served_tokens_total --duration 30

``POST /generate`` makes so many tokens and answers with them; ``GET /metrics`` says how many were
made in all. With ``--requests-per-s`` it keeps itself busy, so that there is something to see.
"""

from __future__ import annotations

import argparse
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model:
    """A stand-in for a language model: each token takes its time, and keeps the GPU busy if asked to."""

    def __init__(self, seconds_per_token: float, gpu: bool = False) -> None:
        self.seconds_per_token = seconds_per_token
        self.tokens = {"prompt": 0, "generation": 0}
        self.lock = threading.Lock()
        self.weights = None
        if gpu:
            import torch

            self.weights = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)

    def generate(self, prompt: str, n: int) -> str:
        """So many tokens after a prompt."""
        words = []
        with self.lock:
            self.tokens["prompt"] += len(prompt.split())
            for i in range(n):
                end = time.monotonic() + self.seconds_per_token
                while self.weights is not None and time.monotonic() < end:
                    (self.weights @ self.weights).sum().item()
                time.sleep(max(end - time.monotonic(), 0.0))
                words.append(f"token{i}")
                self.tokens["generation"] += 1  # as it is made: work and energy go together
        return " ".join(words)

    def metrics(self) -> str:
        """The page that Prometheus reads."""
        lines = ["# HELP served_tokens_total Tokens that went through the model.", "# TYPE served_tokens_total counter"]
        lines += [f'served_tokens_total{{kind="{kind}"}} {count}' for kind, count in self.tokens.items()]
        return "\n".join(lines) + "\n"


def server(model: Model, port: int) -> ThreadingHTTPServer:
    """A server of the model on this machine only."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/metrics"
            self.answer(200 if found else 404, model.metrics() if found else "GET /metrics or POST /generate\n")

        def do_POST(self) -> None:
            prompt = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            self.answer(200, model.generate(prompt, 16) + "\n")

        def answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    """Serve until Ctrl-C."""
    options = argparse.ArgumentParser(description="A model behind HTTP with a counter of tokens")
    options.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    options.add_argument("--seconds-per-token", type=float, default=0.002)
    options.add_argument("--requests-per-s", type=float, default=0.0, help="requests that it makes to itself")
    options.add_argument("--gpu", action="store_true", help="multiply matrices on the GPU for each token")
    options.add_argument("--seconds", type=float, default=float("inf"), help="end after so long")
    chosen = options.parse_args()
    model = Model(chosen.seconds_per_token, chosen.gpu)
    with server(model, chosen.port) as serving:
        print(f"http://127.0.0.1:{serving.server_address[1]}/metrics#served_tokens_total", flush=True)
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        end = time.monotonic() + chosen.seconds
        try:
            while time.monotonic() < end:
                if chosen.requests_per_s > 0:
                    model.generate("a prompt of five words", 16)
                    time.sleep(1 / chosen.requests_per_s)
                else:
                    time.sleep(min(end - time.monotonic(), 3600.0))
        except KeyboardInterrupt:
            pass
        serving.shutdown()


if __name__ == "__main__":
    main()
