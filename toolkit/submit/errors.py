"""Errors of a submission.

* SubmitRefused      submit-refused    1   a check failed; nothing was submitted
* SlurmRefused       slurm-refused     1   Slurm refused, or did not answer
"""
# ruff: noqa: N818  # as in toolkit.errors

from toolkit.errors import ToolkitError


class SubmitRefused(ToolkitError):
    """A check found that the job would lose work or can't run.

    `--force` submits it all the same.
    """

    reason = "submit-refused"


class SlurmRefused(ToolkitError):
    """sbatch refused the job, or could not be run."""

    reason = "slurm-refused"
