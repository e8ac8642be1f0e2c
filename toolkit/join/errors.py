"""Errors of a join."""
# ruff: noqa: N818  # the name states the fault, as in toolkit.errors

from __future__ import annotations

from toolkit.errors import HeadCommandFailed, ToolkitError


class JoinError(ToolkitError):
    """Cloud nodes can't be added to, or taken out of, the site's Slurm."""

    reason = "join-failed"


class SiteCommandFailed(HeadCommandFailed):
    """A command on the site's controller ended with another exit code than 0."""

    reason = "site-command-failed"


class SiteUnreadable(JoinError):
    """The site's controller answered in a way that the toolkit does not know."""

    reason = "site-unreadable"


class JoinConflict(JoinError):
    """The site's configuration and cluster.yaml can't both hold; nothing was changed."""

    reason = "join-conflict"


class SiteNotReady(JoinError):
    """The preflight found that nodes or jobs could not work; nothing was changed."""

    reason = "site-not-ready"


class ReconfigureRefused(JoinError):
    """slurmctld did not take the new configuration; it keeps the one before."""

    reason = "reconfigure-refused"


class PartitionInUse(JoinError):
    """Everything is removed but our partitions: slurmctld would fail running jobs with them."""

    reason = "partition-in-use"
