"""The built-in models: one entry each. Sizes are those of the papers; weights are random.

To add a model, add an entry: its class in transformers, the changes from the defaults of its
configuration, and for a language model its default sequence length. Its inputs follow from the class.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ModelEntry:
    """A built-in model.

    Attributes:
        model: Class in transformers.
        config: Changes from the defaults of the class's configuration.
        aliases: Other names for it.
        seq_len: Default tokens per sample, for language models.
        note: Remark on the variant for readers of the figures.
    """

    model: str
    config: dict[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    seq_len: int | None = None
    note: str = ""


_DEIT = "class and distillation token; one classifier, on the class token"
# Without a padding token, and with all tokens visible, the forward reads no value back to the host.
_UNPADDED = "sequences without padding, no attention mask"
_CAUSAL = "all positions to logits; no cache, no attention mask"

# The shape of Llama 3.2 1B. Its scaling of rotary positions changes only a table of constants and is omitted.
_LLAMA_1B: dict[str, Any] = {
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 8192,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
    "use_cache": False,
}

MODELS: dict[str, ModelEntry] = {
    "deit-tiny": ModelEntry(
        "DeiTForImageClassification",
        {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768, "num_labels": 1000},
        ("deit-t",),
        note=_DEIT,
    ),
    "deit-small": ModelEntry(
        "DeiTForImageClassification",
        {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, "num_labels": 1000},
        ("deit-s",),
        note=_DEIT,
    ),
    "deit-base": ModelEntry("DeiTForImageClassification", {"num_labels": 1000}, ("deit-b",), note=_DEIT),
    "vit-base": ModelEntry("ViTForImageClassification", {"num_labels": 1000}, ("vit-b",)),
    "swin-tiny": ModelEntry("SwinForImageClassification", {"num_labels": 1000}, ("swin-t",)),
    "resnet50": ModelEntry("ResNetForImageClassification", {"num_labels": 1000}, note="stride in the 3x3 convolutions"),
    "bert-base": ModelEntry(
        "BertForSequenceClassification", {"pad_token_id": None}, ("bert-b",), seq_len=128, note=_UNPADDED
    ),
    "bert-large": ModelEntry(
        "BertForSequenceClassification",
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "pad_token_id": None,
        },
        ("bert-l",),
        seq_len=128,
        note=_UNPADDED,
    ),
    "distilbert": ModelEntry("DistilBertForSequenceClassification", seq_len=128, note=_UNPADDED),
    "minilm": ModelEntry(
        "BertForSequenceClassification",
        {
            "hidden_size": 384,
            "num_hidden_layers": 6,
            "num_attention_heads": 12,
            "intermediate_size": 1536,
            "pad_token_id": None,
        },
        ("minilm-l6",),
        seq_len=128,
        note=_UNPADDED,
    ),
    "mpnet": ModelEntry(
        "MPNetForSequenceClassification",
        {"vocab_size": 30527, "max_position_embeddings": 514},
        seq_len=128,
        note=_UNPADDED,
    ),
    "gpt2": ModelEntry("GPT2LMHeadModel", {"use_cache": False}, seq_len=128, note=_CAUSAL),
    "gpt2-large": ModelEntry(
        "GPT2LMHeadModel",
        {"n_embd": 1280, "n_layer": 36, "n_head": 20, "use_cache": False},
        ("gpt2-l",),
        seq_len=1024,
        note=_CAUSAL,
    ),
    "llama-1b": ModelEntry("LlamaForCausalLM", _LLAMA_1B, ("llama",), seq_len=128, note=_CAUSAL),
    "llama-tiny": ModelEntry(
        "LlamaForCausalLM",
        {
            **_LLAMA_1B,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "intermediate_size": 128,
            "vocab_size": 512,
        },
        seq_len=32,
        note=_CAUSAL,
    ),
}
"""Models by canonical name."""

ALIASES: dict[str, str] = {alias: name for name, entry in MODELS.items() for alias in entry.aliases}
"""Canonical name by alias."""
