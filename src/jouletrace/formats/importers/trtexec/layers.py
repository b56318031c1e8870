"""Layers as exported by ``trtexec``: times (``--exportProfile``) or descriptions (``--exportLayerInfo``)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, decode_text, read_text
from jouletrace.formats.importers.json_text import as_float, load
from jouletrace.formats.importers.stated import Stated
from jouletrace.formats.importers.trtexec.printed import LONGEST, add_layer
from jouletrace.run import MODEL_UNIT, Run

_PROFILE = re.compile(
    r'\{\s*"name"\s*:\s*"(?P<name>.*)"\s*,\s*"timeMs"\s*:\s*(?P<time>[^,}\s]+)\s*'
    r'(?:,\s*"averageMs"\s*:\s*(?P<average>[^,}\s]+)\s*)?(?:,\s*"medianMs"\s*:\s*(?P<median>[^,}\s]+)\s*)?'
    r'(?:,\s*"percentage"\s*:\s*(?P<share>[^,}\s]+)\s*)?\}'
)
_COUNT = re.compile(r'\{\s*"count"\s*:\s*(\d{1,15})\s*\}')


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of either file."""
    text = decode_text(head)
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith("["):
        return '"timeMs"' in text and '"averageMs"' in text
    return re.match(r'\{\s*"(Layers|Bindings)"\s*:', start) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read either file: every layer becomes a unit, its times become figures.

    Raises:
        BadInputError: If it holds no layer.
    """
    left = Left(path)
    text = read_text(path, left)
    stated = Stated("trtexec")
    layers = '"timeMs"' not in text and re.match(r"[\s\ufeff]*\{", text) is not None
    found = _layer_info(text, path, stated, left) if layers else _profile(text, stated, left)
    if not found:
        raise BadInputError(f"{path}: not one layer in it can be read{left.first()}")
    run = stated.run(path, "trtexec", options.device, {}, "layers" if layers else "profile")
    left.warn(run)
    return run


def _profile(text: str, stated: Stated, left: Left) -> int:
    """Times per layer, read by lines: layer names are not escaped, so that a JSON parser may fail on them."""
    counted = _COUNT.search(text)
    count = int(counted[1]) if counted else 0
    found, total = 0, 0.0
    for line, row in enumerate(_element_lines(text), start=1):
        if '"name"' not in row:
            if '"count"' not in row and row.strip("[], \t\r\ufeff"):
                left.add("broken_layers", "layers are damaged", place=f"line {line}")
            continue
        layer = _PROFILE.search(row) if len(row) < LONGEST else None
        times = {key: as_float(layer[key]) for key in ("time", "average", "median", "share")} if layer else {}
        if layer is None or times["time"] is None:
            left.add("broken_layers", "layers are damaged", place=f"line {line}")
            continue
        average = times["average"]
        if average is None and count:
            average = times["average"] = times["time"] / count
        add_layer(stated, _unescaped(layer["name"]), times, count)
        total += average or 0.0
        found += 1
    if found and count:
        stated.add(MODEL_UNIT, "time_s", total / 1e3, count)
    return found


def _element_lines(text: str) -> list[str]:
    """One element per line, whatever the layout of the file."""
    lines = text.split("\n")
    named = [line.count('"name"') for line in lines]
    if max(named) <= 1 and all(line.count('"timeMs"') == n for line, n in zip(lines, named, strict=True)):
        return lines
    # Reformatted by another program, which has escaped the names too.
    try:
        return [json.dumps(element) for element in json.loads(text, strict=False)]
    except (ValueError, RecursionError, TypeError):
        return lines


def _unescaped(name: str) -> str:
    try:
        return str(json.loads(f'"{name}"', strict=False))
    except ValueError:
        return name


def _layer_info(text: str, path: Path, stated: Stated, left: Left) -> int:
    found = load(text, path)
    layers = found.get("Layers") if isinstance(found, dict) else None
    if not isinstance(layers, list):
        raise BadInputError(f"{path}: this JSON has no list of Layers")
    count = 0
    for number, layer in enumerate(layers, start=1):
        if isinstance(layer, str):  # the form without --profilingVerbosity=detailed
            stated.unit("layer", layer, count=1)
        elif isinstance(layer, dict) and isinstance(layer.get("Name"), str):
            op = layer.get("LayerType")
            stated.unit("layer", layer["Name"], op=op if isinstance(op, str) else None, shapes=_shapes(layer), count=1)
        else:
            left.add("broken_layers", "layers have no name", place=f"layer {number}")
            continue
        count += 1
    return count


def _shapes(layer: dict[str, Any]) -> str | None:
    """Shapes and types of a layer's inputs, as "32x3x224x224 Row major linear FP32, ..."."""
    inputs = layer.get("Inputs")
    if not isinstance(inputs, list):
        return None
    parts = []
    for tensor in inputs:
        if isinstance(tensor, dict) and isinstance(tensor.get("Dimensions"), list):
            form = tensor.get("Format/Datatype", tensor.get("Format", ""))
            parts.append(f"{'x'.join(map(str, tensor['Dimensions']))} {form}".strip())
    return ", ".join(parts) or None
