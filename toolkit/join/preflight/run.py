"""Runs the preflight of a join: asks, measures and checks."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit.join.preflight.checks import site_checks
from toolkit.join.preflight.connections import Measured, Target, measure
from toolkit.join.preflight.facts import Unanswered
from toolkit.join.preflight.findings import SiteCheck
from toolkit.join.preflight.questions import Questions
from toolkit.join.site import SLURM_CONF, read_site, site_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.site import SiteFacts, SiteRunner
    from toolkit.output import Reporter
    from toolkit.slurm_nodes import NodeInfo

NOT_MEASURED = Unanswered(
    "the path through the tunnel",
    "no host in the subnets was named: start an instance there, and add --probe ADDRESS:22",
)


def check_site(
    runner: SiteRunner,
    cloud: CloudSide,
    report: Reporter,
    *,
    slurm_conf: str = SLURM_CONF,
    own_file: str = "",
    probes: Sequence[Target] = (),
    slurm_bin: str = "/usr/bin",
) -> SiteCheck:
    """Ask a site everything, and return every finding. It changes nothing.

    `own_file` is the name of our file beside slurm.conf, whose nodes are no conflict. Raises
    SiteCommandFailed or SiteUnreadable if slurm.conf or slurmctld can't be read.
    """
    with report.phase("Asking the site") as phase:
        whole = read_site(runner, slurm_conf, slurm_bin=slurm_bin)
        site, own_nodes = without(whole, own_file)
        facts = Questions(runner, site, slurm_bin=slurm_bin).ask(cloud)
        measured = (
            measure(runner, "site", probes) if probes else Measured(unanswered=(NOT_MEASURED,))
        )
        facts = replace(
            facts,
            nodes=_others(facts.nodes, own_nodes),
            connections=measured.connections,
            path_mtus=measured.path_mtus,
            unanswered=(*facts.unanswered, *measured.unanswered),
        )
        name = site.cluster_name or "the site"
        result = SiteCheck(name, site_checks(facts, cloud), facts.unanswered)
        phase.result(f"{len(result.errors)} errors, {len(result.findings)} findings")
    return result


def without(site: SiteFacts, own_file: str) -> tuple[SiteFacts, frozenset[str]]:
    """Return a site without our file, and the nodes in it."""
    ours = [file for file in site.files if own_file and posixpath.basename(file.path) == own_file]
    if not ours:
        return site, frozenset()
    names = {name for line in site_facts(ours).nodes for name in line.names}
    rest = site_facts(
        [file for file in site.files if file not in ours],
        version=site.version,
        running=site.running,
        controllers=site.controllers,
    )
    return rest, frozenset(names)


def _others(
    nodes: tuple[NodeInfo, ...] | None, own_nodes: frozenset[str]
) -> tuple[NodeInfo, ...] | None:
    return None if nodes is None else tuple(item for item in nodes if item.name not in own_nodes)
