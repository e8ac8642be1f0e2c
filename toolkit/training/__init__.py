"""What a training script imports to survive losing its machines.

Five lines in a plain PyTorch loop, one of which is the import::

    with Run(params=vars(args), seed=args.seed) as run:
        run.resume(model=model, optimizer=optimizer, scheduler=scheduler)
        for batch in run.batches(SampleOrder(len(data), args.batch, args.seed), args.epochs):
            loss = summed_loss(model, data[batch.mine]) * batch.weight
            optimizer.zero_grad(), loss.backward(), optimizer.step(), scheduler.step()
            run.step(batch, loss=loss.detach())

The names below load on first use, so that `import toolkit.training` costs nothing: torch, numpy
and mlflow come in only with the module that needs them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.datasets.dataset import dataset
    from toolkit.datasets.derive.derive import derived
    from toolkit.training.attempt.stop_request import Stopped
    from toolkit.training.checkpoint.checkpointer import Checkpointer
    from toolkit.training.run import Run
    from toolkit.training.sample_order import Batch, SampleOrder, content_hash

_HOMES = {
    "Batch": "data",
    "Checkpointer": "checkpoint",
    "Run": "session",
    "SampleOrder": "data",
    "Stopped": "stop",
    "content_hash": "data",
    "dataset": "datasets.use",
    "derived": "datasets.derive",
}

__all__ = [
    "Batch",
    "Checkpointer",
    "Run",
    "SampleOrder",
    "Stopped",
    "content_hash",
    "dataset",
    "derived",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
