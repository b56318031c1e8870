"""A language model layer by layer: a small Llama or GPT-2 made from its configuration, with random weights.

    python examples/llm_by_layer.py [--device auto|cpu|sim:h100] [--model llama|gpt2]

Nothing is downloaded. Random weights take the time of trained ones, and about their power.
"""

import torch
from options import Arguments, parser
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import jouletrace as jt

MODELS = {
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8192,
            hidden_size=512,
            intermediate_size=1536,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=4,
        )
    ),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=8192, n_embd=512, n_layer=4, n_head=8)),
}

options = parser(__doc__)
options.add_argument("--model", choices=MODELS, default="llama")
options.add_argument("--tokens", type=int, default=256)
arguments = options.parse_args(namespace=Arguments())

torch.manual_seed(0)
model = MODELS[arguments.model]()
tokens = torch.randint(0, 8192, (arguments.batch or 8, arguments.tokens))

profiler = jt.LayerProfiler(model, arguments.device, mode=arguments.mode, name=arguments.model)
profiler.profile({"input_ids": tokens, "use_cache": False}, runs=arguments.runs, **arguments.times)

print(profiler.summary())
print(profiler.run.result("closure_layers"))
if arguments.output:
    print("written:", *profiler.to_csv(arguments.output))
