"""A convolutional network by Lightning."""

import lightning
import torch
from common import seconds
from torch import nn


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 128, 3, 2), nn.ReLU(), nn.Conv2d(128, 256, 3, 2), nn.ReLU()
        )
        self.head = nn.Linear(256, 10)

    def training_step(self, batch, _):
        images, labels = batch
        return nn.functional.cross_entropy(self.head(self.body(images).mean((2, 3))), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


data = torch.utils.data.TensorDataset(torch.randn(4096, 3, 96, 96), torch.randint(10, (4096,)))
loader = torch.utils.data.DataLoader(data, batch_size=128, num_workers=2, persistent_workers=True)
trainer = lightning.Trainer(
    max_time={"seconds": int(seconds())}, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    precision="16-mixed", max_epochs=-1,
)  # fmt: skip
trainer.fit(Net(), loader)
