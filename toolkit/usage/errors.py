"""Errors of the store of usage.

* ToolkitError
  * UsageStoreError               usage-failed
    - DumpUnreadable              dump-unreadable
    - StoreUnreadable             store-unreadable
    - RateInvalid                 rate-invalid        2
    - InstancesUnreadable         instances-unreadable  2
    - DayNotKnown                 day-not-known       2
    - OtherCluster                other-cluster       2
"""
# ruff: noqa: N818  # the name states the fault; "Error" after it would state it twice

from __future__ import annotations

from toolkit.errors import ToolkitError


class UsageStoreError(ToolkitError):
    """The store of usage can't do what was requested."""

    reason = "usage-failed"


class DumpUnreadable(UsageStoreError):
    """A file is no dump of sacct, or lacks a field that is needed."""

    reason = "dump-unreadable"


class StoreUnreadable(UsageStoreError):
    """The store's folder is missing, damaged, or of another version."""

    reason = "store-unreadable"


class RateInvalid(UsageStoreError):
    """A price for a node type or partition can't be read."""

    reason = "rate-invalid"
    exit_code = 2


class InstancesUnreadable(UsageStoreError):
    """A list of instances can't be read, or doesn't fit the store."""

    reason = "instances-unreadable"
    exit_code = 2


class DayNotKnown(UsageStoreError):
    """A day can't be closed yet: the records do not reach behind it."""

    reason = "day-not-known"
    exit_code = 2


class OtherCluster(UsageStoreError):
    """The store has the records of another cluster with the same name."""

    reason = "other-cluster"
    exit_code = 2
