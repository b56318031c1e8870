"""Files whose structure changes within: headings in the middle, and lines that hold a time between blocks of rows."""

import pytest

from import_logs import left_out, read
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import formats
from log_sections import GERMAN, blocks, rows, sections

_FORMATS = {"query": "nvidia_smi", "nounits": "nvidia_smi", "dcgm": "dcgm", "table": "table"}
FORMATS = {name: form for name, form in _FORMATS.items() if form in formats()}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("order", ["same", "reverse", "turned"])
def test_columns_of_a_later_section_are_those_of_its_own_headings(tmp_path, form, order):
    names = list(rows(form, 0))
    later = {"same": names, "reverse": names[::-1], "turned": [*names[1:], names[0]]}[order]
    alone, both = (read(tmp_path, FORMATS[form], sections(form, names, part)) for part in (names, later))
    assert both.samples.equals(alone.samples)
    assert len(both.series("imported:0", "power_w")[1]) == 40
    assert left_out(both) == left_out(alone)


@pytest.mark.parametrize("form", FORMATS)
def test_a_later_section_may_have_other_columns(tmp_path, form):
    names = list(rows(form, 0))
    fewer = [name for name in names if "emp" not in name and name != "TMPTR"]
    for parts in ((names, fewer), (fewer, names)):
        run = read(tmp_path, FORMATS[form], sections(form, *parts))
        assert run.series("imported:0", "power_w")[1].tolist() == [300 + k % 3 for k in range(40)]
        assert run.series("imported:0", "temperature_c")[1].tolist() == [60] * 20


INDEX = {"query": "index", "nounits": "gpu_uuid", "table": "gpu"}


def with_gpus(form, gpus, *, first):
    """20 rows without a GPU under headings of their own, before or after those of each of these."""
    names = list(rows(form, 0))
    plain = [", ".join(names), *(", ".join(rows(form, k)[name] for name in names) for k in range(20))]
    named = [", ".join([*names, INDEX[form]])]
    for k in range(20, 40):
        cells = ", ".join(rows(form, k)[name] for name in names)
        named += [f"{cells}, {gpu if form != 'nounits' else f'GPU-{gpu}'}" for gpu in gpus]
    return "\n".join([*plain, *named] if first else [*named, *plain]) + "\n"


@pytest.mark.parametrize("form", [name for name in INDEX if name in FORMATS])
@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_rows_of_no_gpu_among_those_of_several_are_left_out_and_counted(tmp_path, form, first):
    run = read(tmp_path, FORMATS[form], with_gpus(form, (0, 1), first=first))
    assert [len(run.series(device.id, "power_w")[1]) for device in run.devices] == [20, 20]
    assert left_out(run)["no_device"] == 20
    said = next(warning.message for warning in run.warnings if warning.code == "no_device")
    where = 2 if first else 43
    assert said.startswith("20 rows name no device, where others name several, and were left out: log it in each row")
    assert said.endswith(f"line {where}")


@pytest.mark.parametrize("form", [name for name in INDEX if name in FORMATS])
@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_rows_of_no_gpu_beside_those_of_one_are_taken_for_its_own_with_a_word(tmp_path, form, first):
    run = read(tmp_path, FORMATS[form], with_gpus(form, (3,), first=first))
    (device,) = run.devices
    assert len(run.series(device.id, "power_w")[1]) == 40
    assert left_out(run)["no_device"] == 20
    assert "the only one that others name is taken for theirs" in " ".join(one.message for one in run.warnings)


def test_times_between_rows_of_any_table_are_asked_for_in_each_row(tmp_path):
    text = blocks(GERMAN["date"], "gpu,power_w\n", lambda k: f"0,{200 + k}\n")
    with pytest.raises(BadInputError, match=r"A time between rows, as in line 2 \('Di .*: write it into each row"):
        read(tmp_path, "table", text)
