"""End an attempt on one rank, once: write the verdict, close the recorder and the GPU sampler."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.training.attempt import exception_verdict
from toolkit.training.attempt.attempt import Attempt
from toolkit.training.attempt.sigterm import Terminated
from toolkit.training.attempt.verdict import Verdict, read_verdict
from toolkit.training.distributed.process_group import ProcessGroup
from toolkit.training.recording.recorder import NullRecorder, Recorder
from toolkit.training.slurm import job
from toolkit.training.tracking.tracker import Status

if TYPE_CHECKING:
    from toolkit.training.recording import gpu_sampler

# Seconds for the tracking server at the end. A stop has little of a spot notice's 120 s for it.
_PATIENCE_STOP, _PATIENCE_END = 10.0, 30.0

_runs_of_process: set[tuple[Path, int]] = set()  # verdict file and rank of each run of this process


def refuse_second(attempt: Attempt, rank: int) -> None:
    """Raise RuntimeError for a second run of this attempt in one process.

    It would load the first run's last checkpoint, train nothing, and give the first run's results
    as its own. The attempt then is no success, so a verdict `done` is replaced.
    """
    run_key = (attempt.verdict_file, rank)
    if run_key not in _runs_of_process:
        _runs_of_process.add(run_key)
        return
    error = RuntimeError(
        f"this process had a Run in {attempt.run_dir} already; a second one would go on where the"
        " first one ended. Give each training its own job (an array's tasks), or outside the"
        " jobscripts its own TOOLKIT_RUN_DIR"
    )
    if rank == 0 and (verdict := read_verdict(attempt)) and verdict.verdict == "done":
        exception_verdict.verdict_of(error, verdict.step).write(attempt.verdict_file)
    raise error


class AttemptCloser:
    """The end of an attempt on one rank."""

    def __init__(self, attempt: Attempt, world: ProcessGroup) -> None:
        self._attempt, self._world = attempt, world
        self.ended = False  # True once the verdict is written, or left to another rank
        self.sampler: gpu_sampler.Sampler | None = None  # on one rank a node
        self.recorder: Recorder = NullRecorder()

    def close_finished(self, verdict: Verdict, result: Path) -> None:
        """End an attempt whose training is done."""
        self._close(verdict, "FINISHED", _PATIENCE_END, [result])

    def close_stopped(self, verdict: Verdict, status: Status | None = None) -> None:
        """End an attempt that all ranks leave together.

        `status` is the run's new state for the tracking server; None when the job may be requeued.
        """
        self._close(verdict, status, _PATIENCE_STOP)

    def close_failed(self, error: BaseException, saved_step: int) -> None:
        """End an attempt by this rank's exception.

        Maybe no other rank has one.
        """
        verdict = exception_verdict.verdict_of(error, saved_step)
        if self._world.rank != 0:
            with suppress(OSError):  # the exception itself says more
                verdict.write_first(self._attempt.verdict_file)
            return
        verdict = read_verdict(self._attempt) or verdict
        is_cancelled = isinstance(error, Terminated) and job.is_cancelled(self._attempt.job_id)
        status = self._attempt.failure_status if verdict.verdict == "failed" else None
        self._close(verdict, "KILLED" if is_cancelled else status, _PATIENCE_STOP)

    def _close(
        self,
        verdict: Verdict,
        status: Status | None,
        timeout: float,
        artifacts: Sequence[Path] = (),
    ) -> None:
        self.ended = True
        if self.sampler:
            self.sampler.stop()
        self.recorder.close(verdict, status=status, artifacts=artifacts, timeout=timeout)
