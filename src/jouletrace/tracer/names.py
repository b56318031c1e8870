"""Names of kernels, operators and processes, from the raw ones that a trace holds."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import PurePath

LONGEST = 65_536
"""Longest symbol that is demangled, in bytes."""

_FUSED = re.compile(r"triton_[a-z]+_fused_(\w+)_\d[a-z\d]*")
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_RUNS = re.compile(r"-[bBdEiIOPqsSuvx]*([mc])")
"""Options of Python that end its own: a module, or code, follows."""

_DIGITS = re.compile(r"\d+")
_PRODUCT = re.compile(r"gemm|gemv|cutlass|xmma|nvjet")
_NAMESPACE = re.compile(r"(\w+)::(\w+)")


def demangle(name: bytes) -> str:
    """The demangled form of a C++ symbol, by the demangler of the C++ runtime; other names are unchanged."""
    if not name.startswith(b"_Z") or len(name) > LONGEST:
        return name.decode(errors="replace")
    try:
        runtime = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return name.decode(errors="replace")
    runtime.__cxa_demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    text = runtime.__cxa_demangle(name, None, None, ctypes.byref(status))
    if not text or status.value:
        return name.decode(errors="replace")
    plain = ctypes.string_at(text).decode(errors="replace")
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(text)
    return plain


def operator(name: str) -> str:
    """The name of an operator, which torch records as "aten::addmm", in a Run: "aten.addmm"."""
    found = _NAMESPACE.fullmatch(name)
    return f"{found[1]}.{found[2]}" if found else name


def operators_in(kernel: str) -> str:
    """The operators in the name of a kernel that torch's compiler made, "add_relu"; "" for other kernels."""
    found = _FUSED.fullmatch(kernel)
    return found[1] if found else ""


def family_of(kernel: str) -> str:
    """The name of a kernel without its numbers; kernels of products, of which a library has many, are of one family."""
    return "product" if _PRODUCT.search(kernel) else _DIGITS.sub("*", kernel)


def process_name(words: Sequence[str]) -> str:
    """The name of what a command line of at least one word runs: a script (of a launcher, too), module or command."""
    target, arguments = words[0], list(words[1:])
    launches = True
    if _PYTHON.fullmatch(PurePath(target).name):
        while arguments and arguments[0].startswith("-"):
            option = arguments.pop(0)
            if runs := _RUNS.fullmatch(option):
                return arguments[0] if runs[1] == "m" and arguments else "python"
            if option in ("-W", "-X"):
                del arguments[:1]
        target = arguments.pop(0) if arguments else "python"
        launches = not PurePath(target).suffix
    scripts = [word for word in arguments if word.endswith(".py")] if launches else []
    return PurePath(scripts[0] if scripts else target).name or "process"
