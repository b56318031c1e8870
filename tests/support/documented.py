"""Commands and Python of the documentation, as its readers would type them."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

from places import REPOSITORY
from shipped import is_known

PAGES = [
    REPOSITORY / "README.md",
    *(page for page in sorted((REPOSITORY / "docs").rglob("*.md")) if "results" not in page.parts),
]
"""All pages but results, which keep the commands of their day."""


def blocks(page: Path, *languages: str) -> list[str]:
    """Blocks of code of a page in these languages; "" for those without one."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


def commands(page: Path) -> list[tuple[list[str], bool]]:
    """Words behind ``jouletrace`` of each command in a page, and whether it is whole: a sentence may only name it.

    Those of absent wings are left out.
    """
    lines = "".join(blocks(page, "", "console", "yaml", "bash")).splitlines()
    typed = [line for line in lines if re.match(r"(\$ |jouletrace |.*\brun: )", line)]
    parts = [part.strip() for line in typed for part in re.split(r"&&|\brun: |^\$ ", line)]
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    spans = [span.replace("\n", " ") for span in re.findall(r"`(jouletrace [^`]+)`", prose)]
    whole = [(words, True) for part in parts if part.startswith("jouletrace ") for words in _alternatives(part)]
    named = [(words, False) for span in spans for words in _alternatives(span)]
    return [(words, is_whole) for words, is_whole in whole + named if is_known(words)]


def _alternatives(line: str) -> list[list[str]]:
    """Words of a command, without a comment, a redirection, an explanation in a column; ``a b|c`` as two commands."""
    line = re.split(r" +# | > | >> | {3,}(?=[a-z])", line)[0].replace("…", "...")
    if re.search(r" \[", line):  # a synopsis
        line = re.sub(r"[\[\]]", "", line)
    words = [word for word in shlex.split(line)[1:] if word not in ("...", "|")]
    return [list(one) for one in itertools.product(*(word.split("|") for word in words))]
