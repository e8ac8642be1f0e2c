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

_REPORT_AFTER = 60.0  # seconds of waiting
_LOOKS_PER_REPORT = 4  # looks in that time
_MOST_NAMED = 4  # ranks in one message
_TOOLKIT_FOLDER = Path(__file__).parents[2]  # toolkit/, with the datasets
_LIBRARY = re.escape(str(Path(re.__file__).parents[1]))
_INSTALLED = re.compile(rf"/(?:site|dist)-packages/|^<frozen|^{_LIBRARY}/")
_TRAINERS = _TOOLKIT_FOLDER / "training" / "adapters"  # called by other people's loops


@dataclass(frozen=True, slots=True)
class RankStatus:
    """The place of one rank, as the rank reports it."""

    rank: int
    met: int  # number of collectives that the rank has entered
    waits: float  # seconds so far in the last of them; 0 when the rank does not wait
    place: str  # lines of code, as `place_of` formats them
    own: bool  # the rank is inside the toolkit, at work for all (a save), and will come


@dataclass(frozen=True, slots=True)
class MissingRanks:
    """A report that some ranks wait for others."""

    collective: int  # number of the collective that the missing ranks have not entered
    text: str
    is_expected: bool  # as far as can be told, the missing ranks work for all


def find_missing_ranks(ranks: Sequence[RankStatus], report_after: float) -> MissingRanks | None:
    """Return which ranks keep others waiting longer than `report_after` seconds.

    None when there are none. Pure.
    """
    waiting = [status for status in ranks if status.waits >= report_after]
    if not waiting:
        return None
    collective = max(status.met for status in waiting)
    missing = [status for status in ranks if status.met < collective]
    if not missing:
        return None
    first, longest = waiting[0], max(status.waits for status in waiting)
    names = ", ".join(f"rank {status.rank} at {status.place}" for status in missing[:_MOST_NAMED])
    rest = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    return MissingRanks(
        collective,
        f"{len(waiting)} of {len(ranks)} ranks have waited {longest:.0f} s"
        f" (rank {first.rank} at {first.place}); missing: {names}{rest}",
        all(status.own for status in missing),
    )


class RankWatch:
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
        log_line: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._log_line, self._clock = log_line, clock
        self._report_after = min(_REPORT_AFTER, timeout / 4)
        self._collectives, self._wait_start = 0, 0.0
        self._is_waiting = False
        self._report, self._last_reported = (0, ""), 0
        self._stop_event = threading.Event()

    def start(self) -> None:
        if self._store is not None:
            threading.Thread(
                target=self._exchange_repeatedly, name="straggler-report", daemon=True
            ).start()

    def stop(self) -> None:
        self._stop_event.set()

    def count_collective(self) -> None:
        """Count a collective that this rank enters."""
        self._collectives += 1

    @contextmanager
    def mark_waiting(self) -> Iterator[None]:
        """Mark this rank as waiting inside the block.

        A RuntimeError in the block gets the names of the missing ranks.
        """
        self._wait_start, self._is_waiting = self._clock(), True
        try:
            yield
        except RuntimeError as error:
            collective, text = self._report
            if collective != self._collectives:
                raise
            raise RuntimeError(f"{error}; {text}") from error
        finally:
            self._is_waiting = False

    def exchange_status(self) -> None:
        """Write where this rank is, and find the missing ranks.

        Rank 0 finds them and writes a report, which the other ranks read.
        """
        wait_seconds = self._clock() - self._wait_start if self._is_waiting else 0.0
        place, in_toolkit = place_of(sys._current_frames().get(threading.main_thread().ident or 0))  # noqa: SLF001  # the only way
        own_status = RankStatus(self._rank, self._collectives, wait_seconds, place, in_toolkit)
        self._store.set(str(self._rank), json.dumps(asdict(own_status)))
        if self._rank == 0:
            keys = [str(rank) for rank in range(self._size)]
            statuses = [
                RankStatus(**json.loads(missing_ranks))
                for missing_ranks in self._store.multi_get(keys)
            ]
            if missing_ranks := find_missing_ranks(statuses, self._report_after):
                self._publish(missing_ranks)
        elif wait_seconds >= self._report_after and self._store.check(["absence"]):
            collective, text = json.loads(self._store.get("absence"))
            self._report = (collective, text)

    def _publish(self, missing_ranks: MissingRanks) -> None:
        self._report = (missing_ranks.collective, missing_ranks.text)
        self._store.set("absence", json.dumps(self._report))
        if not missing_ranks.is_expected and self._last_reported != missing_ranks.collective:
            self._last_reported = missing_ranks.collective
            self._log_line(missing_ranks.text)

    def _exchange_repeatedly(self) -> None:
        while not self._stop_event.wait(self._report_after / _LOOKS_PER_REPORT):
            with suppress(Exception):  # a failed look costs a report, and no more
                self.exchange_status()


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
    first_toolkit_frame = next(
        (at for at, (path, *_) in enumerate(stack) if _is_toolkit(path)), None
    )
    outside = stack[:first_toolkit_frame]
    if not outside:
        return "an unknown place", first_toolkit_frame is not None
    lines = [each for each in outside if not _is_installed(each[0])][-1:]
    if outside[-1] not in lines:
        lines.append(outside[-1])
    places = [f"{_short(path)}:{line} ({name})" for path, line, name in lines]
    return ", ".join(places), first_toolkit_frame is not None


def _is_installed(path: str) -> bool:
    return bool(_INSTALLED.search(path)) or Path(path).is_relative_to(_TOOLKIT_FOLDER)


def _is_toolkit(path: str) -> bool:
    file = Path(path)
    return file.is_relative_to(_TOOLKIT_FOLDER) and not file.is_relative_to(_TRAINERS)


def _short(path: str) -> str:
    return "/".join(Path(path).parts[-2:])
