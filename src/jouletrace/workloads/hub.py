"""Models of the Hugging Face hub: ``hf:ORG/NAME``, from the local cache where it holds them."""

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
# Files that transformers loads; a repository also holds files for other frameworks and programs.
_TIMEOUT_S = 10.0
_WHOLE = ("model.safetensors", "pytorch_model.bin")
_WEIGHTS = (["model*.safetensors"], ["pytorch_model*.bin"])


class HubModel(LocalFolder):
    """A model of the hub, by its snapshot in the local cache; missing files are downloaded.

    Attributes:
        name: ``hf:ORG/NAME``, as given.
        prefixes: Prefixes of such names.
    """

    prefixes = ("hf:",)

    def __init__(self, spec: str) -> None:
        self.name, self._id = spec, spec.removeprefix("hf:")
        if not _ID.fullmatch(self._id):
            raise BadInputError(f"'{spec}': write hf:ORG/NAME, such as hf:openai-community/gpt2")

    def locate(self, *, weights: bool) -> WorkloadFacts:
        """Locate the snapshot in the cache, else download it.

        Raises:
            BadInputError: If the hub has no such model, or no file of it that can be run.
            NotPossibleError: If it isn't cached and the hub can't be reached; the message states a remedy.
        """
        from huggingface_hub import snapshot_download

        try:
            # Completeness is checked below, since older caches keep no list of files.
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
            # Query the hub first: when it can't be reached, a download silently returns the cached files.
            revision = model_info(self._id, timeout=_TIMEOUT_S).sha
            self._folder = Path(snapshot_download(self._id, revision=revision, allow_patterns=_CONFIG_FILES))
            for patterns in _WEIGHTS if weights else ():
                if missing_file(self._folder, weights):
                    snapshot_download(self._id, revision=revision, allow_patterns=patterns)
        except errors.RepositoryNotFoundError as error:
            raise BadInputError(
                f"{self.name}: the hub has no such model, or shows it only to users who have agreed to its terms: see "
                f"https://huggingface.co/{self._id}, then run hf auth login{nearest(self._id, cached())}"
            ) from error
        except Exception as error:  # each layer of the network has its own errors
            there = "" if missing == "config.json" else f", {missing} missing (--random needs its configuration alone)"
            raise NotPossibleError(
                f"{self.name}: not in the local cache{there}, and the hub can't be reached "
                f"({type(error.__cause__ or error).__name__}): on a machine with network run `hf download {self._id} "
                f"--local-dir DIR`, copy DIR here and give it in place of {self.name}{nearest(self._id, cached())}"
            ) from error


def missing_file(folder: Path, weights: bool) -> str:
    """What a snapshot lacks: the name of a file, "weights", or "" if it is complete.

    Args:
        folder: Folder of the snapshot.
        weights: Whether weights are needed.
    """
    if not (folder / "config.json").is_file():
        return "config.json"
    if not weights:
        return ""
    if not has_file(folder, WEIGHT_FILES):
        return "weights"
    if any((folder / name).is_file() for name in _WHOLE):
        return ""
    indexes = folder.glob("*.index.json")  # one per format; one complete format suffices
    lacking = [[name for name in _shards(index) if not (folder / name).is_file()] for index in indexes]
    return min(lacking)[0] if lacking and all(lacking) else "" if lacking else "weights"


def cached() -> list[str]:
    """Models in the local cache, by their ids."""
    from huggingface_hub import constants

    return [path.name[8:].replace("--", "/") for path in Path(constants.HF_HUB_CACHE).glob("models--*")]


def _shards(index: Path) -> list[str]:
    """The files that an index names, sorted; empty for an unreadable index, which transformers then refuses."""
    try:
        return sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return []
