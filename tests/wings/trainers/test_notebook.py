"""Callbacks in a real Jupyter kernel."""

import re

import pytest

from kernels import displayed, printed, shown, value

for library in ("torch", "transformers", "accelerate"):
    pytest.importorskip(library)

LOADED = "sim:h100?realtime=1&load=100:300"

TRAINER = f"""
import torch, transformers

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        time.sleep(0.03)
        return {{"loss": self.linear(x).square().mean(), "logits": self.linear(x)}}

data = [{{"x": torch.ones(4), "labels": torch.zeros(1)}}] * 40
options = dict(num_train_epochs=2, per_device_train_batch_size=2, logging_steps=3, eval_strategy="epoch")
arguments = transformers.TrainingArguments("out", report_to=[], use_cpu=True, save_strategy="no", **options)
energy = jt.trainer_callback("<b>tiny", device="{LOADED}", save_to="trained")
transformers.Trainer(Model(), arguments, train_dataset=data, eval_dataset=data, callbacks=[energy]).train();
"""

LIGHTNING = f"""
import sys, types
module = sys.modules["lightning"] = sys.modules["lightning.pytorch"] = types.ModuleType("lightning.pytorch")
module.Callback = type("Callback", (), {{}})
ours = jt.lightning_callback("fit", device="{LOADED}")
ours.on_fit_start(None, None)
ours.on_train_epoch_start(None, None)
for step in range(3):
    time.sleep(0.1)
    ours.on_train_batch_end(None, None, {{}}, None, step)
ours.on_train_epoch_end(None, None)
ours.on_fit_end(None, None)
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_callbacks_print_once_and_an_evaluation_s_table_states_none_of_the_training_s_energy(caches, tmp_path):
    trained, run, fitted, fit = shown(
        ["import time, jouletrace as jt", TRAINER, "energy.run", LIGHTNING, "ours.run"], tmp_path, caches
    )[1:]
    (table,) = [one["text/html"] for one in displayed(trained)]  # that of transformers
    headings = re.findall(r"<th>(.*?)</th>", table)
    assert "Validation Loss" in headings
    assert not any("Energy" in heading or "Power" in heading for heading in headings)
    said = "".join(output.text for output in trained if output.get("name") == "stderr")
    assert said.count("SIMULATED <b>tiny: ") == 1
    assert said.endswith("saved trained · more: jouletrace show trained\n")
    text, page = value(run)
    assert "epoch/step" in text
    assert "&lt;b&gt;tiny" in page
    assert "<b>" not in page
    assert re.fullmatch(
        r"SIMULATED fit: .* J \(.* absolute\) in .* W on average\n± is .*\ntrust: yes.*\n",
        printed(fitted, "stderr"),
    )
    assert "epoch/step" in value(fit)[0]
