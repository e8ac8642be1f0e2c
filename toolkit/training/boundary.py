"""The end of a step, where the ranks agree: what they took, whether to save, whether to stop.

It is one sum of four integers a step, started at the end of the step and read at the end of the
next: training does not wait for it.
"""

from collections.abc import Callable

from toolkit.training.data import Batch, fingerprint
from toolkit.training.world import World


class Boundary:
    """Every rank makes the same calls. What the ranks agreed on so far is in `save`.

    `asked`: whether this rank has seen a stop request. `overdue`: whether by its clock it is time
    to save; rank 0's counts.
    """

    def __init__(
        self, world: World, *, asked: Callable[[], bool], overdue: Callable[[], bool]
    ) -> None:
        self._world, self._asked, self._overdue = world, asked, overdue
        self._pending: Callable[[], bool] | None = None
        self.save = False

    def start(self, batch: Batch, note: Callable[[int, int], object]) -> None:
        """Tell all ranks what this one took. `note` will be told what all of them say they did."""
        asked = self._world.local_rank == 0 and self._asked()
        late = self._world.rank == 0 and self._overdue()
        total = self._world.start_sum([asked, late, len(batch.mine), fingerprint(batch.mine)])

        def settle() -> bool:
            stop, save, samples, prints = total()
            self.save |= save > 0
            note(samples, prints)
            return stop > 0

        self._pending = settle

    def settle(self) -> bool:
        """Read the last step's sum, if it has not been: whether any rank saw a stop request."""
        pending, self._pending = self._pending, None
        return pending() if pending else False
