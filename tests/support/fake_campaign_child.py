"""Stands for ``jouletrace.campaign.child``: says what the real one says, does what its workload asks for.

What it does is written into ``FAKE_CAMPAIGN/log``; a profile gives the Run in ``FAKE_CAMPAIGN/template``.
"""

import json
import os
import shutil
import sys
import time

HOME = os.environ.get("FAKE_CAMPAIGN", "")


def say(**message):
    print(json.dumps(message), flush=True)


def order():
    return json.loads(sys.stdin.readline())


def load(workload):
    if workload == "hoarse":
        say(**{"is": "failed", "reason": "out_of_memory", "text": "out of memory", "code": 3})
        sys.exit(1)
    say(**{"is": "done", "items": 1})
    order()
    if workload != "short":
        sys.stdin.read()
    sys.exit(0)


def profile(workload, folder, settings):
    second = os.environ.get("CUDA_VISIBLE_DEVICES", "").endswith("01")
    os.makedirs(folder)
    with open(os.path.join(folder, "samples"), "w") as file:
        file.write("what a profile records")
    say(**{"is": "phase", "name": "warm-up", "seconds": 1.0})
    if workload == "dies" and second:
        os.kill(os.getpid(), 9)
    if workload == "hangs" and second:
        time.sleep(3600)
    if workload == "memory" and second:
        say(**{"is": "failed", "reason": "out_of_memory", "text": "gemm: out of memory", "code": 3})
        sys.exit(1)
    say(**{"is": "ready"})
    at_ns = order()["at_ns"]
    time.sleep(max(0.0, (at_ns - time.time_ns()) / 1e9))
    start_ns = time.time_ns()
    if workload == "dies late" and second:
        os.kill(os.getpid(), 9)
    time.sleep(0.1)
    shutil.rmtree(folder)
    shutil.copytree(os.path.join(HOME, "template"), folder)
    with open(os.path.join(HOME, "log"), "a") as file:
        seen = {"gpu": settings["device"], "shown": os.environ.get("CUDA_VISIBLE_DEVICES"), "at_ns": at_ns}
        file.write(json.dumps({**seen, "start_ns": start_ns, "end_ns": time.time_ns()}) + "\n")
    say(**{"is": "done"})


asked = order()
if asked["do"] == "load":
    load(asked["workload"])
profile(asked["workload"], asked["folder"], asked["settings"])
