"""Models of the Hugging Face hub: ``hf:ORG/NAME``, from the local cache where they are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.local_folder import WEIGHT_FILES, LocalFolder, has_file
from jouletrace.workloads.nearest import nearest

_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_CONFIG_FILES = ["*.json", "*.txt", "*.model"]
# What transformers loads: files of other frameworks, and copies for other programs, lie beside them.
_TIMEOUT_S = 10.0
_WHOLE = ("model.safetensors", "pytorch_model.bin")
_WEIGHTS = (["model*.safetensors"], ["pytorch_model*.bin"])


class HubModel(LocalFolder):
    """A model of the hub, by its snapshot in the local cache; what is missing there is downloaded.

    Attributes:
        name: ``hf:ORG/NAME``, as given.
        prefixes: With which names of models begin.
    """

    prefixes = ("hf:",)

    def __init__(self, spec: str) -> None:
        self.name, self._id = spec, spec.removeprefix("hf:")
        if not _ID.fullmatch(self._id):
            raise BadInputError(f"'{spec}': write hf:ORG/NAME, such as hf:openai-community/gpt2")

    def locate(self, *, weights: bool) -> WorkloadFacts:
        """Find the snapshot, else download it.

        Raises:
            BadInputError: If the hub has no such model, or nothing that can be run.
            NotPossibleError: If it isn't here and the hub can't be reached; says what to do.
        """
        from huggingface_hub import snapshot_download

        try:
            # Whether all of it is there is looked at below: older caches keep no list of files.
            self._folder = Path(snapshot_download(self._id, local_files_only=True, allow_patterns=["config.json"]))
            missing = missing_file(self._folder, weights)
        except (OSError, ValueError):  # LocalEntryNotFoundError is both
            missing = "config.json"
        source = "the local cache"
        if missing:
            self._download(weights, missing)
            source = "the Hugging Face hub, downloaded"
        if missing := missing_file(self._folder, weights):
            hint = "; --random needs none" if missing != "config.json" else ""
            raise BadInputError(f"{self.name}: the hub has no {missing} of it for transformers{hint}")
        return {"source": f"{source}, revision {self._folder.name[:12]}"}

    def _download(self, weights: bool, missing: str) -> None:
        from huggingface_hub import errors, model_info, snapshot_download

        try:
            # Asked first: out of reach of the hub, a download hands out what is here without a word.
            revision = model_info(self._id, timeout=_TIMEOUT_S).sha
            self._folder = Path(snapshot_download(self._id, revision=revision, allow_patterns=_CONFIG_FILES))
            for patterns in _WEIGHTS if weights else ():
                if missing_file(self._folder, weights):
                    snapshot_download(self._id, revision=revision, allow_patterns=patterns)
        except errors.RepositoryNotFoundError as error:
            raise BadInputError(
                f"{self.name}: the hub has no such model, or shows it to those alone who have agreed to its terms: see "
                f"https://huggingface.co/{self._id}, then run hf auth login{nearest(self._id, cached())}"
            ) from error
        except Exception as error:  # of the network: each layer has errors of its own
            there = "" if missing == "config.json" else f", {missing} missing (--random needs its configuration alone)"
            raise NotPossibleError(
                f"{self.name}: not in the local cache{there}, and the hub can't be reached "
                f"({type(error.__cause__ or error).__name__}): on a machine with network run `hf download {self._id} "
                f"--local-dir DIR`, copy DIR here and give it in place of {self.name}{nearest(self._id, cached())}"
            ) from error


def missing_file(folder: Path, weights: bool) -> str:
    """What a snapshot lacks: the name of a file, "weights", or "" if nothing.

    Args:
        folder: Of the snapshot.
        weights: Whether they are needed.
    """
    if not (folder / "config.json").is_file():
        return "config.json"
    if not weights:
        return ""
    if not has_file(folder, WEIGHT_FILES):
        return "weights"
    if any((folder / name).is_file() for name in _WHOLE):
        return ""
    indexes = folder.glob("*.index.json")  # one for each format, of which one suffices
    lacking = [[name for name in _shards(index) if not (folder / name).is_file()] for index in indexes]
    return min(lacking)[0] if lacking and all(lacking) else "" if lacking else "weights"


def cached() -> list[str]:
    """Models in the local cache, by their ids."""
    from huggingface_hub import constants

    return [path.name[8:].replace("--", "/") for path in Path(constants.HF_HUB_CACHE).glob("models--*")]


def _shards(index: Path) -> list[str]:
    """The files that an index names, sorted; none of one that can't be read, which transformers then refuses."""
    try:
        return sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return []
