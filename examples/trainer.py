"""A transformers Trainer, recorded by a callback: energy of its steps, epochs and evaluations, and in its logs.

    pip install accelerate
    python examples/trainer.py --save-to runs/trainer
    python examples/trainer.py --device 'sim:h100?realtime=1&load=0.5:300' --steps 20

A small BERT with random weights learns random tokens: nothing is downloaded. Run it in a clone of the repository: it
imports ``ranges.py``, which stands beside it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.util import find_spec

import torch
from ranges import print_ranges
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import jouletrace as jt


class RandomTexts(torch.utils.data.Dataset):
    """So many texts of random tokens with random labels."""

    def __init__(self, n: int) -> None:
        random = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(1, 1000, (n, 32), generator=random)
        self.labels = torch.randint(2, (n,), generator=random)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[i], "labels": self.labels[i]}


def main() -> None:
    """Train for two epochs, recorded."""
    options = argparse.ArgumentParser(description="A recorded transformers Trainer")
    options.add_argument("--device", default="visible", help="as --device of the command line takes them")
    options.add_argument("--steps", type=int, default=100, help="of an epoch")
    options.add_argument("--save-to", default=None, help="folder or .zip for the Run")
    chosen = options.parse_args()
    if find_spec("accelerate") is None:
        sys.exit("trainer.py: the Trainer of transformers needs accelerate: pip install accelerate")

    config = BertConfig(vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=2)
    callback = jt.trainer_callback("tiny BERT", device=chosen.device, save_to=chosen.save_to)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=max(chosen.steps // 4, 1),
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=RandomTexts(8 * chosen.steps),
        eval_dataset=RandomTexts(64),
        callbacks=[callback],
    )
    trainer.train()
    print_ranges(callback.run)


if __name__ == "__main__":
    main()
