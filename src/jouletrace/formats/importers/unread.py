"""Files of known tools that no importer reads: the one table of what they are and what to import in their place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from jouletrace.formats.importers.base import HEAD_BYTES, decode_text

_SMI = "log `nvidia-smi --query-gpu=timestamp,index,uuid,name,power.draw --format=csv -lms 100`"
_AMD = "log `amd-smi metric --power --csv --watch 1`, whose rows have times"
_TABLE = "write its power as a table, with a header, a time and watts in each row (timestamp,power_w)"
_NO_KERNELS = "import a log of the GPU's power, with a time and watts in each row (timestamp,power_w)"
_NSYS = "import what `nsys export --type sqlite REPORT.nsys-rep` writes"
_LATENCY = "give its latency by --latency beside a log of power"
_REQUESTS = "import AIPerf's profile_export.jsonl or what `vllm bench serve --save-result --save-detailed` writes"
_DCGM = f"its rows have no times; {_SMI}, or scrapes of dcgm-exporter with their times"


class Unread(NamedTuple):
    """A format that isn't read.

    Attributes:
        what: Its name.
        instead: What to log or import in its place.
        mark: Pattern by which the beginning of a file is recognised; "^" begins a line.
    """

    what: str
    instead: str
    mark: str


_UNREAD = (
    Unread("XML of `nvidia-smi -q -x`", _SMI, r"<nvidia_smi_log\b"),
    Unread("text of `nvidia-smi -q`", _SMI, r"^=+\s*NVSMI LOG\s*=+"),
    Unread(
        "a log of `nvidia-smi --query-gpu` without headings, below lines of times",
        f"leave out noheader, or {_SMI}",
        r"^.*\d:\d\d:\d\d\b(?!.* W\b).*\n([^,:\n]+, )*[\d.]+ W\b",
    ),
    Unread("a log of `nvidia-smi pmon`, which has no power", _SMI, r"^#\s*((Date|Time)\s+){0,2}gpu\s+pid\b"),
    Unread("a log of `dcgmi dmon`", _DCGM, r"^#\s*Entity\b|\A\s*GPU \d+(\s+([\d.]+|N/A))+\s*$"),
    Unread(
        "a log of Jetson's tegrastats",
        f"{_TABLE}; VDD_IN is in milliwatts (power_mw)",
        r"\bRAM \d+/\d+MB\b.*(\bCPU \[|_FREQ\b)",
    ),
    Unread(
        "a trace of rocprofv3",
        _NO_KERNELS,
        r"^(?=.*\bStart_Timestamp\b)(?=.*\bEnd_Timestamp\b)(?=.*\b(Kind|Domain|Function|Kernel_Name|Agent_Id)\b)|"
        r'^"?Node_Id"?,"?Logical_Node_Id\b|^(?=.*\bDispatch_Id\b)(?=.*\bAgent_Id\b)|"rocprofiler-sdk-(json-)?tool"\s*:',
    ),
    Unread(
        "output of rocprof",
        _NO_KERNELS,
        r'^"?Name"?,"?Calls"?,"?TotalDuration(Ns)?"?,|^"?Index"?,"?KernelName"?,',
    ),
    Unread(
        "output of amd-smi without times",
        _AMD,
        r'^"?gpu"?,(?!.*time).*(socket_power|_activity|power_usage)|^GPU: ?\d+\s*$|^\s*GPU {2,}POWER\b|'
        r'"(socket_power|gfx_activity)"\s*:',
    ),
    Unread("output of rocm-smi", _AMD, r"ROCm System Management Interface|^device,(?!.*time).*Package Power"),
    Unread(
        "output of xpu-smi without times",
        "log `xpu-smi dump -d -1 -m 1`, whose rows have times",
        r"^\|\s*(GPU Power \(W\)|Device ID)\s*\|",
    ),
    Unread(
        "a log of MLPerf's power meter",
        f"{_TABLE}, without labels between its values",
        r"^Time,[^,\n]*\d:\d\d[^,\n]*,Watts,",
    ),
    Unread("output of MLPerf's LoadGen", "import the log of a power meter", r"^:::MLLOG|^MLPerf Results Summary"),
    Unread(
        "output of `nsys stats`",
        _NSYS,
        r"^\W*Time ?\(%\)\W+Total Time\b|^\W*Start ?\(\w+\)\W+(Duration|End) ?\(\w+\).*(Name|CorrId|Range)|"
        r"^\s*\*\* .+ \(\w+_(sum|trace)\):",
    ),
    Unread(
        "times of `trtexec --exportTimes`",
        "import trtexec's log, or the layers of --exportProfile",
        r'"(start(H2d|In|Compute)Ms|computeMs)"\s*:',
    ),
    Unread(
        "layers of `trtexec --exportLayerInfo` without times",
        "import those of --exportProfile",
        r'\A\s*\{\s*"Layers"\s*:',
    ),
    Unread(
        "output of OpenVINO's benchmark_app",
        _LATENCY,
        r"^(\[ INFO \]\s*)?Count:\s+\d+ iterations|^\[Step \d+/\d+\] |^Command line parameters;",
    ),
    Unread(
        "output of `perf stat`",
        "its counts have no times of their own; log power, with a time and watts in each row (timestamp,power_w)",
        r"Performance counter stats for|^\s*([\d.,]+[,;\s]+){1,2}Joules[,;\s]+power/energy",
    ),
    Unread("output of `ipmitool dcmi power reading`", _TABLE, r"^\s*Instantaneous power reading:"),
    Unread(
        "output of macOS's powermetrics",
        f"{_TABLE}; its powers are in milliwatts (power_mw)",
        r"^\*+ Sampled system activity|^(CPU|GPU|ANE|Combined) Power\b.*: *\d+ mW|<key>(gpu|combined)_power</key>",
    ),
    Unread("output of gpustat", _SMI, r'^\[\d+\] .*\|.*C,.*%.*\|.* / +\d+ MB|"power\.draw"\s*:'),
    Unread(
        "output of Slurm's sacct, whose rows are whole jobs",
        f"while a job runs, {_SMI}",
        r"^(?=.*\bJobID)(?=.*\bConsumedEnergy)|^\s*JobID\s+JobName\s+Partition\b",
    ),
    Unread(
        "a result of SGLang's benchmarks",
        _REQUESTS,
        r'"backend"\s*:\s*"sglang|"(prefill_throughput|median_decode_latency)"\s*:',
    ),
    Unread(
        "a summary of GenAI-Perf or AIPerf",
        _REQUESTS,
        r'"request_(throughput|latency)"\s*:\s*\{|^"?Metric"?,"?avg"?,|"experiments"\s*:\s*\[\s*\{\s*"experiment"',
    ),
    Unread(
        "output of llama-bench",
        _LATENCY,
        r'"avg_ts"\s*:|\bavg_ns"?,"?stddev_ns\b|^\|\s*model\s*\|\s*size\s*\|\s*params\s*\|',
    ),
    Unread(
        "a result of Zeus's ZeusMonitor, whose figures are of whole windows",
        "import the CSV of its PowerMonitor, or another log of power",
        r'"gpu_energy"\s*:|^start_time,window_name,|\bMeasurement\(time=',
    ),
    Unread(
        "a log of W&B's events as JSON",
        'write them as CSV, `wandb.Api().run(RUN).history(stream="events").to_csv("events.csv")`, and import that',
        r'"_wandb"\s*:|"system[./]gpu\.\d+\.\w+"\s*:',
    ),
)

_ASKED = (
    Unread(
        "output of turbostat",
        "log `turbostat --quiet --Summary --show Time_Of_Day_Seconds,PkgWatt`, and give "
        "--map time_s=Time_Of_Day_Seconds --map power_w=PkgWatt",
        r"\bPkgWatt\b|\bBzy_MHz\b",
    ),
    Unread(
        "a chart that W&B exported",
        'export it over Relative Time (Process), and give --map "time_s=Relative Time (Process)" '
        '--map "power_w=RUN - system/gpu.0.powerWatts" with the run\'s name',
        r'^"?(Step|Relative Time|_timestamp|_runtime)\b.*__(MIN|MAX)\b',
    ),
    Unread(
        "a log of HWiNFO",
        'give --map "power_w=GPU Power [W]", or another of its columns',
        r'^"?Date"?,"?Time"?,.*\[[^\]\n]+\]',
    ),
    Unread(
        "a log of LibreHardwareMonitor",
        'give --map "power_w=GPU Package", or another of its columns, by its number if its name occurs twice',
        r"^\W*,\W*/[\w-]+/\d+/[\w-]+/\d+",
    ),
    Unread(
        "CSV of InfluxDB with one metric in each row",
        'pivot it, `|> pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")`; of power alone, '
        "give --map power_w=_value",
        r"^.*\bresult,table,(?=.*\b_field\b)(?=.*\b_value\b)",
    ),
)
"""Tables of known tools that are read by a mapping, which is what their complaint asks for."""


def advice(head: bytes) -> str:
    """One line that says which file this is and what to import in its place; "" of an unknown file."""
    found = _named(decode_text(head), _UNREAD)
    return f"this is {found.what}, which isn't read: {found.instead}" if found else ""


def mapping(text: str) -> str:
    """One line that says whose table this is and which mapping it needs; "" of an unknown table."""
    found = _named(text[:HEAD_BYTES], _ASKED)
    return f"this is {found.what}: {found.instead}" if found else ""


def _named(text: str, table: Sequence[Unread]) -> Unread | None:
    return next((one for one in table if re.search(one.mark, text, re.M)), None)
