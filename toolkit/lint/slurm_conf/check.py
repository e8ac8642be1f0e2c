"""Runs all rules over one slurm.conf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf import (
    rules_gpus,
    rules_isolation,
    rules_jobs,
    rules_power,
    rules_version,
)
from toolkit.lint.slurm_conf.rule import SettingFinding

if TYPE_CHECKING:
    from toolkit.lint.slurm_conf.parser import SlurmConf
    from toolkit.lint.slurm_conf.rule import ConfRule
    from toolkit.render.versions import SlurmVersion

ALWAYS: Final[tuple[ConfRule, ...]] = (
    *rules_jobs.RULES,
    *rules_gpus.RULES,
    *rules_isolation.RULES,
    *rules_version.RULES,
)
WITH_CLOUD_NODES: Final[tuple[ConfRule, ...]] = rules_power.RULES
"""These do not apply to a cluster whose nodes are always up."""


def check_slurm_conf(conf: SlurmConf, version: SlurmVersion) -> tuple[SettingFinding, ...]:
    """Return the findings for this Slurm version, errors first, then by line."""
    rules = (*ALWAYS, *(WITH_CLOUD_NODES if conf.cloud_nodes else ()))
    findings = [
        SettingFinding(
            rule.slug, rule.severity, hit.line, hit.message, hit.fix, hit.setting, rule.source
        )
        for rule in rules
        for hit in rule.find(conf, version)
    ]
    return tuple(sorted(findings, key=lambda item: (item.severity != Severity.ERROR, item.line)))
