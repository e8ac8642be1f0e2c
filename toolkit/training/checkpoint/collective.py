"""Work that one rank or every rank does, and whose failure is everyone's: no rank is left waiting.

Every function is collective. Superseded goes before every other failure: the run is another's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from toolkit.training.attempt.fencing import Superseded
from toolkit.training.checkpoint.hashed_file import Corrupt
from toolkit.training.checkpoint.hashes import Unreadable
from toolkit.training.distributed.process_group import World
from toolkit.training.io.durable_files import ABSENT

T = TypeVar("T")


class CheckpointFailed(Exception):  # noqa: N818  # says what happened
    """A save or load failed on at least one rank; raised on all, with every rank's reason."""


class CheckpointUnreadable(CheckpointFailed):
    """A checkpoint may be good, and can't be told to be here: no older one may take its place."""


_GRAVEST: Sequence[type[Exception]] = (Superseded, CheckpointUnreadable, CheckpointFailed)


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why a rank failed, as the others are told."""

    text: str
    kind: type[Exception]


def on_rank_0(world: World, work: Callable[[], T]) -> T:
    """Do it on rank 0; its result, or its failure, is everyone's."""
    outcome: tuple[Any, _Problem | None] = (None, None)
    if world.rank == 0:
        outcome = _attempt(work)
    result, problem = world.broadcast(outcome)
    _raise_any([problem])
    return result  # type: ignore[no-any-return]


def everywhere(world: World, work: Callable[[], T]) -> list[T]:
    """Do it on every rank; all the results, or one failure for all."""
    outcomes = world.gather(_attempt(work))
    _raise_any([problem for _, problem in outcomes])
    return [result for result, _ in outcomes]


def everywhere_own(world: World, work: Callable[[], T]) -> T:
    """As `everywhere`, for results that don't travel: each rank keeps its own."""
    result, problem = _attempt(work)
    _raise_any(world.gather(problem))
    return result  # type: ignore[return-value]  # there is one when there is no problem


def reading(work: Callable[[], T], *, unproven: type[Exception] = OSError) -> Callable[[], T]:
    """Work for the others, none of whose `unproven` errors tells of damage, but what is absent."""

    def call() -> T:
        try:
            return work()
        except (Corrupt, Unreadable, Superseded, *ABSENT):
            raise
        except unproven as error:
            raise Unreadable(f"{type(error).__name__}: {error}") from error

    return call


def _attempt(work: Callable[[], T]) -> tuple[T | None, _Problem | None]:
    # Everything is caught: a rank that raised alone would leave the others waiting for it.
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001  # told to every rank and raised there
        said = isinstance(error, Corrupt | Unreadable | Superseded)
        text = str(error) if said else f"{type(error).__name__}: {error}"
        return None, _Problem(text, _kind(error))


def _kind(error: Exception) -> type[Exception]:
    if isinstance(error, Superseded):
        return Superseded
    return CheckpointUnreadable if isinstance(error, Unreadable) else CheckpointFailed


def _raise_any(problems: Sequence[_Problem | None]) -> None:
    found = [problem for problem in problems if problem is not None]
    if found:
        kind = min((item.kind for item in found), key=_GRAVEST.index)
        raise kind("; ".join(sorted({item.text for item in found})))
