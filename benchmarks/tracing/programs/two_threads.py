"""Two threads, each with a convolutional model and a stream of its own."""

import threading

import torch
from loop import loop

torch.manual_seed(4)


def network(width):
    parts, before = [], 3
    for size in (width, 2 * width, 4 * width):
        parts += [
            torch.nn.Conv2d(before, size, 3, padding=1),
            torch.nn.BatchNorm2d(size),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        ]
        before = size
    return torch.nn.Sequential(*parts, torch.nn.Flatten(), torch.nn.LazyLinear(10)).cuda().eval()


models = [network(16), network(24)]
streams = [torch.cuda.Stream() for _ in models]
images = [torch.randn(8, 3, 64, 64, device="cuda") for _ in models]


@torch.inference_mode()
def one(k):
    with torch.cuda.stream(streams[k]):
        for _ in range(3):
            models[k](images[k]).argmax(-1)


def step():
    threads = [threading.Thread(target=one, args=(k,)) for k in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


loop(step, torch.cuda.synchronize)
