"""Readable kernel names: demangled C++ without return type, parameters and wrapper templates.

Full names identify a kernel and stay in every file; short names serve tables and labels.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

MOST = 64
"""Characters of a short name."""

ELLIPSIS = "…"

_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\})::")
_CALL = re.compile(r"::operator ?\(\)")
_LAMBDA = re.compile(r"^[{\[]lambda ?\((.*)\).*[}\]]")
_IDENTIFIER = re.compile(r"~?[\w$.@]+")
_LITERAL = re.compile(r"^(?:\([\w: ]+\))?(-?\d+)[ul]*$")
_QUALIFIER = re.compile(r"\b(?:const|volatile|struct|class|enum)\b|[&\s]+$")
_CXX = re.compile(r"^void |::|\w<.*>|^\w+\(.*\)$")
_BOILERPLATE = re.compile(r"_generated_fort_native|_execute(?=_kernel)|_kernel\d+_\d+$")
_WORD = re.compile(r"[A-Za-z0-9]+")
_MANGLED = re.compile(r"_ZN?K?(?=\d)")

_TORCH = {"at", "c10", "std"}
"""Outermost namespaces of most kernels, which carry no information; others name a library."""

_WRAPPERS = {"Kernel", "Kernel2", "gpu_kernel_impl", "gpu_kernel_impl_nocast", "func_wrapper_t", "function_traits"}
"""Templates that carry no information beyond their first argument."""

_HELPERS = {"array", "Array", "TrivialOffsetCalculator", "OffsetCalculator", "LoadWithoutCast", "StoreWithoutCast"}
"""Arguments that torch's elementwise kernels carry along."""

_PLAIN = {"unsigned int": "uint", "unsigned long": "ulong", "unsigned char": "uchar", "long long": "long"}
_PLAIN |= {"__half": "half", "__nv_bfloat16": "bfloat16", "__hip_bfloat16": "bfloat16", "unsigned short": "ushort"}

_NVJET = {"h": "f16", "t": "bf16", "s": "f32", "q": "f8", "d": "f64"}
"""Number formats by the first letter of the three that cuBLAS has behind the architecture in its newer names."""

_LIBRARY = (
    (r"nvjet_(?:sm\d+_)?([a-z])[a-z]{2}_(\d+x\d+)_\w*?((?:_bias)?(?:_splitK)?_[TN]{3})$", "gemm {0} {1}{2}"),
    (r"sm\d+_xmma_(gemm|fprop|dgrad|wgrad)_\w*?(tf32|bf16|f16|f32|f64)f32_f32_\w*?_tilesize(\d+x\d+)", "{0} {1} {2}"),
    (r"cutlass_\d+_(?:tensorop|wmma_tensorop|simt)_(\w*?)_(\d+x\d+)_\d+x\d+_([tn]{2})", "cutlass {0} {1} {2}"),
    (
        r"cudnn_generated_fort_native_sdpa_sm\d+_flash_([fb]prop)_wgmma_(bf16|f16)_\w*?_(\d+x\d+x\d+)",
        "flash {0} {1} {2}",
    ),
    (r"_ZN17cutlass__5x_cudnn6Kernel\w*?kernel\d+(ImplicitGemmConvolution)I", "cutlass {0}"),
)
"""Names of libraries by pattern, and what of each states what it computes: operation, number format and tile."""

_OPEN, _CLOSE = "<({[", ">)}]"
_DEPTH = 2
"""Depth to which nested templates are shown."""

_LEAST = 12
"""Characters below which a truncated argument is replaced by an ellipsis."""


def cut(text: str, most: int = 80) -> str:
    """The text in at most that many characters, with an ellipsis at its end where it was longer."""
    return text if len(text) <= most else text[: most - 1] + ELLIPSIS


def with_article(noun: str) -> str:
    """A noun after its indefinite article: "a bench", "an import"."""
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"


def short_names(names: Iterable[str], most: int = MOST) -> dict[str, str]:
    """Short names of the kernels of one table, by full name: distinct names stay distinct.

    They have about ``most`` characters: where two would be equal, the distinguishing words are added.
    """
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(short_name(name, most), []).append(name)
    shorts: dict[str, str] = {}
    taken = {short for short, group in groups.items() if len(group) == 1}
    for short, group in groups.items():
        if len(group) == 1:
            shorts[group[0]] = short
            continue
        for name, piece in zip(group, _own_words(group), strict=True):
            marked = shown = _with(short, piece)
            number = 1
            while shown in taken:
                number += 1
                shown = f"{marked} ({number})"
            taken.add(shown)
            shorts[name] = shown
    return shorts


@lru_cache(maxsize=8192)
def short_name(name: str, most: int = MOST) -> str:
    """A kernel's name without return type, namespaces, parameters, lambdas and deeply nested templates.

    ``void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::Half>, std::array<char*,
    3ul> >(int, ...)`` becomes ``vectorized_elementwise_kernel<8, CUDAFunctor_add<Half>, …>``. Names that aren't C++
    are kept up to ``most`` characters; longer ones lose their middle, and those of libraries of products, convolutions
    and attention all but the operation, its number format and tile: ``gemm f16 128x160 bias TNT``.
    """
    if of_library := _of_library(name):
        return elided(of_library, most)
    if _MANGLED.match(name):
        return elided(_demangled(name), most)
    if _CXX.search(name):
        text = _CALL.sub("", _ANONYMOUS.sub("", name.strip()))
        if _balanced(text):
            return elided(_function(text, most) or name, most)
    return elided(name, most)


def _of_library(name: str) -> str:
    """The part of a library's name that states what it computes; "" for names of others."""
    for pattern, form in _LIBRARY:
        if match := re.match(pattern, name):
            parts = [_NVJET.get(part, part) for part in match.groups()]
            return " ".join(form.format(*parts).replace("_", " ").split())
    return ""


def elided(text: str, most: int, tail: float = 0.4) -> str:
    """Text of at most ``most`` characters: a longer text loses boilerplate first, then its middle.

    ``tail`` is the fraction of the remaining characters that is taken from the end.
    """
    if len(text) > most:
        text = _BOILERPLATE.sub("", text)
    if len(text) <= most:
        return text
    end = round((most - 1) * tail)
    return f"{text[: most - 1 - end]}{ELLIPSIS}{text[len(text) - end :]}"


def _function(text: str, most: int) -> str:
    """A function: its library, its name, and as many template arguments as fit."""
    words = [word for word in _split(text, " ") if word]
    called = next((word for word in words if _cut_off(word, "(")[1]), words[-1] if words else "")
    path = [step for step in _split(called, "::") if step]
    if not path:
        return ""
    base, arguments = _split_arguments(path[-1])
    if not _IDENTIFIER.fullmatch(base):
        return ""
    if base in _WRAPPERS and arguments:
        return _type(arguments[0], 0)
    if len(path) > 1 and path[0] not in _TORCH:
        base = f"{_split_arguments(path[0])[0]}::{base}"
    return base + _listed(arguments, 1, most - len(base) - 2) if arguments else base


def _type(text: str, depth: int) -> str:
    """A template argument: a type, a number, or a function with the parameters of its innermost lambda."""
    literal = _LITERAL.match(text.strip())
    if literal:
        return literal[1]
    plain = _QUALIFIER.sub("", text).replace(" *", "*").strip()
    stars = plain[len(plain.rstrip("*")) :]
    plain = plain.rstrip("* ")
    if plain in _PLAIN:
        return _PLAIN[plain] + stars
    path = [step.strip() for step in _split(plain, "::") if step.strip()]
    lambdas = [lambda_match for step in path if (lambda_match := _LAMBDA.match(step))]
    named = [step for step in path if not _LAMBDA.match(step)]
    if not named:
        return "lambda" if lambdas else plain + stars
    base, arguments = _split_arguments(named[-1])
    base = _PLAIN.get(base, base)
    if base in _WRAPPERS and arguments:
        return _type(arguments[0], depth)
    if base in _HELPERS:
        return ELLIPSIS
    if arguments and depth < _DEPTH:
        base += _listed(arguments, depth + 1)
    elif lambdas and lambdas[-1][1]:
        base += f"({', '.join(_type(argument, _DEPTH) for argument in _split(lambdas[-1][1], ','))})"
    return base + stars


def _listed(arguments: list[str], depth: int, room: int | None = None) -> str:
    """Template arguments in brackets, shortened where space is short; helper types collapse into one ellipsis."""
    shown: list[str] = []
    for number, argument in enumerate(arguments):
        text = _type(argument, depth)
        if room is not None:
            left = room - len(", ".join([*shown, ""])) - (0 if number == len(arguments) - 1 else 3)
            if len(text) > left:
                text = _type(argument, _DEPTH)
            if len(text) > left:
                text = f"{text[: left - 1]}{ELLIPSIS}" if left > _LEAST else ELLIPSIS
        if text != ELLIPSIS or not "".join(shown[-1:]).endswith(ELLIPSIS):
            shown.append(text)
    return f"<{', '.join(shown)}>"


def _split_arguments(step: str) -> tuple[str, list[str]]:
    """The bare name of a step of a path, and its template arguments."""
    head, rest = _cut_off(step, "<(")
    if not rest.startswith("<"):
        return head.strip(), []
    depth = 0
    for index in range(len(rest)):
        depth += _step(rest, index)
        if depth == 0:
            break
    return head.strip(), [piece.strip() for piece in _split(rest[1:index], ",") if piece.strip()]


def _cut_off(text: str, at: str) -> tuple[str, str]:
    """The text before, and from, the first character of ``at`` that is outside all brackets."""
    depth = 0
    for index, char in enumerate(text):
        if depth == 0 and char in at:
            return text[:index], text[index:]
        depth += _step(text, index)
    return text, ""


def _split(text: str, separator: str) -> list[str]:
    """Pieces between separators that are outside all brackets."""
    pieces, start, depth, index = [], 0, 0, 0
    while index < len(text):
        if depth == 0 and text.startswith(separator, index):
            pieces.append(text[start:index])
            index += len(separator)
            start = index
            continue
        depth += _step(text, index)
        index += 1
    return [*pieces, text[start:]]


def _step(text: str, index: int) -> int:
    """By how much a character changes the depth of brackets; ``>`` of an arrow doesn't."""
    char = text[index]
    if char in _OPEN:
        return 1
    return -1 if char in _CLOSE and text[index - 1 : index] != "-" else 0


def _balanced(text: str) -> bool:
    depth = 0
    for index in range(len(text)):
        depth += _step(text, index)
        if depth < 0:
            return False
    return depth == 0


def _demangled(name: str) -> str:
    """The qualified path of a mangled name (Itanium C++ ABI, 5.1); template arguments are left out."""
    start = _MANGLED.match(name)
    rest = name[start.end() :] if start else name
    path: list[str] = []
    while length := re.match(r"\d+", rest):
        until = length.end() + int(length[0])
        if until > len(rest):
            return name
        path.append(rest[length.end() : until])
        rest = rest[until:]
    path = [step for step in path if not step.startswith("_GLOBAL__N_")]
    if not path:
        return name
    library = f"{path[0]}::" if len(path) > 1 and path[0] not in _TORCH else ""
    return f"{library}{path[-1]}{f'<{ELLIPSIS}>' if rest.startswith('I') else ''}"


def _own_words(group: list[str]) -> list[str]:
    """For each of several names, the words that not all of them contain."""
    words = [_WORD.findall(name) for name in group]
    shared = Counter(words[0])
    for some in words[1:]:
        shared &= Counter(some)
    pieces = []
    for some in words:
        distinct = dict.fromkeys(word for word, count in Counter(some).items() if count > shared[word])
        piece = " ".join(distinct)
        pieces.append(piece if len(piece) <= MOST // 3 else f"{piece[: MOST // 3 - 1]}{ELLIPSIS}")
    return pieces


def _with(short: str, piece: str) -> str:
    """A short name with a piece of the full name inserted where text was left out."""
    if not piece:
        return short
    head, mark, tail = short.rpartition(ELLIPSIS)
    return (
        f"{head}{ELLIPSIS}{piece}{'' if piece.endswith(ELLIPSIS) else ELLIPSIS}{tail}"
        if mark
        else f"{short} {ELLIPSIS}{piece}"
    )
