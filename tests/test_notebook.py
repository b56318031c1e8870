"""Notebooks in a real Jupyter kernel: each value shows once, as in a terminal; the notebook in examples/ runs."""

import html
import json
import re
import subprocess
import sys

import pytest

from kernels import displayed, printed, shown, value
from places import REPOSITORY

for library in ("torch", "transformers"):
    pytest.importorskip(library)

NOTEBOOK = REPOSITORY / "examples" / "notebook.ipynb"
LOADED = "sim:h100?realtime=1&load=100:300"

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
)


@pytest.fixture(scope="module")
def kernel(caches, tmp_path_factory):
    """A folder with caches and files of Jupyter of its own, and what cells show there: of the notebook, and ours."""
    folder = tmp_path_factory.mktemp("notebook")
    code = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in code)  # none that could be out of date
    first = ["".join(cell["source"]) for cell in code]
    outputs = shown([*first, *SOURCES], folder, caches)
    return folder, dict(zip(first, outputs, strict=False)), dict(zip(SOURCES, outputs[len(first) :], strict=True))


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
def test_the_notebook_runs(kernel):
    folder, cells, _ = kernel
    assert "SIMULATED" in value(of(cells, "run"))[1]
    assert "±" in displayed(of(cells, "energy"))[-1]["text/html"]
    assert "SIMULATED" in value(of(cells, "layers"))[1]
    assert printed(of(cells, "print(block)")).startswith("SIMULATED a block: ")
    assert (folder / "first-run.zip").exists()
