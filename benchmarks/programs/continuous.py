"""Generation of a small Llama, a request after the other of drawn lengths."""

import torch
import transformers
from common import loop, seconds

config = transformers.LlamaConfig(
    hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4,
    vocab_size=32000,
)  # fmt: skip
model = transformers.LlamaForCausalLM(config).cuda().bfloat16().eval()
generator = torch.Generator().manual_seed(0)


@torch.no_grad()
def step():
    length = int(torch.randint(64, 512, (1,), generator=generator))
    ids = torch.randint(10, 32000, (8, length), device="cuda")
    with torch.profiler.record_function("generate"):
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, min_new_tokens=32, do_sample=False)


loop(step, torch.cuda.synchronize, seconds())
