"""Hugging Face's Trainer in a run: `train(run, trainer)` in place of `trainer.train()`.

    with Run(params=vars(args), seed=args.seed) as run:
        trainer = Trainer(model=model, args=TrainingArguments(...), train_dataset=data)
        train(run, trainer)
        run.finish(**trainer.evaluate())

The run handles every step boundary. There it polls for a stop request, saves and writes the step
log. The run decides when to save (`Run(checkpoint_every=...)`) and in which order samples come. The
Trainer writes checkpoints of its own only when `load_best_model_at_end` needs them.

Tried with transformers 5.23.0 and accelerate 1.15.0, on one rank and under DDP.
"""

import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolkit.training.adapters.data_loader import Feed, feed_loader, sample_count
from toolkit.training.adapters.trainer_state import Slot, TrainingRng
from toolkit.training.errors import PackageMissing, Unsupported
from toolkit.training.run import Run
from toolkit.training.sample_order import SampleOrder

try:
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState, TrainerState
except ImportError as error:
    raise PackageMissing("transformers", "huggingface") from error

# The fields of the Trainer's state that a checkpoint keeps; the rest follows from its arguments.
_HISTORY = (
    "epoch", "num_input_tokens_seen", "total_flos", "log_history",
    "best_metric", "best_global_step", "best_model_checkpoint",
)  # fmt: skip


def train(run: Run, trainer: Any) -> Any:
    """Train to the end, or until the run is stopped (by Stopped).

    Returns the result of `trainer.train()`, or None when an earlier attempt did all the work. Call
    it once, inside `with Run(...)`, on every rank.
    """
    _refuse_what_would_lose_work(run, trainer)
    loader = trainer.get_train_dataloader()
    trainer_part = _TrainerPart(trainer, _step_size(run, trainer.args))
    slots = {"model": Slot(), "optimizer": Slot(), "scheduler": Slot()}
    if trainer.accelerator.scaler is not None:
        slots["scaler"] = Slot(trainer.accelerator.scaler)
    start_step = run.resume(**slots, trainer=trainer_part)

    feed = _feed(run, trainer.args, sample_count(loader), trainer_part.global_batch)
    loader = feed_loader(loader, feed)
    trainer.get_train_dataloader = lambda: loader
    trainer.add_callback(_Boundary(run, trainer, feed, slots, trainer_part))
    if start_step == 0:
        return trainer.train()
    if start_step >= _steps(trainer.args, feed):
        slots["model"].set_target(trainer.model)
        return None
    # The Trainer reads from a folder at which step it begins. The weights are in the slots.
    trainer._load_from_checkpoint = lambda *_: None  # noqa: SLF001  # it refuses a folder without weights
    with tempfile.TemporaryDirectory() as folder:
        state = TrainerState(global_step=start_step, train_batch_size=trainer.args.train_batch_size)
        state.compute_steps(trainer.args, _steps(trainer.args, feed))
        state.save_to_json(str(Path(folder) / "trainer_state.json"))
        result = trainer.train(resume_from_checkpoint=folder)
    del trainer._load_from_checkpoint  # noqa: SLF001  # as above
    return result


class _Boundary(TrainerCallback):  # type: ignore[misc]  # transformers is not analysed
    """A callback that reports every step boundary of the Trainer to the run."""

    def __init__(
        self, run: Run, trainer: Any, feed: Feed, slots: Mapping[str, Slot], part: "_TrainerPart"
    ) -> None:
        self._run, self._trainer, self._feed = run, trainer, feed
        self._slots, self._trainer_part = slots, part
        self._rng = TrainingRng()
        self._rng.capture()  # as it was loaded, before the Trainer draws from it

    def on_train_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:  # noqa: ARG002  # the event's shape
        self._slots["model"].set_target(self._trainer.model)
        optimizer = objects["optimizer"]
        self._slots["optimizer"].set_target(getattr(optimizer, "optimizer", optimizer))
        self._slots["scheduler"].set_target(objects["lr_scheduler"])
        if "scaler" in self._slots:
            self._slots["scaler"].set_target(self._trainer.accelerator.scaler)
        if state.global_step:
            self._trainer_part.restore()
            if self._trainer_part.evaluation_owed:
                self._trainer.evaluate()
            self._rng.restore()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        ends_epoch = state.global_step % self._feed.order.steps_per_epoch == 0
        self._trainer_part.evaluation_owed = control.should_evaluate or (
            ends_epoch and args.eval_strategy == "epoch"
        )
        batch = self._feed.end_piece()
        while batch is None:
            batch = self._feed.end_piece()
        self._rng.capture()
        self._run.step(batch)
        return self._leave_saving_to_the_run(args, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002  # the event's shape
        return self._leave_saving_to_the_run(args, control)

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        if not self._run.ended:
            self._rng.with_training_rng(self._run.check)

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        self._trainer_part.evaluation_owed = False
        self._rng.restore()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002  # the event's shape
        if not self._run.ended:
            numbers = {k: v for k, v in (logs or {}).items() if isinstance(v, int | float)}
            self._run.log(numbers)

    def _leave_saving_to_the_run(self, args: Any, control: Any) -> Any:
        control.should_save &= args.load_best_model_at_end
        return control


class _TrainerPart:
    """The part of a checkpoint with the Trainer's state besides its tensors."""

    def __init__(self, trainer: Any, global_batch: int) -> None:
        self._trainer = trainer
        self.global_batch = global_batch
        self.evaluation_owed = False  # True if the run stopped between a step and its evaluation
        self._loaded: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        trainer_state = asdict(self._trainer.state)
        content = {
            "state": {name: trainer_state[name] for name in _HISTORY},
            "callbacks": [(type(item).__name__, item.state()) for item in self._stateful()],
            "evaluation_owed": self.evaluation_owed,
            "global_batch": self.global_batch,
        }
        return {"json": json.dumps(content)}  # as the Trainer itself keeps it

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._loaded = json.loads(state["json"])
        self.global_batch = self._loaded["global_batch"]
        self.evaluation_owed = self._loaded["evaluation_owed"]

    def restore(self) -> None:
        """Give the loaded state to the Trainer and its callbacks."""
        for name, value in self._loaded["state"].items():
            setattr(self._trainer.state, name, value)
        entries = list(self._loaded["callbacks"])
        for callback in self._stateful():
            for entry in entries:
                if entry[0] == type(callback).__name__:
                    vars(callback).update(entry[1]["attributes"])
                    entries.remove(entry)
                    break

    def _stateful(self) -> list[Any]:
        callbacks = self._trainer.callback_handler.callbacks
        return [callback for callback in callbacks if isinstance(callback, ExportableState)]


def _refuse_what_would_lose_work(run: Run, trainer: Any) -> None:
    args = trainer.args
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise Unsupported(
            "the Trainer shards its state by FSDP or DeepSpeed, which this adapter does not save",
            next_step="train under DDP, or in a plain loop with codec=DcpCodec()",
        )
    if args.world_size != run.world.size:
        raise Unsupported(
            f"the Trainer has {args.world_size} ranks and the run {run.world.size}",
            next_step="start the script with torchrun.sbatch, one rank a GPU",
        )
    if getattr(args, "train_sampling_strategy", "random") != "random":
        raise Unsupported(
            f"train_sampling_strategy={args.train_sampling_strategy!r} is an order that the run"
            " can't go back into",
            next_step="leave it at 'random'",
        )
    if args.auto_find_batch_size:
        raise Unsupported(
            "auto_find_batch_size changes the batch under the run", next_step="leave it off"
        )


def _step_size(run: Run, args: Any) -> int:
    """Return the number of samples a step, over all ranks.

    It follows from the Trainer's arguments.
    """
    return int(args.train_batch_size * args.gradient_accumulation_steps * run.world.size)


def _feed(run: Run, args: Any, size: int, global_batch: int) -> Feed:
    """Return the samples' feed, and set the Trainer's accumulation.

    On fewer ranks a step is taken in more pieces, never in larger ones.
    """
    share = math.ceil(global_batch / run.world.size)
    order = SampleOrder(size, global_batch, run.seed)
    feed = Feed(run, order, pieces=math.ceil(share / args.train_batch_size), from_epoch_start=True)
    args.gradient_accumulation_steps = feed.pieces
    if run.world.rank == 0:
        run.dir.agree_order(order, feed.epochs(_steps(args, feed)))
    return feed


def _steps(args: Any, feed: Feed) -> int:
    if args.max_steps > 0:
        return int(args.max_steps)
    return math.ceil(float(args.num_train_epochs) * feed.order.steps_per_epoch)
