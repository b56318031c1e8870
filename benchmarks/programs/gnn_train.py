"""A graph network in training, by torch_geometric: convolution and attention, on a random graph."""

import torch
from common import DEVICE, batch, loop
from torch.nn import functional
from torch_geometric.nn import GATConv, GCNConv

torch.manual_seed(0)
NODES, EDGES = 2000 * batch(100), 30_000 * batch(100)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.attention, self.last = GCNConv(256, 128), GATConv(128, 32, heads=4), GCNConv(128, 32)

    def forward(self, x, edges):
        x = functional.relu(self.first(x, edges))
        return self.last(functional.elu(self.attention(x, edges)), edges)


edges = torch.randint(0, NODES, (2, EDGES), device=DEVICE)
x, y = torch.randn(NODES, 256, device=DEVICE), torch.randint(0, 32, (NODES,), device=DEVICE)
net = Net().to(DEVICE)
optimizer = torch.optim.Adam(net.parameters(), 1e-3)


def step():
    optimizer.zero_grad()
    functional.cross_entropy(net(x, edges), y).backward()
    optimizer.step()


loop(step)
