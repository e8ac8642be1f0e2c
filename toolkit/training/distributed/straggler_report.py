"""Report which rank keeps the others waiting, and the line of the script that it is at.

Ranks that wait for a missing one know only that time went by. They end ten minutes later with an
error that any network could cause. So each rank writes two things to the process group's store: how
many collectives it has entered, and where in the script it is. Rank 0 reports the missing ranks.
"""

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

_PATIENCE, _LOOKS = 60.0, 4  # seconds until the report, and the number of looks in that time
_NAMED = 4  # ranks in one message
_OWN = Path(__file__).parents[2]  # toolkit/, with the datasets
_LIBRARY = re.escape(str(Path(re.__file__).parents[1]))
_INSTALLED = re.compile(rf"/(?:site|dist)-packages/|^<frozen|^{_LIBRARY}/")
_TRAINERS = _OWN / "training" / "adapters"  # called by other people's loops


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The place of one rank, as the rank reports it."""

    rank: int
    met: int  # number of collectives that the rank has entered
    waits: float  # seconds so far in the last of them; 0 when the rank does not wait
    place: str  # lines of code, as `place_of` formats them
    own: bool  # the rank is inside the toolkit, at work for all (a save), and will come


@dataclass(frozen=True, slots=True)
class Absence:
    """A report that some ranks wait for others."""

    met: int  # number of the collective that the missing ranks have not entered
    text: str
    expected: bool  # as far as can be told, the missing ranks work for all


def absence(ranks: Sequence[Whereabouts], patience: float) -> Absence | None:
    """Return which ranks keep others waiting longer than `patience` seconds.

    None when there are none. Pure.
    """
    waiting = [one for one in ranks if one.waits >= patience]
    if not waiting:
        return None
    met = max(one.met for one in waiting)
    missing = [one for one in ranks if one.met < met]
    if not missing:
        return None
    first, last = waiting[0], max(waiting, key=lambda one: one.waits)
    named = ", ".join(f"rank {one.rank} at {one.place}" for one in missing[:_NAMED])
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    return Absence(
        met,
        f"{len(waiting)} of {len(ranks)} ranks wait for {last.waits:.0f} s"
        f" (rank {first.rank} at {first.place}); not come: {named}{more}",
        all(one.own for one in missing),
    )


class Watch:
    """The part of one rank in the report.

    `store` is torch's store, or None without one. `start` makes a thread that looks at it again and
    again.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        *,
        timeout: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._say, self._clock = say, clock
        self._patience = min(_PATIENCE, timeout / 4)
        self._met, self._since = 0, 0.0
        self._waits = False
        self._told, self._said = (0, ""), 0
        self._over = threading.Event()

    def start(self) -> None:
        if self._store is not None:
            threading.Thread(target=self._run, name="whereabouts", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def come(self) -> None:
        """Count a collective that this rank enters."""
        self._met += 1

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark this rank as waiting inside the block.

        A RuntimeError in the block gets the names of the missing ranks.
        """
        self._since, self._waits = self._clock(), True
        try:
            yield
        except RuntimeError as error:
            met, text = self._told
            if met != self._met:
                raise
            raise RuntimeError(f"{error}; {text}") from error
        finally:
            self._waits = False

    def look(self) -> None:
        """Write where this rank is, and find the missing ranks.

        Rank 0 finds them and writes a report, which the other ranks read.
        """
        waits = self._clock() - self._since if self._waits else 0.0
        place, own = place_of(sys._current_frames().get(threading.main_thread().ident or 0))  # noqa: SLF001  # the only way
        mine = Whereabouts(self._rank, self._met, waits, place, own)
        self._store.set(str(self._rank), json.dumps(asdict(mine)))
        if self._rank == 0:
            keys = [str(rank) for rank in range(self._size)]
            every = [Whereabouts(**json.loads(found)) for found in self._store.multi_get(keys)]
            if found := absence(every, self._patience):
                self._tell(found)
        elif waits >= self._patience and self._store.check(["absence"]):
            met, text = json.loads(self._store.get("absence"))
            self._told = (met, text)

    def _tell(self, found: Absence) -> None:
        self._told = (found.met, found.text)
        self._store.set("absence", json.dumps(self._told))
        if not found.expected and self._said != found.met:
            self._said = found.met
            self._say(found.text)

    def _run(self) -> None:
        while not self._over.wait(self._patience / _LOOKS):
            with suppress(Exception):  # a failed look costs a report, and no more
                self.look()


def place_of(frame: FrameType | None) -> tuple[str, bool]:
    """Return the lines of code where a thread is.

    They are the user's own line and the innermost one, joined in a text. Also returns whether the
    thread is in the toolkit. For a thread inside the toolkit they are the lines that called the
    toolkit.
    """
    stack: list[tuple[str, int, str]] = []
    while frame:
        stack.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    stack.reverse()  # the script first
    own = next((at for at, (path, *_) in enumerate(stack) if _is_own(path)), None)
    outside = stack[:own]
    if not outside:
        return "an unknown place", own is not None
    lines = [each for each in outside if not _is_installed(each[0])][-1:]
    if outside[-1] not in lines:
        lines.append(outside[-1])
    named = [f"{_short(path)}:{line} ({name})" for path, line, name in lines]
    return ", ".join(named), own is not None


def _is_installed(path: str) -> bool:
    return bool(_INSTALLED.search(path)) or Path(path).is_relative_to(_OWN)


def _is_own(path: str) -> bool:
    found = Path(path)
    return found.is_relative_to(_OWN) and not found.is_relative_to(_TRAINERS)


def _short(path: str) -> str:
    return "/".join(Path(path).parts[-2:])
