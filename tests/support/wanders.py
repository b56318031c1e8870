"""Workloads that change the folder of the program, while they are made or when they are called."""

WANDERS = """
import os

def go():
    os.makedirs("elsewhere", exist_ok=True)
    os.chdir("elsewhere")

def wanders(batch=1):
    import torch
    go()
    return torch.nn.Linear(256, 256), torch.randn(batch, 256)

def loses_itself():
    def call(x):
        go()
    return call, (1,)
"""
