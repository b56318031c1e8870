"""A browser for the pages of wings."""

from browsers import chromium, open_page

__all__ = ["chromium", "open_page"]
