"""Makers of what the store has."""

from __future__ import annotations

import re

from toolkit.usage.dump_columns import COLUMNS


def stored(attempt):
    """Return the attempt as the store has it."""
    values = {
        "cluster": "demo",
        "db_index": attempt.key,
        "job_id": attempt.job_id,
        "job": attempt.job,
        "user_name": attempt.user,
        "account": attempt.account,
        "partition_name": attempt.partition,
        "state": attempt.state,
        "requeue_requested": attempt.requeue_requested,
        "restarts": attempt.restarts,
        "submitted": attempt.submitted,
        "eligible": attempt.eligible,
        "started": attempt.started,
        "ended": attempt.ended,
        "node_count": attempt.node_count,
        "node_list": ",".join(name for name in (*attempt.nodes, *attempt.other_nodes) if name),
        "cpus": attempt.tres.cpus,
        "memory_mib": attempt.tres.memory_mib,
        "gpus": attempt.tres.gpus,
        "checkpoint": attempt.checkpoint(),
        "checkpoint_marks": ",".join(re.findall(r"toolkit:checkpoint=(\d+)", attempt.comments)),
    }
    return [values.get(name) for name, _ in COLUMNS]
