"""A training program's trace in the tracer's files, with the operator and the module of each kernel known.

Twelve equal layers, whose kernels depend on a drawn length of sequences, and a cell that is called a drawn number of
times; backward in a thread of its own, and a second model that answers requests in a third thread meanwhile. Operators
are marked in one of eight iterations.
"""

from dataclasses import dataclass

import numpy as np

from jouletrace.run.recording_names import of_equal_layers
from row_writer import Writer

LAYERS, SAMPLED = 12, 8
MAIN, AUTOGRAD, SERVER = 1, 2, 3

_BLOCK = (
    ("ln_1", "native_layer_norm", ("layer_norm",)),
    ("attn.c_attn", "addmm", ("gemm",)),
    ("attn", "copy_", ("elementwise copy",)),
    ("attn", "_scaled_dot_product_flash_attention", ("flash_fwd",)),
    ("attn", "", ("own_rotary",)),
    ("attn.c_proj", "addmm", ("gemm",)),
    ("", "add", ("elementwise add",)),
    ("ln_2", "native_layer_norm", ("layer_norm",)),
    ("mlp.c_fc", "addmm", ("gemm",)),
    ("mlp.act", "pow", ("elementwise pow",)),
    ("mlp.act", "mul", ("elementwise mul",)),
    ("mlp.act", "add", ("elementwise add",)),
    ("mlp.act", "mul", ("elementwise mul",)),
    ("mlp.act", "tanh", ("elementwise tanh",)),
    ("mlp.act", "mul", ("elementwise mul",)),
    ("mlp.c_proj", "addmm", ("gemm", "splitKreduce")),
    ("", "add_", ("elementwise add",)),
)
"""Module, operator and kernels of each call in a layer."""

_CELL = (
    *(("cell", "mm", ("gemm",)), ("cell", "mm", ("gemm",)), ("cell", "sigmoid_", ("elementwise sigmoid",))),
    *(("cell", "tanh_", ("elementwise tanh",)), ("cell", "mul_", ("elementwise mul",))),
    ("cell", "add_", ("elementwise add",)),
)
_BACKWARD = {
    "addmm": ("AddmmBackward0", (("mm", "gemm"), ("mm", "gemm"), ("sum", "reduce"))),
    "native_layer_norm": ("NativeLayerNormBackward0", (("native_layer_norm_backward", "layer_norm_grad"),)),
    "_scaled_dot_product_flash_attention": ("ScaledDotProductFlashAttentionBackward0", (("", "flash_bwd"),)),
    "mul": ("MulBackward0", (("mul", "elementwise mul"),)),
    "tanh": ("TanhBackward0", (("tanh_backward", "elementwise tanh_backward"),)),
    "pow": ("PowBackward0", (("pow", "elementwise pow"), ("mul", "elementwise mul"))),
}
"""Node, and operators with their kernels, of the backward of an operator."""

_GEMMS = (
    *("ampere_gemm_32x32_sliced1x4_nn", "ampere_gemm_64x32_sliced1x4_nn", "ampere_gemm_64x64_nn"),
    *("ampere_gemm_128x64_nn", "gemm_128x64_stages_32x6", "gemm_128x128_stages_32x6"),
    *("cutlass_80_wmma_gemm_128x128", "sm90_xmma_gemm_256x128", "sm90_xmma_gemm_256x256"),
)
"""By the length of a sequence."""

_OPTIMIZER = ("_foreach_lerp_", "_foreach_mul_", "_foreach_addcmul_", "_foreach_sqrt", "_foreach_add_", "_foreach_add_")


@dataclass
class _Launch:
    """One launch: its kernel, what it belongs to, and its marks by whether operators are marked."""

    kernel: str
    label: tuple[str, str]
    marks: tuple[int, int]


class Program:
    """The launches of each thread, in order."""

    def __init__(self, writer: Writer, seed: int) -> None:
        self.writer, self.rng = writer, np.random.default_rng(seed)
        self.lines: dict[int, list[tuple[_Launch, bool]]] = {MAIN: [], AUTOGRAD: [], SERVER: []}

    def iteration(self, sampled: bool) -> None:
        """Forward, backward, and a step of the optimizer."""
        length, times = int(self.rng.integers(20, 500)), int(self.rng.integers(3, 30))
        calls = [
            (f"h.{layer}.{one}".rstrip("."), op, kernels) for layer in range(LAYERS) for one, op, kernels in _BLOCK
        ]
        calls += times * list(_CELL)
        forward = [launch for call in calls for launch in self._forward(*call, length)]
        backward = [launch for module, op, _ in calls[::-1] for launch in self._backward(module, op, length)]
        step = [self._launch(f"multi_tensor{op}", op, "", 0, 0) for op in 3 * _OPTIMIZER]
        for thread, launches in ((MAIN, forward), (AUTOGRAD, backward), (MAIN, step)):
            self.lines[thread] += [(launch, sampled) for launch in launches]

    def request(self, sampled: bool) -> None:
        """An answer of the second model."""
        length = int(self.rng.integers(20, 500))
        launches = [launch for call in 3 * _block("encoder") for launch in self._forward(*call, length)]
        self.lines[SERVER] += [(launch, sampled) for launch in launches]

    def write(self) -> list[tuple[str, str]]:
        """Write the rows, not in their order, with launches of the threads mixed; the truth by launch number."""
        lines = {thread: list(line) for thread, line in self.lines.items()}
        truth, rows, at = [], [], 1_700_000_000_000_000_000
        left = np.repeat(list(lines), [len(line) for line in lines.values()])
        threads = self.rng.permutation(left).tolist()
        places = dict.fromkeys(lines, 0)
        for number, thread in enumerate(threads, 1):
            launch, sampled = lines[thread][places[thread]]
            places[thread] += 1
            op, module = launch.label  # nodes of autograd keep their names
            truth.append((op if op.endswith("0") or not op else f"aten.{op}", module))
            length = int(self.rng.integers(2_000, 50_000))
            about = {"owner": launch.marks[1 - sampled], "correlation": number, "thread": thread, "sampled": sampled}
            rows.append((at, at + length, launch.kernel, about))
            at += length + 500
        for row in self.rng.permutation(len(rows)).tolist():
            start, end, kernel, about = rows[row]
            self.writer.row(start, end, kernel, **about)
        return truth

    def _launch(self, kernel: str, op: str, module: str, marked: int, unmarked: int) -> _Launch:
        if op:
            marked = self.writer.mark(marked, "o", f"aten::{op}")
        return _Launch(kernel, (op, of_equal_layers(module)), (marked, unmarked))

    def _forward(self, module: str, op: str, kernels: tuple[str, ...], length: int) -> list[_Launch]:
        mark = self.writer.mark(0, "m", module)
        taken = [one for one in kernels if one != "splitKreduce" or length < 200]
        return [self._launch(_variant(one, length), op, module, mark, mark) for one in taken]

    def _backward(self, module: str, op: str, length: int) -> list[_Launch]:
        node, inner = _BACKWARD.get(op, ("", ()))
        if not node:
            return []
        mark = self.writer.mark(self.writer.mark(0, "m", module), "b", node)
        found = []
        for one, kernel in inner:
            launch = self._launch(_variant(kernel, length), one, module, mark, 0)
            found.append(launch if one else _Launch(launch.kernel, (node, launch.label[1]), launch.marks))
        return found


def _block(layer: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """The calls in a layer."""
    return [(f"{layer}.{module}".rstrip("."), op, kernels) for module, op, kernels in _BLOCK]


def _variant(kernel: str, length: int) -> str:
    """Name of the kernel that is chosen for a length."""
    if kernel == "gemm":
        return _GEMMS[length // 60]
    if kernel.startswith("elementwise"):
        return f"{'vectorized' if length % 4 == 0 else 'unrolled'}_{kernel}"
    return kernel


def write(folder, seed: int = 1, iterations: int = 64) -> list[tuple[str, str]]:
    """Write the trace; the operator and the module of each launch, in order."""
    with Writer(folder, 100, 1) as writer:
        program = Program(writer, seed)
        for number in range(iterations):
            program.iteration(number % SAMPLED == 3)
            program.request(number % SAMPLED == 6)
        return program.write()
