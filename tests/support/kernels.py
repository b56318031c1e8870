"""Notebooks run by a real Jupyter kernel, and what their cells show."""

import unicodedata

import nbformat
from nbclient import NotebookClient


def shown(sources, folder):
    """Run cells in ``folder``; the outputs of each, as a notebook stores them, all of them readable."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
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
