"""The preflight of a join: asks a site what can't work with our nodes, and changes nothing.

Belongs here: what is asked of a site, the facts that it answers, the checks of them, and what
connections through the tunnel are like.
Does not: the site's files themselves (`toolkit.join.site`), and what AWS is asked
(`toolkit.deploy.preflight`).

`site_checks(facts, cloud)` is pure and returns every finding at once, each with its mend.
`check_site(...)` asks first. A question without an answer becomes a note.
"""

from toolkit.join.preflight.checks import site_checks
from toolkit.join.preflight.cloud import CloudSide, cloud_side
from toolkit.join.preflight.facts import PreflightFacts
from toolkit.join.preflight.findings import SiteCheck, SiteFinding
from toolkit.join.preflight.run import Measurements, check_site

__all__ = [
    "CloudSide",
    "Measurements",
    "PreflightFacts",
    "SiteCheck",
    "SiteFinding",
    "check_site",
    "cloud_side",
    "site_checks",
]
