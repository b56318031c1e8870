"""LoRA by peft on a small Llama: accumulated gradients, checkpoints of activations, accelerate."""

import torch
from accelerate import Accelerator
from common import DEVICE, batch, loop
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=4)
sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12, "vocab_size": 16000}
model = LlamaForCausalLM(LlamaConfig(num_attention_heads=16, num_key_value_heads=4, use_cache=False, **sizes))
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.enable_input_require_grads()
targets = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"]
model = get_peft_model(model, LoraConfig(r=16, target_modules=targets))
optimizer = torch.optim.AdamW([weights for weights in model.parameters() if weights.requires_grad], 1e-4)
model, optimizer = accelerator.prepare(model, optimizer)
tokens = torch.randint(0, 16000, (batch(4), 512), device=DEVICE)


def step():
    for _ in range(4):
        with accelerator.accumulate(model):
            accelerator.backward(model(input_ids=tokens, labels=tokens).loss)
            optimizer.step()
            optimizer.zero_grad()


loop(step)
