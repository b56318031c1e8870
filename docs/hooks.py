"""The site also holds the files of the repository outside of docs that its pages link to, under ``repository/``."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, InclusionLevel

_LINK = re.compile(r"(?<=\]\()((?:\.\./)+[^)#\s]+)")
_PLACE = "repository"


def _outside(page: str, link: str) -> str | None:
    """Path of what a page links to, from the root of the repository; None for what is in docs."""
    path = normpath(f"docs/{page}/../{link}")
    return None if path.startswith("docs/") else path


def on_files(files: Any, *, config: Any) -> Any:
    """Add the linked files; what isn't there stays a broken link, which fails the build."""
    root = Path(config.docs_dir).parent
    for page in list(files.documentation_pages()):
        for link in _LINK.findall(Path(page.abs_src_path).read_text()):
            path = _outside(page.src_uri, link)
            if path is not None and (root / path).is_file():
                uri = f"{_PLACE}/{path}"
                if files.get_file_from_path(uri) is None:
                    source, out_of_nav = str(root / path), InclusionLevel.NOT_IN_NAV
                    files.append(File.generated(config, uri, abs_src_path=source, inclusion=out_of_nav))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Lead links to the copies."""

    def copied(match: re.Match[str]) -> str:
        path = _outside(page.file.src_uri, match[0])
        if path is None:
            return match[0]
        return relpath(f"{_PLACE}/{path}", str(Path(page.file.src_uri).parent))

    return _LINK.sub(copied, markdown)
