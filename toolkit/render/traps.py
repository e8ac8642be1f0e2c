"""Every known trap in one list, and the linter that walks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.render import job_traps, power_traps
from toolkit.render.trap import Finding, Severity

if TYPE_CHECKING:
    from toolkit.render.slurm_conf import SlurmConf
    from toolkit.render.trap import Trap
    from toolkit.render.versions import SlurmVersion

ALWAYS: Final[tuple[Trap, ...]] = job_traps.TRAPS
WITH_CLOUD_NODES: Final[tuple[Trap, ...]] = power_traps.TRAPS
"""They say nothing about a cluster whose nodes are always there."""


def check(conf: SlurmConf, version: SlurmVersion) -> tuple[Finding, ...]:
    """Everything wrong with the file for this Slurm: errors first, then by line."""
    rules = (*ALWAYS, *(WITH_CLOUD_NODES if conf.cloud_nodes else ()))
    found = [
        Finding(rule.slug, rule.severity, hit.setting, hit.line, hit.message, hit.fix, rule.source)
        for rule in rules
        for hit in rule.find(conf, version)
    ]
    return tuple(sorted(found, key=lambda item: (item.severity != Severity.ERROR, item.line)))
