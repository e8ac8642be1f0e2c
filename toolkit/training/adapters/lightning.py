"""Lightning's Trainer in a run: `fit(run, trainer, module, loader)` in place of `trainer.fit(...)`.

    with Run(params=vars(args), seed=args.seed) as run:
        trainer = Trainer(max_epochs=30, devices=..., num_nodes=..., strategy="ddp")
        fit(run, trainer, module, DataLoader(data, batch_size=48))

The run handles every step boundary. There it polls for a stop request, saves and writes the step
log. A checkpoint holds the same as Lightning's own, through its CheckpointIO. Lightning's
ModelCheckpoint goes on working.

Tried with lightning 2.6.6, on one rank and under DDP. FSDP, DeepSpeed and ModelParallel write
around CheckpointIO and are refused. The first of them wants GPUs in any case.
"""

import math
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any, cast

from toolkit.training.adapters.data_loader import Feed, feed_loader, sample_count
from toolkit.training.adapters.trainer_state import TrainingRng, plain_data
from toolkit.training.errors import AdapterError, PackageMissing, Unsupported
from toolkit.training.run import Run
from toolkit.training.sample_order import SampleOrder

try:
    import lightning.pytorch as pl
except ImportError:
    try:
        import pytorch_lightning as pl
    except ImportError as error:
        raise PackageMissing("lightning", "lightning") from error

_RUN_CHECKPOINT = "toolkit"  # the path that stands for the run's own checkpoint
_SHARDED = ("FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")


def fit(run: Run, trainer: Any, module: Any, loader: Any, val_loader: Any = None) -> None:
    """Train to the end, or until the run is stopped (by Stopped).

    Call it once, inside `with Run(...)`, on every rank. The batch_size of `loader` says how many
    samples a rank takes at once. The run says which samples those are, whatever the loader's
    shuffle or sampler.
    """
    _refuse_what_would_lose_work(run, trainer)
    global_batch = run.world.size * loader.batch_size * trainer.accumulate_grad_batches
    lightning_part = _LightningPart(trainer, global_batch)
    start_step = run.resume(lightning=lightning_part)
    feed = _feed(run, trainer, loader, lightning_part.global_batch)
    rng = TrainingRng()
    rng.capture()  # the loaded state, before Lightning's set-up draws from it
    lightning_io = trainer.strategy.checkpoint_io
    trainer.strategy.checkpoint_io = _RunCheckpointIO(lightning_part, lightning_io)
    trainer.callbacks.append(_Boundary(run, feed, lightning_part, rng))
    fed_loader = _Loader(feed_loader(loader, feed), rng)
    trainer.fit(module, fed_loader, val_loader, ckpt_path=_RUN_CHECKPOINT if start_step else None)
    total_steps = _steps(trainer, feed)
    if total_steps not in (0, run.step_count) and not trainer.should_stop:
        raise AdapterError(f"Lightning ended after {run.step_count} of {total_steps} steps")


class _Boundary(pl.Callback):  # type: ignore[misc]  # lightning is not analysed
    """A callback that reports every step boundary of the Trainer to the run."""

    def __init__(
        self, run: Run, feed: Feed, lightning_part: "_LightningPart", rng: TrainingRng
    ) -> None:
        self._run, self._feed, self._lightning_part, self._rng = run, feed, lightning_part, rng
        self._on_terminate = signal.getsignal(signal.SIGTERM)
        self._training_names: set[str] = set()  # of metrics
        self._validation_names: set[str] = set()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002  # the hook's shape
        if threading.current_thread() is threading.main_thread():
            # Lightning's own handler waits for ranks that may be gone.
            signal.signal(signal.SIGTERM, self._on_terminate)
        if self._lightning_part.validation_owed:
            validation = trainer.fit_loop.epoch_loop.val_loop
            validation.restarting = False
            trainer.validating = True
            validation.run()
            trainer.training = True

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        batch = self._feed.end_piece()
        if batch is None:
            return
        self._rng.capture()
        self._lightning_part.keep_progress()
        values = trainer.callback_metrics
        names = [name for name in values if name not in self._validation_names]
        metrics = {name: values[name].clone() for name in names}
        self._training_names |= set(metrics)
        self._run.step(batch, **metrics)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002  # as above
        self._lightning_part.validation_owed = _is_fitting(trainer)

    def on_validation_batch_end(self, trainer: Any, *_: Any) -> None:
        if _is_fitting(trainer):
            self._rng.with_training_rng(self._run.check)

    def on_validation_end(self, trainer: Any, *_: Any) -> None:
        if _is_fitting(trainer):
            values = trainer.callback_metrics
            self._validation_names |= set(values) - self._training_names
            names = [name for name in values if name in self._validation_names]
            self._run.log({name: values[name] for name in names})
            self._lightning_part.validation_owed = False
            self._rng.restore()


class _LightningPart:
    """The part of a checkpoint that Lightning writes and reads."""

    def __init__(self, trainer: Any, global_batch: int) -> None:
        self._trainer = trainer
        self.global_batch = global_batch
        self.validation_owed = False  # True if a stop cut a validation short
        self.content: dict[str, Any] = {}
        self._progress: dict[str, Any] = {}

    def keep_progress(self) -> None:
        """Keep the progress of the step just done.

        Lightning can't go back into a validation, but it can go back to the step before.
        """
        if self._trainer.enable_validation:
            self._progress = self._trainer.fit_loop.state_dict()

    def state_dict(self) -> dict[str, Any]:
        self._trainer.save_checkpoint(_RUN_CHECKPOINT, weights_only=False)  # every rank calls it
        content, self.content = self.content, {}
        if content:
            loops = content["loops"]
            loops["fit_loop"] = _at_step_end(
                self._progress if self.validation_owed else loops["fit_loop"]
            )
        state = {
            "global_batch": self.global_batch,
            "validation_owed": self.validation_owed,
            "lightning": content,
        }
        return cast("dict[str, Any]", plain_data(state, "checkpoint"))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.content, self.global_batch = state["lightning"], state["global_batch"]
        self.validation_owed = state["validation_owed"]


class _RunCheckpointIO(pl.plugins.CheckpointIO):  # type: ignore[misc]  # lightning is not analysed
    """A checkpoint store that passes Lightning's own checkpoints to files.

    Only the run's checkpoint stays in memory, for the run to save.
    """

    def __init__(self, lightning_part: _LightningPart, files: Any) -> None:
        self._lightning_part, self._files = lightning_part, files

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        if path == _RUN_CHECKPOINT:
            self._lightning_part.content = checkpoint
        else:
            self._files.save_checkpoint(checkpoint, path, storage_options=storage_options)

    def load_checkpoint(self, path: Any, *arguments: Any, **options: Any) -> Any:
        if path != _RUN_CHECKPOINT:
            return self._files.load_checkpoint(path, *arguments, **options)
        content, self._lightning_part.content = self._lightning_part.content, {}
        return content

    def remove_checkpoint(self, path: Any) -> None:
        self._files.remove_checkpoint(path)


class _Loader:
    """A loader that can be resumed.

    It is no DataLoader, so Lightning leaves its sampler alone.
    """

    def __init__(self, loader: Any, rng: TrainingRng) -> None:
        self._loader, self._rng = loader, rng
        self.dataset = loader.dataset

    def __iter__(self) -> Iterator[Any]:
        self._rng.restore()  # at the first batch: a resuming Lightning has drawn numbers before
        yield from self._loader

    def __len__(self) -> int:
        return len(self._loader)

    def state_dict(self) -> dict[str, Any]:
        return {}  # the run knows where to go on

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


def _refuse_what_would_lose_work(run: Run, trainer: Any) -> None:
    strategy = type(trainer.strategy).__name__
    if strategy in _SHARDED:
        raise Unsupported(
            f"{strategy} writes its checkpoints around the run's",
            next_step="train with strategy='ddp', or in a plain loop with codec=DcpCodec()",
        )
    if trainer.world_size != run.world.size:
        raise Unsupported(
            f"the Trainer has {trainer.world_size} ranks and the run {run.world.size}",
            next_step="Trainer(devices=…, num_nodes=…, strategy='ddp') as torchrun was started",
        )
    if trainer.limit_train_batches != 1.0:
        raise Unsupported(
            f"limit_train_batches={trainer.limit_train_batches} ends epochs before their samples",
            next_step="leave it off, and give fewer epochs or samples",
        )


def _feed(run: Run, trainer: Any, loader: Any, global_batch: int) -> Feed:
    """Return the samples' feed, and set the Trainer's accumulation.

    On fewer ranks a step is taken in more pieces, never in larger ones.
    """
    size = sample_count(loader)
    share = math.ceil(global_batch / run.world.size)
    order = SampleOrder(size, global_batch, run.seed)
    feed = Feed(run, order, pieces=math.ceil(share / loader.batch_size), from_epoch_start=False)
    trainer.accumulate_grad_batches = feed.pieces
    if run.world.rank == 0:
        run.dir.agree_order(order, feed.epochs(_steps(trainer, feed)))
    return feed


def _at_step_end(progress: dict[str, Any]) -> dict[str, Any]:
    """Return the progress as it is at a step's end.

    When Lightning resumes at the very end of an epoch, it never counts the next epoch as started.
    If it resumed in that epoch a second time, it would train an epoch too many.
    """
    epochs = {
        name: {**count, "ready": count["processed"] + 1, "started": count["processed"] + 1}
        for name, count in progress["epoch_progress"].items()
    }
    return {**progress, "epoch_progress": epochs}


def _steps(trainer: Any, feed: Feed) -> int:
    """Return the training's number of steps, 0 without a limit."""
    by_epochs = max(0, trainer.max_epochs or 0) * feed.order.steps_per_epoch
    by_steps = max(0, trainer.max_steps)
    return min(by_epochs, by_steps) if by_epochs and by_steps else by_epochs or by_steps


def _is_fitting(trainer: Any) -> bool:
    return trainer.state.fn == "fit" and not trainer.sanity_checking
