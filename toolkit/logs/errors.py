"""Errors of `toolkit logs`.

* ToolkitError
  * LogsError                     logs-unreadable
    - LogsOff                     logs-off
    - LogsAbsent                  logs-absent
    - TargetUnknown               log-target-unknown
"""

# ruff: noqa: N818 - the names say what happened
from __future__ import annotations

from toolkit.errors import ToolkitError


class LogsError(ToolkitError):
    """The logs in CloudWatch can't be read."""

    reason = "logs-unreadable"


class LogsOff(LogsError):
    """cluster.yaml turns the logs off."""

    reason = "logs-off"


class LogsAbsent(LogsError):
    """The node or the cluster has sent no line yet."""

    reason = "logs-absent"


class TargetUnknown(LogsError):
    """The name is neither a node's nor an instance's."""

    reason = "log-target-unknown"
