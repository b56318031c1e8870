"""Figures that README.md and docs state are those of the raw data in the repository.

Recordings with kernels state what they did when they were saved; ``make figures`` analyses these again.
"""

import re
import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest

from places import REPOSITORY
from shipped import ABSENT

if ABSENT:
    pytest.skip("pages state figures of absent wings", allow_module_level=True)

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import gpu_pages
import stated
from stated import CLAIMS, RUNS, Data, checked

MOST_BYTES = 12_000_000


@pytest.fixture(scope="module")
def lines():
    return checked(Data(again=False))


@pytest.mark.thorough
def test_pages_state_what_their_raw_data_give(lines):
    assert [(line.text, line.stated, line.given) for line in lines if not line.holds] == []


@pytest.mark.slow  # twenty seconds of analyses, which other tests do with narrower searches
def test_pages_state_what_recordings_analysed_again_give():
    assert [(line.text, line.stated, line.given) for line in checked(Data(again=True)) if not line.holds] == []


@pytest.mark.parametrize(
    ("text", "given", "holds"),
    [
        ("takes {} s", [1.2449], True),
        ("takes {} s", [1.2460], False),
        ("takes {} s", [1.2349], False),
        ("takes {} s ± {}", [1.24, 0.0301], True),  # half-widths are rounded up
        ("takes {} s ± {}", [1.24, 0.0294], False),
        ("takes {} s ± {}", [1.24, 0.0460], False),
        ("falls by {} %", [-3.04], True),
        ("falls by {} %", [3.04], False),
        ("rises by {} %", [3.0], False),
    ],
)
def test_a_figure_that_is_off_by_more_than_rounding_does_not_hold(text, given, holds, tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text("It takes **1.24** s\n± 0.04 and falls by −3.0 %.\n")
    monkeypatch.setattr(stated, "ROOT", tmp_path)
    stated._plain.cache_clear()
    assert stated._line("page.md", text, given).holds is holds


@pytest.mark.thorough
def test_every_figure_of_the_results_in_the_readme_is_recomputed(lines):
    """Numbers in the section, but for counts, sizes and goals that the texts of claims contain."""
    text = stated._plain("README.md")
    section = text[text.index("## Results") : text.index("## In Python")]
    claimed = " ".join(text for page, text, _ in CLAIMS if page == "README.md")
    figures = re.findall(r"(?<![\w./])\d+(?:\.\d+)?(?= %| J\b| kJ| mJ| ms| W\b)", section)
    assert len(figures) >= 6
    words = re.findall(stated.NUMBER, claimed)
    given = [one for line in lines if line.page == "README.md" for one in line.stated]
    assert [one for one in figures if one not in given and one not in words] == []


def test_pages_of_results_begin_with_their_raw_data():
    pages = [page for page in (REPOSITORY / "docs" / "results").glob("*.md") if page.stem != "index"]
    assert len(pages) > 10
    assert [page.name for page in pages if not page.read_text().split("\n")[2].startswith("**Raw data**: ")] == []


def test_runs_in_the_repository_are_small():
    folders = (RUNS, RUNS / "h200", stated.BUNDLED)
    assert sum(file.stat().st_size for folder in folders for file in folder.iterdir()) < MOST_BYTES


def test_kernels_that_overlap_or_cross_the_counter_s_steps_count_once_and_within_them():
    kernels = {"start_ns": [0, 40, 20, 25, 90], "end_ns": [12, 60, 50, 30, 120]}
    run = SimpleNamespace(activity=pa.table(kernels))
    assert gpu_pages.busy_s(run, {"since_ns": 10, "until_ns": 100}) == pytest.approx((2 + 40 + 10) / 1e9)
