"""Pages of sacct, written to the bucket of records until all attempts are there.

A page is written before the place moves. A run that is killed in between writes the same attempts
again, and a reader takes the later page.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import SlurmUnreachable
from slurmplugins.head import sacct_windows
from slurmplugins.head.sacct_windows import MOST_CHARACTERS, SHORTEST_SPAN
from slurmplugins.model import records
from slurmplugins.slurm.sacct import delimiter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurmplugins.cloud.port import RecordStore
    from slurmplugins.head.sacct_windows import Moment, Place
    from slurmplugins.slurm.accounting import Accounting, Answer

MOST_PAGES: Final = 500
"""Windows of one run. The next run goes on."""


@dataclass(frozen=True, slots=True)
class PageWriter:
    """Writes pages of one cluster."""

    cluster: str
    accounting: Accounting
    store: RecordStore
    save: Callable[[Place], None]
    """Remembers the place. Raises OSError."""

    def run(self, place: Place, now: Moment) -> Place:
        """Write what is new; return the place that was reached.

        Raises SlurmError, CloudError or OSError, and may then be repeated.
        """
        # Asked before the first window: a row that comes later has a later end, or is in the next.
        is_settled = self.accounting.is_settled()
        slurm = self.accounting.version()
        since, place = sacct_windows.begin(place, now, is_settled=is_settled)
        for _ in range(MOST_PAGES):
            until = sacct_windows.window_end(since, place.span, now.wall)
            answer = self.accounting.window(since, sacct_windows.asked_end(until, now.wall))
            is_too_much = answer is None or len(answer.text) > MOST_CHARACTERS
            if is_too_much and until - since > SHORTEST_SPAN:
                place = replace(place, span=max((until - since) // 2, SHORTEST_SPAN))
                continue
            if answer is None:
                raise SlurmUnreachable(
                    f"sacct can't read {until - since} s from {records.stamp(since)} on: it takes"
                    " too long, or needs too much memory"
                )
            place = self._store(place, answer, (since, until), slurm, now, is_settled=is_settled)
            if until >= now.wall:
                break
            since = until
        return place

    def _store(
        self,
        place: Place,
        answer: Answer,
        window: tuple[int, int],
        slurm: str,
        now: Moment,
        *,
        is_settled: bool,
    ) -> Place:
        """Write one page, and what a last window lacks; return the place."""
        since, until = window
        rows, is_last = answer.rows(), until >= now.wall
        if rows or is_last:  # an empty page tells that nothing ran, up to now
            self._put(answer, rows, window, slurm, now)
        missing = sacct_windows.vanished(place, rows) if is_last else {}
        place = sacct_windows.after_page(place, rows, until, is_settled=is_settled)
        if missing:
            ended = self._store_missing(missing, until, slurm, now)
            kept = {key: job for key, job in place.open_jobs.items() if key not in ended}
            place = replace(place, open_jobs=kept)
        if until - since >= place.span:
            place = replace(place, span=sacct_windows.grown(place.span, len(answer.text)))
        self.save(place)
        return place

    def _store_missing(
        self, missing: Mapping[str, str], until: int, slurm: str, now: Moment
    ) -> set[str]:
        """Write attempts whose ends were set back.

        Returns those that will not come again. slurmdbd has purged those that no answer has.
        """
        gone = set(missing)
        for answer in self.accounting.jobs(sorted(set(missing.values())), until):
            rows = answer.rows()
            open_keys = {row["DBIndex"] for row in rows if sacct_windows.ended(row) is None}
            gone -= open_keys
            if any(row["DBIndex"] in missing and row["DBIndex"] not in open_keys for row in rows):
                first = sacct_windows.earliest_submission(rows, until)
                self._put(answer, rows, (min(first, until), until), slurm, now)
        return gone

    def _put(
        self,
        answer: Answer,
        rows: list[dict[str, str]],
        window: tuple[int, int],
        slurm: str,
        now: Moment,
    ) -> None:
        since, until = window
        call = {"slurm": slurm, "fields": answer.names, "delimiter": delimiter(answer.token)}
        header = records.first_line("sacct", self.cluster, window, now.wall, **call)
        body = records.pack(header, answer.text)
        first = sacct_windows.earliest_submission(rows, until)
        self.store.add(records.sacct_key(since, until, min(first, until), body), body)
