"""Jobs' functions that worker processes can import."""

import os
import signal
import time
import warnings
from dataclasses import dataclass

from sparsemod.candidate import Evaluation, Status


@dataclass(frozen=True, eq=False)
class Toy:
    """A task of the least size: executors look at its device and at nothing else."""

    factor: float = 2.0
    device: str = "cpu"
    net: object = None
    train: object = None
    collate_fn: object = None


class Odd(Exception):
    """An exception that cannot be unpickled."""

    def __init__(self, first, second):
        super().__init__(f"{first}{second}")


def scripted(task, job):
    """Do what the job's parametrization says."""
    action = job.candidate.parametrization.get("action")
    if action == "bug":
        raise LookupError("a bug of ours")
    if action == "odd bug":
        raise Odd("un", "picklable")
    if action == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "exit":
        os._exit(3)
    if action == "sleep":
        time.sleep(600)
    if action == "warn":
        warnings.warn("look at this", stacklevel=1)
    if action == "threads":
        return Evaluation(Status.COMPLETED, reason=os.environ["OMP_NUM_THREADS"])
    if action == "pid":
        return Evaluation(Status.COMPLETED, n_epochs=os.getpid())
    return Evaluation(Status.COMPLETED, error=task.factor * job.seed, reason=task.device)


def until_the_node_dies(task, job):
    """Leave a file that says where the job began; on the node that `doomed` names, wait for death."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    (task.train / f"{job.index}-{node}").touch()
    if (task.train / "doomed").read_text() == node:
        time.sleep(600)
    return Evaluation(Status.COMPLETED, error=task.factor * job.seed)


def dying_at_start():
    """Stand for an object that ends the process which unpickles it."""
    os._exit(5)


class Deadly:
    def __reduce__(self):
        return dying_at_start, ()


def unloadable():
    raise AttributeError("Can't get attribute 'Net'")


class Unloadable:
    def __reduce__(self):
        return unloadable, ()
