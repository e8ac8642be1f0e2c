"""Repeat a call that failed, with a pause before each repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from slurmplugins.system.clock import Clock

_Result = TypeVar("_Result")
_Error = TypeVar("_Error", bound=Exception)


def retry(
    call: Callable[[], _Result],
    on: type[_Error] | tuple[type[_Error], ...],
    pauses: Iterable[float],
    clock: Clock,
    *,
    failed: Callable[[_Error], None] = lambda _: None,
    repeats: Callable[[_Error], bool] = lambda _: True,
) -> _Result:
    """Return the call's result; repeat it after an error of type `on`.

    Each repeat waits for the next of `pauses`, in seconds. `failed` is called with each error.
    Raises the error when no pause is left, or when `repeats` is false for it.
    """
    next_pauses = iter(pauses)
    while True:
        try:
            return call()
        except on as error:
            failed(error)
            if not repeats(error) or (pause := next(next_pauses, None)) is None:
                raise
            clock.sleep(pause)


def doubling(first: float, tries: int) -> Iterator[float]:
    """Yield the pauses between `tries` tries; each is twice the one before."""
    return (first * 2.0**index for index in range(tries - 1))


def jittered(pauses: Iterable[float]) -> Iterator[float]:
    """Yield each pause, randomly shorter or longer by up to a half."""
    from random import random  # most programs need no repeat, and so no random numbers

    for pause in pauses:
        yield pause * (0.5 + random())  # noqa: S311 - no secret
