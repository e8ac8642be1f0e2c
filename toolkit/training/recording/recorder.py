"""Record a run on rank 0: attempts file, step log, tracking server and verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from toolkit.datasets import dataset
from toolkit.training.attempt.attempt import Attempt
from toolkit.training.attempt.job_log import log_line
from toolkit.training.attempt.verdict import Verdict
from toolkit.training.checkpoint.checkpointer import SavedCheckpoint
from toolkit.training.distributed.step_sync import Agreement
from toolkit.training.io.cluster_info import instance_facts, site_facts
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
from toolkit.training.run_folder.attempts import AttemptRecord, AttemptsFile
from toolkit.training.run_folder.pauses import Pause
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.run_folder.steps import Resumption, StepLog, StepRecord
from toolkit.training.run_folder.stop_forecast import StopForecast
from toolkit.training.sample_order import Batch
from toolkit.training.slurm import job_comment
from toolkit.training.tracking.tracker import Status, TrackingRecord, as_floats


class TrackerLike(Protocol):
    """A protocol of trackers, which may be `Tracker` or `NoTracker`."""

    def add(self, record: TrackingRecord) -> None: ...
    def close(self, timeout: float) -> bool: ...


@dataclass(frozen=True, slots=True)
class Host:
    """An instance of the attempt: its Slurm node, and node boot's facts."""

    node: str
    instance: Mapping[str, Any]
    gpus: tuple[str, ...] = ()  # the GPU's name for each of its ranks

    @classmethod
    def current(cls, attempt: Attempt) -> Self:
        """Return the host of this process."""
        return cls(attempt.node, instance_facts(), hardware.gpus_here())


class RunRecorder:
    """The recorder of one attempt on rank 0, from its start to `close`.

    Exactly one caller closes it.
    """

    def __init__(
        self,
        attempt: Attempt,
        run_folder: RunFolder,
        *,
        hosts: Sequence[Host],
        world_size: int,
        tracker: TrackerLike,
        clock: Callable[[], float],
        print_every: int,
        flops_per_sample: float | None = None,
    ) -> None:
        self._attempt, self._run_folder, self._clock = attempt, run_folder, clock
        self._tracker, self._print_every = tracker, print_every
        self._comment_writer = job_comment.comment_writer_for(attempt.job_id)
        self._attempts_file = AttemptsFile(run_folder.attempts, attempt.fence.write_fenced)
        history = steps_file.read(run_folder.steps)
        if lost_record := previous_attempts.close_lost(self._attempts_file, history, attempt):
            log_line(lost_record.lost_message)
        self.record, earlier_records = self._begin_attempt(hosts, world_size)
        # The step log has no fence: it is opened once the attempts file names this attempt.
        self._steps = StepLog(run_folder.steps, log_line)
        self._is_first_attempt = not any(record.world_size for record in earlier_records)
        attempt_hardware = hardware.hardware_of(
            (host.instance for host in hosts), (gpu for host in hosts for gpu in host.gpus)
        )
        self._throughput = Throughput(
            flops_per_sample=flops_per_sample, peak_flops=attempt_hardware.peak_flops
        )
        self._track_tags(
            _run_tags(attempt, hosts, world_size) | {"toolkit.hardware": str(attempt_hardware)}
        )
        self._stop_listening = dataset.add_listener(self.record_datasets)
        if earlier_records:  # attempts that had to stop had no time for it
            self._track_split(
                goodput.split(earlier_records, history, pauses.read(run_folder.times), clock())
            )

    def record_facts(
        self, params: Mapping[str, str], tags: Mapping[str, str], artifacts: Sequence[Path]
    ) -> None:
        """Record the parameters, tags and files that are known at the start.

        Parameters only in the run's first attempt: a tracker's parameters never change.
        """
        if self._is_first_attempt:
            self._tracker.add(TrackingRecord(self._clock(), params=params))
        self._track_tags(tags)
        for path in artifacts:
            self._tracker.add(TrackingRecord(self._clock(), artifact=str(path)))

    def describe(self, tags: Mapping[str, str]) -> None:
        """Record tags of the script: `data_hash` becomes the tag `toolkit.data_hash`."""
        self._track_tags({f"toolkit.{name}": value for name, value in tags.items()})

    def record_datasets(self, versions_by_name: Mapping[str, str]) -> None:
        """Record datasets.

        Datasets that this process opens are recorded without a call.
        """
        if not versions_by_name:
            return
        all_versions = datasets_used.add(self._run_folder.path, versions_by_name)
        self._track_tags(datasets_used.tags(all_versions))
        for name in sorted(versions_by_name.keys() & datasets_used.changed_names(all_versions)):
            log_line(
                f"dataset {name} has another version than in an earlier attempt: name a version"
            )

    def record_resume(self, step: int, *, checkpoint: str, seconds: float) -> str:
        """Record the step where the attempt begins, and the seconds of loading.

        `checkpoint` is the loaded checkpoint's name, or "". Returns why the run makes no progress
        and should not begin again, or "".
        """
        earlier_records = self._attempts_file.attempts()[:-1]
        self.record = replace(self.record, step_start=step)
        self._attempts_file.replace_last(self.record)
        self._record_pause("restore", step, seconds)
        self._steps.resume(Resumption(self.record.attempt, step, self._clock()))
        self._track_tags(self._total_tags())
        origin = f"from checkpoint {checkpoint}" if checkpoint else "without a checkpoint"
        log_line(f"attempt {self.record.attempt} starts at step {step}, {origin}")
        return retry_budget.exceeded_limit(
            earlier_records, job_id=self._attempt.job_id, step=step, cap_usd=None
        )

    def record_step(
        self, batch: Batch, metrics: Mapping[str, Any], at: float, agreed: Agreement
    ) -> None:
        """Record a step, and log its metrics every `print_every` steps.

        `agreed` has the samples that all ranks together took.
        """
        floats = as_floats(metrics)
        span = (batch.step, batch.epoch, batch.start, batch.stop)
        taken = (agreed.samples, agreed.fingerprints)
        self._steps.step(StepRecord(self.record.attempt, *span, *taken, at, floats))
        speed = self._throughput.step(at, agreed.samples)
        self._tracker.add(TrackingRecord(at, step=batch.step, metrics={**floats, **speed}))
        if batch.step % self._print_every == 0:
            values = " ".join(f"{name} {value:.5g}" for name, value in floats.items())
            log_line(f"step {batch.step} epoch {batch.epoch} {values}")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record metrics that no step returned."""
        self._tracker.add(TrackingRecord(self._clock(), step=step, metrics=as_floats(metrics)))

    def mtti(self) -> float:
        """Return the expected seconds until the run loses an instance.

        They follow from this run's attempts and the site's figures.
        """
        site_rate = site_facts().get("interruptions_per_machine_hour")
        rate = float(site_rate) if isinstance(site_rate, int | float) and site_rate > 0 else None
        instance_count = len(self.record.nodes)
        return interruption_rate.mtti(
            self._attempts_file.attempts(), instance_count, per_instance_hour=rate
        )

    def record_save(self, saved: SavedCheckpoint, forecast: StopForecast | None) -> None:
        """Record a checkpoint, and the stop forecast if there is one."""
        log_line(f"checkpoint {saved.step} saved in {saved.seconds:.1f} s")
        try:
            self._track_save(saved, forecast)
        except OSError as error:  # only rank 0 has it, and the record only informs people
            log_line(f"checkpoint {saved.step} is saved, but its record failed: {error}")

    def record_stall(self, step: int, seconds: float) -> None:
        """Record for how long training stood still to save step `step`."""
        self._throughput.pause(seconds)
        try:
            self._record_pause("save", step, seconds)
        except OSError as error:
            log_line(f"the pause to save step {step} is not recorded: {error}")

    def record_result(
        self,
        steps: int,
        results: Mapping[str, Any],
        datasets_by_process: Sequence[Mapping[str, str]],
        fetched: int,
    ) -> None:
        """Record the datasets of all processes, and write result.json.

        `fetched` is the number of datasets that were in no cache.
        """
        for versions_by_name in datasets_by_process:
            self.record_datasets(versions_by_name)
        if requests := sum(map(len, datasets_by_process)):
            self.log(max(0, steps - 1), {"toolkit.data_hit_ratio": 1 - fetched / requests})
        record = self.record
        result = {"steps": steps, "world_size": record.world_size, "attempts": record.attempt + 1}
        write_json(self._run_folder.result, {**result, **results})
        log_line(f"training is finished after {steps} steps")

    def _track_save(self, saved: SavedCheckpoint, forecast: StopForecast | None) -> None:
        if self._comment_writer:
            self._comment_writer.mark_checkpoint(self._clock())
        metrics = gpu_sampler.metrics(self._run_folder.path, self._attempt.key) | {
            "toolkit.save_seconds": saved.seconds,
            "toolkit.save_stall_seconds": saved.stall_seconds,
        }
        if forecast:
            stop_forecast.write_measured(
                self._run_folder.path, forecast, self._attempt.job_id, self.record.world_size
            )
            metrics["toolkit.stop_seconds"] = forecast.seconds
        self._tracker.add(TrackingRecord(self._clock(), step=saved.step, metrics=metrics))

    def sync(self) -> None:
        """Have the step log on disk, before a checkpoint is committed."""
        self._steps.sync()

    def close(
        self,
        verdict: Verdict,
        *,
        status: Status | None,
        artifacts: Sequence[Path] = (),
        timeout: float,
    ) -> None:
        """Close everything, and write the verdict last in any case.

        The batch script acts on the verdict. When another attempt has taken over, or may have,
        nothing else is written: the records are then its own.
        """
        self._stop_listening()
        self._steps.close()
        if self._attempt.fence.may_be_superseded():
            verdict.write_first(self._attempt.verdict_file)
            return
        try:
            self._record_end(verdict)
        except OSError as error:
            log_line(f"the end of this attempt is not recorded in full: {error}")
        for path in (*artifacts, self._run_folder.attempts):
            self._tracker.add(TrackingRecord(self._clock(), artifact=str(path)))
        if status:
            self._tracker.add(TrackingRecord(self._clock(), status=status))
        try:
            self._tracker.close(timeout)
        except OSError as error:
            log_line(f"tracking: the unsent records could not be kept: {error}")
        if verdict.verdict in ("failed", "resume"):
            # Another rank may have written the verdict already; it was nearer to the failure.
            verdict.write_first(self._attempt.verdict_file)
        else:
            verdict.write(self._attempt.verdict_file)

    def _record_end(self, verdict: Verdict) -> None:
        self.record = self.record.with_end(
            at=self._clock(), cause=verdict.cause, step_end=verdict.step, detail=verdict.detail
        )
        self._attempts_file.replace_last(self.record)
        self._track_tags(self._total_tags())
        if verdict.verdict in ("done", "hold", "failed"):  # otherwise the next attempt does it
            split = goodput.split_of_run(self._run_folder.path, self._clock())
            write_json(self._run_folder.path / "goodput.json", split.as_json())
            self._track_split(split)

    def _begin_attempt(
        self, hosts: Sequence[Host], world_size: int
    ) -> tuple[AttemptRecord, Sequence[AttemptRecord]]:
        """Begin the attempt, or continue the one its batch script began.

        Returns it and the attempts before it.
        """
        records = self._attempts_file.attempts()
        is_begun = bool(records) and records[-1].awaits_workers(self._attempt.key)
        earlier_records = records[:-1] if is_begun else records
        record = AttemptRecord.at_start(
            self._attempt,
            len(earlier_records),
            self._clock(),
            world_size=world_size,
            nodes=tuple(host.node for host in hosts),
            instances=tuple(host.instance for host in hosts if host.instance),
        )
        if is_begun:
            self._attempts_file.replace_last(record)
        else:
            self._attempts_file.append(record)
        return record, earlier_records

    def _total_tags(self) -> dict[str, str]:
        attempts = self._attempts_file.attempts()
        cost = attempts_file.total_cost(attempts)
        types = {str(i.get("instance_type", "?")) for a in attempts for i in a.instances}
        tags = {
            "toolkit.attempts": str(len(attempts)),
            "toolkit.causes": ",".join(attempt.cause for attempt in attempts),
            "toolkit.instance_types": ",".join(sorted(types)),
        }
        return tags | ({"toolkit.cost_usd_estimate": str(cost)} if cost is not None else {})

    def _record_pause(self, kind: pauses.Kind, step: int, seconds: float) -> None:
        if seconds > 0:
            pause = Pause(self.record.attempt, kind, self._clock(), round(seconds, 3), step)
            pauses.append(self._run_folder.times, pause)

    def _track_split(self, split: goodput.Split) -> None:
        metrics = split.metrics() | gpu_sampler.metrics(self._run_folder.path, self._attempt.key)
        self._tracker.add(TrackingRecord(self._clock(), metrics=metrics))

    def _track_tags(self, tags: Mapping[str, str]) -> None:
        self._tracker.add(TrackingRecord(self._clock(), tags=tags))


class NullRecorder:
    """The recorder of every rank but rank 0, and of a run that is not open: it records nothing."""

    def describe(self, tags: Mapping[str, str]) -> None: ...
    def log(self, step: int, metrics: Mapping[str, Any]) -> None: ...
    def record_save(self, saved: SavedCheckpoint, forecast: StopForecast | None) -> None: ...
    def record_stall(self, step: int, seconds: float) -> None: ...
    def sync(self) -> None: ...

    def record_step(
        self, batch: Batch, metrics: Mapping[str, Any], at: float, agreed: Agreement
    ) -> None: ...

    def record_resume(self, step: int, *, checkpoint: str, seconds: float) -> str:  # noqa: ARG002  # as above
        return ""

    def mtti(self) -> float:
        return 0.0

    def record_result(
        self,
        steps: int,
        results: Mapping[str, Any],
        datasets_by_process: Sequence[Mapping[str, str]],
        fetched: int,
    ) -> None: ...

    def close(
        self,
        verdict: Verdict,
        *,
        status: Status | None,
        artifacts: Sequence[Path] = (),
        timeout: float,
    ) -> None: ...


Recorder = RunRecorder | NullRecorder


def _run_tags(attempt: Attempt, hosts: Sequence[Host], world_size: int) -> dict[str, str]:
    images = {str(host.instance["image_id"]) for host in hosts if "image_id" in host.instance}
    return {
        "toolkit.run_dir": str(attempt.run_dir),
        # slurmplugins.head.mlflow.JOB_TAG, which no job can import: a test holds them equal.
        "toolkit.job_id": attempt.job_id,
        "toolkit.account": attempt.account,
        "toolkit.world_size": str(world_size),
        "toolkit.image_id": ",".join(sorted(images)) or "unknown",
    }
