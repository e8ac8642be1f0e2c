"""Errors of a quote. All of them are wrong usage: nothing was submitted.

* UnknownOption       unknown-option        2   sbatch has no such option
* UnknownPartition    unknown-partition     2   cluster.yaml has no such partition
* UnknownAccount      unknown-account       2   Slurm has no such account
* NoTimeLimit         no-time-limit         2   neither the job nor its partition has one
* BadRequest          bad-request           2   a value can't be read, or exceeds a limit
* NothingFits         nothing-fits          2   no node of the partition has what the job requests
* NothingMeasured     nothing-measured      2   neither a run nor a model size is known
"""
# ruff: noqa: N818  # as in toolkit.errors

from toolkit.errors import ToolkitError


class QuoteError(ToolkitError):
    """A job that can't be quoted."""

    reason = "quote-failed"
    exit_code = 2


class UnknownOption(QuoteError):
    """An option that sbatch does not have, or that is ambiguous."""

    reason = "unknown-option"


class UnknownPartition(QuoteError):
    """A partition that cluster.yaml does not have, or none at all."""

    reason = "unknown-partition"


class UnknownAccount(QuoteError):
    """An account that Slurm does not have."""

    reason = "unknown-account"


class NoTimeLimit(QuoteError):
    """A job that may run for ever costs any amount."""

    reason = "no-time-limit"


class BadRequest(QuoteError):
    """A value of an option that sbatch or slurmctld would refuse."""

    reason = "bad-request"


class NothingFits(QuoteError):
    """No node of the partition has what the job requests."""

    reason = "nothing-fits"


class NothingMeasured(QuoteError):
    """A training of which nothing is known."""

    reason = "nothing-measured"
