"""What the documentation names is in the repository."""

import re

import pytest

from jouletrace.run.reading import run_files
from places import REPOSITORY

ROOT = REPOSITORY
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page):
    text = page.read_text()
    linked = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    assert [link for link in linked if not (page.parent / link).exists()] == []
    named = re.findall(r"`((?:docs|tests|benchmarks|src|examples)/[\w./-]+)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_raw_data_are_where_the_readme_says():
    text = (ROOT / "README.md").read_text()
    folders = re.findall(r"the Runs in `(.+?)` and `(.+?)`, the recordings in `(.+?)`", text.replace("\n  ", " "))
    assert len(folders) == 1
    *runs, recordings = folders[0]
    assert list((ROOT / recordings).glob("h100_*.npz"))
    for folder in runs:
        places = sorted((ROOT / folder).glob("*.zip"))
        assert places
        for place in places:
            with run_files(place) as files:
                assert "samples.parquet" in files.names()


def test_a_recorded_run_that_a_page_names_is_there():
    there = {path.name for path in ROOT.rglob("*.zip") if ".venv" not in path.parts}
    named = {name for page in PAGES for name in re.findall(r"`[\w./-]*?([\w-]+-h100\.zip)`", page.read_text())}
    assert named
    assert named <= there
