"""A journal of a busy day, written through the journal's own code.

Every node of a pool has had three instances, in jobs of eight nodes. Each launch was refused once
before it succeeded. Three times the node was powered down and its instance terminated. The node has
its fourth instance now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

from slurmplugins.cloud import error_codes
from slurmplugins.model.hostlist import NodeName
from slurmplugins.model.instance import Assignment, EndCause, Lifecycle, Offering
from slurmplugins.model.launch import LaunchRequest
from slurmplugins.state.journal import Journal
from slurmplugins.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

BEFORE = 3
EACH = 8
_HOURS = 5.0
_BETWEEN = 12.0 / 3600
_OFFERING = Offering("g5.xlarge", Lifecycle.ON_DEMAND, "us-east-1a", "1.0")
_REFUSED = error_codes.error(
    "InsufficientInstanceCapacity", "We currently do not have sufficient ..."
)


class _Earlier(SystemClock):
    """The host's clocks, some hours ago."""

    hours = 0.0

    def now(self) -> float:
        return super().now() - self.hours * 3600

    def monotonic(self) -> float:
        return super().monotonic() - self.hours * 3600


def write(state: Path, instances: Sequence[tuple[str, str]]) -> None:
    """Write the journal of a busy day.

    `instances` has the node and the instance id of each instance that runs now. Nothing is synced:
    for thirty thousand lines that would take longer than all the rest.
    """
    clock = _Earlier()
    journal = Journal(state, clock)
    with mock.patch("os.fsync"):
        for generation in range(BEFORE, -1, -1):
            clock.hours = (generation + 1) * _HOURS
            for number, job in enumerate(_jobs(instances, generation)):
                clock.hours -= _BETWEEN
                _launch(journal, f"{generation:02x}{number:022x}", number, job)
                if generation:
                    journal.record_powered_down([item.node for item in job], clock.monotonic())
                    journal.mark_terminating([item.instance_id for item in job], EndCause.SUSPEND)


def _jobs(instances: Sequence[tuple[str, str]], generation: int) -> Iterator[list[Assignment]]:
    for first in range(0, len(instances), EACH):
        yield [
            Assignment(NodeName(node), _id(key, generation), "10.42.100.100", "g5.xlarge")
            for node, key in instances[first : first + EACH]
        ]


def _id(now: str, generation: int) -> str:
    """Return the instance id of a node's instance.

    The ids of instances that run now begin with a 0.
    """
    return f"i-{'0abc'[generation]}{now[3:]}"


def _launch(journal: Journal, attempt: str, job: int, instances: list[Assignment]) -> None:
    nodes = tuple(item.node for item in instances)
    with journal.resume_process() as run:
        journal.claim(run, lambda _: nodes)
        for name in (f"{attempt}-0", attempt):
            journal.record_call(
                LaunchRequest(
                    attempt=name, cluster="demo", pool="gpu", partition="spot",
                    launch_template="demo-gpu", subnet="subnet-0123456789abcdef0",
                    offering=_OFFERING, nodes=nodes,
                ),
                run, [job],
            )  # fmt: skip
            if name != attempt:
                journal.record_failed(name, _REFUSED)
        journal.record_launched(attempt, instances)
        journal.release(run, nodes)
