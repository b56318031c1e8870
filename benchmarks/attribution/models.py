"""Models as their users write them: random weights, mixed outputs, host reads. For ``jouletrace profile FILE:NAME``."""

import torch
import transformers
from torch import nn
from transformers.utils import logging

logging.set_verbosity_error()


def _ids(batch: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(10, vocabulary, (batch, length))


def qwen2() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """A decoder of 24 layers and 0.5 B parameters on 4 × 512 tokens, with a mask handed in."""
    config = transformers.Qwen2Config(
        hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
        vocab_size=32000,
    )  # fmt: skip
    ids = _ids(4, 512, 32000)
    return transformers.Qwen2ForCausalLM(config), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def mixtral() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """A mixture of 8 experts, two for each token, 8 layers, on 4 × 512 tokens."""
    config = transformers.MixtralConfig(
        hidden_size=1024, intermediate_size=3584, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4,
        num_local_experts=8, vocab_size=32000,
    )  # fmt: skip
    return transformers.MixtralForCausalLM(config), {"input_ids": _ids(4, 512, 32000)}


def whisper(batch: int = 8) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Encoder and decoder of whisper-small on windows of 30 s."""
    config = transformers.WhisperConfig(
        d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072,
    )  # fmt: skip
    inputs = {"input_features": torch.randn(batch, 80, 3000), "decoder_input_ids": _ids(batch, 64, 50000)}
    return transformers.WhisperForConditionalGeneration(config), inputs


def t5() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Encoder and decoder of t5-base, 16 × 256 tokens in, 64 out."""
    config = transformers.T5Config(
        d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_decoder_layers=12, num_heads=12, vocab_size=32128
    )
    inputs = {"input_ids": _ids(16, 256, 32000), "decoder_input_ids": _ids(16, 64, 32000)}
    return transformers.T5ForConditionalGeneration(config), inputs


def convnext(batch: int = 32) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """ConvNeXt-T on images of 224 × 224."""
    config = transformers.ConvNextConfig(num_labels=1000)
    return transformers.ConvNextForImageClassification(config), {"pixel_values": torch.randn(batch, 3, 224, 224)}


def bart() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Encoder and decoder of bart-base, 16 × 256 tokens in, 128 out."""
    config = transformers.BartConfig(
        d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12, decoder_attention_heads=12,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072,
    )  # fmt: skip
    return transformers.BartModel(config), {
        "input_ids": _ids(16, 256, 50000),
        "decoder_input_ids": _ids(16, 128, 50000),
    }


def gemma2(batch: int = 4) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """A decoder of 12 layers with sliding windows and soft caps on 1024 tokens per sample."""
    config = transformers.Gemma2Config(
        hidden_size=1536, intermediate_size=6144, num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=4,
        head_dim=192, vocab_size=32000,
    )  # fmt: skip
    return transformers.Gemma2ForCausalLM(config), {"input_ids": _ids(batch, 1024, 32000)}


def deberta() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """DeBERTa-v2 of base size on 16 × 256 tokens: attention written out, with gathers."""
    config = transformers.DebertaV2Config(
        hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, relative_attention=True,
        position_buckets=256, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", share_att_key=True,
        vocab_size=50000, max_position_embeddings=512, position_biased_input=False,
    )  # fmt: skip
    return transformers.DebertaV2Model(config), {"input_ids": _ids(16, 256, 50000)}


def segformer(batch: int = 8) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """SegFormer-B2 on images of 512 × 512."""
    config = transformers.SegformerConfig(
        depths=[3, 4, 6, 3], hidden_sizes=[64, 128, 320, 512], decoder_hidden_size=768, num_labels=150
    )
    return transformers.SegformerForSemanticSegmentation(config), {"pixel_values": torch.randn(batch, 3, 512, 512)}


class Tagger(nn.Module):
    """Two directions, two layers; returns a tuple with None in it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20000, 512)
        self.lstm = nn.LSTM(512, 1024, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2048, 64)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Scores, and no loss."""
        return self.head(self.lstm(self.embed(tokens))[0]), None


def lstm() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """A tagger of 64 × 256 tokens."""
    return Tagger(), (_ids(64, 256, 20000),)


class Refine(nn.Module):
    """Iterates until a norm read on the host is small: shapes are fixed, the number of rounds isn't known."""

    def __init__(self, width: int = 4096) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        """The state and how many rounds it took."""
        rounds = 0
        while rounds < 24:
            step = torch.tanh(self.mix(self.norm(x)))
            x = x + 0.2 * step
            rounds += 1
            if step.abs().mean().item() < 0.01:
                break
        return {"state": x, "rounds": rounds}


def item_loop() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """A loop with ``.item()`` in every round."""
    return Refine(), (torch.randn(4096, 4096),)
