"""Notebooks in a real Jupyter kernel: each value shows once, as in a terminal; the notebook in examples/ runs."""

import html
import json
import re
import subprocess
import sys

import pytest

from kernels import displayed, printed, shown, value
from places import REPOSITORY

for library in ("torch", "transformers", "accelerate"):
    pytest.importorskip(library)

NOTEBOOK = REPOSITORY / "examples" / "notebook.ipynb"
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


SOURCES = (
    "import time, jouletrace as jt\n%load_ext jouletrace",
    "run = jt.profile('deit-tiny', device='sim:h100', max_time=2, latency_s=0.1, warmup=2.6)\nrun.save('run.zip')",
    "run",
    "print(run)",
    "str(run)",
    "display(run)",
    "[run]",
    "compared = jt.ab('deit-tiny', 'deit-tiny', device='sim:h100', max_time=4)\ncompared",
    "print(compared)",
    "versus = jt.compare(run, 'run.zip')\nversus",
    "print(versus)",
    f"with jt.measure('<b>&', device='{LOADED}') as block:\n    time.sleep(0.1)\nblock",
    "print(block)",
    f"with jt.record('<i>&', device='{LOADED}', kernels=False) as recording:\n    time.sleep(0.3)\nrecording",
    "print(recording)",
    f"%%joules 'my cell' --device '{LOADED}' --no-kernels\nwith jt.range('nap'):\n    time.sleep(0.3)",
    "_joules",
    f"%%joules again --device '{LOADED}' --no-kernels\ntime.sleep(0.2)\nrun",
    TRAINER,
    "energy.run",
    LIGHTNING,
    "ours.run",
)


@pytest.fixture(scope="module")
def kernel(caches, tmp_path_factory):
    """A folder with caches and files of Jupyter of its own, and what cells show there: of the notebook, and ours."""
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JOULETRACE_CACHE", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
            place = next(caches)
            place.mkdir()
            patch.setenv(name, str(place))
        patch.setenv("COLUMNS", "80")
        patch.setenv("PYTHONWARNINGS", "ignore:IProgress")  # that tqdm has no widgets here
        code = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
        assert not any(cell["outputs"] for cell in code)  # none that could be out of date
        first = ["".join(cell["source"]) for cell in code]
        outputs = shown([*first, *SOURCES], folder)
        yield folder, dict(zip(first, outputs, strict=False)), dict(zip(SOURCES, outputs[len(first) :], strict=True))


@pytest.fixture(scope="module")
def cells(kernel):
    """By its source, what each of the cells shows."""
    return kernel[2]


def of(cells, last):
    """The output of the cell that ends with that line."""
    return next(outputs for source, outputs in cells.items() if source.splitlines()[-1] == last)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["run", "compared", "versus", "block", "recording"])
def test_a_value_shows_once_and_as_print_writes_it(cells, name):
    text, page = value(of(cells, name))
    assert "SIMULATED" in text
    assert printed(of(cells, f"print({name})")) == f"{text}\n"
    assert f">{html.escape(text)}</pre>" in page  # names among it, which come from anywhere
    assert "monospace" in page


@pytest.mark.thorough
def test_a_run_is_the_text_of_a_terminal_however_it_is_asked_for(kernel, cells):
    command = [sys.executable, "-m", "jouletrace", "show", str(kernel[0] / "run.zip")]
    terminal = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    text, _ = value(cells["run"])
    assert terminal.startswith(f"{text}\nmore: jouletrace show ")
    assert value(of(cells, "str(run)")) == (repr(text), "")
    assert [one["text/plain"] for one in displayed(of(cells, "display(run)"))] == [text]
    listed, page = value(of(cells, "[run]"))
    assert re.fullmatch(r"\[Run\(profile deit-tiny, .*\)\]", listed)
    assert page == ""


@pytest.mark.thorough
def test_a_recorded_cell_shows_its_value_once_and_prints_its_energy_once(cells):
    first = next(outputs for source, outputs in cells.items() if source.startswith("%%joules 'my cell'"))
    assert re.fullmatch(
        r"SIMULATED my cell: .* J \(.* absolute\) in .* W on average\n± is .*\ntrust: yes.*\n(.*nap.*\n)?",
        printed(first),
    )
    assert "SIMULATED: record · my cell" in value(of(cells, "_joules"))[0]
    second = next(outputs for source, outputs in cells.items() if source.startswith("%%joules again"))
    assert [one["text/plain"] for one in displayed(second)] == [value(cells["run"])[0]]
    lines = [output.text for output in second if output.output_type == "stream"]
    assert "".join(lines).startswith("SIMULATED again: ")


@pytest.mark.thorough
def test_callbacks_print_once_and_an_evaluation_s_table_states_none_of_the_training_s_energy(cells):
    trained = cells[TRAINER]
    (table,) = [one["text/html"] for one in displayed(trained)]  # that of transformers
    headings = re.findall(r"<th>(.*?)</th>", table)
    assert "Validation Loss" in headings
    assert not any("Energy" in heading or "Power" in heading for heading in headings)
    said = "".join(output.text for output in trained if output.get("name") == "stderr")
    assert said.count("SIMULATED <b>tiny: ") == 1
    assert said.endswith("saved trained · more: jouletrace show trained\n")
    text, page = value(cells["energy.run"])
    assert "epoch/step" in text
    assert "&lt;b&gt;tiny" in page
    assert "<b>" not in page
    assert re.fullmatch(
        r"SIMULATED fit: .* J \(.* absolute\) in .* W on average\n± is .*\ntrust: yes.*\n",
        printed(cells[LIGHTNING], "stderr"),
    )
    assert "epoch/step" in value(cells["ours.run"])[0]


@pytest.mark.thorough
def test_the_notebook_runs(kernel):
    folder, cells, _ = kernel
    assert "SIMULATED" in value(of(cells, "run"))[1]
    assert "±" in displayed(of(cells, "energy"))[-1]["text/html"]
    assert "SIMULATED" in value(of(cells, "layers"))[1]
    assert printed(of(cells, "print(block)")).startswith("SIMULATED a block: ")
    assert (folder / "first-run.zip").exists()
