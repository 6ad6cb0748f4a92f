"""Training samples per CPU second: our loop with gradual pruning, and the plain loop it replaces.

The plain loop reads through a DataLoader with four workers and prunes after every step with
`torch.nn.utils.prune.global_unstructured` and `remove`. Both train the same network on the digits of
scikit-learn, with one thread, in turns; the CPU time of the workers counts. Our side includes its validation
after every epoch, which the plain loop does not have.

    python benchmarks/training_throughput.py
"""

import argparse
import resource
import statistics
import warnings

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.utils import prune
from torch.utils.data import DataLoader, TensorDataset

from sparsemod.compress.pruning import PruningHook
from sparsemod.train.data import open_data
from sparsemod.train.trainer import TorchTrainer, TrainSettings

BATCH_SIZE = 32
SPARSITY = 0.8
TARGET = 2.5


def digits():
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    y = torch.tensor(labels, dtype=torch.long)
    return TensorDataset(x[:1437], y[:1437]), TensorDataset(x[1437:], y[1437:])


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def ours(train, validation, epochs):
    net = network()
    settings = TrainSettings(3e-3, 0.9, 0.5, BATCH_SIZE, epochs, seed=0)
    result = TorchTrainer().fit(
        net, open_data(train), open_data(validation), settings, [PruningHook(SPARSITY)]
    )
    return net, result.validation_accuracy


def plain(train, validation, epochs):
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 500, 0.9)
    weights = [(module, "weight") for module in net if isinstance(module, nn.Conv2d | nn.Linear)]
    loader = DataLoader(train, BATCH_SIZE, shuffle=True, num_workers=4)
    n_steps = epochs * len(loader)
    step = 0
    for _ in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            prune.global_unstructured(weights, prune.L1Unstructured, amount=SPARSITY * step / n_steps)
            for module, name in weights:
                prune.remove(module, name)
    net.eval()
    x, y = validation.tensors
    with torch.no_grad():
        return net, float((net(x).argmax(1) == y).float().mean())


def cpu_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def measure(loop, train, validation, epochs):
    start = cpu_seconds()
    net, accuracy = loop(train, validation, epochs)
    seconds = cpu_seconds() - start
    weights = [module.weight for module in net if isinstance(module, nn.Conv2d | nn.Linear)]
    zeros = sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)
    return len(train) * epochs / seconds, accuracy, zeros


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    train, validation = digits()
    loops = {"sparsemod": ours, "plain loop": plain}
    runs = {name: [] for name in loops}
    for loop in loops.values():  # libraries load and caches fill outside of what counts
        measure(loop, train, validation, 1)
    for _ in range(arguments.repeats):
        for name, loop in loops.items():
            runs[name].append(measure(loop, train, validation, arguments.epochs))
    print(f"{'':12} samples / CPU second (median, worst, best)   accuracy   zeros")
    for name, results in runs.items():
        rates = [rate for rate, _, _ in results]
        _, accuracy, zeros = results[0]
        spread = f"{statistics.median(rates):10.0f} {min(rates):10.0f} {max(rates):10.0f}"
        print(f"{name:12} {spread:>43}   {accuracy:8.3f}   {zeros:5.3f}")
    ratio = statistics.median(a[0] / b[0] for a, b in zip(*runs.values(), strict=True))
    print(f"ratio (median of the pairs) {ratio:.2f}, at least {TARGET} wanted")
    return 0 if ratio >= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
