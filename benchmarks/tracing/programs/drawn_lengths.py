"""An encoder that is trained on sequences of drawn lengths, with the loss read by the host."""

import torch
from loop import loop

torch.manual_seed(1)
layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
model = torch.nn.Sequential(
    torch.nn.Embedding(1000, 256), torch.nn.TransformerEncoder(layer, 4), torch.nn.Linear(256, 1000)
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
losses = []


def step():
    words = torch.randint(1000, (8, int(torch.randint(16, 256, ()))), device="cuda")
    loss = torch.nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())


loop(step, torch.cuda.synchronize)
