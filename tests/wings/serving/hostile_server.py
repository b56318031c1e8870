"""A local OpenAI-compatible server that treats its clients badly: ``/MODE/v1/...`` of one server has each mode."""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from base64 import b64encode
from collections import Counter
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote


def event(value):
    return f"data: {json.dumps(value)}\n\n".encode()


TOKEN = event({"choices": [{"text": "a ", "finish_reason": None}]})
END = (
    event({"choices": [{"text": "", "finish_reason": "length"}]})
    + event({"choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": 4}})
    + b"data: [DONE]\n\n"
)
MODELS = b'{"data": [{"id": "m"}]}'


@cache
def bomb(mebibytes):
    """So many MiB of line ends, packed."""
    packer, blank = zlib.compressobj(9, wbits=31), b"\n" * (1 << 20)
    return b"".join([packer.compress(blank) for _ in range(mebibytes)] + [packer.flush()])


class Hostile:
    """The server.

    Attributes:
        url: Where it listens.
        elsewhere: Where its redirects lead.
        asked: Requests by mode and method.
        longest: Bytes of the longest answer that a client took.
        secret: What it repeats in place of the key that it was sent; "" for that key.
    """

    def __init__(self):
        self.url, self.elsewhere, self.asked, self.longest = "", "", Counter(), 0
        self.secret = ""
        self.bomb = bomb(600)


@contextmanager
def hostile(server=None):
    """A server, until the end of the block."""
    state = server or Hostile()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def whole(self, body, status=200, **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def stream(self, *parts, **headers):
            self.send_response(200)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in parts:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")

        def endless(self, part, first=b""):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(first)
            sent = 0
            try:
                while sent < 1 << 32:
                    self.wfile.write(part)
                    sent += len(part)
            finally:
                state.longest = max(state.longest, sent)
                self.close_connection = True

        def do_GET(self):
            mode, page = self.path.split("/")[1], self.path.rpartition("/")[2]
            state.asked[mode, page] += 1
            try:
                if mode == "gzip-page":
                    self.whole(state.bomb, Content_Encoding="gzip")
                elif mode == "endless-page":
                    self.endless(b"# x\n" * (1 << 14))
                elif mode == "other-page" and page != "moved":
                    self.whole(b"", 302, Location=state.elsewhere + self.path)
                elif mode == "dropped-page" and state.asked[mode, page] % 2:
                    self.close_connection = True
                elif mode == "own-page" and page != "moved":
                    self.whole(b"", 307, Location=self.path + "/moved")
                elif "models" in self.path:
                    self.whole(gzip.compress(MODELS), Content_Encoding="gzip")
                elif "metrics" in self.path:
                    self.whole(b"# TYPE work_total counter\nwork_total 3\n")
                else:
                    self.whole(b"", 404)
            except OSError:
                pass

        def do_POST(self):
            mode = self.path.split("/")[1]
            state.asked[mode, "POST"] += 1
            self.rfile.read(int(self.headers["Content-Length"]))
            key = state.secret or self.headers.get("Authorization", "").removeprefix("Bearer ")
            try:
                if state.asked[mode, "POST"] == 1 and mode != "refused":
                    self.stream(TOKEN * 4 + END)
                elif mode == "refused":
                    self.whole(json.dumps({"error": {"message": f"bad key Bearer {key}"}}).encode(), 401)
                elif mode == "echo":
                    self.stream(event({"error": f"Incorrect API key provided: {key} (really)"}))
                elif mode == "echo-spelt":
                    base = b64encode(f"user:{key}".encode()).decode()
                    self.stream(event({"error": f"{quote(key, safe='')} and {json.dumps(key)} and Basic {base}"}))
                elif mode == "echo-cut":
                    self.whole(("x" * 190 + f" {key}").encode(), 503)
                elif mode == "endless":
                    self.endless(TOKEN * 500)
                elif mode == "endless-line":
                    self.endless(b"a" * (1 << 16), b'data: {"choices":[{"text":"')
                elif mode == "gzip":
                    self.stream(state.bomb, Content_Encoding="gzip")
                elif mode == "other":
                    self.whole(b"", 307, Location=state.elsewhere + self.path)
                elif mode == "wordless":
                    self.whole(b"", 500)
                elif mode == "drops":  # after each answer, unannounced
                    self.stream(TOKEN * 4 + END)
                    self.close_connection = True
                elif mode == "hangs-up":  # instead of an answer
                    self.close_connection = True
                else:
                    self.stream(TOKEN * 4 + END)
            except OSError:
                pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    state.url = f"http://127.0.0.1:{listening.server_address[1]}"
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
