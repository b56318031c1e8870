"""Stands for ``jouletrace.addons.fleet.child``: says what the real one says, does what its workload asks for."""

import json
import os
import sys
import time


def say(**message):
    print(json.dumps(message), flush=True)


order = json.loads(sys.stdin.readline())
if "noise" in order:
    if order["noise"]["workload"] == "hoarse":
        say(**{"is": "failed", "reason": "out_of_memory", "text": "out of memory"})
        sys.exit(1)
    say(**{"is": "ready"})
    sys.stdin.readline()
    if order["noise"]["workload"] == "short":
        sys.exit(0)
    sys.stdin.read()
    say(**{"is": "done", "iterations": 1})
    sys.exit(0)
measure = order["measure"]
workload, gpu = measure["settings"]["workload"], measure["gpu"]
with open(os.path.join(measure["scratch"], str(gpu["index"])), "w") as file:
    file.write("what a profile records")
say(**{"is": "phase", "name": "warm-up", "seconds": 1.0})
if workload == "dies" and gpu["index"] == 1:
    os.kill(os.getpid(), 9)
if workload == "hangs" and gpu["index"] == 1:
    time.sleep(3600)
if workload == "memory" and gpu["index"] == 1:
    say(**{"is": "failed", "reason": "out_of_memory", "text": "gemm: out of memory"})
    sys.exit(1)
say(**{"is": "ready"})
at_ns = json.loads(sys.stdin.readline())["at_ns"]
time.sleep(max(0.0, (at_ns - time.time_ns()) / 1e9))
start_ns = time.time_ns()
if workload == "dies late" and gpu["index"] == 1:
    os.kill(os.getpid(), 9)
time.sleep(0.1)
with open(os.path.join(measure["store"], f"{gpu['index']}-{measure['repeat']}"), "w") as file:
    json.dump({"start_ns": start_ns, "end_ns": time.time_ns(), "at_ns": at_ns, "order": measure["order"]}, file)
with open(os.path.join(measure["store"], "log"), "a") as file:
    seen = {key: measure[key] for key in ("repeat", "order")}
    seen |= {"gpu": gpu["index"], "shown": os.environ.get("CUDA_VISIBLE_DEVICES")}
    file.write(json.dumps(seen) + "\n")
say(**{"is": "done"})
