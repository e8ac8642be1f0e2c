"""Make the ranks agree at the boundaries of their loops, by one sum each.

Every call has 15 bits of the sum's last number, in which its ranks are counted. Ranks that make
different calls see it there, instead of waiting for a sum that the others never start.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from toolkit.training.distributed.process_group import World
from toolkit.training.sample_order import fingerprint

T = TypeVar("T")

_BITS = 15


class _Call(IntEnum):
    """A call that a rank has made."""

    STEP = 0
    CHECK = 1
    CHECKED = 2  # the rank has nothing left to check, and waits for the other ranks
    FINISH = 3


_TOGETHER = {
    _Call.STEP: {_Call.STEP},
    _Call.CHECK: {_Call.CHECK, _Call.CHECKED},
    _Call.CHECKED: {_Call.CHECK, _Call.CHECKED},
    _Call.FINISH: {_Call.FINISH},
}
_NAMES = {
    _Call.STEP: "run.step",
    _Call.CHECK: "run.check",
    _Call.CHECKED: "the end of run.checked",
    _Call.FINISH: "run.finish",
}


@dataclass(frozen=True, slots=True)
class Agreed:
    """The result of a boundary, the same on all ranks."""

    stop: bool  # a rank has a stop request
    save: bool  # a save is due
    checking: bool  # a rank has more to check
    samples: int = 0  # number of samples of the step, over all ranks
    prints: int = 0  # sum of the ranks' fingerprints of them (sample_order.fingerprint)


_NOTHING = Agreed(stop=False, save=False, checking=False)


class Boundaries:
    """The boundaries of one run's loops.

    All ranks make the same calls; otherwise ValueError is raised. `asked` returns whether this rank
    has a stop request, `leave` ends the run.
    """

    def __init__(
        self, world: World, *, asked: Callable[[], bool], leave: Callable[[], None]
    ) -> None:
        self._world, self._asked, self._leave = world, asked, leave
        self._pending: Callable[[], Agreed] | None = None
        self._checking = False  # True while a loop that does not train may go on on another rank

    def start_step(self, mine: Any, *, late: bool, then: Callable[[Agreed], None]) -> None:
        """Start the sum of a step that took the samples `mine`.

        `settle` reads the sum, and then calls `then` with it. `late` means that a save is due.
        """
        asked = self._world.local_rank == 0 and self._asked()
        total = self._start(_Call.STEP, mine, asked=asked, late=late)

        def settle() -> Agreed:
            agreed = total()
            then(agreed)
            return agreed

        self._pending = settle

    def settle(self) -> Agreed:
        """Read the last step's sum, unless it has been read."""
        pending, self._pending = self._pending, None
        return pending() if pending else _NOTHING

    def check(self) -> None:
        """Call `leave` if any rank has a stop request.

        For loops that do not train.
        """
        self._check(_Call.CHECK)

    def checked(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, with a `check` after each.

        After the last one it joins the checks of the other ranks.
        """
        self._checking = True
        for item in items:
            yield item
            self.check()
        self.end_checks()

    def end_checks(self, *, over: bool = False) -> None:
        """Wait for the ranks that have more to check than this one.

        It returns at once when no rank checks. `over` means that this rank has nothing more to do
        that a stop could save.
        """
        while self._checking:
            self._check(_Call.CHECKED, asks=not over)

    def finish(self) -> None:
        """Agree that every rank is at the end of its script's loops."""
        self.end_checks(over=True)
        self.settle()
        self._start(_Call.FINISH)()

    def _check(self, call: _Call, *, asks: bool = True) -> None:
        stop = self.settle().stop
        agreed = self._start(call, asked=asks and self._asked())()
        self._checking = agreed.checking
        if agreed.stop or stop:
            self._leave()

    def _start(
        self, call: _Call, mine: Any = (), *, asked: bool = False, late: bool = False
    ) -> Callable[[], Agreed]:
        values = (int(asked), int(late), len(mine), fingerprint(mine), 1 << _BITS * call)
        total = self._world.start_sum(values)

        def read() -> Agreed:
            stop, save, samples, prints, calls = total()
            made = {each: calls >> _BITS * each & (1 << _BITS) - 1 for each in _Call}
            _refuse_others(call, {each: ranks for each, ranks in made.items() if ranks})
            return Agreed(stop > 0, save > 0, made[_Call.CHECK] > 0, samples, prints)

        return read


def _refuse_others(call: _Call, made: dict[_Call, int]) -> None:
    if not made.keys() <= _TOGETHER[call]:
        found = ", ".join(f"{ranks} in {_NAMES[each]}" for each, ranks in made.items())
        raise ValueError(
            f"the ranks are at different places of the script: {found}. All make the same calls;"
            " a loop that is longer on one rank than on another is `for item in run.checked(items)`"
        )
