"""Notebooks run by a real Jupyter kernel, and what their cells show."""

import unicodedata

import nbformat
import pytest
from nbclient import NotebookClient


def shown(sources, folder, caches):
    """Run cells in ``folder``; the outputs of each, as a notebook stores them, all of them readable.

    ``caches`` are folders, of which Jupyter and jouletrace get some of their own.
    """
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JOULETRACE_CACHE", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
            place = next(caches)
            place.mkdir()
            patch.setenv(name, str(place))
        patch.setenv("COLUMNS", "80")
        patch.setenv("PYTHONWARNINGS", "ignore:IProgress")  # that tqdm has no widgets here
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    for output in (output for cell in cells for output in cell.outputs):
        for text in filter(None, (output.get("text"), *output.get("data", {}).values())):
            odd = [char for char in text if unicodedata.category(char) == "Co" or char == "\x1b"]
            assert not odd, f"{text!r} has boxes, or escapes of a terminal"
    return [cell.outputs for cell in cells]


def displayed(outputs):
    """The display of a cell, by media type, beside what it prints."""
    return [output.data for output in outputs if output.output_type in ("display_data", "execute_result")]


def value(outputs):
    """The text and the HTML of a cell's value, which is all that the cell shows; "" without HTML."""
    (output,) = outputs
    assert output.output_type == "execute_result"
    return output.data["text/plain"], output.data.get("text/html", "")


def printed(outputs, name="stdout"):
    """The text that a cell prints to a stream, which is all that the cell shows."""
    assert {(output.output_type, output.get("name")) for output in outputs} == {("stream", name)}
    return "".join(output.text for output in outputs)
