"""The error tree of the training library, under the one tree in `toolkit.errors`.

* ToolkitError
  * TrainingError                 training-failed             1
    - Superseded                  superseded                  1
    * CheckpointFailed            checkpoint-failed           1
      - CheckpointUnreadable      checkpoint-unreadable       1
    - Corrupt                     checkpoint-corrupt          1
    - Unreadable                  checkpoint-unverifiable     1
    - WorkAbandoned               work-abandoned              1
    - NoStorage                   sweep-storage-unavailable   3
    - RecordRejected              tracking-record-rejected    1
    - BundleRefused               bundle-refused              93
    * AdapterError                adapter-failed              1
      - PackageMissing            adapter-package-missing     2
      - Unsupported               adapter-unsupported         2

`Stopped` (attempt/stop_request) and `Terminated` (attempt/sigterm) are exits of the process, and no
errors: they are SystemExit.
"""
# ruff: noqa: N818  # as in toolkit.errors

from toolkit.errors import ToolkitError


class TrainingError(ToolkitError):
    """The error of a run, or of a program around it."""

    reason = "training-failed"


class Superseded(TrainingError):
    """The error of an attempt whose run another attempt has taken over.

    The attempt must leave all files as they are.
    """

    reason = "superseded"


# Checkpoints


class CheckpointFailed(TrainingError):
    """The error of a save or load that failed on at least one rank.

    It is raised on all of them, with every rank's reason.
    """

    reason = "checkpoint-failed"


class CheckpointUnreadable(CheckpointFailed):
    """The error of a checkpoint that may be good, and can't be told to be so here.

    No older one may take its place.
    """

    reason = "checkpoint-unreadable"


class Corrupt(TrainingError):
    """The error of a file that differs from the committed one, or is absent.

    The message says in what it differs.
    """

    reason = "checkpoint-corrupt"


class Unreadable(TrainingError):
    """The error of data that may be good, and can't be verified by this Python."""

    reason = "checkpoint-unverifiable"


class WorkAbandoned(TrainingError):
    """The error of work that a stop does not wait for."""

    reason = "work-abandoned"


# Around a run


class NoStorage(TrainingError):
    """The error of a sweep's storage that is not named, or does not answer.

    A failure rule searches logs for the name of this class (requeue/failure_rules).
    """

    reason = "sweep-storage-unavailable"
    exit_code = 3


class RecordRejected(TrainingError):
    """The error of a record that the tracking server will never take. It is not sent again."""

    reason = "tracking-record-rejected"


class BundleRefused(TrainingError):
    """The error of a container bundle that can't be used. Its message says why, and what to do."""

    reason = "bundle-refused"
    exit_code = 93


class AdapterError(TrainingError):
    """The error of a trainer by which a run can't train."""

    reason = "adapter-failed"


class PackageMissing(AdapterError):
    """The error of a trainer whose package is not installed."""

    reason = "adapter-package-missing"
    exit_code = 2

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed",
            next_step=f"pip install 'slurm-ec2-toolkit[{extra}]', or {package} itself",
        )


class Unsupported(AdapterError):
    """The error of a trainer whose set-up would lose or repeat work."""

    reason = "adapter-unsupported"
    exit_code = 2
