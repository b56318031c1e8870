"""The number of rows of the table that an input of an ONNX model indexes: the range of its random tokens."""

from __future__ import annotations

from pathlib import Path

_HANDED_ON = {"Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Transpose"}


def vocabularies(path: Path) -> dict[str, int]:
    """Rows by input, as far as the graph states them; empty where ``onnx`` isn't installed or can't read it."""
    try:
        import onnx

        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception:  # the runtime that runs the model reports what is wrong with it
        return {}
    rows = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    origin = {value.name: value.name for value in graph.input}
    found: dict[str, int] = {}
    for node in graph.node:  # in an order in which they can be executed
        if node.op_type in _HANDED_ON and node.input and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        elif node.op_type == "Gather" and node.input[0] in rows and node.input[1] in origin:
            name = origin[node.input[1]]
            found[name] = min(rows[node.input[0]], found.get(name, rows[node.input[0]]))
    return found
