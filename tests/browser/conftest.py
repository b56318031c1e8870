"""The browser of these tests."""

from browsers import chromium, open_page, opened, opened_for_all

__all__ = ["chromium", "open_page", "opened", "opened_for_all"]
