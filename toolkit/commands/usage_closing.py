"""A run of `toolkit usage close`, and what `toolkit usage status` says of clusters."""

from __future__ import annotations

import gc
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from slurmplugins.slurm.sacct import new_token
from toolkit.accounting import collect
from toolkit.accounting.days import day_of
from toolkit.bill import record
from toolkit.bill.history import history
from toolkit.output import print_json
from toolkit.usage import close_days, closed_store, origin, show_closed
from toolkit.usage.cluster_store import ClusterStore, cluster_folder, known_clusters
from toolkit.usage.read_records import ReadResult, Source, read_new

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from toolkit.accounting.collect import Sources
    from toolkit.usage.close_days import DayResult, Plan

_FEW_COLLECTIONS = 100_000
"""New values between two looks for garbage; Python's own number is 700."""


class ClosingRun:
    """A run of the command. `results` are the days that were written.

    `profile` is whose credentials it has, with its AWS account; the store keeps them.
    """

    def __init__(
        self,
        store: ClusterStore,
        sources: Sources,
        region: str,
        *,
        dry_run: bool,
        profile: tuple[str, str] = ("", ""),
    ) -> None:
        self._store, self._sources, self._region = store, sources, region
        self._profile = profile
        self._dry_run = dry_run
        self._now = int(datetime.now(UTC).timestamp())
        self._read = ReadResult()
        self._plan: Plan | None = None
        self.results: list[DayResult] = []

    def run(self, through: int | None, again_from: int | None, *, whole: bool) -> None:
        """Read new records, then plan and write the days."""
        with _few_collections(), nullcontext() if self._dry_run else self._store.working():
            self.read(whole=whole)
            self.close(through, again_from)

    def read(self, *, whole: bool) -> None:
        """Read new records into the store."""
        sources = self._sources
        source = Source(sources.s3, sources.records_bucket, sources.slurm_name, self._region)
        if self._dry_run:
            origin.check(self._store, self._region, source.bucket)
        else:
            origin.keep(self._store, self._region, source.bucket, *self._profile)
        self._read = read_new(self._store, source, self._now, whole=whole, dry_run=self._dry_run)

    def close(self, through: int | None, again_from: int | None) -> None:
        """Plan the days, and write them."""
        reach = close_days.reach_of(self._store, collect.settled(self._sources))
        if self._dry_run and reach is None:
            return  # nothing was ever read, and this run reads nothing
        sources = self._sources
        self._plan = close_days.plan(
            self._store, sources, reach, through=through, again_from=again_from
        )
        if not self._dry_run:
            status = status_of(sources.cluster)
            self.results += close_days.execute(
                self._store, sources, self._plan, now=self._now, token=new_token, status=status
            )

    def show(self, *, as_json: bool) -> None:
        """Print what was read, planned and written."""
        if as_json:
            print_json(
                {
                    "store": str(self._store.folder),
                    "records": show_closed.read_json(self._read),
                    "plan": None if self._plan is None else show_closed.plan_json(self._plan),
                    "days": [show_closed.result_json(item) for item in self.results],
                }
            )
            return
        click.echo(show_closed.read_text(self._read, dry_run=self._dry_run))
        if self._plan is None:
            return
        if self._dry_run:
            click.echo(show_closed.plan_text(self._plan))
            return
        for item in self.results:
            click.echo(show_closed.result_text(item))
        if not self.results:
            click.echo("nothing to close or to correct")
        for line in show_closed.settings_lines(self._plan):
            click.echo(line, err=True)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let Python look for circular garbage seldom.

    A closing makes very many values and no circles. To look for them takes a tenth of its time.
    """
    known = gc.get_threshold()
    gc.set_threshold(_FEW_COLLECTIONS, *known[1:])
    try:
        yield
    finally:
        gc.set_threshold(*known)


def status_of(cluster: str) -> Callable[[int], str]:
    """Return the function that tells a day's status against AWS's bill."""
    known = history(record.read_entries(record.record_path(record.default_folder(), cluster)))
    return lambda day: known.status(day_of(day)).value


def clusters_status(root: Path) -> list[dict[str, Any]]:
    """Return what the stores of clusters have, as JSON values."""
    found = []
    for cluster in known_clusters(root):
        store = ClusterStore(cluster_folder(cluster, root))
        closed = closed_store.read(store)
        status = status_of(cluster)
        found.append(
            show_closed.cluster_json(
                cluster, store.records(), closed, {day: status(day) for day in closed.days}
            )
        )
    return found
