"""Logs as tools write them, of powers that a test gives: by their documentation, or as public files of them are."""

import csv
import io
import json
import time

import numpy as np

START = 1_772_532_000
"""The first reading, in seconds since 1970: 2026-03-03 10:00:00 UTC."""

COUNT = 30


def stamp(form, k, step=1):
    """The time of a reading, printed."""
    return time.strftime(form, time.gmtime(START + k * step))


def powers(gpus, decimals=2, seed=7):
    """Powers in watts, shape (``COUNT``, ``gpus``), rounded as a tool prints them."""
    base = 200 + 100 * np.arange(gpus)
    return np.round(base + np.random.default_rng(seed).uniform(-20, 20, (COUNT, gpus)), decimals)


def table(rows, header, delimiter=","):
    """A table in quotes where they are needed."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerows([header, *rows])
    return text.getvalue()


def dcgm_metrics(watts):
    names = {"DCGM_FI_DEV_GPU_UTIL": "90", "DCGM_FI_DEV_POWER_USAGE": None, "DCGM_FI_DEV_GPU_TEMP": "50"}
    rows = [
        [stamp("%Y-%m-%dT%H:%M:%SZ", k), name, gpu, f"GPU-{gpu}", "NVIDIA H100 80GB HBM3", fixed or row[gpu], "x=1"]
        for k, row in enumerate(watts)
        for gpu in range(len(row))
        for name, fixed in names.items()
    ]
    return table(rows, ["timestamp", "metric_name", "gpu_id", "uuid", "modelName", "value", "labels_raw"])


def influx(watts):
    rows = []
    for gpu in range(watts.shape[1]):
        for number, (field, fixed) in enumerate({"power_draw": None, "temperature_gpu": 50}.items()):
            for k, row in enumerate(watts):
                own = [stamp("%Y-%m-%dT%H:%M:%SZ", k), fixed or row[gpu], field, "nvidia_smi", gpu, f"P{k % 3}"]
                rows.append(["", "", 2 * gpu + number, "2026-03-03T09:00:00Z", "2026-03-03T11:00:00Z", *own])
    header = ["", "result", "table", "_start", "_stop", "_time", "_value", "_field", "_measurement", "index", "pstate"]
    above = "#group,false,false,true,true,false,false,true,true,true,true\n#datatype,string,long,dateTime:RFC3339,"
    above += "dateTime:RFC3339,dateTime:RFC3339,double,string,string,string,string\n#default,_result,,,,,,,,,\n"
    return above + table(rows, header)


def gpuz(watts):
    header = (
        "        Date        , GPU Clock [MHz] , GPU Temperature [°C] , Board Power Draw [W] , GPU Chip Power [W] ,"
    )
    rows = [
        f"{stamp('%Y-%m-%d %H:%M:%S', k)} ,   1920.0   ,   60.0   ,   {w}   ,   90.0   ,"
        for k, (w,) in enumerate(watts)
    ]
    return "\n".join([header, *rows]) + "\n"


def hwinfo(watts):
    header = (
        'Date,Time,"CPU Package Power [W]","GPU Power [W]","GPU Core (NVVDD) Output Power [W]","GPU Temperature [°C]",'
    )
    rows = [f"{stamp('%-d.%-m.%Y,%-H:%-M:%-S', k)}.123,45.5,{w},90.5,60.0," for k, (w,) in enumerate(watts)]
    return (
        "\n".join([header, *rows, header, ',,"CPU [#0]: AMD","GPU [#0]: NVIDIA","GPU [#0]: NVIDIA","GPU [#0]",']) + "\n"
    )


def libre(watts):
    rows = [[stamp("%m/%d/%Y %H:%M:%S", k), 50, w, 45, v] for k, (w, v) in enumerate(watts)]
    ids = ",/gpu-nvidia/0/temperature/0,/gpu-nvidia/0/power/0,/intelcpu/0/power/0,/gpu-nvidia/1/power/0\n"
    return ids + table(rows, ["Time", "GPU Core", "GPU Package", "CPU Package", "GPU Package"])


def wandb_chart(watts):
    name = "run-a - system/gpu.0.powerWatts"
    rows = [[k, w, w - 9, w + 9] for k, (w,) in enumerate(watts)]
    return table(rows, ["Relative Time (Process)", name, name + "__MIN", name + "__MAX"])


def wandb_events(watts):
    of_gpus = [{f"system.gpu.{gpu}.powerWatts": w for gpu, w in enumerate(row)} for row in watts]
    alike = {"system.gpu.0.temp": 50, "system.gpu.process.0.powerWatts": 1, "system.cpu": 3.5, "_wandb": True}
    lines = [{"_runtime": k + 0.5, "_timestamp": START + k, **alike, **one} for k, one in enumerate(of_gpus)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def wandb_history(watts):
    rows = [[k, k + 0.5, START + k, *row, 3.5] for k, row in enumerate(watts)]
    return table(
        rows, ["", "_runtime", "_timestamp", "system.gpu.0.powerWatts", "system.gpu.1.powerWatts", "system.cpu"]
    )


def without_header(watts):
    return "".join(f"{stamp('%Y-%m-%d %H:%M:%S', k)},{w}\n" for k, (w,) in enumerate(watts))


def tegrastats(watts):
    line = "{} RAM 2274/6834MB (lfb 27x4MB) SWAP 0/3417MB (cached 0MB) CPU [9%@1189,off] EMC_FREQ 0% GR3D_FREQ 22% "
    line += "CPU@40C GPU@38.5C VDD_IN {:.0f}mW/5542mW VDD_CPU_GPU_CV 1594mW/1594mW VDD_SOC 1234mW/1234mW"
    return "".join(line.format(stamp("%m-%d-%Y %H:%M:%S", k), 1000 * w) + "\n" for k, (w,) in enumerate(watts))


def tegrastats_of_tx2(watts):
    line = "RAM 2020/7852MB (lfb 1164x4MB) CPU [9%@345,off] EMC_FREQ 0% GR3D_FREQ 0% PMIC@100C GPU@41C BCPU@42.5C "
    line += "VDD_SYS_GPU 153/158 VDD_IN {:.0f}/3208 VDD_SYS_CPU 536/590\n"
    return "".join(line.format(1000 * w) for (w,) in watts)


def smi_q(watts):
    text = ""
    for k, row in enumerate(watts):
        text += f"\n==============NVSMI LOG==============\n\nTimestamp       : {stamp('%a %b %e %H:%M:%S %Y', k)}\n"
        text += "Driver Version  : 550.54\nAttached GPUs   : 2\n"
        for gpu, w in enumerate(row):
            text += f"GPU 00000000:0{gpu}:00.0\n    Product Name                : NVIDIA H100 80GB HBM3\n"
            text += f"    GPU UUID                    : GPU-{gpu}\n"
            text += "    Temperature\n        GPU Current Temp        : 50 C\n"
            text += f"    GPU Power Readings\n        Power Draw              : {w:.2f} W\n"
            text += "        Current Power Limit     : 700.00 W\n    GPU Memory Power Readings\n"
            text += "        Power Draw              : N/A\n"
            text += "    Clocks\n        Graphics    : 9 MHz\n        SM          : 1980 MHz\n"
            text += "    Module Power Readings\n        Power Draw              : N/A\n"
    return text


def smi_xml(watts):
    text = ""
    for k, row in enumerate(watts):
        text += '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        text += f"\t<timestamp>{stamp('%a %b %e %H:%M:%S %Y', k)}</timestamp>\n"
        for gpu, w in enumerate(row):
            text += f'\t<gpu id="00000000:0{gpu}:00.0">\n\t\t<product_name>NVIDIA H100 80GB HBM3</product_name>\n'
            text += f"\t\t<uuid>GPU-{gpu}</uuid>\n\t\t<gpu_power_readings>\n\t\t\t<power_state>P0</power_state>\n"
            text += f"\t\t\t<instant_power_draw>{w:.2f} W</instant_power_draw>\n\t\t</gpu_power_readings>\n"
            text += "\t\t<module_power_readings>\n\t\t\t<instant_power_draw>N/A</instant_power_draw>\n"
            text += "\t\t</module_power_readings>\n"
            text += "\t\t<clocks>\n\t\t\t<sm_clock>1980 MHz</sm_clock>\n\t\t</clocks>\n\t</gpu>\n"
        text += "</nvidia_smi_log>\n"
    return text


def gpustat(watts):
    text = ""
    for k, row in enumerate(watts):
        text += f"node-a                {stamp('%a %b %e %H:%M:%S %Y', k)}  550.54.15\n"
        for gpu, w in enumerate(row):
            text += f"[{gpu}] NVIDIA H100 80GB HBM3 | 45°C,  98 %, {w:.0f} / 700 W | 40000 / 81559 MB | me(9M)\n"
    return text


def dmon(watts):
    lines = []
    for k, row in enumerate(watts):
        lines += ["#Entity   POWER  TMPTR", "ID"] if k % 10 == 0 else []
        lines += [f"GPU {gpu}     {w:.3f}   50" for gpu, w in enumerate(row)]
    return "\n".join(lines) + "\n"


def spl(watts):
    line = "Time,{}.830,Watts,{:.6f},Volts,239.1,Amps,3.44,PF,0.965,Mark,run_testing,Ch1,Watts,80.2,Ch2,Watts,79.7\n"
    return "".join(line.format(stamp("%m-%d-%Y %H:%M:%S", k), w) for k, (w,) in enumerate(watts))


def ipmi(watts):
    text = ""
    for k, (w,) in enumerate(watts):
        text += (
            f"{stamp('%a %b %e %H:%M:%S UTC %Y', k)}\n\n    Instantaneous power reading:            {w:9.0f} Watts\n"
        )
        text += "    Minimum during sampling period:                701 Watts\n"
        text += "    IPMI timestamp:                           Tue Mar  3 10:00:00 2026\n"
        text += "    Power reading state is: activated\n\n"
    return text


def powermetrics(watts):
    text = "Machine model: Mac14,6\n"
    for k, (w,) in enumerate(watts):
        text += f"\n*** Sampled system activity ({stamp('%a %b %e %H:%M:%S %Y', k)} +0000) (1003.02ms elapsed) ***\n\n"
        text += f"CPU Power: 3500 mW\nGPU Power: 20000 mW\nCombined Power (CPU + GPU + ANE): {1000 * w:.0f} mW\n"
    return text


def turbostat(watts):
    header = "Time_Of_Day_Seconds\tPackage\tCore\tCPU\tBusy%\tPkgWatt\tCorWatt\tRAMWatt\n"
    text = ""
    for k, (w,) in enumerate(watts):
        text += header + f"{START + k}.123456\t-\t-\t-\t50.00\t{w:.2f}\t90.00\t10.20\n"
        text += "".join(f"{START + k}.123456\t{cpu}\t0\t{cpu}\t50.00\t{w / 2:.2f}\t45.00\t5.10\n" for cpu in range(2))
    return text


def xpu_smi(watts):
    rows = [
        f"{stamp('%H:%M:%S', k)}.000,    {gpu}, 0.00, {w:.2f}"
        for k, row in enumerate(watts)
        for gpu, w in enumerate(row)
    ]
    return "\n".join(["Timestamp, DeviceId, GPU Utilization (%), GPU Power (W)", *rows]) + "\n"


def amd_smi(watts):
    rows = [[START + k, gpu, round(w), 40, "N/A"] for k, row in enumerate(watts) for gpu, w in enumerate(row)]
    return table(rows, ["timestamp", "gpu", "socket_power", "gfx_activity", "soc_voltage"])


LOGS = {
    "dcgm_metrics": (dcgm_metrics, 2, 2, {}),
    "influx": (influx, 2, 2, {}),
    "gpuz": (gpuz, 1, 1, {}),
    "hwinfo": (hwinfo, 1, 3, {}),
    "libre": (libre, 2, 3, {}),
    "wandb_chart": (wandb_chart, 1, 2, {}),
    "wandb_events": (wandb_events, 2, 2, {}),
    "wandb_history": (wandb_history, 2, 2, {}),
    "without_header": (without_header, 1, 2, {"time": "1", "power": "2"}),
    "tegrastats": (tegrastats, 1, 3, {}),
    "tegrastats_of_tx2": (tegrastats_of_tx2, 1, 3, {}),
    "smi_q": (smi_q, 2, 2, {}),
    "smi_xml": (smi_xml, 2, 2, {}),
    "gpustat": (gpustat, 2, 0, {}),
    "dmon": (dmon, 2, 3, {}),
    "spl": (spl, 1, 1, {}),
    "ipmi": (ipmi, 1, 0, {}),
    "powermetrics": (powermetrics, 1, 3, {}),
    "turbostat": (turbostat, 1, 2, {}),
    "xpu_smi": (xpu_smi, 2, 2, {}),
    "amd_smi": (amd_smi, 2, 0, {}),
}
"""Maker of each log, its number of devices, the decimals of its powers, and the mapping that it needs."""
