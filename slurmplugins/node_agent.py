"""The service on every compute node that watches for the instance's interruption.

- On a spot notice, and ten minutes before a scheduled event, it drains the node: nothing new
  starts. It also asks every job on the node to stop, through a file that the job's workers watch.
  The request does not wait for the drain: a silent slurmctld must not cost a checkpoint. A step
  that failed is repeated at each poll.
- On a rebalance recommendation, and from a day before a scheduled event, it only drains. The jobs
  go on, and the instance is replaced when they have left.
- It keeps the users' accounts in step with the cluster's list, and slurmd's key with the head's.

From notice to stop request: a poll (1 s), then at most two seconds for slurmctld to name the jobs.
After that, slurmd and the processes here name them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud.client import client
from slurmplugins.cloud.stores import SecretStore
from slurmplugins.config import node as node_config, paths
from slurmplugins.model import json_input
from slurmplugins.node import running_jobs, users
from slurmplugins.node.agent import (
    DRAIN_SECONDS,
    JOBS_SECONDS,
    Agent,
    Followers,
    Registrar,
    watch,
)
from slurmplugins.node.imds import HttpTransport, Imds
from slurmplugins.node.key_follower import KeyFollower
from slurmplugins.slurm import agent_requests
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system import program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from slurmplugins.config.node import NodeConfig
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner
    from slurmplugins.system.logger import Log

OLD_REQUEST: Final = 24 * 3600.0
"""Seconds after which a stop request is deleted. Its attempt ended within minutes of it."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The node and its instance, with the clock, the runner and the log of this process."""

    node: str
    instance_id: str
    clock: Clock
    runner: Runner
    log: Log


def main() -> None:
    log = program.open_log("node-agent")

    def work() -> None:
        settings = node_config.load()
        facts = json_input.loads(paths.INSTANCE.read_text(encoding="utf-8"))
        node, instance_id = str(facts["node"]), str(facts["instance_id"])
        place = _Place(node, instance_id, SystemClock(), SystemRunner(), log.bind(node=node))
        agent, followers = _agent(place, settings), _followers(place, settings)
        log.info(LogEvent.PROGRAM_STARTED, node=node)
        requests = paths.stop_requests(settings.shared.path)
        agent_requests.remove_old_requests(requests, place.clock.now() - OLD_REQUEST)
        watch(agent, followers, place.clock, log)

    raise SystemExit(program.run_to_exit_code(log, work))


def _agent(place: _Place, settings: NodeConfig) -> Agent:
    """Return the agent that watches for the instance's interruption."""
    slurm = ScontrolSlurm(place.runner, paths.SLURM_BIN, timeout=DRAIN_SECONDS)
    query_slurm = ScontrolSlurm(place.runner, paths.SLURM_BIN, timeout=JOBS_SECONDS)
    return Agent(
        node=place.node,
        instance_id=place.instance_id,
        metadata=Imds(HttpTransport(), place.clock),
        slurm=slurm,
        read_attempts=lambda: running_jobs.attempts(
            query_slurm, place.runner, paths.SLURM_BIN, place.node, paths.PROC
        ),
        stop_directory=paths.stop_requests(settings.shared.path),
        clock=place.clock,
        log=place.log,
    )


def _followers(place: _Place, settings: NodeConfig) -> Followers:
    """Return the parts that follow the head's requests, users and keys."""
    shared = settings.shared.path
    secrets = SecretStore(lambda: client("secretsmanager", settings.region, settings.endpoint_url))
    return Followers(
        Registrar(place.node, paths.stop_requests(shared), place.runner, place.log),
        users.UserListFollower(paths.users_file(shared), place.runner),
        KeyFollower(
            node=place.node,
            instance_id=place.instance_id,
            requests=paths.key_requests(shared),
            read_secret=lambda: secrets.get(settings.secret_id),
            root=Path("/"),
            loaded=paths.LOADED_KEYS,
            runner=place.runner,
            clock=place.clock,
            log=place.log,
        ),
    )


if __name__ == "__main__":
    main()
