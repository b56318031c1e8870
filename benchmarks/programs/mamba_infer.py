"""Mamba of transformers at batch 4, its slow path: thousands of tiny kernels, bound by their launches."""

import torch
from common import DEVICE, batch, loop
from transformers import MambaConfig, MambaForCausalLM

torch.manual_seed(0)
config = MambaConfig(hidden_size=768, num_hidden_layers=6, vocab_size=16000, use_cache=False)
model = MambaForCausalLM(config).to(DEVICE).half().eval()
tokens = torch.randint(0, 16000, (batch(4), 128), device=DEVICE)


@torch.inference_mode()
def step():
    model(input_ids=tokens)


loop(step)
