"""Threads that launch kernels and hold the interpreter's lock, forks, and an end in the middle of it all.

The program ends by ``os._exit`` with 7 after some seconds, while kernels run and CUPTI hands buffers over.
"""

import os
import threading
import time

import torch
from common import seconds

data = [torch.randn(256, 256, device="cuda") for _ in range(4)]


def launch(matrix):
    while True:
        for _ in range(200):
            matrix = (matrix @ matrix).softmax(0)


def hold():
    while True:
        sum(range(2_000_000))  # one call that doesn't give the lock away for long


def fork():
    while True:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        time.sleep(0.2)


for matrix in data:
    threading.Thread(target=launch, args=(matrix,), daemon=True).start()
for target in (hold, fork):
    threading.Thread(target=target, daemon=True).start()
time.sleep(seconds(8.0))
os._exit(7)
