"""HTML pages as tests read them."""

import json
from html.parser import HTMLParser

EVIL = "</script><img src=x onerror=alert(1)>\"'&<b>"


class Page(HTMLParser):
    """Tags, the text of tables, and the contents of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._inside: dict[str, str | None] | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = dict(attrs) if tag in ("script", "style") else None
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside is None:
            self.words.append(data)
        elif self.tags[-1][0] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def data(self, run: int = 0) -> dict:
        return next(json.loads(text) for attributes, text in self.scripts if attributes.get("id") == f"data-run{run}")
