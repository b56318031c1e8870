"""Files, headings and names of the documentation are in the repository."""

import re

import pytest

import jouletrace
from jouletrace.run.reading import run_files
from places import REPOSITORY
from shipped import ABSENT, is_absent

ROOT = REPOSITORY
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page):
    text = page.read_text()
    linked = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    assert [link for link in linked if not (page.parent / link).exists()] == []
    named = re.findall(r"`((?:docs|tests|benchmarks|src|examples)/[\w./-]+)`", text)
    assert [name for name in named if not (ROOT / name).exists() and not is_absent(name)] == []


def anchors(page):
    """Anchors that links may name in a page: its headings, as hosting platforms spell them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_headings_that_a_page_links_to_are_there(page):
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text())
    local = [(page.parent / path if path else page, anchor) for path, anchor in links if "://" not in path]
    assert [(place.name, anchor) for place, anchor in local if anchor not in anchors(place)] == []


def test_the_index_has_one_line_for_each_page():
    index = ROOT / "docs" / "index.md"
    lines = re.findall(r"^- \[.+?\]\((.+?\.md)\): ", index.read_text(), re.MULTILINE)
    pages = [page for page in PAGES if page not in (index, ROOT / "README.md") and page.parent.name != "results"]
    wanted = [str(page.relative_to(ROOT / "docs")) for page in pages]
    assert sorted(lines) == sorted([*wanted, "results/index.md"])


def test_pages_of_results_are_in_their_index():
    folder = ROOT / "docs" / "results"
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (folder / "index.md").read_text()))
    assert linked == {page.name for page in folder.glob("*.md")} - {"index.md"}


def test_the_readme_is_read_in_one_sitting():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def test_public_names_are_in_the_reference_of_python():
    text = (ROOT / "docs" / "reference" / "python.md").read_text()
    listed = re.findall(r"^::: jouletrace\.(\w+)$", text, re.MULTILINE)
    there = [name for name in listed if not ABSENT or hasattr(jouletrace, name)]
    assert sorted(there) == sorted({*jouletrace.__all__, "range"})


def test_raw_data_are_where_the_readme_says():
    text = (ROOT / "README.md").read_text()
    folders = re.findall(r"the Runs\s+in `(.+?)` and `(.+?)`, and the recordings in `(.+?)`", text.replace("\n  ", " "))
    assert len(folders) == 1
    *runs, recordings = folders[0]
    assert list((ROOT / recordings).glob("h100_*.npz"))
    for folder in runs:
        places = sorted((ROOT / folder).glob("*.zip"))
        assert places
        for place in places:
            with run_files(place) as files:
                assert "samples.parquet" in files.names()


@pytest.mark.thorough
def test_a_recorded_run_that_a_page_names_is_there():
    there = {path.name for path in ROOT.rglob("*.zip") if ".venv" not in path.parts}
    named = {name for page in PAGES for name in re.findall(r"`[\w./-]*?([\w-]+-h100\.zip)`", page.read_text())}
    assert named
    assert named <= there


def test_tests_that_a_page_names_are_there():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", "".join(page.read_text() for page in PAGES))
    assert named
    here = [(path, name) for path, name in named if not is_absent(path)]
    assert [f"{path}::{name}" for path, name in here if f"def {name}(" not in (ROOT / path).read_text()] == []


COMPOSED = {"time_us", "voltage_v"}
"""Names of columns and channels that are put together from parts."""


@pytest.mark.skipif(bool(ABSENT), reason="pages name what absent wings bring")
def test_flags_reasons_and_names_of_the_documentation_are_in_the_source():
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".j2", ".json")]
    source = "".join(path.read_text() for path in files)
    pages = [page for page in PAGES if "results" not in page.parts]
    named = {name for page in pages for name in re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)`", page.read_text())}
    assert len(named) > 100
    # prometheus_client adds the ending of a counter
    plain = {
        name: name.removeprefix("jouletrace_").removesuffix("_total")
        for name in named - COMPOSED
        if not name.startswith("test_")
    }
    assert [name for name, within in plain.items() if within not in source] == []


def test_constants_chosen_on_the_data_that_judge_them_are_still_there():
    """The list names them by module; a constant that goes takes its entry along."""
    page = (ROOT / "docs" / "results" / "trust.md").read_text()
    _, _, listed = page.partition("## Chosen after results were seen")
    named = re.findall(r"`([a-z_]+)\.(_?[A-Z][A-Z_]+)`|`(Prior)\.([a-z_]+)`", listed)
    assert len(named) >= 18
    for module, name, _, field in named:
        texts = [path.read_text() for path in (ROOT / "src").rglob(f"{module or 'prior'}.py")]
        pattern = rf"^    {field}: " if field else rf"^(\w+, )*{name}\b.*="
        assert ABSENT or any(re.search(pattern, text, re.MULTILINE) for text in texts), (module, name, field)
