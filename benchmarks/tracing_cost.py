"""The tracer's cost in programs that launch many small kernels, by turns within one process.

    python benchmarks/tracing_cost.py OUT.json [NAME ...]

Each program works in turns of a quarter of a second: as it is; with CUPTI's records; with modules, too; with operators
as a Run has them; with operators all the while. In its first seconds turns as it is and as a Run has it alternate. A
cost is the time of a step above that as it is, in per cent, with a 95 % interval from drawing turns again.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FIRST_S, STEADY_S, TURN_S = 20.0, 40.0, 0.25
"""Lengths, s: of the beginning, of which half is as a Run has it; of the rest; of a turn."""

WAYS = ("plain", "records", "modules", "product", "operators")


def denoise():
    """A service that denoises in 20 steps by a U-Net of many small modules; a step is one call of the U-Net."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inside, out):
            super().__init__()
            self.norm1, self.conv1 = nn.GroupNorm(8, inside), nn.Conv2d(inside, out, 3, padding=1)
            self.norm2, self.conv2 = nn.GroupNorm(8, out), nn.Conv2d(out, out, 3, padding=1)
            self.time, self.act = nn.Linear(128, out), nn.SiLU()
            self.skip = nn.Conv2d(inside, out, 1) if inside != out else nn.Identity()

        def forward(self, x, t):
            h = self.conv1(self.act(self.norm1(x))) + self.time(self.act(t))[:, :, None, None]
            return self.conv2(self.act(self.norm2(h))) + self.skip(x)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = (64, 128, 192, 256)
            self.first, self.time = nn.Conv2d(4, 64, 3, padding=1), nn.Sequential(nn.Linear(64, 128), nn.SiLU())
            self.down = nn.ModuleList(Block(a, b) for a, b in zip((64, *widths), widths, strict=False))
            self.mid = Block(256, 256)
            self.up = nn.ModuleList(Block(2 * b, a) for a, b in zip((64, *widths), widths, strict=False))
            self.pool, self.grow = nn.AvgPool2d(2), nn.Upsample(scale_factor=2)
            self.last = nn.Sequential(nn.GroupNorm(8, 64), nn.SiLU(), nn.Conv2d(64, 4, 3, padding=1))

        def forward(self, x, t):
            t, x, kept = self.time(t), self.first(x), []
            for block in self.down:
                x = block(x, t)
                kept.append(x)
                x = self.pool(x)
            x = self.mid(x, t)
            for block, skip in zip(reversed(self.up), reversed(kept), strict=True):
                x = block(torch.cat([self.grow(x), skip], 1), t)
            return self.last(x)

    model = UNet().cuda().half().eval()
    latents, times = torch.randn(1, 4, 32, 32, device="cuda").half(), torch.randn(20, 1, 64, device="cuda").half()
    state = {"x": latents, "n": 0}

    @torch.inference_mode()
    def step():
        noise = model(state["x"], times[state["n"] % 20])
        state["n"] += 1
        state["x"] = state["x"] - 0.05 * noise if state["n"] % 20 else torch.randn_like(latents)

    return step


def rollouts():
    """Reinforcement learning: a step is 32 acts of 64 environments on the GPU, and an update of the policy by them."""
    import torch
    from torch import nn

    policy = nn.Sequential(nn.Linear(16, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 4)).cuda()
    value = nn.Sequential(nn.Linear(16, 128), nn.Tanh(), nn.Linear(128, 1)).cuda()
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], 1e-4)
    world = torch.randn(4, 16, 16, device="cuda") / 4

    def step():
        state, seen, acts, rewards = torch.randn(64, 16, device="cuda"), [], [], []
        with torch.no_grad():
            for _ in range(32):
                act = torch.distributions.Categorical(logits=policy(state)).sample()
                seen.append(state)
                acts.append(act)
                state = torch.tanh(torch.einsum("nij,nj->ni", world[act], state) + 0.1 * torch.randn_like(state))
                rewards.append(-state.square().mean(1))
        seen, acts = torch.cat(seen), torch.cat(acts)
        gain = torch.stack(rewards).flip(0).cumsum(0).flip(0).reshape(-1)
        for _ in range(2):
            chance = torch.distributions.Categorical(logits=policy(seen))
            ahead = gain - value(seen).squeeze(1)
            loss = ahead.square().mean() - (chance.log_prob(acts) * ahead.detach()).mean()
            loss -= 0.01 * chance.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    return step


def embeddings():
    """A service of embeddings: a step is a batch of 1 to 4 texts of 4 to 256 tokens, embedded for the host."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, activation=nn.functional.gelu, dropout=0)
    torch.backends.mha.set_fastpath_enabled(False)
    table = nn.Embedding(30_000, 384).cuda().half().eval()
    model = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda().half().eval()

    @torch.inference_mode()
    def step():
        size = random.randint(1, 4), random.randint(4, 256)
        texts = torch.randint(30_000, size, device="cuda")
        return nn.functional.normalize(model(table(texts)).mean(1), dim=-1).cpu()

    return step


def vit_training():
    """Training of a small vision transformer at batch 16; a step is one of the optimizer."""
    import torch
    import torchvision

    model = torchvision.models.VisionTransformer(64, 8, 8, 6, 192, 768, num_classes=10).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    images, labels = torch.randn(16, 3, 64, 64, device="cuda"), torch.randint(10, (16,), device="cuda")

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


PROGRAMS = {make.__name__: make for make in (denoise, rollouts, embeddings, vit_training)}


def work(name: str) -> None:
    """Print what each turn took: way, steps, seconds, events of operators, and when it began."""
    import torch

    torch.manual_seed(0)
    torch.cuda.init()
    step = PROGRAMS[name]()
    call = torch.nn.Module.__call__
    plain, library, switch = call.__wrapped__, call.__globals__["library"], call.__globals__["operators"][0]
    possible = switch._possible
    kept, switch_affordable = [switch._credit], switch._affordable

    def turn(way: str) -> dict[str, object]:
        library.resume() if way != "plain" else library.pause()
        switch.stop()
        torch.nn.Module.__call__ = plain if way in ("plain", "records") else call
        switch._possible = possible and way in ("product", "operators")
        switch._seen, switch._credit = library.cost(), kept[0]
        switch._affordable = switch_affordable if way == "product" else lambda on: True
        random.seed(0)  # each turn has the same draws
        if way != "product":
            step()
        torch.cuda.synchronize()
        events, steps, began = library.cost()[0], 0, time.perf_counter()
        while time.perf_counter() - began < TURN_S:
            step()
            steps += 1
        torch.cuda.synchronize()
        took = time.perf_counter() - began
        if way == "product":
            kept[0] = switch._credit
        return {"way": way, "steps": steps, "s": took, "events": library.cost()[0] - events, "at": began - start}

    start, turns = time.perf_counter(), []
    while time.perf_counter() - start < FIRST_S:
        turns += [turn("plain"), turn("product")]
    turns += [turn(way) for way in WAYS * 2]
    first = len(turns)
    while time.perf_counter() - start < FIRST_S + STEADY_S:
        turns += [turn(way) for way in WAYS]
    print(json.dumps({"first": first, "turns": turns}))


def cost(turns: list[dict], way: str, base: str = "plain") -> str:
    """Time of a step above that of another way, in per cent of that as it is, with its interval."""
    pairs, last = [], {}
    for one in turns:
        last[one["way"]] = one["s"] / one["steps"]
        if one["way"] == way and base in last:
            pairs.append((last[way] - last[base], last["plain"]))
    over = np.array(pairs)
    drawn = np.random.default_rng(0).integers(len(over), size=(1000, len(over)))
    ratios = 100 * np.median(over[drawn, 0], axis=1) / np.median(over[drawn, 1], axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return f"{100 * np.median(over[:, 0]) / np.median(over[:, 1]):+5.1f} [{low:+.1f}, {high:+.1f}]"


def main() -> None:
    """Measure the programs, print their costs, and keep all turns."""
    from jouletrace.tracer.launching import Duty, environment

    found = {}
    for name in sys.argv[2:] or list(PROGRAMS):
        with tempfile.TemporaryDirectory() as folder:
            variables = environment(Path(folder), operators=True, duty=Duty())
            done = subprocess.run(
                [sys.executable, __file__, "--work", name],
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
        if done.returncode:
            print(name, "failed:", done.stderr[-1500:])
            continue
        found[name] = said = json.loads(done.stdout.splitlines()[-1])
        beginning = [one for one in said["turns"][: said["first"]] if one["at"] < FIRST_S]
        steady = said["turns"][said["first"] :]
        plain = [one["s"] / one["steps"] for one in steady if one["way"] == "plain"]
        marked = [one for one in steady if one["way"] == "operators"]
        events = sum(one["events"] for one in marked) / sum(one["steps"] for one in marked)
        each = np.median([one["s"] / one["steps"] for one in marked])
        each -= np.median([one["s"] / one["steps"] for one in steady if one["way"] == "modules"])
        print(f"{name}: a step takes {1e3 * np.median(plain):.2f} ms as it is, {len(plain)} turns")
        print(f"  records {cost(steady, 'records')} %; modules {cost(steady, 'modules', 'records')} points more")
        print(f"  operators {cost(steady, 'product', 'modules')} points more; all the while", end=" ")
        print(f"{cost(steady, 'operators', 'modules')}, {events:.0f} a step, {1e9 * each / max(events, 1):.0f} ns each")
        print(f"  modules and operators {cost(steady, 'product', 'records')} points above records")
        print(f"  all {cost(steady, 'product')} %; in the first seconds {cost(beginning, 'product')} %", flush=True)
    Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    work(sys.argv[2]) if sys.argv[1] == "--work" else main()
