"""Tries each extra of a wheel in a fresh environment: a command that needs it says so before, and goes on after.

python tests/try_extras.py WHEEL [EXTRA...]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROFILE = ROOT / "src" / "jouletrace" / "bundled" / "deit-b-64-graph-h100.zip"
RUN = ROOT / "tests" / "data" / "runs" / "deit-run-h100.zip"
SERVER = "http://127.0.0.1:9"  # nothing answers there
NEEDS = {
    "report": f"jouletrace report {PROFILE} -o report.html",
    "serving": f"jouletrace bench {SERVER} --rate 1 -d sim:h100?realtime=1 -o load",
    "pods": "jouletrace monitor -d sim:h100?realtime=1 --pods none.sock --duration 1 -o watched",
    "otel": f"jouletrace otlp {RUN} {SERVER}",
    "torch": "jouletrace profile deit-tiny -d sim:h100 -o measured",
    "onnx": "python -c 'import onnx, onnxruntime, onnxscript'",
    "openvino": "python -c 'import openvino, onnx'",
    "ray": "jouletrace sweep mlp -d sim:h100 --on ray -o swept",
}
"""Of each extra a command that needs it."""


def try_extra(wheel: Path, extra: str) -> None:
    """Run its command in an environment with the wheel alone, and again with the extra.

    Raises:
        SystemExit: If the extra doesn't change that it is missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        binaries = Path(folder) / "environment" / "bin"
        subprocess.run([sys.executable, "-m", "venv", binaries.parent], check=True)
        said = []
        for of in ("", f"[{extra}]"):
            pip = [binaries / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
            subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", f"{wheel}{of}"], check=True)
            command = ["bash", "-c", f"PATH={binaries}:$PATH; {NEEDS[extra]} 2>&1"]
            done = subprocess.run(command, check=False, cwd=folder, text=True, capture_output=True, timeout=300)
            said.append(done.stdout)
        print(f"== {extra}: {said[-1].strip().rpartition(chr(10))[2]}")
        missing = [f"jouletrace[{extra}]" in text or "ModuleNotFoundError" in text for text in said]
        if missing != [True, False] or "Traceback" in said[1]:
            raise SystemExit(f"{extra}: {said}")


if __name__ == "__main__":
    for name in sys.argv[2:] or NEEDS:
        try_extra(Path(sys.argv[1]).resolve(), name)
