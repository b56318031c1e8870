"""A server as a command, and a GPU beside it whose energy is known: so much for each second and each token."""

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

IDLE_W, TOKEN_J, STEP_S = 100.0, 0.5, 0.1


def command(port, spent, size="{size}"):
    """The words that start it; ``spent`` is the file that grows by a byte with each token, or by more.

    A ``size`` of 64 takes a byte for a token, another one two. "dies" ends at once, "hangs" never answers.
    """
    return [sys.executable, __file__, str(port), str(spent), size]


def free_port():
    """A port of this machine that nothing has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def metered(spent):
    """The address of a monitor's page of the GPU that the server runs on."""
    from metric_server import Page, serving  # the server itself runs without other helpers

    spent.touch()

    def text():
        now = time.time()
        labels = '{gpu="0",uuid="GPU-a",name="H100",simulated="true"}'
        until = now // STEP_S * STEP_S
        joules = IDLE_W * (until - 1.7e9) + TOKEN_J * spent.stat().st_size
        return (
            f"jouletrace_time_seconds {now!r}\njouletrace_energy_joules_total{labels} {joules!r}\n"
            f"jouletrace_energy_timestamp_seconds{labels} {until!r}\n"
        )

    with serving(Page(text)) as page:
        yield page.url


class Counted:
    """Counts the tokens of a server's answers."""

    def __init__(self, server, spent, weight):
        self.server, self.spent, self.weight = server, spent, weight

    async def answer(self, request):
        """Stream an answer."""
        response = await type(self.server).answer(self.server, request)
        with open(self.spent, "ab") as file:
            file.write(b"." * self.weight * self.server.asked[-1]["max_tokens"])
        return response


def main(port, spent, size, *_):
    """Serve until a signal."""
    from completion_server import Server, answering

    with open(f"{spent}.started", "a") as file:
        file.write(f"{size} {os.environ.get('MODE')}\n")
    if size == "dies":
        sys.exit(f"no such size; the key is {os.environ.get('OPENAI_API_KEY')}")
    child = subprocess.Popen(["sleep", "600"])
    Path(f"{spent}.pids").write_text(f"{os.getpid()} {child.pid}")
    if size == "hangs":
        time.sleep(600)
    server = Server(port=int(port), key=os.environ.get("OPENAI_API_KEY", ""))
    server.answer = Counted(server, spent, 1 if size == "64" else 2).answer
    with answering(server):
        time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
