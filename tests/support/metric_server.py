"""A local HTTP server whose page of metrics tests can change, break and slow down."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Page:
    """Answers of the server.

    Attributes:
        text: The page, or a function that makes it.
        status: HTTP status.
        wait_s: Seconds before it answers.
        drip_s: Seconds between the bytes of an answer; 0 sends it at once.
        asked: Requests so far.
        moved: By path: where a request for it is redirected to.
        closing: Set when it ends, so that no answer is waited for any more.
    """

    def __init__(self, text="", status=200, wait_s=0.0, drip_s=0.0):
        self.text, self.status, self.wait_s, self.drip_s = text, status, wait_s, drip_s
        self.asked = 0
        self.moved = {}
        self.closing = threading.Event()
        self.url = ""


@contextmanager
def serving(page, port=0):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            page.asked += 1
            page.closing.wait(page.wait_s)
            body = (page.text() if callable(page.text) else page.text).encode()
            try:
                if self.path in page.moved:
                    self.send_response(302)
                    self.send_header("Location", page.moved[self.path])
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(page.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if not page.drip_s:
                    self.wfile.write(body)
                    return
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(page.drip_s)
            except OSError:
                pass

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    page.url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
    page.closing.clear()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield page
    finally:
        page.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def counter_page(value, name="tokens_total", kind="counter"):
    return f"# TYPE {name} {kind}\n{name} {value}\n"
