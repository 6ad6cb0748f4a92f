"""The network of the pruning cases, and two ways to train it: a plain loop, and Lightning's Trainer."""

import importlib.util
import logging

import torch
from torch import nn

from sparsemod.compress.model_pruning import ModelPruning

LIGHTNING = importlib.util.find_spec("lightning") is not None

A = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]]
B = [[1.0, 2.0], [3.0, 4.0]]


def fill(net, bias=False):
    net.a = nn.Linear(4, 2, bias=bias)
    net.b = nn.Linear(2, 2, bias=bias)
    with torch.no_grad():
        net.a.weight.copy_(torch.tensor(A))
        net.b.weight.copy_(torch.tensor(B))
    return net


class PlainNet(nn.Module):
    def forward(self, x):
        return self.b(self.a(x))


class Plain:
    """The hook, told of steps and epochs as a trainer does, with SGD and the sum of the outputs as loss."""

    ModelPruning = ModelPruning

    def net(self, bias=False):
        return fill(PlainNet(), bias)

    def fit(self, net, pruning, epochs=1, lr=0.0):
        hooks = pruning if isinstance(pruning, list) else [pruning]
        optimizer = torch.optim.SGD(net.parameters(), lr)
        for hook in hooks:
            hook.start(net, 2 * epochs)
        for epoch in range(epochs):
            for step in (2 * epoch, 2 * epoch + 1):
                for hook in hooks:
                    hook.before_step(step)
                optimizer.zero_grad()
                net(torch.ones(1, 4)).sum().backward()
                optimizer.step()
                for hook in hooks:
                    hook.after_step(step)
            for hook in hooks:
                hook.end_epoch(epoch)
        for hook in hooks:
            hook.finish()


if LIGHTNING:
    import lightning as L

    from sparsemod.train import lightning as ours

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class LightningNet(L.LightningModule):
        lr = 0.0

        def forward(self, x):
            return self.b(self.a(x))

        def training_step(self, batch, batch_idx):
            return self(batch).sum()

        def validation_step(self, batch, batch_idx):
            self.log("loss", self(batch).sum())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), self.lr)

        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.ones(2, 4))

        def val_dataloader(self):
            return torch.utils.data.DataLoader(torch.ones(2, 4))

    def lightning_trainer(callbacks, epochs=1, **options):
        options = {"enable_checkpointing": False, "num_sanity_val_steps": 0, **options}
        return L.Trainer(
            max_epochs=epochs,
            callbacks=callbacks,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **options,
        )

    class Lightning:
        """The callback in Lightning's Trainer."""

        ModelPruning = ours.ModelPruning

        def net(self, bias=False):
            return fill(LightningNet(), bias)

        def fit(self, net, pruning, epochs=1, lr=0.0):
            net.lr = lr
            lightning_trainer(pruning, epochs).fit(net)


RUNS = [Plain, Lightning] if LIGHTNING else [Plain]
