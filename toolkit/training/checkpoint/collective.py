"""Run work on one rank or on all, and raise its failure on all of them.

Every function is collective, and no rank is left waiting. Superseded goes before every other
failure: the run then belongs to another attempt.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from toolkit.training.distributed.process_group import ProcessGroup
from toolkit.training.errors import (
    CheckpointFailed,
    CheckpointUnreadable,
    Corrupt,
    Superseded,
    Unreadable,
)
from toolkit.training.io.durable_files import ABSENT

T = TypeVar("T")


_GRAVEST_FIRST: Sequence[type[Exception]] = (Superseded, CheckpointUnreadable, CheckpointFailed)


@dataclass(frozen=True, slots=True)
class _Problem:
    """A rank's failure, as it travels to the other ranks."""

    text: str
    kind: type[Exception]


def rank0_only(world: ProcessGroup, work: Callable[[], T]) -> T:
    """Run `work` on rank 0.

    Returns its result, or raises its failure, on every rank.
    """
    outcome: tuple[Any, _Problem | None] = (None, None)
    if world.rank == 0:
        outcome = _capture(work)
    result, problem = world.broadcast(outcome)
    _raise_any([problem])
    return result  # type: ignore[no-any-return]


def all_ranks(world: ProcessGroup, work: Callable[[], T]) -> list[T]:
    """Run `work` on every rank.

    Returns all the results on every rank, or raises one failure on all.
    """
    outcomes = world.gather(_capture(work))
    _raise_any([problem for _, problem in outcomes])
    return [result for result, _ in outcomes]


def all_ranks_local(world: ProcessGroup, work: Callable[[], T]) -> T:
    """Run `work` on every rank, and return this rank's own result.

    Like `all_ranks`, for results that can't be sent.
    """
    result, problem = _capture(work)
    _raise_any(world.gather(problem))
    return result  # type: ignore[return-value]  # without a problem there is a result


def unreadable_on_error(
    work: Callable[[], T], *, error_class: type[Exception] = OSError
) -> Callable[[], T]:
    """Wrap reading work: an error that proves no damage becomes Unreadable.

    `error_class` is the class of such errors. Errors for a missing file stay: absence is a proof.
    """

    def call() -> T:
        try:
            return work()
        except (Corrupt, Unreadable, Superseded, *ABSENT):
            raise
        except error_class as error:
            raise Unreadable(f"{type(error).__name__}: {error}") from error

    return call


def _capture(work: Callable[[], T]) -> tuple[T | None, _Problem | None]:
    # Everything is caught: a rank that raised alone would leave the others waiting for it.
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001  # sent to every rank and raised there
        self_explanatory = isinstance(error, Corrupt | Unreadable | Superseded)
        text = str(error) if self_explanatory else f"{type(error).__name__}: {error}"
        return None, _Problem(text, _error_class(error))


def _error_class(error: Exception) -> type[Exception]:
    if isinstance(error, Superseded):
        return Superseded
    return CheckpointUnreadable if isinstance(error, Unreadable) else CheckpointFailed


def _raise_any(problems: Sequence[_Problem | None]) -> None:
    failures = [problem for problem in problems if problem is not None]
    if failures:
        kind = min((item.kind for item in failures), key=_GRAVEST_FIRST.index)
        raise kind("; ".join(sorted({item.text for item in failures})))
