"""Kernels of each process, from the files that it left."""

import numpy as np
import pytest

from jouletrace.tracer import ProcessTrace, read
from jouletrace.tracer.rows import COPY, HEADER_BYTES, LOAD, ROW, SET, SYNC, read_text
from row_writer import Writer

BEGIN = 1_700_000_000_000_000_000
US = 1_000


def at(us):
    return BEGIN + us * US


def written(folder, pid=7, count=3, **facts):
    """A process with some kernels of 10 us, and facts."""
    with Writer(folder, pid, BEGIN) as writer:
        for key, value in facts.items():
            writer.fact(key, value)
        for number in range(count):
            writer.row(at(20 * number), at(20 * number + 10), "gemm", correlation=number + 1)
    return writer.folder


def labels_of(traced):
    return [traced.work.labels[one] for one in traced.work.label]


def test_what_is_written_is_read(tmp_path):
    with Writer(tmp_path, 42, BEGIN) as writer:
        writer.fact("cmdline", "/usr/bin/python3\x1f-u\x1ftrain.py\x1f--lr\x1f1")
        writer.fact("rank", "1")
        writer.fact("device", "1 GPU-b")
        writer.fact("operators", "the program compiles its code")
        writer.traced([(at(0), at(50)), (at(60), at(100))])
        writer.warn("profiler_inside", "torch's profiler holds CUPTI")
        writer.row(at(40), at(45), "memcpy HtoD", correlation=3, kind=COPY, device=1, extra=64)
        writer.row(at(0), at(10), b"_Z4gemmv", correlation=1, device=1, thread=2)
        writer.row(at(20), at(30), b"_Z4gemmv", correlation=2)
        writer.row(at(70), at(75), "memset", correlation=4, kind=SET)
        writer.row(at(80), at(90), "cudaDeviceSynchronize", kind=SYNC)
        writer.row(at(10), at(20), "cudaStreamSynchronize", kind=SYNC)
        writer.row(at(50), at(60), kind=LOAD)
    (found,) = read(tmp_path)
    assert (found.pid, found.name, found.rank, found.devices) == (42, "train.py", 1, ["", "GPU-b"])
    work = found.work
    assert [work.names[one] for one in work.name] == ["gemm()", "gemm()", "memcpy HtoD", "memset"]
    assert ((work.start_ns - BEGIN) // US).tolist() == [0, 20, 40, 70]
    assert ((work.end_ns - BEGIN) // US).tolist() == [10, 30, 45, 75]
    assert work.device.tolist() == [1, 0, 1, 0]
    assert work.correlation.tolist() == [1, 2, 3, 4]
    assert found.work.thread.tolist() == [2, 1, 1, 1]
    assert found.segments == [(at(0), at(50)), (at(60), at(100))]
    assert found.loads == [(at(50), at(60))]
    assert found.syncs.tolist() == [[at(10), at(20)], [at(80), at(90)]]
    assert found.notes == [("profiler_inside", "torch's profiler holds CUPTI")]
    assert found.unsampled == "the program compiles its code"
    assert found.dropped == 0


def test_kernels_of_a_graph_share_a_launch_and_are_ordered_by_their_start(tmp_path):
    with Writer(tmp_path, 1) as writer:
        for start, name, launch in ((50, "c", 2), (30, "b", 2), (10, "a", 2), (90, "first", 1)):
            writer.row(at(start), at(start + 5), name, correlation=launch)
    (found,) = read(tmp_path)
    assert [found.work.names[one] for one in found.work.name] == ["first", "a", "b", "c"]


def test_launches_are_in_order_though_their_numbers_begin_again(tmp_path):
    """CUPTI counts modulo 2^32; a kernel ends after one that was launched later, in another stream."""
    numbers = [2**32 - 2, 2**32 - 1, 1, 2**32 - 1, 2, 0]
    with Writer(tmp_path, 1) as writer:
        for place, number in enumerate(numbers):
            writer.row(at(place), at(place + 1), "gemm", correlation=number)
    (found,) = read(tmp_path)
    assert ((found.work.start_ns - BEGIN) // US).tolist() == [0, 1, 3, 5, 2, 4]
    assert found.work.correlation.tolist() == [2**32 + k for k in (-2, -1, -1, 0, 1, 2)]


def test_a_launch_belongs_to_the_innermost_operator_the_nearest_module_and_its_ranges(tmp_path):
    with Writer(tmp_path, 1) as writer:
        module = writer.mark(0, "m", "h.11.mlp")
        linear = writer.mark(module, "o", "aten::linear")
        backward = writer.mark(module, "b", "AddmmBackward0")
        owners = {
            module: ("", "h.*.mlp"),
            linear: ("aten.linear", "h.*.mlp"),
            writer.mark(linear, "o", "aten::addmm"): ("aten.addmm", "h.*.mlp"),
            writer.mark(module, "o", "vllm::silu"): ("vllm.silu", "h.*.mlp"),
            backward: ("AddmmBackward0", "h.*.mlp"),
            writer.mark(backward, "o", "aten::mm"): ("aten.mm", "h.*.mlp"),
            writer.mark(0, "o", "aten::_foreach_add_"): ("aten._foreach_add_", ""),
            0: ("", ""),
            99: ("", ""),  # a mark whose line was lost
        }
        epoch = writer.mark(0, "r", "epoch")
        step = writer.mark(epoch, "r", "step")
        for number, owner in enumerate(owners):
            writer.row(
                at(number), at(number + 1), "k", correlation=number, owner=owner, range=(0, epoch, step)[number % 3]
            )
    (found,) = read(tmp_path)
    assert labels_of(found) == list(owners.values())
    assert [found.work.paths[one] for one in found.work.path] == 3 * [(), ("epoch",), ("epoch", "step")]
    assert found.work.paths[0] == ()


def test_marking_operators_that_never_came_says_why(tmp_path):
    for pid, operator in ((1, ""), (2, "aten::mm")):
        with Writer(tmp_path, pid, BEGIN) as writer:
            writer.fact("operators", "torch's ranges go to another library")
            module = writer.mark(0, "m", "model")
            owner = writer.mark(module, "o", operator) if operator else module
            writer.row(at(0), at(10), "gemm", owner=owner, correlation=1, sampled=True)
    assert [traced.unsampled for traced in read(tmp_path)] == ["torch's ranges go to another library", ""]


def test_kernels_of_a_compiler_are_of_the_operators_that_they_stand_for(tmp_path):
    with Writer(tmp_path, 1) as writer:
        module = writer.mark(0, "m", "model")
        region = writer.mark(module, "o", "Torch-Compiled Region: 0/0")
        writer.fused("triton_poi_fused_0", "aten.add, aten.relu")
        names = ("triton_poi_fused_0", "triton_per_fused_native_layer_norm_12", "triton_own_kernel", "gemm")
        for number, name in enumerate(names):
            writer.row(at(number), at(number + 1), name, correlation=number, owner=region, sampled=True)
            writer.row(at(20 + number), at(21 + number), name, correlation=20 + number, owner=module)
    (found,) = read(tmp_path)
    operators = ["add+relu", "native_layer_norm"]
    assert labels_of(found)[:4] == [(op, "model") for op in (*operators, *2 * ["Torch-Compiled Region: 0/0"])]
    assert labels_of(found)[4:] == [(op, "model") for op in (*operators, "", "")]


def test_calls_of_a_module_are_those_that_were_written_last(tmp_path):
    with Writer(tmp_path, 7) as writer:
        marks = [writer.mark(0, "m", name) for name in ("Model", "Model.block")]
        marks.append(writer.mark(0, "r", "step"))
        for mark, calls in (*zip(marks, (1, 2, 3), strict=True), (marks[0], 50), (99, 1), (0, 1)):
            writer.calls(mark, calls)
        writer.row(10, 20, "gemm")
    (traced,) = read(tmp_path)
    assert traced.calls == {"Model": 50, "Model.block": 2}
    traced.save(tmp_path / "saved.npz")
    assert ProcessTrace.load(tmp_path / "saved.npz").calls == traced.calls


def test_rows_that_never_ended_are_counted_and_left_out(tmp_path):
    with Writer(tmp_path, 1) as writer:
        writer.dropped = 5
        writer.row(at(0), at(1), "k", correlation=1)
        writer.row(at(5), 0, "k", correlation=2)
        writer.row(0, 0, "k", correlation=3)
        writer.row(at(9), at(8), "k", correlation=4)
        writer.row(2**63 + 1, 2**63 + 2, "k", correlation=5)
    (found,) = read(tmp_path)
    assert len(found.work) == 1
    assert found.dropped == 9
    assert found.notes == [("records_dropped", "9 of 10 launches have no kernel: the tracer dropped their records")]


def test_rows_without_space_state_why(tmp_path):
    with Writer(tmp_path, 1) as writer:
        writer.dropped = 5
        writer.fact("full", "a full disk")
    (found,) = read(tmp_path)
    assert found.notes == [
        ("records_dropped", "5 of 5 launches have no kernel: the tracer dropped their records (a full disk)")
    ]


def test_a_few_rows_without_space_are_a_remark(tmp_path):
    with Writer(tmp_path, 1) as writer:
        writer.dropped = 1
        for k in range(19):
            writer.row(at(k), at(k + 1), "k", correlation=k + 1)
    (found,) = read(tmp_path)
    assert found.notes == [("few_records_dropped", "1 of 20 launches have no kernel: the tracer dropped their records")]


def test_a_running_process_is_read_as_far_as_its_count_says(tmp_path):
    writer = Writer(tmp_path, 1, BEGIN)
    writer.traced([(at(0), None)])
    assert [len(one.work) for one in read(tmp_path)] == [0]
    writer.row(at(0), at(10), "k", correlation=1)
    writer.flush()
    with (writer.folder / "rows").open("ab") as file:
        file.write(3 * ROW.itemsize * b"\1" + b"half a row")  # rows that it writes now, and space
    (found,) = read(tmp_path)
    assert len(found.work) == 1
    assert found.segments == [(at(0), at(10))]


def test_a_killed_process_was_traced_until_its_last_row(tmp_path):
    with Writer(tmp_path, 1, BEGIN) as writer:
        writer.traced([(at(0), None)])
        writer.row(at(30), at(40), "k", correlation=1)
        writer.close(ended=False)
    assert [one.segments for one in read(tmp_path)] == [[(at(0), at(40))]]


def test_processes_are_in_the_order_of_their_ranks_and_one_that_became_another_program_is_two(tmp_path):
    for pid, rank in ((5, "1"), (9, "0"), (3, None)):
        written(tmp_path, pid, **({} if rank is None else {"rank": rank}))
    with Writer(tmp_path, 3, BEGIN + 1) as after:
        after.row(at(0), at(1), "other")
    assert [(one.rank, one.pid) for one in read(tmp_path)] == [(0, 9), (1, 5), (None, 3), (None, 3)]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("python", "train.py"), "train.py"),
        (("/opt/bin/python3.12", "-X", "dev", "-u", "src/train.py", "data.py"), "train.py"),
        (("python3", "-m", "pkg.train", "x.py"), "pkg.train"),
        (("python3", "-um", "pkg"), "pkg"),
        (("python3", "-c", "import x", "x.py"), "python"),
        (("python3",), "python"),
        (("/usr/bin/python", "/usr/bin/torchrun", "--nproc", "2", "ddp/train.py"), "train.py"),
        (("./vec", "1000"), "vec"),
        (("bash", "-x", "run/one.py"), "one.py"),
        (("./a\x1b[31m",), "a [31m"),
        ((), "process"),
    ],
)
def test_a_process_is_called_by_what_it_runs(tmp_path, words, name):
    written(tmp_path, **({"cmdline": "\x1f".join(words)} if words else {}))
    assert [one.name for one in read(tmp_path)] == [name]


def changed(place, offset, data):
    raw = bytearray((place / "rows").read_bytes())
    raw[offset : offset + len(data)] = data
    (place / "rows").write_bytes(raw)


DAMAGES = {
    "header cut off": (lambda place: (place / "rows").write_bytes(b"JTROWS1\0"), "header is cut off"),
    "nothing": (lambda place: (place / "rows").write_bytes(b""), "header is cut off"),
    "other file": (lambda place: (place / "rows").write_bytes(5000 * b"x"), "not that of a tracer's rows"),
    "version": (lambda place: changed(place, 8, b"\7"), "file of version 7 with rows of 48 bytes"),
    "size of rows": (lambda place: changed(place, 12, b"\x38"), "file of version 1 with rows of 56 bytes"),
    "count": (lambda place: changed(place, 16, b"\xff\xff\xff"), "it states 16777215 rows and holds 3"),
    "count beyond all": (lambda place: changed(place, 16, 8 * b"\xff"), "it states 18446744073709551615 rows"),
    "rows cut off": (
        lambda place: (place / "rows").write_bytes((place / "rows").read_bytes()[: HEADER_BYTES + 50]),
        "it states 3 rows and holds 1",
    ),
    "no text": (lambda place: (place / "text").unlink(), "No such file"),
    "no rows": (lambda place: (place / "rows").unlink(), "No such file"),
    "folder": (lambda place: ((place / "rows").unlink(), (place / "rows").mkdir()), "directory"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_process_whose_files_are_damaged_is_named_and_the_others_are_read(tmp_path, damage):
    damaged = written(tmp_path, 7)
    written(tmp_path, 8)
    change, message = DAMAGES[damage]
    change(damaged)
    lost, whole = read(tmp_path)
    assert (lost.pid, len(lost.work)) == (7, 0)
    ((code, text),) = lost.notes
    assert code == "child_lost"
    assert text.startswith("process 7 handed over a ")
    assert message in text
    assert "\n" not in text
    assert (len(whole.work), whole.notes) == (3, [])


def test_a_folder_of_another_user_is_named_and_the_others_are_read(tmp_path, monkeypatch):
    foreign = written(tmp_path, 7)
    written(tmp_path, 8)
    names = type(foreign).iterdir

    def refused(folder):
        if folder == foreign:
            raise PermissionError(13, "Permission denied")
        return names(folder)

    monkeypatch.setattr(type(foreign), "iterdir", refused)
    (foreign / "rows").unlink()
    lost, whole = read(tmp_path)
    assert (lost.pid, [code for code, _ in lost.notes]) == (7, ["child_lost"])
    assert (len(whole.work), whole.notes) == (3, [])


def test_a_line_that_is_cut_off_or_makes_no_sense_is_left_out_and_numbers_stay(tmp_path):
    place = written(tmp_path, count=0)
    (place / "text").write_bytes(
        b"n first\nm x y z\nm 0 m 0\nm 99 o 77\nm 3\n\nz\nn\ns soon\ns 99999999999999999999\ni\ni rank many\n"
        b"i device 5000 GPU-x\ni device\nw\nk\nn last\nm 2 o 2\nn cut of"
    )
    with (place / "rows").open("r+b") as file:
        row = np.zeros(3, ROW)
        row["start"], row["end"], row["name"], row["owner"] = at(0), at(1), (0, 1, 3), (2, 5, 1)
        file.seek(16)
        file.write((3).to_bytes(8, "little"))
        file.seek(HEADER_BYTES)
        file.write(row.tobytes())
    (found,) = read(tmp_path)
    assert [found.work.names[one] for one in found.work.name] == ["first", "kernel", "kernel"]
    assert labels_of(found) == [("", "first"), ("last", "first"), ("", "")]
    assert (found.rank, found.devices, found.segments) == (None, [], [(at(0), at(1))])


def test_names_may_hold_anything(tmp_path):
    huge = "x" * 2**20
    names = ["tab\tand\nline \x1b[31m", b"\xff\xfe not UTF-8", huge, b"_Z" + 2**20 * b"P", "", "\u202e reversed"]
    with Writer(tmp_path, 1) as writer:
        for number, name in enumerate(names):
            module = writer.mark(0, "m", name)
            owner = writer.mark(module, "o", name)
            within = writer.mark(0, "r", name)
            writer.row(at(number), at(number + 1), name, correlation=number, owner=owner, range=within)
    (found,) = read(tmp_path)
    read_names = [found.work.names[one] for one in found.work.name]
    plain = ["tab and line  [31m", "\ufffd\ufffd not UTF-8", huge, "_Z" + 2**20 * "P"]
    assert read_names == [*plain, "kernel", "\u202e reversed"]
    assert labels_of(found) == [(name, name) for name in (*plain, "", "\u202e reversed")]


@pytest.mark.thorough
def test_ranges_in_ranges_without_end_have_a_path_of_some(tmp_path):
    with Writer(tmp_path, 1) as writer:
        within = 0
        for number in range(20_000):
            within = writer.mark(within, "r", f"range {number}")
        writer.row(at(0), at(1), "k", range=within)
    (found,) = read(tmp_path)
    path = found.work.paths[found.work.path[0]]
    assert path == tuple(f"range {number}" for number in range(len(path)))
    assert 10 < len(path) < 1000


def test_a_folder_without_processes_holds_none(tmp_path):
    assert read(tmp_path / "absent") == []
    (tmp_path / "5-77").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "6-1").write_text("a file")
    assert read(tmp_path) == []


@pytest.mark.thorough
def test_no_damage_raises(tmp_path):
    rng = np.random.default_rng(1)
    place = written(tmp_path, rank="0", cmdline="python\x1fa.py")
    kept = {name: (place / name).read_bytes() for name in ("rows", "text")}
    for _ in range(300):
        for name, raw in kept.items():
            bad = bytearray(raw)
            for spot in rng.integers(0, len(bad) if name == "text" else 64, rng.integers(0, 4)).tolist():
                bad[spot] = int(rng.integers(256))
            (place / name).write_bytes(bad[: len(bad) if rng.random() < 0.7 else int(rng.integers(len(bad)))])
        (found,) = read(tmp_path)
        assert len(found.work) == 3 or found.notes or len(found.work) < 3


@pytest.mark.parametrize("broken", [b"m 1 o", b"m x o 1", b"m 1 o x", b"m"])
def test_a_mark_that_makes_no_sense_keeps_its_number_and_has_no_name(tmp_path, broken):
    (tmp_path / "text").write_bytes(b"n \nn layer\nm 0 o 1\n" + broken + b"\nm 1 o 1\n")
    found = read_text(tmp_path)
    assert found.marks == [(0, "o", 1), (0, "", 0), (1, "o", 1)]
