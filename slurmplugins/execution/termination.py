"""Terminate instances: write the decision down first, call EC2 in batches, verify the result."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import CloudError, SomeNotTerminated, StateError
from slurmplugins.model.actions import Outcome
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.cloud.port import Cloud
    from slurmplugins.model.actions import Terminate
    from slurmplugins.model.instance import EndCause
    from slurmplugins.state.journal import Journal
    from slurmplugins.state.launch_budget_file import LaunchBudget
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log

VERIFY_TRIES: Final = 3
VERIFY_PAUSE: Final = 2.0
"""Seconds between two rounds. EC2's first answer already has the new state. Another round is for
throttles and lost answers."""

BATCH_SIZE: Final = 200
"""Instances in one call. EC2 takes 1,000, but a throttled call terminates none of them."""

TERMINATE_SECONDS: Final = 120.0
"""Seconds after which a program begins no new round.

The reconcile timer's pass may take 300 s in all.
"""


class Terminator:
    """Terminates instances and verifies that EC2 did so. Safe to repeat."""

    def __init__(
        self, cloud: Cloud, journal: Journal, clock: Clock, log: Log, launch_budget: LaunchBudget
    ) -> None:
        self._cloud = cloud
        self._journal = journal
        self._clock = clock
        self._log = log
        self._launch_budget = launch_budget

    def run(self, actions: Sequence[Terminate]) -> list[Outcome]:
        """Terminate these instances, with one outcome for each.

        An outcome without an error means that the instance is terminated. `refused` marks
        instances that EC2 refuses to terminate.
        """
        by_cause: dict[EndCause, list[Terminate]] = defaultdict(list)
        for action in actions:
            by_cause[action.cause].append(action)
        for cause, group in by_cause.items():
            try:
                self._journal.mark_terminating([item.instance.id for item in group], cause)
            except StateError as error:  # the ledger will lack the cause; the money matters more
                self._log.failure(LogEvent.JOURNAL_WRITE_FAILED, message=error.message)
        for action in actions:
            instance = action.instance
            self._log.info(
                LogEvent.TERMINATION_DECIDED,
                instance=instance.id,
                node=instance.node,
                cause=action.cause,
                why=action.why,
            )
        refusals, failures = self._terminate_all([item.instance.id for item in actions])
        errors = failures | refusals
        return [
            Outcome(item, errors.get(item.instance.id, ""), refused=item.instance.id in refusals)
            for item in actions
        ]

    def _terminate_all(self, ids: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Terminate batch by batch, and repeat while that helps.

        The rest is left to reconcile's next pass. A round that terminated an instance does not
        count as a try. EC2 terminates a thousand at once and then twenty a second, so a large
        suspend goes on at that pace.

        Returns two maps from instance id to reason. The first has instances that EC2 refuses to
        terminate; each was asked for once. The second has all others that are left.
        """
        terminated_ids: frozenset[str] = frozenset()
        refusals: dict[str, str] = {}
        last_error: CloudError | None = None
        fruitless_rounds = 0
        deadline = self._clock.monotonic() + TERMINATE_SECONDS
        remaining_ids = list(ids)
        # Not `retry`: a round that terminated something is no failed try.
        while remaining_ids and fruitless_rounds < VERIFY_TRIES:
            terminated_before = len(terminated_ids)
            for start in range(0, len(remaining_ids), BATCH_SIZE):
                batch = remaining_ids[start : start + BATCH_SIZE]
                try:
                    terminated_ids |= self._cloud.terminate(batch)
                except SomeNotTerminated as error:
                    terminated_ids |= error.terminated
                    refusals |= {key: _text(item) for key, item in error.refused.items()}
                except CloudError as error:
                    last_error = error
                    if error.retryable:
                        break  # the other batches would get the same answer
            fruitless_rounds += len(terminated_ids) == terminated_before
            remaining_ids = [i for i in ids if i not in terminated_ids and i not in refusals]
            if self._clock.monotonic() >= deadline:
                break
            if remaining_ids and fruitless_rounds < VERIFY_TRIES:
                self._clock.sleep(VERIFY_PAUSE)
        self._launch_budget.record_terminations(terminated_ids, last_error)
        reason = _text(last_error) if last_error else "EC2 has not terminated it"
        return refusals, dict.fromkeys(remaining_ids, reason)


def _text(error: CloudError) -> str:
    return f"{error.code}: {error.message}"
