"""A training step as an iteration: forward, loss, backward, optimizer. The weights stay unchanged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.workloads.base import OPTIMIZER, Inputs, marked
from jouletrace.workloads.image_folder import ImageLoader
from jouletrace.workloads.options import WorkloadOptions

if TYPE_CHECKING:
    import torch

OPTIMIZERS = ("adamw", "sgd")

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
        found = outputs.get("loss") if isinstance(outputs, dict) else getattr(outputs, "loss", outputs)
        if isinstance(found, torch.Tensor) and found.dim() == 0 and found.requires_grad:
            return found
        raise BadInputError(f"--task train: {name} must return its loss: a scalar, or outputs that have .loss")

    return loss


def check_loss_and_optimizer(label_smoothing: float, optimizer: str) -> None:
    """Refuse values with which no training step can be built.

    Raises:
        BadInputError: With the option and its permitted values.
    """
    if optimizer not in OPTIMIZERS:
        raise BadInputError(f"--optimizer {optimizer}: must be one of {', '.join(OPTIMIZERS)}")
    if not 0 <= label_smoothing < 1:  # refuses NaN too
        raise BadInputError(f"--label-smoothing {label_smoothing:g}: must be at least 0 and less than 1")


def check_training(name: str, options: WorkloadOptions) -> None:
    """Refuse options of training that are invalid, or that belong to another task.

    Raises:
        BadInputError: With the option.
    """
    check_loss_and_optimizer(options.label_smoothing, options.optimizer)
    if options.task != "train" and options.data is not None:
        raise BadInputError(f"{name}: --data is for --task train")
    if options.task != "train" and (options.label_smoothing or options.optimizer != "adamw"):
        raise BadInputError(f"{name}: --optimizer and --label-smoothing are for --task train")
