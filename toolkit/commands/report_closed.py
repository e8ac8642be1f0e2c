"""The report of a time, from closed days where there are any."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from slurmplugins.slurm.sacct import new_token
from toolkit.accounting import collect
from toolkit.accounting.allocation import Policy
from toolkit.accounting.phrases import moment
from toolkit.accounting.settings import contracts, cost_policy, racks
from toolkit.commands.own_store import check_account, own_store, warn_of_unknown_account
from toolkit.commands.report_sources import collect_report, sources_of
from toolkit.statements.errors import PeriodNotReady
from toolkit.usage import closed_store, database as databases
from toolkit.usage.closed_report import closed_report, split, summed_report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.cloudtrail import Trail
    from toolkit.accounting.report import Report
    from toolkit.accounting.segments import Segment
    from toolkit.config import ClusterConfig
    from toolkit.head_runner import Runner
    from toolkit.usage.closed_report import Split
    from toolkit.usage.cluster_store import ClusterStore


@contextmanager
def made_report(
    config_path: Path | None,
    config: ClusterConfig,
    window: Window,
    now: int,
    *,
    trail: Trail | None,
    anew: bool,
    needs_head: bool,
    sums_suffice: bool = False,
    stored_only: bool = False,
) -> Iterator[tuple[Report, Runner | None]]:
    """Yield the report of a window, and the head if known.

    AWS is not asked if all of the window is closed, unless the head is needed for more.
    CloudTrail's events are facts that no closed day has, so with them all is computed. If sums
    suffice, SQL adds closed days up, and the report is read before the block ends. With
    `stored_only` AWS is never asked: PeriodNotReady is raised for days that are not closed.
    """
    from toolkit.commands.controller import controller
    from toolkit.deploy.session import connected

    store = own_store(config)
    has_racks = bool(racks(config)) or config.site is not None
    always = has_racks or contracts(config).has_commitments
    closed = closed_store.ClosedDays() if anew or trail else closed_store.read(store)
    parts = split(closed, window, costs_always=always)
    if parts.is_closed and not needs_head:
        warn_of_unknown_account(store, config)
        if not sums_suffice:
            yield _report(store, closed, config, parts, now=now), None
            return
        with databases.opened() as database:
            summed = summed_report(database, store, closed, parts, now=now, cluster=config.cluster)
            yield summed or _report(store, closed, config, parts, now=now), None
        return
    if stored_only:
        raise PeriodNotReady(
            f"not all days from {moment(window.since)} to {moment(window.until)} are closed",
            next_step="`toolkit usage close` closes them",
        )
    with connected(config) as clients:
        check_account(store, config, clients)
        head = controller(clients, config)
        if not parts.days:
            yield (
                collect_report(
                    config_path, config, clients, head, window=window, now=now, trail=trail
                ),
                head,
            )
            return
        sources = sources_of(config_path, config, clients, head)
        yield _report(store, closed, config, parts, now=now, sources=sources), head


def _report(
    store: ClusterStore,
    closed: closed_store.ClosedDays,
    config: ClusterConfig,
    parts: Split,
    *,
    now: int,
    sources: collect.Sources | None = None,
) -> Report:
    def weighed(window: Window, matched_until: int) -> Segment:
        assert sources is not None  # noqa: S101  # a report that is wholly closed asks for none
        return collect.collect_segment(
            sources, window, now, new_token(), Policy(), matched_until=matched_until
        )

    return closed_report(
        store,
        closed,
        parts,
        now=now,
        cluster=config.cluster,
        policy=cost_policy(config),
        collect=weighed,
    )
