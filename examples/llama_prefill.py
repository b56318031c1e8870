"""Reads 150 batches of prompts with a Llama of 1.2 billion parameters; its attention is the first argument.

jouletrace run examples/llama_prefill.py eager
jouletrace run examples/llama_prefill.py sdpa
"""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

size = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
config = LlamaConfig(**size, intermediate_size=8192, attn_implementation=sys.argv[1])
with torch.device("cuda"):
    model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    prompts = torch.randint(0, config.vocab_size, (4, 4, 1024))

scores = []
with torch.inference_mode():
    for step in range(150):
        logits = model(prompts[step % 4], use_cache=False, logits_to_keep=1).logits
        scores.append(logits.float().logsumexp(-1).mean())
print(f"{len(scores)} batches, mean score {torch.stack(scores).mean().item():.3f}")
