"""A training step as an iteration: forward, loss, backward, optimizer; and a folder of images as its data.

The weights stay unchanged. Loading images is a separate operator (``jouletrace.load_images``), so that the phase
"data" is measured like any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.workloads.base import DATA, OPTIMIZER, Inputs, marked
from jouletrace.workloads.options import OPTIMIZERS

if TYPE_CHECKING:
    import torch

Loss = Callable[[Any, Inputs], Any]
"""Maps a model's outputs and inputs to a scalar."""


@dataclass(frozen=True)
class TrainingIteration:
    """The ``call`` of a ``Built`` that trains.

    The learning rate is 0: every kernel of a step runs, while thousands of steps change neither the weights
    nor the data that kernels process. Gradients are allocated in each iteration, as after ``zero_grad`` with its
    defaults.

    Attributes:
        target: The model, in training mode.
        inputs: The input sets, without labels.
        settings: Makes the context of one iteration.
        loss: Maps outputs and inputs to the loss.
        optimizer: Optimizer of the model's parameters.
        load: Loads a batch in each iteration, in place of the input set; None to use the input set.
    """

    target: Callable[..., Any]
    inputs: list[Inputs]
    settings: Callable[[], AbstractContextManager[None]]
    loss: Loss
    optimizer: torch.optim.Optimizer
    load: Callable[[Inputs], Inputs] | None = None

    def __call__(self, i: int) -> Any:
        """One step on input set ``i % len(inputs)``; returns the loss."""
        given = self.inputs[i % len(self.inputs)]
        if self.load is not None:
            given = self.load(given)
        self.optimizer.zero_grad(set_to_none=True)
        with self.settings():
            loss = self.loss(self.target(*given[0], **given[1]), given)
        loss.backward()
        with marked(OPTIMIZER):
            self.optimizer.step()
        return loss.detach()


def make_optimizer(name: str, model: torch.nn.Module, on: torch.device) -> torch.optim.Optimizer:
    """An optimizer as in training scripts, except for its learning rate of 0.

    AdamW keeps torch's default weight decay, whose kernels belong to a step; a learning rate of 0 cancels its effect.

    Raises:
        BadInputError: If the optimizer is unknown, or the model has no parameter to train.
    """
    import torch

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise BadInputError(f"--task train: {type(model).__name__} has no parameter to train")
    if name == "adamw":
        on_gpu = on.type == "cuda"
        rate: Any = torch.zeros((), device=on) if on_gpu else 0.0
        return torch.optim.AdamW(parameters, lr=rate, capturable=on_gpu, foreach=True)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=0.0, momentum=0.9, foreach=True)
    raise BadInputError(f"--optimizer {name}: must be one of {', '.join(OPTIMIZERS)}")


def loss_on_labels(labels: list[Any], inputs: list[Inputs], smoothing: float) -> Loss:
    """Cross entropy of logits against labels drawn with the inputs.

    Logits of shape (batch, classes) are compared with the labels of their input set, shape (batch,); those of
    a language model, (batch, tokens, vocabulary), with the next token; one logit per sample, (batch, 1), with
    labels 0 and 1.
    """
    from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

    by_inputs = {id(given[1]): drawn for given, drawn in zip(inputs, labels, strict=True)}

    def loss(outputs: Any, given: Inputs) -> Any:
        logits = getattr(outputs, "logits", outputs)
        if logits.shape[-1] == 1:
            wanted = by_inputs[id(given[1])].to(logits.dtype) * (1 - smoothing) + smoothing / 2
            return binary_cross_entropy_with_logits(logits.flatten(), wanted)
        if logits.dim() == 3:
            tokens = given[1]["input_ids"]
            return cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), label_smoothing=smoothing)
        return cross_entropy(logits, by_inputs[id(given[1])], label_smoothing=smoothing)

    return loss


def loss_on_loaded(loader: ImageLoader, smoothing: float) -> Loss:
    """Cross entropy of logits, shape (batch, classes), against the labels of the last batch."""
    from torch.nn.functional import cross_entropy

    return lambda outputs, _: cross_entropy(outputs.logits, loader.labels, label_smoothing=smoothing)


def loss_of_outputs(name: str) -> Loss:
    """The loss that a user's model returns: its outputs' ``loss``, or a scalar.

    Raises:
        BadInputError: When called, if the model returns no loss.
    """
    import torch

    def loss(outputs: Any, _: Inputs) -> Any:
        value = outputs.get("loss") if isinstance(outputs, dict) else getattr(outputs, "loss", outputs)
        if isinstance(value, torch.Tensor) and value.dim() == 0 and value.requires_grad:
            return value
        raise BadInputError(f"--task train: {name} must return its loss: a scalar, or outputs that have .loss")

    return loss


IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
MEAN, SD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Statistics of ImageNet by channel, with which published models are trained."""

_loaders: list[ImageLoader] = []
"""Loaders by the number that the operator receives."""


@dataclass(frozen=True)
class ImageFolder:
    """The images of a folder.

    Attributes:
        path: The folder.
        classes: Names of its sub-folders, in order.
        files: Each image with the number of its class.
    """

    path: Path
    classes: tuple[str, ...]
    files: tuple[tuple[Path, int], ...]

    @classmethod
    def listed(cls, path: Path | str) -> ImageFolder:
        """List a folder.

        Raises:
            BadInputError: If the folder doesn't exist, it has no sub-folders, or one of them holds no image.
        """
        if not str(path):
            raise BadInputError("--data: no folder is named")
        folder = Path(path)
        if not folder.is_dir():
            what = "it is a file" if folder.exists() else "there is no such folder"
            raise BadInputError(f"--data {folder}: {what}")
        try:
            classes = sorted(
                class_folder
                for class_folder in folder.iterdir()
                if class_folder.is_dir() and not class_folder.name.startswith(".")
            )
            files = [
                (file, number)
                for number, class_folder in enumerate(classes)
                for file in sorted(class_folder.rglob("*"))
                if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file()
            ]
        except OSError as error:
            raise BadInputError(f"--data {folder}: it can't be read: {error.strerror or error}") from None
        if not classes:
            raise BadInputError(f"--data {folder}: it needs a sub-folder for each class, and has none")
        there = {number for _, number in files}
        empty = [class_folder.name for number, class_folder in enumerate(classes) if number not in there]
        if empty:
            raise BadInputError(f"--data {folder}: {empty[0]} holds no image ({', '.join(IMAGE_SUFFIXES)})")
        return cls(folder, tuple(class_folder.name for class_folder in classes), tuple(files))


class ImageLoader:
    """Batches of a folder's images in an order shuffled once and then repeated.

    Args:
        folder: The images.
        batch: Images per batch.
        shape: Channels (1 or 3), height and width.
        dtype: Type of the images on the device.
        device: Device to which they are copied.
        seed: Seed of the order.

    Raises:
        BadInputError: If the model takes another number of channels.
        NotPossibleError: If PIL is missing.
    """

    def __init__(
        self,
        folder: ImageFolder,
        batch: int,
        shape: tuple[int, int, int],
        dtype: torch.dtype,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        import torch

        try:
            import PIL.Image  # noqa: F401  # checked before anything is built
        except ImportError:
            raise NotPossibleError("--data needs PIL to decode images: pip install pillow") from None
        if shape[0] not in (1, 3):
            raise BadInputError(f"--data {folder.path}: images have 1 or 3 channels, and the model takes {shape[0]}")
        self.labels: Any = None
        """Labels of the last batch, on the device, shape (batch,)."""
        self._folder, self._batch, self._shape = folder, batch, shape
        self._dtype, self._device = dtype, device
        self._order = list(range(len(folder.files)))
        random.Random(seed).shuffle(self._order)
        self._next = 0
        self._number = len(_loaders)
        _loaders.append(self)
        # Determines the device of the operator for torch.
        self._anchor = torch.zeros(1, device=device)

    def load(self, given: Inputs) -> Inputs:
        """The next batch in place of the model's usual input; its labels are in ``labels``."""
        with marked(DATA):
            images, self.labels = _operator()(self._anchor, self._number)
        return given[0], {**given[1], "pixel_values": images}

    def describe(self) -> str:
        """The data and how they are loaded, for readers of the figures."""
        folder = self._folder
        return (
            f"{folder.path}: {len(folder.files)} images of {len(folder.classes)} classes, decoded and resized by "
            "PIL in this process, one by one, and copied to the device; files are read through the page cache"
        )

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Images of shape (batch, channels, height, width), and labels of shape (batch,), on the device.

        Raises:
            BadInputError: If PIL can't decode a file.
        """
        import numpy as np
        import torch

        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("images are loaded by the host, which a graph can't hold")
        channels, height, width = self._shape
        pixels = np.empty((self._batch, height, width, channels), np.uint8)
        labels = np.empty(self._batch, np.int64)
        for i in range(self._batch):
            file, labels[i] = self._folder.files[self._order[self._next % len(self._order)]]
            pixels[i] = _decoded(file, self._shape)
            self._next += 1
        values = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div_(255)
        mean, sd = (torch.tensor(channel_values[:channels]).view(1, channels, 1, 1) for channel_values in (MEAN, SD))
        values = values.sub_(mean).div_(sd).to(self._dtype).contiguous()
        return values.to(self._device), torch.from_numpy(labels).to(self._device)


def _decoded(file: Path, shape: tuple[int, int, int]) -> Any:
    """One image as bytes of shape (height, width, channels)."""
    import numpy as np
    from PIL import Image

    channels, height, width = shape
    try:
        with Image.open(file) as image:
            plain = image.convert("RGB" if channels == 3 else "L")
            return np.asarray(plain.resize((width, height), Image.Resampling.BILINEAR)).reshape(height, width, channels)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInputError(f"--data: {file} can't be decoded: {reason}") from None


@cache
def _operator() -> Any:
    """The operator, registered with torch at first use."""
    import torch

    def load_images(anchor: torch.Tensor, loader: int) -> tuple[torch.Tensor, torch.Tensor]:
        return _loaders[loader].batch()

    # Set by hand: torch reads annotations, which are text here, in a module that doesn't import torch.
    load_images.__annotations__ = {
        "anchor": torch.Tensor,
        "loader": int,
        "return": tuple[torch.Tensor, torch.Tensor],
    }
    return torch.library.custom_op("jouletrace::load_images", load_images, mutates_args=())
