"""Programs on a GPU that isn't there, traced by the native library: a fake driver, CUPTI and CUDA program, in C."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from places import REPOSITORY, SUPPORT

FAKES = SUPPORT / "native"
NATIVE = REPOSITORY / "src/jouletrace/tracer/native"
ROW = np.dtype(
    [
        *(
            ("start", "<u8"),
            ("end", "<u8"),
            ("name", "<u4"),
            ("owner", "<u4"),
            ("range", "<u4"),
            ("correlation", "<u4"),
        ),
        *(("stream", "<u4"), ("thread", "<u4"), ("device", "<u2"), ("kind", "u1"), ("sampled", "u1"), ("extra", "<u4")),
    ]
)
KERNEL, COPY, SET, SYNC = range(4)

RECORD_BYTES = {
    18: {10: 208, 1: 88, 2: 88, 22: 96},
    21: {10: 208, 1: 88, 2: 88, 22: 96},
    26: {10: 208, 1: 96, 2: 88, 22: 96},
    130001: {10: 216, 1: 96, 2: 88, 22: 96},
    130100: {10: 224, 1: 96, 2: 88, 22: 96},
    130300: {10: 232, 1: 96, 2: 88, 22: 96},
    130400: {10: 248, 1: 112, 2: 104, 22: 96},
}
"""Bytes of the records of each version of CUPTI, by kind, as its headers declare them."""

HOOKS = 'text(f"i ranges {RANGES}")\ndef look(): pass\ndef end(): pass\n'
"""The file that stands for the hooks in a Python program."""


def compile_into(folder: Path) -> None:
    """Build the library, the fakes and the program: ``old`` holds the CUPTI of CUDA 12.0 to 12.4, which has no
    functions for single calls."""
    compiler = ("gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
    shared = (*compiler, "-shared", "-fPIC")
    (folder / "old").mkdir()
    commands = [
        (*shared, FAKES / "cuda.c", "-o", folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1"),
        (*shared, FAKES / "cupti.c", "-o", folder / "libcupti.so.13", "-lpthread"),
        (*shared, "-DBEFORE_12_5", FAKES / "cupti.c", "-o", folder / "old/libcupti.so.12", "-lpthread"),
        (*compiler, FAKES / "program.c", "-o", folder / "program", folder / "libcuda.so.1", "-lpthread"),
        (*shared, "-fvisibility=hidden", *sorted(NATIVE.glob("*.c")), "-o", folder / "native.so", "-lpthread", "-ldl"),
    ]
    (folder / "hooks.py").write_text(HOOKS)  # those of the library are tested elsewhere
    for command in commands:
        subprocess.run(command, check=True)


@dataclass(frozen=True)
class Traced:
    """The files of one process.

    Attributes:
        rows: Its rows, dtype ROW.
        header: rows, dropped, pid, flushed_ns, ended_ns.
        lines: Lines of its text.
    """

    folder: Path

    @property
    def header(self) -> dict[str, int]:
        head = (self.folder / "rows").read_bytes()[:4096]
        assert head[:16] == b"JTROWS1\0" + (1).to_bytes(4, "little") + (48).to_bytes(4, "little")
        names = ("rows", "dropped", "pid", "flushed_ns", "ended_ns")
        return dict(zip(names, np.frombuffer(head, "<u8", 5, 16).tolist(), strict=True))

    @property
    def rows(self) -> np.ndarray:
        return np.fromfile(self.folder / "rows", ROW, self.header["rows"], offset=4096)

    @property
    def lines(self) -> list[str]:
        return (self.folder / "text").read_bytes().decode(errors="replace").split("\n")[:-1]

    def said(self, letter: str) -> list[str]:
        """The lines that begin with a letter, without it."""
        return [line[2:] for line in self.lines if line[0] == letter]

    def of(self, kind: int) -> np.ndarray:
        rows = self.rows
        return rows[rows["kind"] == kind]

    def counts(self, kind: int = KERNEL) -> dict[str, int]:
        """How many rows of a kind there are of each name."""
        names = self.said("n")
        numbers, counts = np.unique(self.of(kind)["name"], return_counts=True)
        return {names[number]: count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)}

    def path(self, mark: int) -> str:
        """The names of a mark and those above it, outermost first, such as "step/forward"."""
        parts = []
        names, marks = self.said("n"), self.said("m")
        while mark:
            parent, _, name = marks[mark - 1].split()
            parts.append(names[int(name)])
            mark = int(parent)
        return "/".join(reversed(parts))

    def ranges(self, kind: int = KERNEL) -> dict[str, int]:
        """How many rows of a kind there are in each range."""
        numbers, counts = np.unique(self.of(kind)["range"], return_counts=True)
        return {self.path(number): count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)}


class Bench:
    """Runs the program in a folder, with the environment of a traced one."""

    def __init__(self, built: Path, folder: Path) -> None:
        self.built, self.folder = built, folder
        self.traces = folder / "traces"
        self.traces.mkdir(mode=0o700)

    def environment(self, version: int = 130001, **extra: object) -> dict[str, str]:
        sizes = ",".join(f"{kind}:{size}" for kind, size in RECORD_BYTES.get(version, RECORD_BYTES[18]).items())
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CUDA", "NVTX", "FAKE"))},
            "JOULETRACE_TRACE": str(self.traces),
            "CUDA_INJECTION64_PATH": str(self.built / "native.so"),
            "NVTX_INJECTION64_PATH": str(self.built / "native.so"),
            "LD_LIBRARY_PATH": f"{self.built / 'old' if version < 23 else self.built}:{self.built}",
            "FAKE_VERSION": str(version),
            "FAKE_SIZES": sizes,
            **{name: str(value) for name, value in extra.items()},
        }

    def start(self, words: str | list[str], version: int = 130001, before: tuple[str, ...] = (), **extra: object):
        """The process of a program that does these words; what stands ``before`` its command runs it."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [*before, self.built / "program", *(words.split() if isinstance(words, str) else words)]
        return subprocess.Popen(command, env=self.environment(version, **extra), text=True, cwd=self.folder, **pipes)

    def run(self, words: str | list[str], code: int = 0, **options: object) -> list[Traced]:
        """The traces of a program that does these words, which ends with a code and says nothing on stderr."""
        process = self.start(words, **options)
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (code, "")
        return self.traced()

    def one(self, words: str | list[str], code: int = 0, **options: object) -> Traced:
        """As ``run``, of one process."""
        (traced,) = self.run(words, code, **options)
        return traced

    def traced(self) -> list[Traced]:
        """The processes' traces, in the order in which they began."""
        return [Traced(folder) for folder in sorted(self.traces.iterdir(), key=lambda one: one.name.split("-")[1])]
