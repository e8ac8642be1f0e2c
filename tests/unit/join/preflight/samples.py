"""Facts of the captured sites, and of sites that differ from them in one thing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from tests.golden.join.recorded import RecordedSite
from tests.golden.join.sides import FITTING
from toolkit.join.preflight.questions import Questions
from toolkit.join.site import ConfFile, read_site, site_facts

if TYPE_CHECKING:
    from toolkit.join.preflight.facts import PreflightFacts

SLURM_CONF = "/etc/slurm/slurm.conf"


@cache
def captured(site: str, version: str = "24.11") -> PreflightFacts:
    """Return the facts of a captured site."""
    runner = RecordedSite(version, site)
    return Questions(runner, read_site(runner)).ask(FITTING)


def fit(**settings: str) -> PreflightFacts:
    """Return the site that fits, with these settings.

    They are in its slurm.conf and in its slurmctld. An empty value takes the setting out.
    """
    facts = captured("fit")
    names = {name.lower() for name in settings}
    kept = [
        line for line in facts.site.text.splitlines() if line.partition("=")[0].lower() not in names
    ]
    added = [f"{name}={value}" for name, value in settings.items() if value]
    return with_lines(facts, "\n".join((*kept, *added)), running(facts, settings))


def running(facts: PreflightFacts, settings: dict[str, str]) -> dict[str, str]:
    rows = {
        key: value
        for key, value in facts.site.running.items()
        if key.partition("[")[0] not in {name.lower() for name in settings}
    }
    return rows | {name.lower(): value or "(null)" for name, value in settings.items()}


def with_lines(
    facts: PreflightFacts, text: str, rows: dict[str, str] | None = None
) -> PreflightFacts:
    """Return facts with another slurm.conf."""
    site = site_facts(
        [ConfFile(SLURM_CONF, text)],
        version=facts.site.version,
        running=facts.site.running if rows is None else rows,
        controllers=facts.site.controllers,
    )
    return replace(facts, site=site)


def with_more(line: str) -> PreflightFacts:
    """Return the site that fits, with a line more in its slurm.conf."""
    facts = captured("fit")
    return with_lines(facts, f"{facts.site.text}\n{line}\n")


def with_file(name: str, text: str, facts: PreflightFacts | None = None) -> PreflightFacts:
    """Return the site that fits, with a file beside its slurm.conf."""
    facts = facts or captured("fit")
    return replace(facts, files={**facts.files, name: ConfFile(f"/etc/slurm/{name}", text)})


def of_version(version: str) -> PreflightFacts:
    """Return the site that fits, with another slurmctld."""
    facts = captured("fit")
    return replace(facts, site=replace(facts.site, version=version))
