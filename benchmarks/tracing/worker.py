"""Iterations of a model by turns of half a second: as it is, with modules marked, and with operators for their share.

    worker.py encoder|vit|train|resnet SECONDS [plain]

Prints JSON: for each way, seconds an iteration of each turn. Without hooks, or with "plain", there is one way.
"""

import json
import sys
import time

import torch

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
ways = {"plain": None}
if hasattr(hooked, "__wrapped__") and "plain" not in sys.argv:
    ways |= {"modules": False, "operators": True}
    switch = hooked.__globals__["operators"][0]
found = {way: [] for way in ways}
until = time.time() + seconds
while time.time() < until:
    for way, operators in ways.items():
        torch.nn.Module.__call__ = hooked if operators is not None else getattr(hooked, "__wrapped__", hooked)
        if len(ways) > 1:
            switch.stop()
            switch._possible, switch._seen = bool(operators), hooked.__globals__["library"].cost()
        n, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < 0.5:
            step()
            n += 1
        torch.cuda.synchronize()
        found[way].append((time.perf_counter() - begin) / n)
print(json.dumps(found))
