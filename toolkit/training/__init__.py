"""Tools for training scripts that survive the loss of their nodes.

It takes five lines in a plain PyTorch loop. One of them is the import.

    with Run(params=vars(args), seed=args.seed) as run:
        # Loads the last good checkpoint.
        run.resume(model=model, optimizer=optimizer, scheduler=scheduler)
        # Yields the steps still to do.
        for batch in run.batches(SampleOrder(len(data), args.batch, args.seed), args.epochs):
            loss = summed_loss(model, data[batch.mine]) * batch.weight
            # Trains as ever.
            optimizer.zero_grad(), loss.backward(), optimizer.step(), scheduler.step()
            # Saves when it is time, and leaves when a stop was requested.
            run.step(batch, loss=loss.detach())

The names below load on first use, so that `import toolkit.training` costs nothing. torch, numpy and
mlflow come in only with the module that needs them. A script imports these names, and a trainer's
adapter by its path (`toolkit.training.adapters.lightning`). Programs start by `python -m
toolkit.training COMMAND`. All other paths may move.

These are the rooms, top to bottom. A room imports only from those below it.

    adapters                  Hugging Face and Lightning loops.
    run                       The loop of a training script.
    recording                 The record of a run, and its reports.
    reproduce                 Code, packages, submission; replay.
    requeue                   Start, requeue, hold or end a job.
    toolkit.datasets          Beside this package: datasets by content.
    tracking                  The tracking server.
    checkpoint                Save, verify, replicate, load.
    sweeps | tools            Trials; programs around a run.
    run_folder                The files of a run.
    slurm | distributed       A job's Slurm; the ranks' work together.
    attempt                   A start of a job.
    sample_order | io         The order of samples; durable files, S3, threads.
    errors                    The error tree.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.datasets.dataset import dataset
    from toolkit.datasets.derive.derive import derived
    from toolkit.training.attempt import verdict
    from toolkit.training.attempt.attempt import current
    from toolkit.training.attempt.stop_request import StopFiles, Stopped
    from toolkit.training.checkpoint.checkpointer import Checkpointer
    from toolkit.training.checkpoint.dcp_codec import DcpCodec
    from toolkit.training.checkpoint.deepspeed_codec import DeepSpeedCodec
    from toolkit.training.checkpoint.s3_tier import S3Tier
    from toolkit.training.checkpoint.tier import FolderTier
    from toolkit.training.checkpoint.torch_codec import TorchCodec
    from toolkit.training.distributed.process_group import join
    from toolkit.training.run import Run
    from toolkit.training.sample_order import Batch, SampleOrder, content_hash
    from toolkit.training.sweeps.trial import SweepTrial

_HOMES = {
    "Batch": "toolkit.training.sample_order",
    "Checkpointer": "toolkit.training.checkpoint.checkpointer",
    "DcpCodec": "toolkit.training.checkpoint.dcp_codec",
    "DeepSpeedCodec": "toolkit.training.checkpoint.deepspeed_codec",
    "FolderTier": "toolkit.training.checkpoint.tier",
    "Run": "toolkit.training.run",
    "S3Tier": "toolkit.training.checkpoint.s3_tier",
    "SampleOrder": "toolkit.training.sample_order",
    "StopFiles": "toolkit.training.attempt.stop_request",
    "Stopped": "toolkit.training.attempt.stop_request",
    "SweepTrial": "toolkit.training.sweeps.trial",
    "TorchCodec": "toolkit.training.checkpoint.torch_codec",
    "content_hash": "toolkit.training.sample_order",
    "current": "toolkit.training.attempt.attempt",
    "dataset": "toolkit.datasets.dataset",
    "derived": "toolkit.datasets.derive.derive",
    "join": "toolkit.training.distributed.process_group",
    "verdict": "toolkit.training.attempt",
}

__all__ = [
    "Batch",
    "Checkpointer",
    "DcpCodec",
    "DeepSpeedCodec",
    "FolderTier",
    "Run",
    "S3Tier",
    "SampleOrder",
    "StopFiles",
    "Stopped",
    "SweepTrial",
    "TorchCodec",
    "content_hash",
    "current",
    "dataset",
    "derived",
    "join",
    "verdict",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    if name == "verdict":  # a module of functions, one for each way to end
        return import_module(f"{home}.{name}")
    return getattr(import_module(home), name)
