"""Rules about versions: which slurmctld, slurmdbd and slurmd may meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.deploy.slurm_change import COMPATIBLE_SERIES
from toolkit.join.preflight.findings import Hit, Origin, SiteRule
from toolkit.lint.finding import Severity
from toolkit.render.versions import NEWEST, OLDEST, SERIES, SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.preflight.facts import PreflightFacts

WINDOW: Final = "https://slurm.schedmd.com/upgrades.html#compatibility_window"
CONTROLLER: Final = Origin("scontrol --version")


def series(text: str) -> SlurmVersion | None:
    """Return a release's series, None for another text."""
    try:
        return SlurmVersion.parse(text)
    except ValueError:
        return None


def _unsupported(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    version = series(facts.site.version)
    if version not in SERIES:
        text = f"slurmctld is {facts.site.version or 'of an unknown version'}"
        text += f", and the toolkit knows {OLDEST} to {NEWEST}"
        fix = f"Upgrade the site's Slurm to a series from {OLDEST} to {NEWEST}."
        yield Hit(CONTROLLER, text, fix)


def _newer_node(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    site, node = series(facts.site.version), series(cloud.slurm_version)
    if site is not None and node is not None and node > site:
        text = f"the node image has slurmd {cloud.slurm_version}, and slurmctld"
        text += f" {facts.site.version} understands no later series than its own"
        fix = "Build the node image with the site's series; upgrade slurmctld first."
        yield Hit(CONTROLLER, text, fix, f'slurm.version: "{site}"')


def _older_node(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    site, node = series(facts.site.version), series(cloud.slurm_version)
    if site not in SERIES or node is None:
        return
    oldest = SERIES[max(0, SERIES.index(site) - COMPATIBLE_SERIES)]
    if node < oldest:
        text = f"the node image has slurmd {cloud.slurm_version}, and slurmctld"
        text += f" {facts.site.version} understands {oldest} and later"
        yield Hit(CONTROLLER, text, "Build a newer node image.", f'slurm.version: "{site}"')


def _older_slurmdbd(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    site, database = series(facts.site.version), series(facts.slurmdbd_version)
    if site is not None and database is not None and database < site:
        text = f"slurmdbd is {facts.slurmdbd_version}, older than slurmctld {facts.site.version}:"
        text += " it does not understand slurmctld's records"
        fix = "Upgrade slurmdbd before slurmctld."
        yield Hit(Origin("sacctmgr show config: SLURMDBD_VERSION"), text, fix)


_E: Final = Severity.ERROR
RULES: Final = (
    SiteRule("slurm-unsupported", _E, WINDOW, _unsupported),
    SiteRule("node-newer", _E, WINDOW, _newer_node),
    SiteRule("node-too-old", _E, WINDOW, _older_node),
    SiteRule("slurmdbd-older", _E, WINDOW, _older_slurmdbd),
)
