"""Words that the prose avoids, each with what to write instead: ``make words``.

    python tests/check_words.py [PATH...]

Paths are files or folders of Markdown and Python, by default the pages of the root and of docs, except results, and the
source in src, tests and benchmarks. Of Markdown, prose is checked without code and targets of links; of Python,
docstrings, comments and messages; of tests, whose strings are data, docstrings, comments and names. Words that are
banned in names are looked for in all identifiers. Each hit is
``file:line: word -> instead``; the exit code is 1 if there are any.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
LIST = TESTS / "words.toml"


@dataclass(frozen=True)
class Word:
    """A banned word.

    Attributes:
        pattern: Pattern of the word.
        instead: What to write.
        allowed: Phrases around it in which it has another meaning.
        only: "markdown" or "python" if it is banned in one of them only, "name" if in identifiers, else empty.
    """

    pattern: re.Pattern[str]
    instead: str
    allowed: re.Pattern[str] | None
    only: str


def read_words(path: Path = LIST) -> list[Word]:
    """The list, in the order of the file."""
    table = tomllib.loads(path.read_text())
    return [
        Word(
            re.compile(entry["word"], re.IGNORECASE),
            entry["instead"],
            re.compile("|".join(entry["allowed"]), re.IGNORECASE) if "allowed" in entry else None,
            entry.get("only", ""),
        )
        for entry in table["word"]
    ]


def markdown_prose(text: str) -> list[str]:
    """Its lines, with all that isn't prose blank."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    text = re.sub(r"^ *```.*?^ *```", blank, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`|<!--.*?-->", blank, text, flags=re.DOTALL)
    text = re.sub(r"(?<=\])\([^)\s]*\)|<[^>\n]+>|https?://\S+", blank, text)
    return text.splitlines()


@lru_cache(1)  # of a file names are taken after its prose
def _tokens(text: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def python_prose(text: str, tests: bool = False) -> list[str]:
    """Its lines, with docstrings, comments and strings of several words alone.

    Args:
        text: The source.
        tests: Whether it is a file of tests: then with their names, and without strings other than docstrings.
    """
    lines = [""] * (text.count("\n") + 2)
    documents = set()
    for token in _tokens(text):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] += f" {token.string}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr):
            documents.add(node.value)
        if tests and isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):  # a sentence
            lines[node.lineno - 1] += " " + node.name.replace("_", " ")
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.search(r"[A-Za-z] +[A-Za-z]", node.value)
            and not (tests and node not in documents)
        ):
            for number, line in enumerate(node.value.splitlines(), node.lineno - 1):
                # without code, and without the names of arguments and attributes
                lines[min(number, len(lines) - 1)] += " " + re.sub(r"``[^`]*``|^ {8,}\w+(, \w+)*: ", " ", line)
    return lines


def python_names(text: str) -> list[str]:
    """Its lines, with the words of identifiers alone: ``_most_w`` is "most w"."""
    lines = [""] * (text.count("\n") + 2)
    for token in _tokens(text):
        if token.type == tokenize.NAME:
            lines[token.start[0] - 1] += " " + token.string.replace("_", " ")
    return lines


def hits(path: Path, words: list[Word]) -> Iterator[tuple[int, str, str]]:
    """Line, word and what to write instead, of one file."""
    kind = "python" if path.suffix == ".py" else "markdown"
    text, place = path.read_text(), path.resolve()
    tests = place.is_relative_to(TESTS) and not place.is_relative_to(TESTS / "support")
    prose = python_prose(text, tests) if kind == "python" else markdown_prose(text)
    yield from _hits_in(prose, [word for word in words if word.only in ("", kind)])
    if kind == "python":
        yield from _hits_in(python_names(text), [word for word in words if word.only == "name"])


def _hits_in(lines: list[str], words: list[Word]) -> Iterator[tuple[int, str, str]]:
    whole = "\n".join(lines)
    words = [word for word in words if word.pattern.search(whole)]  # of 300 words few are in a file at all
    for number, line in enumerate(lines, 1):
        for word in words if line.strip() else ():
            allowed = [match.span() for match in word.allowed.finditer(line)] if word.allowed else []
            for match in word.pattern.finditer(line):
                if not any(begin <= match.start() and match.end() <= end for begin, end in allowed):
                    yield number, match[0], word.instead


def default_files() -> list[Path]:
    """Files that are checked if none is named. Pages of results keep the words of their day."""
    docs = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "results" not in page.parts]
    return [*sorted(ROOT.glob("*.md")), *docs, *files([ROOT / "src", TESTS, ROOT / "benchmarks"])]


def files(paths: list[Path]) -> list[Path]:
    """Markdown and Python among paths, folders with all that is in them."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        found += [file for file in inside if file.suffix in (".md", ".py")]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print the hits; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "paths", nargs="*", type=Path, help="files or folders; pages, source and benchmarks if none is named"
    )
    paths = parser.parse_args(arguments).paths
    if missing := [path for path in paths if not path.exists()]:
        parser.error(f"{missing[0]}: no such file or folder")
    words = read_words()
    count = 0
    for path in files(paths) if paths else default_files():
        shown = path.resolve().relative_to(ROOT) if path.resolve().is_relative_to(ROOT) else path
        for number, word, instead in hits(path, words):
            print(f"{shown}:{number}: {word} -> {instead}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
