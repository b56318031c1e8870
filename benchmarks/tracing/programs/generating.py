"""A language model that generates, by transformers."""

import torch
from loop import loop
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(5)
config = LlamaConfig(
    hidden_size=512, intermediate_size=1376, num_hidden_layers=6, num_attention_heads=8, vocab_size=2000
)
model = LlamaForCausalLM(config).cuda().half().eval()


@torch.inference_mode()
def step():
    words = torch.randint(2000, (4, 48), device="cuda")
    model.generate(words, max_new_tokens=16, do_sample=True, pad_token_id=0)


loop(step, torch.cuda.synchronize)
