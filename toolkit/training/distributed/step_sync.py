"""Make the ranks agree at the boundaries of their loops, by one sum each.

Every call has 15 bits of the sum's last number, in which its ranks are counted. Ranks that make
different calls see it there, instead of waiting for a sum that the others never start.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from toolkit.training.distributed.process_group import ProcessGroup
from toolkit.training.sample_order import fingerprint

T = TypeVar("T")

_BITS = 15


class _Call(IntEnum):
    """A call that a rank has made."""

    STEP = 0
    CHECK = 1
    CHECKED = 2  # the rank has nothing left to check, and waits for the other ranks
    FINISH = 3


_COMPATIBLE = {
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
class Agreement:
    """The result of a boundary, the same on all ranks."""

    stop: bool  # a rank has a stop request
    save: bool  # a save is due
    is_checking: bool  # a rank has more to check
    samples: int = 0  # number of samples of the step, over all ranks
    fingerprints: int = 0  # sum of the ranks' fingerprints of them (sample_order.fingerprint)


_NO_AGREEMENT = Agreement(stop=False, save=False, is_checking=False)


class StepSync:
    """The boundaries of one run's loops.

    All ranks make the same calls; otherwise ValueError is raised. `stop_requested` returns whether
    this rank has a stop request, `leave` ends the run.
    """

    def __init__(
        self, world: ProcessGroup, *, stop_requested: Callable[[], bool], leave: Callable[[], None]
    ) -> None:
        self._world, self._stop_requested, self._leave = world, stop_requested, leave
        self._pending: Callable[[], Agreement] | None = None
        self._is_checking = False  # True while a loop that does not train may go on on another rank

    def start_step(
        self, own_samples: Any, *, save_due: bool, on_agreement: Callable[[Agreement], None]
    ) -> None:
        """Start the sum of a step that took `own_samples`.

        `await_agreement` reads the sum, and then calls `on_agreement` with it.
        """
        stop_requested = self._world.local_rank == 0 and self._stop_requested()
        total = self._start(
            _Call.STEP, own_samples, stop_requested=stop_requested, save_due=save_due
        )

        def read() -> Agreement:
            agreement = total()
            on_agreement(agreement)
            return agreement

        self._pending = read

    def await_agreement(self) -> Agreement:
        """Read the last step's sum, unless it has been read."""
        pending, self._pending = self._pending, None
        return pending() if pending else _NO_AGREEMENT

    def check(self) -> None:
        """Call `leave` if any rank has a stop request.

        For loops that do not train.
        """
        self._check(_Call.CHECK)

    def checked(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, with a `check` after each.

        After the last one it joins the checks of the other ranks.
        """
        self._is_checking = True
        for item in items:
            yield item
            self.check()
        self.end_checks()

    def end_checks(self, *, at_end: bool = False) -> None:
        """Wait for the ranks that have more to check than this one.

        It returns at once when no rank checks. `at_end` means that this rank has nothing more to do
        that a stop could save.
        """
        while self._is_checking:
            self._check(_Call.CHECKED, may_stop=not at_end)

    def finish(self) -> None:
        """Agree that every rank is at the end of its script's loops."""
        self.end_checks(at_end=True)
        self.await_agreement()
        self._start(_Call.FINISH)()

    def _check(self, call: _Call, *, may_stop: bool = True) -> None:
        stop = self.await_agreement().stop
        agreement = self._start(call, stop_requested=may_stop and self._stop_requested())()
        self._is_checking = agreement.is_checking
        if agreement.stop or stop:
            self._leave()

    def _start(
        self,
        call: _Call,
        own_samples: Any = (),
        *,
        stop_requested: bool = False,
        save_due: bool = False,
    ) -> Callable[[], Agreement]:
        values = (
            int(stop_requested),
            int(save_due),
            len(own_samples),
            fingerprint(own_samples),
            1 << _BITS * call,
        )
        total = self._world.start_sum(values)

        def read() -> Agreement:
            stop, save, samples, fingerprints, calls = total()
            ranks_by_call = {kind: calls >> _BITS * kind & (1 << _BITS) - 1 for kind in _Call}
            _refuse_other_calls(call, {kind: n for kind, n in ranks_by_call.items() if n})
            is_checking = ranks_by_call[_Call.CHECK] > 0
            return Agreement(stop > 0, save > 0, is_checking, samples, fingerprints)

        return read


def _refuse_other_calls(call: _Call, ranks_by_call: dict[_Call, int]) -> None:
    if not ranks_by_call.keys() <= _COMPATIBLE[call]:
        places = ", ".join(f"{ranks} in {_NAMES[kind]}" for kind, ranks in ranks_by_call.items())
        raise ValueError(
            f"the ranks are at different places of the script: {places}. All ranks must make the"
            " same calls. For a loop of unequal length use `for item in run.checked(items)`."
        )
