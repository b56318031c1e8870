"""Files that hold a whole model for a runtime: ``.onnx``, and OpenVINO's ``.xml``."""

from __future__ import annotations

from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.workloads.base import Built
from jouletrace.workloads.options import WorkloadOptions

SUFFIXES = (".onnx", ".xml")


class ModelFile:
    """A model in a file that torch can't run.

    Attributes:
        name: The file, as given.
        path: The file.
    """

    def __init__(self, spec: str) -> None:
        """Check that the file exists.

        Raises:
            BadInputError: If it doesn't, or is empty.
        """
        self.name = spec
        self.path = Path(spec)
        if not self.path.is_file():
            raise BadInputError(f"{spec}: there is no such file")
        if self.path.stat().st_size == 0:
            raise BadInputError(f"{spec} is empty")

    @property
    def backend(self) -> str:
        """The default runtime for the file."""
        return "openvino" if self.path.suffix.lower() == ".xml" else "onnxruntime"

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """Refused: see ``Workload.build``."""
        raise BadInputError(f"{self.name}: a model file runs with --backend onnxruntime or openvino")
