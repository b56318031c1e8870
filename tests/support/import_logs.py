"""Small logs and reports as other tools write them, made up for tests with round figures."""

import pytest

from jouletrace.analysis.imported import add_imported
from jouletrace.formats.importers import read_files
from jouletrace.formats.importers.base import ImportOptions
from jouletrace.formats.importers.registry import formats, importer
from jouletrace.run.figures import Figures
from places import SAMPLES as _FOLDER

real_files = pytest.mark.skipif(not _FOLDER.is_dir(), reason="no real files of other tools here")


def real(name):
    """The real files of that name or pattern; the test is skipped if there are none."""
    found = sorted(_FOLDER.glob(name))
    if not found:
        pytest.skip(f"no {name} here")
    return found


def write(tmp_path, text, name="log.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(tmp_path, form, text, **options):
    """Read text as a format, which has to recognise it first."""
    path = write(tmp_path, text)
    assert importer(form).sniff(path.read_bytes()[:65536])
    return importer(form).read(path, ImportOptions(**options))


def codes(run):
    return {warning.code for warning in run.warnings}


def left_out(run):
    return run.settings["imported"][0]["left_out"]


def dmon(watts, *, time="", gpus=1):
    """A log of ``nvidia-smi dmon``, with its header repeated every 44 rows; ``time`` is "", "T" or "DT".

    At the least of several powers the GPU isn't in use.
    """
    names = {"": "# gpu", "T": "#Time        gpu", "DT": "#Date       Time        gpu"}[time]
    marks = {"": "# Idx", "T": "#HH:MM:SS    Idx", "DT": "#YYYYMMDD   HH:MM:SS    Idx"}[time]
    header = [
        f"{names}    pwr  gtemp  mtemp     sm    mem   mclk   pclk ",
        f"{marks}      W      C      C      %      %    MHz    MHz ",
    ]
    rows = []
    for i, power in enumerate(watts):
        clock = f"{23 + i // 3600:02d}:{59 - (i < 5):02d}:{(55 + i) % 60:02d}" if time else ""
        if time and i >= 5:
            clock = f"00:00:{(i - 5) % 60:02d}" if i < 65 else f"00:{(i - 5) // 60:02d}:{(i - 5) % 60:02d}"
        elif time:
            clock = f"23:59:{55 + i}"
        day = ("20230512" if i < 5 else "20230513") if time == "DT" else ""
        if i % 44 == 0:
            rows += header
        used = 0 if power == min(watts) < max(watts) else 40
        rows += [
            f"{day} {clock}    {gpu}     {power + gpu}     38      -     {used}      3   1593    975 "
            for gpu in range(gpus)
        ]
    return "\n".join(rows) + "\n"


def query(watts, *, units="cells", step_ms=100, extra=False):
    """CSV of ``--query-gpu``; ``units`` "cells", "header" only, or "none" (no header at all)."""
    fields = ["timestamp", "power.draw [W]"]
    if extra:
        fields = [
            "timestamp",
            "index",
            "uuid",
            "name",
            "power.draw [W]",
            "temperature.gpu",
            "memory.used [MiB]",
            "pstate",
        ]
        fields += ["clocks_throttle_reasons.active", "utilization.gpu [%]"]
    rows = [] if units == "none" else [", ".join(fields)]
    for i, power in enumerate(watts):
        at = i * step_ms
        stamp = f"2025/04/24 16:{at // 60000:02d}:{at // 1000 % 60:02d}.{at % 1000:03d}"
        w, mib, pct = ("", "", "") if units == "header" else (" W", " MiB", " %")
        cells = [stamp, f"{power:.2f}{w}"]
        if extra:
            cells = [stamp, "1", "GPU-1234", "NVIDIA H100 80GB HBM3", f"{power:.2f}{w}", "41", f"512{mib}", "P0"]
            cells += ["0x0000000000000004", f"97{pct}"]
        rows.append(", ".join(cells))
    return "\n".join(rows) + "\n"


def boxes(watts):
    """The plain table of ``nvidia-smi``, printed once per second."""
    bar = "+-----------------------------------------------------------------------------+"
    text = []
    for i, power in enumerate(watts):
        text += [
            f"Fri Apr 25 10:11:{i:02d} 2025",
            bar,
            "| NVIDIA-SMI 535.54.03              Driver Version: 535.54.03    CUDA Version: 12.2     |",
            "|   0  NVIDIA A100-SXM4-40GB          On  | 00000000:07:00.0 Off |                    0 |",
            f"| N/A   31C    P0              {power}W / 400W |      4MiB / 40960MiB |      7%      Default |",
            "|   1  NVIDIA A100-SXM4-40GB          On  | 00000000:0F:00.0 Off |                    0 |",
            "| N/A   30C    P0              N/A / N/A  |      4MiB / 40960MiB |      0%      Default |",
            bar,
        ]
    return "\n".join(text) + "\n"


def scrape(power, *, mig=False, stamp=""):
    """One scrape of dcgm-exporter."""
    text = ["# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).", "# TYPE DCGM_FI_DEV_POWER_USAGE gauge"]
    board = 'gpu="0",UUID="GPU-abcd",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",Hostname="node{1}"'
    parts = [f',GPU_I_PROFILE="1g.5gb",GPU_I_ID="{i}"' for i in (7, 8)] if mig else [""]
    for part in parts:
        text.append(f"DCGM_FI_DEV_POWER_USAGE{{{board}{part}}} {power}{stamp}")
        text.append(f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{board}{part}}} {power * 1000}{stamp}")
        text.append(f"DCGM_FI_DEV_FB_USED{{{board}{part}}} 1024{stamp}")
        text.append(f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{board}{part}}} 0.5{stamp}")
    return "\n".join(text) + "\n"


def dcgm_csv(n):
    return "EntityId,POWER,FBUSD,TimeStamp\n" + "".join(f"0,{60 + i}.5,4,{1657289505 + i}\n" for i in range(n))


NVPROF_SUMMARY = """==8554== NVPROF is profiling process 8554, command: ./app 1000 10
==8554== Profiling application: ./app 1000 10
==8554== Profiling result:
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:   75.00%  300.00ms     77000  3.8960us  1.6310us  8.1920us  void reduce<float>(float*, unsigned int)
                   25.00%  100.00ms     11022  9.0720us     639ns  7.6160us  [CUDA memcpy DtoH]
      API calls:   99.00%  1.20000s     88041  5.4100us  1.6020us  706.81us  cudaLaunch
                    1.00%  12.000ms         7  16.039ms  3.5190us  111.97ms  cudaMalloc
"""

NVPROF_SUMMARY_CSV = """==1== NVPROF is profiling process 1, command: ./app
==1== Profiling result:
"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"
,%,ms,,us,us,us,
"GPU activities",75.0,300.0,77000,3.896,1.631,8.192,"void reduce<float>(float*, unsigned int)"
"API calls",99.0,1200.0,88041,5.41,1.602,706.81,"cudaLaunch"
"""

NVPROF_TRACE_CSV = """==1== NVPROF is profiling process 1, command: ./sgemm
==1== Profiling result:
"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread","Static SMem",\
"Dynamic SMem","Size","Throughput","SrcMemType","DstMemType","SM Clock","Memory Clock","Temperature","Power","Device",\
"Context","Stream","Name","Correlation_ID"
ms,us,,,,,,,,KB,B,MB,GB/s,,,MHz,MHz,C,mW/mW,,,,,
1.000000,2.000000,,,,,,,,,,8.0,4.0,"Pageable","Device",,,,,"Tesla V100-SXM2-16GB (0)","1","7","[CUDA memcpy HtoD]",10
2.000000,1500.000000,80,2,1,256,1,1,128,49.152,16,,,,,,,,,"Tesla V100-SXM2-16GB (0)","1",\
"7","volta_sgemm_128x64_nn [11]",11
2.500000,,,,,,,,,,,,,,,1425,877,70,295702/300000,"Tesla V100-SXM2-16GB (0)",,,,
52.500000,,,,,,,,,,,,,,,1417,877,71,290000/300000,"Tesla V100-SXM2-16GB (0)",,,,
"""

NVPROF_METRICS = """==4269== NVPROF is profiling process 4269, command: ./native.o
==4269== Profiling result:
==4269== Metric result:
Invocations                               Metric Name                        Metric Description         Min  \
       Max         Avg
Device "GeForce GTX 1070 (0)"
    Kernel: blend(unsigned char*, int)
         10                      dram_read_throughput             Device Memory Read Throughput  80.000GB/s  \
90.000GB/s  85.000GB/s
         10                             sm_efficiency                   Multiprocessor Activity      90.00%  \
    99.00%      95.00%
         10                          dram_utilization                 Device Memory Utilization     Mid (5)  \
  Max (10)    High (7)
"""

NVPROF_METRICS_CSV = """==1== Metric result:
"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"
"Tesla V100 (0)","gemm(float*, int)",3,"achieved_occupancy","Achieved Occupancy",0.25,0.75,0.5
"""

TRTEXEC_LOG = """&&&& RUNNING TensorRT.trtexec [TensorRT v8501] # trtexec --loadEngine=gpt2.engine
[12/04/2022-02:01:30] [I] === Model Options ===
[12/04/2022-02:01:30] [I] Model: models/gpt2.onnx
[12/04/2022-02:01:30] [I] Selected Device: NVIDIA A100-SXM4-40GB
[12/04/2022-02:01:36] [I] === Trace details ===
[12/04/2022-02:01:36] [I] Trace averages of 10 runs:
[12/04/2022-02:01:36] [I] Average on 10 runs - GPU latency: 31.0 ms - Host latency: 41.0 ms (enqueue 0.15 ms)
[12/04/2022-02:01:36] [I] Average on 10 runs - GPU latency: 33.0 ms - Host latency: 43.0 ms (enqueue 0.25 ms)
[12/04/2022-02:01:36] [I]
[12/04/2022-02:01:36] [I] === Performance summary ===
[12/04/2022-02:01:36] [I] Throughput: 31.25 qps
[12/04/2022-02:01:36] [I] Latency: min = 41 ms, max = 44 ms, mean = 42 ms, median = 42.5 ms, percentile(90%) = 43 ms, \
percentile(99%) = 44 ms
[12/04/2022-02:01:36] [I] GPU Compute Time: min = 31 ms, max = 34 ms, mean = 32 ms, median = 32.5 ms
[12/04/2022-02:01:36] [I] Total Host Walltime: 3.125 s
[12/04/2022-02:01:36] [I] Total GPU Compute Time: 3 s
"""


TRTEXEC_PROFILE = """[
  { "count" : 4 }
, { "name" : "Conv_0 + Relu_1", "timeMs" : 4, "averageMs" : 1, "medianMs" : 0.9, "percentage" : 80 }
, { "name" : "say "hi" \\ there", "timeMs" : 1, "averageMs" : 0.25, "medianMs" : 0.25, "percentage" : 20 }
, { "name" : "reshape", "timeMs" : 0, "averageMs" : 0, "medianMs" : 0, "percentage" : 0 }
]
"""

TORCH = """<torch.utils.benchmark.utils.common.Measurement object at 0x7f2a>
y = model(x): batch_size 1 method pre-ln
Base
setup: from __main__ import model
  Median: 4.37 ms
  IQR:    0.06 ms (4.36 to 4.42)
  226 measurements, 100 runs per measurement, 1 thread
[-------------------  ------------------]
                                  |  Base
1 threads: ------------------------------
      batch_size 1 method pre-ln  |  4.4

Times are in milliseconds (ms).
"""


def meter(watts, *, decimal=".", delimiter=","):
    """A power meter's CSV, in the numbers of some locale."""
    rows = [delimiter.join(["Timestamp", "Power (W)", "Voltage (V)"])]
    for i, power in enumerate(watts):
        value = f"{power:.1f}".replace(".", decimal)
        rows.append(delimiter.join([f"2024-03-01T12:00:{i:02d}Z", value, f"230{decimal}5"]))
    return "\n".join(rows) + "\n"


MIG_RESULTS = """model_name,batch_size,seq_length,latency,latency_std,throughput,start_timestamp,end_timestamp,mig
bert,1,32,5.0,0.1,200.0,1657289505,1657289515,3g.20gb
bert,4,32,8.0,0.1,500.0,1657289520,1657289530,3g.20gb
bert,8,32,0,0,0,0,0,3g.20gb
"""

EMISSIONS = "timestamp,project_name,run_id,duration,emissions,cpu_energy,gpu_energy,energy_consumed,gpu_model,pue\n"
"""The header of CodeCarbon's ``emissions.csv``, shortened."""


def emissions(n):
    rows = [f"2026-07-26T20:{i:02d}:00,job,r{i},60.0,0.001,0.0007,0.004,0.0047,1 x NVIDIA A100,1.0\n" for i in range(n)]
    return EMISSIONS + "".join(rows)


ZEUS = "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n" + "".join(
    f"{1772532000 + 11 * k}.5,epoch {k},10.5,{3000 + k}.25,{2000 + k}.5\n" for k in range(20)
)

TEGRASTATS = "".join(
    f"03-03-2026 10:00:{k} RAM 2274/6834MB (lfb 27x4MB) CPU [9%@1189,off] GPU@38C VDD_IN {5540 + k}mW/5542mW\n"
    for k in range(10, 30)
)

ROCPROF = "Kind,Agent_Id,Queue_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp\n" + "".join(
    f"KERNEL_DISPATCH,Agent 4,1,gemm,{k},{63855948165371 + 100_000 * k},{63855948215371 + 100_000 * k}\n"
    for k in range(9)
)

TEXTS = {
    "dmon": ("nvidia_smi", dmon([61] * 20 + [87] * 40)),
    "dmon with dates": ("nvidia_smi", dmon([61] * 10 + [87] * 10, time="DT", gpus=2)),
    "query": ("nvidia_smi", query([61] * 20 + [87] * 20, extra=True)),
    "boxes": ("nvidia_smi", boxes([61] * 5 + [87] * 5)),
    "scrapes": ("dcgm", "".join(scrape(60 + i, mig=True, stamp=f" {1657289505000 + 1000 * i}") for i in range(5))),
    "dcgm csv": ("dcgm", dcgm_csv(20)),
    "emissions": ("codecarbon", emissions(20)),
    "tegrastats": ("printed", TEGRASTATS),
    "zeus": ("results", ZEUS),
    "rocprofv3": ("trace_tables", ROCPROF),
    "nvprof summary": ("nvprof", NVPROF_SUMMARY),
    "nvprof summary csv": ("nvprof", NVPROF_SUMMARY_CSV),
    "nvprof trace csv": ("nvprof", NVPROF_TRACE_CSV),
    "nvprof metrics": ("nvprof", NVPROF_METRICS),
    "nvprof metrics csv": ("nvprof", NVPROF_METRICS_CSV),
    "trtexec log": ("trtexec", TRTEXEC_LOG),
    "trtexec profile": ("trtexec", TRTEXEC_PROFILE),
    "torch": ("torch_benchmark", TORCH),
    "mig results": ("mig_folder", MIG_RESULTS),
    "meter": ("table", meter([100.0 + i for i in range(20)])),
}
"""By name: the format and a text of it."""

SAMPLES = {name: sample for name, sample in TEXTS.items() if sample[0] in formats()}
"""Those of the formats that are read."""


def sessions(size, count=6, step=1.0, pause=60):
    """Times and watts of equal sessions with pauses between: idle, a load, idle."""
    watts = [60, *[300 + k % 3 for k in range(size - 2)], 62]
    return [(1_786_553_852 + i * pause * 5 + k * step, watts[k]) for i in range(count) for k in range(size)]


def smi(path, watts, since=0, name="NVIDIA H100", columns="index, name", rows=20, host=""):
    """A log of GPU 0 of a host, one row a second."""
    facts_of = {"index": "0", "name": name, "uuid": "GPU-1", "host": host}
    facts = ", ".join(facts_of[column] for column in columns.split(", "))
    lines = [
        f"2026/08/24 22:{k // 60:02d}:{k % 60:02d}.113, {facts}, {watts + k % 3}.00 W"
        for k in range(since, since + rows)
    ]
    path.write_text("\n".join([f"timestamp, {columns}, power.draw [W]", *lines]) + "\n")
    return path


def with_levels(*paths, **options):
    """The Run of files, with the levels of its powers and what they give with a latency."""
    run = read_files(paths, ImportOptions(**options))
    figures = Figures()
    add_imported(run, figures)
    figures.become(run)
    return run


def night(folder, name="smi.csv", minutes=480, without=(), offset_s=0, watts=300):
    """A log of a GPU at one reading a minute, which names it."""
    rows = ["timestamp, index, uuid, power.draw [W]"]
    for k in (k for k in range(minutes) if k not in without):
        stamp = f"2026/11/22 {20 + k // 60 - 24 * (k >= 240):02d}:{k % 60:02d}:{offset_s:02d}.000"
        stamp = stamp.replace("11/22", "11/23") if k >= 240 else stamp
        rows.append(f"{stamp}, 0, GPU-1234, {watts + 0.01 * (k % 7):.2f} W")
    (folder / name).write_text("\n".join(rows) + "\n")
    return name


def where_read(form, *cases):
    """Cases of a test, if the format is read."""
    return cases if form in formats() else ()
