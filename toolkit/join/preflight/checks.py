"""All checks of a site against the nodes that come to it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.join.preflight import (
    accounts,
    daemons,
    names,
    network,
    power,
    racks,
    scheduling,
    versions,
)
from toolkit.join.preflight.findings import SiteFinding
from toolkit.lint.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.preflight.facts import PreflightFacts
    from toolkit.join.preflight.findings import SiteRule

RULES: Final[tuple[SiteRule, ...]] = (
    *versions.RULES,
    *names.RULES,
    *power.RULES,
    *daemons.RULES,
    *network.RULES,
    *accounts.RULES,
    *scheduling.RULES,
    *racks.RULES,
)


SLUGS: Final = frozenset(rule.slug for rule in RULES) | power.LINTED
"""All findings that there can be."""


def site_checks(facts: PreflightFacts, cloud: CloudSide) -> tuple[SiteFinding, ...]:
    """Return everything that can't work, errors first."""
    findings = (*_findings(facts, cloud), *power.linted(facts, cloud))
    return tuple(sorted(findings, key=lambda item: item.severity is not Severity.ERROR))


def _findings(facts: PreflightFacts, cloud: CloudSide) -> Iterator[SiteFinding]:
    for rule in RULES:
        for hit in rule.find(facts, cloud):
            yield SiteFinding(
                rule.slug,
                rule.severity,
                hit.origin.line,
                hit.message,
                hit.fix,
                str(hit.origin),
                hit.setting,
                rule.source,
            )
