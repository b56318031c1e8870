"""Iterations of a model by turns: as it is, with CUPTI's records, with modules, and with operators.

    worker.py encoder|vit|train|resnet SECONDS

It runs with the tracer's library, which leaves CUPTI for the turns without it. Prints JSON: for each way the ns of each
step of each turn, and how many events torch emits a step where operators are marked.
"""

import itertools
import json
import sys
import time

import torch

TURN_S = 0.25
name, seconds = sys.argv[1], float(sys.argv[2])
torch.manual_seed(0)
torch.cuda.init()

if name in ("vit", "resnet"):
    import torchvision

    size = 1 if name == "vit" else 64
    model = (torchvision.models.vit_b_16() if name == "vit" else torchvision.models.resnet50()).cuda().half()
    data = torch.randn(size, 3, 224, 224, device="cuda").half()
else:
    layer = torch.nn.TransformerEncoderLayer(
        384, 6, 1536, batch_first=True, activation=torch.nn.functional.gelu, dropout=0
    )
    model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda()
    data = torch.randn(1, 197, 384, device="cuda")
    torch.backends.mha.set_fastpath_enabled(False)

if name in ("train", "resnet"):
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)

    def step():
        optimizer.zero_grad()
        model(data).float().square().mean().backward()
        optimizer.step()
else:
    model, data = model.half().eval(), data.half()

    @torch.inference_mode()
    def step():
        model(data)


for _ in range(20):
    step()
torch.cuda.synchronize()
hooked = torch.nn.Module.__call__
plain, library, switch = hooked.__wrapped__, hooked.__globals__["library"], hooked.__globals__["operators"][0]
WAYS = ("plain", "records", "modules", "operators")


def take(way):
    """Have CUPTI record or not, and modules and operators marked or not, operators all the while."""
    library.resume() if way != "plain" else library.pause()
    switch.stop()
    torch.nn.Module.__call__ = hooked if way in ("modules", "operators") else plain
    switch._possible, switch._seen, switch._credit = way == "operators", library.cost(), 1e12


found = {way: [] for way in WAYS}
events = steps = 0
until = time.time() + seconds
while time.time() < until:
    for way in WAYS:
        take(way)
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        before, times = library.cost()[0], [time.perf_counter()]
        while times[-1] - times[0] < TURN_S:
            step()
            times.append(time.perf_counter())
        if way == "operators":
            events, steps = events + library.cost()[0] - before, steps + len(times) - 1
        torch.cuda.synchronize()
        found[way].append([round(1e9 * (b - a)) for a, b in itertools.pairwise(times)])
print(json.dumps({"ways": found, "events": events / steps}))
