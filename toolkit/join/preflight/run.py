"""Runs the preflight of a join: asks, measures and checks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from toolkit.join.preflight import racks
from toolkit.join.preflight.checks import site_checks
from toolkit.join.preflight.connections import Target, measure
from toolkit.join.preflight.facts import Rack, Unanswered
from toolkit.join.preflight.findings import SiteCheck
from toolkit.join.preflight.questions import Questions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.preflight.facts import PreflightFacts, Side
    from toolkit.join.preflight.racks import RackRunner
    from toolkit.join.site import SiteFacts, SiteRunner
    from toolkit.output import Reporter

NOT_MEASURED: Final = Unanswered(
    "the path through the tunnel",
    "no host in the subnets was named: start an instance there, and add --probe ADDRESS:22",
)
NO_RACK: Final = Unanswered("what job scripts need on racks", "no rack was named: add --rack HOST")
DATABASE_PORT: Final = 6819
CONTROLLER_PORT: Final = 6817
RESTATED_LISTS: Final = frozenset({"suspendexcnodes", "grestypes"})
"""Settings in our file that have the site's words and ours (include_files.global_settings)."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """The ways to measure: from the site, from an instance in the subnets, on racks."""

    probes: Sequence[Target] = ()
    instance: SiteRunner | None = None
    racks: Sequence[RackRunner] = ()


def check_site(
    runner: SiteRunner,
    site: SiteFacts,
    cloud: CloudSide,
    report: Reporter,
    measurements: Measurements | None = None,
    *,
    slurm_bin: str = "/usr/bin",
    joined: bool = False,
) -> SiteCheck:
    """Ask a site everything, and return every finding. It changes nothing.

    `site` is without our own file. With `joined`, slurmctld has our nodes already.
    """
    with report.phase("Asking the site") as phase:
        facts = Questions(runner, site, slurm_bin=slurm_bin).ask(cloud)
        if joined:
            facts = without_ours(facts, cloud)
        facts = _measured(runner, facts, measurements or Measurements())
        facts = _with_racks(facts, measurements.racks if measurements else ())
        name = site.cluster_name or "the site"
        result = SiteCheck(name, site_checks(facts, cloud), facts.unanswered)
        phase.result(result.sentence)
    return result


def without_ours(facts: PreflightFacts, cloud: CloudSide) -> PreflightFacts:
    """Return the facts as they would be without the join.

    slurmctld runs with our nodes, and with the lists that our file restates.
    """
    nodes = facts.nodes and tuple(item for item in facts.nodes if item.name not in set(cloud.nodes))
    running = {
        name: value for name, value in facts.site.running.items() if name not in RESTATED_LISTS
    }
    return replace(facts, nodes=nodes, site=replace(facts.site, running=running))


def _measured(
    runner: SiteRunner, facts: PreflightFacts, measurements: Measurements
) -> PreflightFacts:
    """Return the facts with what both sides measured."""
    runs: list[tuple[SiteRunner, Side, Sequence[Target]]] = []
    if measurements.probes:
        runs.append((runner, "site", measurements.probes))
    if measurements.instance is not None:
        runs.append((measurements.instance, "cloud", tuple(way_back(facts))))
    if not runs:
        return replace(facts, unanswered=(*facts.unanswered, NOT_MEASURED))
    for side_runner, side, targets in runs:
        result = measure(side_runner, side, targets)
        facts = replace(
            facts,
            connections=(*facts.connections, *result.connections),
            path_mtus=(*facts.path_mtus, *result.path_mtus),
            unanswered=(*facts.unanswered, *result.unanswered),
        )
    return facts


def _with_racks(facts: PreflightFacts, runners: Sequence[RackRunner]) -> PreflightFacts:
    """Return the facts with what racks answered."""
    answers = [racks.ask(runner) for runner in runners]
    unanswered = [item for item in answers if isinstance(item, Unanswered)]
    return replace(
        facts,
        racks=tuple(item for item in answers if isinstance(item, Rack)),
        unanswered=(*facts.unanswered, *(unanswered if runners else [NO_RACK])),
    )


def way_back(facts: PreflightFacts) -> Iterator[Target]:
    """Yield what nodes connect to: each controller, and slurmdbd."""
    port = (facts.value("SlurmctldPort") or str(CONTROLLER_PORT)).partition("-")[0]
    for key, value in facts.site.running.items():
        if key.startswith("slurmctldhost"):
            name, _, stated = value.partition("(")
            yield from _target(stated.rstrip(")") or name, port)
    if facts.value("AccountingStorageType") == "accounting_storage/slurmdbd":
        port = facts.value("AccountingStoragePort") or str(DATABASE_PORT)
        yield from _target(facts.value("AccountingStorageHost"), port)


def _target(host: str, port: str) -> Iterator[Target]:
    try:
        yield Target.parse(f"{host}:{port}")
    except ValueError:
        return
