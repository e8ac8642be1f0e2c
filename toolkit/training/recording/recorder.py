"""Record a run, on rank 0: attempt ledger, step log, tracking server and verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from toolkit.datasets import dataset
from toolkit.training.attempt.attempt import Attempt
from toolkit.training.attempt.job_log import say
from toolkit.training.attempt.verdict import Verdict
from toolkit.training.checkpoint.checkpointer import Saved
from toolkit.training.checkpoint.collective import on_rank_0
from toolkit.training.distributed.process_group import World
from toolkit.training.distributed.step_sync import Agreed
from toolkit.training.io.cluster_info import instance_facts
from toolkit.training.io.durable_files import write_json
from toolkit.training.recording import goodput, gpu_sampler, hardware
from toolkit.training.recording.throughput import Throughput
from toolkit.training.requeue import previous_attempts, retry_budget
from toolkit.training.run_folder import (
    attempts as attempts_file,
    datasets_used,
    interruption_rate,
    pauses,
    steps as steps_file,
    stop_forecast,
)
from toolkit.training.run_folder.attempts import AttemptRecord, Ledger
from toolkit.training.run_folder.pauses import Timing
from toolkit.training.run_folder.run_folder import RunDir
from toolkit.training.run_folder.steps import Resumption, StepLog, StepRecord
from toolkit.training.run_folder.stop_forecast import StopForecast
from toolkit.training.sample_order import Batch
from toolkit.training.slurm import job_comment
from toolkit.training.tracking.tracker import Record, Status, numbers


class TrackerLike(Protocol):
    """A protocol of trackers, which may be `Tracker` or `NoTracker`."""

    def add(self, record: Record) -> None: ...
    def close(self, timeout: float) -> bool: ...


@dataclass(frozen=True, slots=True)
class Host:
    """An instance of the attempt: its Slurm node, and node boot's facts."""

    node: str
    instance: Mapping[str, Any]
    gpus: tuple[str, ...] = ()  # the GPU's name for each of its ranks

    @classmethod
    def here(cls, attempt: Attempt) -> Self:
        """Return the host of this process."""
        return cls(attempt.node, instance_facts(), hardware.gpus_here())


class Books:
    """A recorder of one attempt, open from its beginning to `end`.

    Exactly one caller ends it.
    """

    def __init__(
        self,
        attempt: Attempt,
        run_dir: RunDir,
        *,
        hosts: Sequence[Host],
        world_size: int,
        tracker: TrackerLike,
        clock: Callable[[], float],
        flops_per_sample: float | None = None,
    ) -> None:
        self._attempt, self._run_dir, self._clock = attempt, run_dir, clock
        self._tracker = tracker
        self._remark = job_comment.for_job(attempt.job_id)
        self._ledger = Ledger(run_dir.attempts, attempt.owner.put)
        history = steps_file.read(run_dir.steps)
        if lost := previous_attempts.close(self._ledger, history, attempt):
            say(lost.without_a_word)
        self.record, before = self._begin(hosts, world_size)
        # The step log has no fence: it is opened once the ledger names this attempt as the writer.
        self._steps = StepLog(run_dir.steps, say)
        self._first = not any(one.world_size for one in before)
        machines = hardware.of((h.instance for h in hosts), (gpu for h in hosts for gpu in h.gpus))
        self._speed = Throughput(flops_per_sample=flops_per_sample, peak_flops=machines.peak_flops)
        self._tag(_facts(attempt, hosts, world_size) | {"toolkit.hardware": str(machines)})
        self._unlisten = dataset.listen(self.opened)
        if before:  # attempts that had to stop had no time for it
            self._measure(goodput.split(before, history, pauses.read(run_dir.times), clock()))

    def describe(
        self, params: Mapping[str, str], tags: Mapping[str, str], artifacts: Sequence[Path] = ()
    ) -> None:
        """Record parameters, tags and files.

        Parameters only in the run's first attempt: a tracker's parameters never change.
        """
        if self._first:
            self._tracker.add(Record(self._clock(), params=params))
        self._tag(tags)
        for path in artifacts:
            self._tracker.add(Record(self._clock(), artifact=str(path)))

    def opened(self, taken: Mapping[str, str]) -> None:
        """Record datasets.

        Datasets that this process opens are recorded without a call.
        """
        if not taken:
            return
        found = datasets_used.add(self._run_dir.path, taken)
        self._tag(datasets_used.tags(found))
        for asked in sorted(taken.keys() & datasets_used.moved(found)):
            say(f"dataset {asked} is not what it was in an earlier attempt: name a version")

    def resumed(self, step: int, seconds: float = 0.0) -> str:
        """Record the step where the attempt begins, and the seconds of loading.

        Returns why the run makes no progress and should not begin again, or "".
        """
        before = self._ledger.attempts()[:-1]
        self.record = replace(self.record, step_start=step)
        self._ledger.update(self.record)
        self._pause("restore", step, seconds)
        self._steps.resume(Resumption(self.record.attempt, step, self._clock()))
        self._tag(self._totals())
        return retry_budget.exhausted(before, job_id=self._attempt.job_id, step=step, cap_usd=None)

    def step(
        self, batch: Batch, samples: int, prints: int, at: float, metrics: Mapping[str, float]
    ) -> None:
        """Record a step: its samples, as all ranks together say, and metrics."""
        number = self.record.attempt
        span = (batch.step, batch.epoch, batch.start, batch.stop)
        self._steps.step(StepRecord(number, *span, samples, prints, at, metrics))
        speed = self._speed.step(at, samples)
        self._tracker.add(Record(at, step=batch.step, metrics={**metrics, **speed}))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics that no step returned."""
        self._tracker.add(Record(self._clock(), step=step, metrics=metrics))

    def mtti(self, site: Mapping[str, Any]) -> float:
        """Return the expected seconds until the run loses an instance.

        They follow from this run's attempts and the site's figures.
        """
        known = site.get("interruptions_per_machine_hour")
        rate = float(known) if isinstance(known, int | float) and known > 0 else None
        machines = len(self.record.nodes)
        return interruption_rate.mtti(self._ledger.attempts(), machines, per_machine_hour=rate)

    def saved(self, saved: Saved, forecast: StopForecast | None) -> None:
        """Record a checkpoint, and the stop forecast if there is one."""
        try:
            self._saved(saved, forecast)
        except OSError as error:  # only rank 0 has it, and the record only informs people
            say(f"not recorded what saving step {saved.step} took: {error}")

    def stalled(self, step: int, seconds: float) -> None:
        """Record for how long training stood still to save step `step`."""
        self._speed.pause(seconds)
        try:
            self._pause("save", step, seconds)
        except OSError as error:
            say(f"not recorded how long training waited for step {step}: {error}")

    def finished(
        self, steps: int, given: Mapping[str, Any], opened: Sequence[Mapping[str, str]], fills: int
    ) -> None:
        """Record the datasets of all processes, and write result.json.

        `opened` has the datasets that each process opened, `fills` is how many had to be fetched.
        """
        for taken in opened:
            self.opened(taken)
        if requests := sum(map(len, opened)):
            self.log(max(0, steps - 1), {"toolkit.data_hit_ratio": 1 - fills / requests})
        mine = self.record
        result = {"steps": steps, "world_size": mine.world_size, "attempts": mine.attempt + 1}
        write_json(self._run_dir.result, {**result, **given})
        say(f"finished after {steps} steps")

    def _saved(self, saved: Saved, forecast: StopForecast | None) -> None:
        if self._remark:
            self._remark.checkpoint(self._clock())
        found = gpu_sampler.metrics(self._run_dir.path, self._attempt.key) | {
            "toolkit.save_seconds": saved.seconds,
            "toolkit.save_stall_seconds": saved.stall_seconds,
        }
        if forecast:
            stop_forecast.keep(
                self._run_dir.path, forecast, self._attempt.job_id, self.record.world_size
            )
            found["toolkit.stop_seconds"] = forecast.seconds
        self._tracker.add(Record(self._clock(), step=saved.step, metrics=found))

    def sync(self) -> None:
        """Have the step log on disk, before a checkpoint is committed."""
        self._steps.sync()

    def end(
        self,
        word: Verdict,
        *,
        status: Status | None,
        artifacts: Sequence[Path] = (),
        patience: float,
    ) -> None:
        """Close everything, and write the verdict last in any case.

        The batch script acts on the verdict. When another attempt has taken over, or may have,
        nothing else is written: the records are then its own.
        """
        self._unlisten()
        self._steps.close()
        if self._attempt.owner.may_be_lost():
            word.write_first(self._attempt.verdict_file)
            return
        try:
            self._note_end(word)
        except OSError as error:
            say(f"not recorded in full how this attempt ended: {error}")
        for path in (*artifacts, self._run_dir.attempts):
            self._tracker.add(Record(self._clock(), artifact=str(path)))
        if status:
            self._tracker.add(Record(self._clock(), status=status))
        try:
            self._tracker.close(patience)
        except OSError as error:
            say(f"tracking: what is left could not be kept: {error}")
        if word.verdict in ("failed", "resume"):
            # Another rank may have written the verdict already; it was nearer to the failure.
            word.write_first(self._attempt.verdict_file)
        else:
            word.write(self._attempt.verdict_file)

    def _note_end(self, word: Verdict) -> None:
        self.record = self.record.ended(
            at=self._clock(), cause=word.cause, step_end=word.step, detail=word.detail
        )
        self._ledger.update(self.record)
        self._tag(self._totals())
        if word.verdict in ("done", "hold", "failed"):  # otherwise the next attempt does it
            split = goodput.of(self._run_dir.path, self._clock())
            write_json(self._run_dir.path / "goodput.json", split.as_json())
            self._measure(split)

    def _begin(
        self, hosts: Sequence[Host], world_size: int
    ) -> tuple[AttemptRecord, Sequence[AttemptRecord]]:
        """Begin the attempt, or continue the one its batch script began.

        Returns it and the attempts before it.
        """
        every = self._ledger.attempts()
        ours = bool(every) and every[-1].awaits(self._attempt.key)
        before = every[:-1] if ours else every
        record = AttemptRecord.begun(
            self._attempt,
            len(before),
            self._clock(),
            world_size=world_size,
            nodes=tuple(host.node for host in hosts),
            instances=tuple(host.instance for host in hosts if host.instance),
        )
        if ours:
            self._ledger.update(record)
        else:
            self._ledger.begin(record)
        return record, before

    def _totals(self) -> dict[str, str]:
        attempts = self._ledger.attempts()
        cost = attempts_file.total_cost(attempts)
        types = {str(i.get("instance_type", "?")) for a in attempts for i in a.instances}
        tags = {
            "toolkit.attempts": str(len(attempts)),
            "toolkit.causes": ",".join(attempt.cause for attempt in attempts),
            "toolkit.instance_types": ",".join(sorted(types)),
        }
        return tags | ({"toolkit.cost_usd_estimate": str(cost)} if cost is not None else {})

    def _pause(self, kind: pauses.Kind, step: int, seconds: float) -> None:
        if seconds > 0:
            timing = Timing(self.record.attempt, kind, self._clock(), round(seconds, 3), step)
            pauses.append(self._run_dir.times, timing)

    def _measure(self, split: goodput.Split) -> None:
        metrics = split.metrics() | gpu_sampler.metrics(self._run_dir.path, self._attempt.key)
        self._tracker.add(Record(self._clock(), metrics=metrics))

    def _tag(self, tags: Mapping[str, str]) -> None:
        self._tracker.add(Record(self._clock(), tags=tags))


def _facts(attempt: Attempt, hosts: Sequence[Host], world_size: int) -> dict[str, str]:
    images = {str(host.instance["image_id"]) for host in hosts if "image_id" in host.instance}
    return {
        "toolkit.run_dir": str(attempt.run_dir),
        # slurmplugins.head.mlflow.JOB_TAG, which no job can import: a test holds them equal.
        "toolkit.job_id": attempt.job_id,
        "toolkit.account": attempt.account,
        "toolkit.world_size": str(world_size),
        "toolkit.image_id": ",".join(sorted(images)) or "unknown",
    }


class RankBooks:
    """A rank's recorder: it records on rank 0, and does nothing on the others."""

    def __init__(self, world: World, *, print_every: int) -> None:
        self._world, self._print_every = world, print_every
        self.books: Books | None = None  # on rank 0, once it is open

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record metrics that no step returned."""
        if self.books:
            self.books.log(step, numbers(metrics))

    def describe(self, tags: Mapping[str, str]) -> None:
        """Record more tags of the run."""
        if self.books:
            self.books.describe({}, {f"toolkit.{name}": value for name, value in tags.items()})

    def step(self, batch: Batch, metrics: Mapping[str, Any], at: float, told: Agreed) -> None:
        """Record a step, and print its metrics every `print_every` steps."""
        if not self.books:
            return
        found = numbers(metrics)
        self.books.step(batch, told.samples, told.prints, at, found)
        if batch.step % self._print_every == 0:
            values = " ".join(f"{name} {value:.5g}" for name, value in found.items())
            say(f"step {batch.step} epoch {batch.epoch} {values}")

    def sync(self) -> None:
        """Have the step log on disk, or raise CheckpointFailed on all ranks."""
        on_rank_0(self._world, lambda: self.books.sync() if self.books else None)

    def saved(self, saved: Saved, forecast: StopForecast | None) -> None:
        """Record a checkpoint, and the stop forecast if there is one."""
        if self.books:
            self.books.saved(saved, forecast)

    def stalled(self, step: int, seconds: float) -> None:
        """Record for how long training stood still to save step `step`."""
        if self.books:
            self.books.stalled(step, seconds)
