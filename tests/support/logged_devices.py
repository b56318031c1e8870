"""Logs of devices with a row a second."""

START_S = 1_786_553_852
SMI = "timestamp, index, name, power.draw [W], utilization.gpu [%]"


def table(columns, rows, first_s=START_S):
    """A table with a row a second."""
    lines = [",".join(map(str, (first_s + k, *row))) for k, row in enumerate(rows)]
    return "\n".join([f"time_s,{columns}", *lines]) + "\n"


def smi(rows, head=SMI):
    """A log of nvidia-smi from (second, cells)."""
    return "\n".join([head, *(f"2026/08/24 22:19:{second:02d}.000, {cells}" for second, cells in rows)]) + "\n"


def dcgm(seconds, power, milliwatts=None):
    labels = '{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA A30",Hostname="n1"}'
    lines = []
    for k in range(seconds):
        stamp = (START_S + k) * 1000
        lines.append(f"DCGM_FI_DEV_POWER_USAGE{labels} {power} {stamp}")
        if milliwatts is not None:
            counted = 126_272_101_025 + k * milliwatts
            lines.append(f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{labels} {counted} {stamp}")
    return "\n".join(lines) + "\n"
