"""Terminate instances: write the decision down first, call EC2 in batches, verify the result."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import CloudError, NotAllEnded, StateError
from slurmplugins.model.actions import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from slurmplugins.cloud.port import Cloud
    from slurmplugins.model.actions import Terminate
    from slurmplugins.model.instance import EndCause
    from slurmplugins.state.journal import Journal
    from slurmplugins.state.launch_budget_file import Brake
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log

VERIFY_TRIES: Final = 3
VERIFY_PAUSE: Final = 2.0
"""Seconds between two rounds. EC2's first answer already has the new state. Another round is for
throttles and lost answers."""

END_BATCH: Final = 200
"""Instances in one call. EC2 takes 1,000, but a throttled call terminates none of them."""

END_SECONDS: Final = 120.0
"""Seconds that one program goes on. The reconcile timer's pass may take 300 s in all."""


class Ends:
    """Terminates instances and verifies that EC2 did so. Safe to repeat."""

    def __init__(
        self, cloud: Cloud, journal: Journal, clock: Clock, log: Log, brake: Brake
    ) -> None:
        self._cloud = cloud
        self._journal = journal
        self._clock = clock
        self._log = log
        self._brake = brake

    def run(self, actions: Sequence[Terminate]) -> list[Outcome]:
        """Terminate these instances, with one outcome for each.

        An outcome without an error means that the instance is over. `refused` marks instances that
        EC2 refuses to terminate.
        """
        by_cause: dict[EndCause, list[Terminate]] = defaultdict(list)
        for action in actions:
            by_cause[action.cause].append(action)
        for cause, group in by_cause.items():
            try:
                self._journal.condemn([item.instance.id for item in group], cause)
            except StateError as error:  # the ledger will lack the cause; the money matters more
                self._log.problem("journal", message=error.message)
        for action in actions:
            machine = action.instance
            self._log.info(
                "terminate",
                instance=machine.id,
                node=machine.node,
                cause=action.cause,
                why=action.why,
            )
        kept, left = self._until_over([item.instance.id for item in actions])
        said = left | kept
        return [
            Outcome(item, said.get(item.instance.id, ""), refused=item.instance.id in kept)
            for item in actions
        ]

    def _until_over(self, ids: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Terminate batch by batch, and repeat while that helps.

        The rest is left to reconcile's next pass. A round that terminated an instance does not
        count as a try. EC2 terminates a thousand at once and then twenty a second, so a large
        suspend goes on at that pace.

        Returns two maps from instance id to reason. The first has instances that EC2 refuses to
        terminate; each was asked for once. The second has all others that are left.
        """
        over: frozenset[str] = frozenset()
        kept: dict[str, str] = {}
        refusal: CloudError | None = None
        fruitless = 0
        deadline = self._clock.monotonic() + END_SECONDS
        while (left := _left(ids, over, kept)) and fruitless < VERIFY_TRIES:
            before = len(over)
            for start in range(0, len(left), END_BATCH):
                try:
                    over |= self._cloud.terminate(left[start : start + END_BATCH])
                except NotAllEnded as error:
                    over |= error.over
                    kept |= {key: f"{one.code}: {one.message}" for key, one in error.kept.items()}
                except CloudError as error:
                    refusal = error
                    if error.retryable:
                        break  # the other batches would get the same answer
            fruitless += len(over) == before
            if self._clock.monotonic() >= deadline:
                break
            if _left(ids, over, kept) and fruitless < VERIFY_TRIES:
                self._clock.sleep(VERIFY_PAUSE)
        self._brake.heard(over, refusal)
        problem = "still there" if refusal is None else f"{refusal.code}: {refusal.message}"
        return kept, dict.fromkeys(_left(ids, over, kept), problem)


def _left(ids: Sequence[str], over: Collection[str], kept: Collection[str]) -> list[str]:
    return [item for item in ids if item not in over and item not in kept]
