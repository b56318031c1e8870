"""The notebook in examples/, run cell by cell by the plain interpreter, on a simulated GPU as it stands there."""

import ast
import json

import pytest

from places import REPOSITORY

pytest.importorskip("torch")

NOTEBOOK = REPOSITORY / "examples" / "notebook.ipynb"


def displayed(source, names):
    """Run a cell; its last expression as a notebook shows it, "" if it ends with a statement."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), str(NOTEBOOK), "exec"), names)
    if last is None:
        return ""
    value = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


def test_the_notebook_runs(workspace, capsys):
    notebook = json.loads(NOTEBOOK.read_text())
    assert all(not cell.get("outputs") for cell in notebook["cells"])  # none that could be out of date
    names, shown = {"__name__": "__main__"}, {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            shown[source.splitlines()[-1]] = displayed(source, names)
    assert "SIMULATED" in shown["run"]
    assert "±" in shown["energy"]
    assert "SIMULATED" in shown["layers"]
    assert " on SIMULATED H100" in capsys.readouterr().out
    assert (workspace / "first-run.zip").exists()
