"""BERT-base by transformers' Trainer, as its example scripts use it."""

import os
import sys
import tempfile
import time

import torch
from common import Turns, seconds
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_callback import TrainerCallback


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        ids = torch.randint(10, 30000, (128,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": i % 2}


class Limit(TrainerCallback):
    def __init__(self, length):
        self.length, self.begin, self.steps = length, time.perf_counter(), 0

    def on_step_end(self, args, state, control, **_):
        now = time.perf_counter()
        if self.steps == 0 and now - self.begin > self.length / 2:
            torch.cuda.synchronize()
            self.steps, self.since = state.global_step, time.perf_counter()
        if now - self.begin > self.length:
            torch.cuda.synchronize()
            print(f"RATE {(state.global_step - self.steps) / (time.perf_counter() - self.since):.3f} iterations/s")
            control.should_training_stop = True


class InTurns(TrainerCallback):
    def __init__(self):
        self.turns = Turns(torch.cuda.synchronize)

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = not self.turns.more()


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=32, bf16=True, max_steps=100_000, logging_steps=50, report_to=[],
        save_strategy="no", dataloader_num_workers=4, disable_tqdm=True,
    )  # fmt: skip
    model = BertForSequenceClassification(BertConfig())
    until = InTurns() if "TURNS" in os.environ else Limit(seconds())
    Trainer(model, arguments, train_dataset=Texts(), callbacks=[until]).train()
sys.exit(0)
