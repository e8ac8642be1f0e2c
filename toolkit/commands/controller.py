"""The way to slurmctld's host: a cluster's own head, or a controller of a site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.explain.head_facts import HeadPrograms
from toolkit.join.runner import FirstController

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.head_runner import Runner


def controller(clients: Clients, config: ClusterConfig) -> Runner:
    """Return a runner of commands as root on slurmctld's host."""
    from toolkit.deploy.head import Head

    if config.site is None:
        return Head(clients, config)
    return FirstController(config.site)


def head_programs(config: ClusterConfig) -> HeadPrograms:
    """Return how our programs are called there."""
    if config.site is None:
        return HeadPrograms()
    return HeadPrograms(config.site.slurm_user, config.site.python)
