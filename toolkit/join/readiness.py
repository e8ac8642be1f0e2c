"""The readiness of a site for a join, as each of its commands asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.errors import HeadCommandFailed
from toolkit.join.errors import JoinError
from toolkit.join.file_edits import without_ours
from toolkit.join.preflight import check_site, cloud_side
from toolkit.join.site import read_site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.config import ClusterConfig
    from toolkit.join.preflight import Measurements, SiteCheck
    from toolkit.join.runner import ControllerRunner
    from toolkit.join.site import SiteFacts
    from toolkit.output import Reporter


def read_first(
    config: ClusterConfig, runners: Sequence[ControllerRunner]
) -> tuple[ControllerRunner, SiteFacts]:
    """Read the site by the first controller that answers.

    Raises SiteCommandFailed of the first controller if none does.
    """
    place, failure = config.joined_site, None
    for runner in runners:
        try:
            return runner, read_site(runner, place.slurm_conf, slurm_bin=place.slurm_bin)
        except HeadCommandFailed as error:
            failure = failure or error
    raise failure or JoinError("cluster.yaml names no controller")


def ask(
    config: ClusterConfig,
    runner: ControllerRunner,
    site: SiteFacts,
    report: Reporter,
    measurements: Measurements | None = None,
) -> SiteCheck:
    """Return the findings about a site as it is without this join.

    `site` is as it was read, with or without our file.
    """
    bare = without_ours(config, site)
    return check_site(
        runner,
        bare,
        cloud_side(config),
        report,
        measurements,
        slurm_bin=config.joined_site.slurm_bin,
        joined=bare != site,
    )
