"""The health of a join: what the site's slurmctld, its controllers and AWS say of it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurmplugins.model import records
from slurmplugins.model.hostlist import expand
from slurmplugins.slurm.controllers import active_host, parse_ping
from toolkit.deploy import names, record_age
from toolkit.deploy.record_age import LastRecords
from toolkit.deploy.stack_events import stack_status
from toolkit.deploy.status import HEALTHY_STACK, engine_problems, own_instances, state_text
from toolkit.deploy.storage import Bucket
from toolkit.errors import HeadCommandFailed, ToolkitError
from toolkit.explain import head_facts
from toolkit.join.controller_files import TIMERS
from toolkit.join.runner import FirstController, controllers
from toolkit.slurm_nodes import read_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.explain.head_facts import HeadPrograms
    from toolkit.join.runner import ControllerRunner
    from toolkit.slurm_nodes import NodeInfo


@dataclass(frozen=True, slots=True)
class JoinStatus:
    """The facts about a join; `reasons` judges them."""

    cluster: str
    stack: str
    controllers: Mapping[str, str] = field(default_factory=dict)  # state by host
    active: str = ""  # the host whose slurmctld is in charge
    nodes: Mapping[str, int] = field(default_factory=dict)  # count of our nodes by state
    missing_nodes: int = 0
    instances: Mapping[str, int] = field(default_factory=dict)  # count by pool
    trouble: tuple[str, ...] = ()
    records: LastRecords = field(default_factory=LastRecords)
    warnings: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why the join isn't healthy, the most basic reason first."""
        return tuple(_reasons(self))

    @property
    def healthy(self) -> bool:
        """Return whether jobs can use the cloud nodes."""
        return not self.reasons


def _reasons(status: JoinStatus) -> Iterator[str]:
    if not status.stack:
        yield f"{status.cluster} is not joined: `toolkit join apply` does it"
        return
    if status.stack not in HEALTHY_STACK:
        yield f"stack is {status.stack}"
    yield from (
        f"{host}: {state}" for host, state in status.controllers.items() if state != "active"
    )
    if not status.active:
        yield "no slurmctld of the site answers"
    elif status.missing_nodes:
        yield f"slurmctld lacks {status.missing_nodes} of our nodes: `toolkit join apply` adds them"
    yield from status.trouble


def gather(
    config: ClusterConfig,
    clients: Clients,
    programs: HeadPrograms,
    *,
    now: Callable[[], float] = time.time,
) -> JoinStatus:
    """Read all facts; a failed read is a reason, not an exception."""
    stack = stack_status(clients.client("cloudformation"), names.stack(config))
    if not stack:
        return JoinStatus(config.cluster, "", instances=own_instances(config, clients))
    site = config.joined_site
    first, trouble, active = FirstController(site), [], ""
    own: tuple[NodeInfo, ...] = ()
    try:
        active = active_host(parse_ping(first.run([f"{site.slurm_bin}/scontrol", "ping"])))
        own_names = {str(name) for pool in config.pools for name in expand(config.nodes(pool))}
        own = tuple(node for node in read_nodes(first) if node.name in own_names)
        missing = len(own_names) - len(own)
        trouble += engine_problems(head_facts.fetch_report(first, "pass", programs=programs))
    except ToolkitError as error:
        missing = 0
        trouble.append(error.message)
    bucket = Bucket(clients.client("s3"), names.bucket(config, clients.account))
    last = record_age.parse(bucket.read_json(records.STATUS))
    return JoinStatus(
        cluster=config.cluster,
        stack=stack,
        controllers={runner.host: _timers_state(runner) for runner in controllers(site)},
        active=active,
        nodes=dict(sorted(Counter(map(state_text, own)).items())),
        missing_nodes=missing,
        instances=own_instances(config, clients),
        trouble=tuple(trouble),
        records=last,
        warnings=_record_warnings(last, now()),
    )


def _record_warnings(last: LastRecords, now: float) -> tuple[str, ...]:
    """Return a warning on the records. A new join has none yet."""
    text = record_age.warning(last, now, now if last.attempts is None else last.attempts)
    return (text,) if text else ()


def _timers_state(runner: ControllerRunner) -> str:
    """Return `active`, or the timer of a controller that is not.

    A controller that can't be asked says why.
    """
    try:
        text = runner.run(["/usr/bin/systemctl", "is-active", *TIMERS])
    except HeadCommandFailed as error:
        text = error.stdout
        if not text.strip():
            return error.message
    states = dict(zip(TIMERS, text.split(), strict=False))
    return next(
        (f"{name} is {state}" for name, state in states.items() if state != "active"), "active"
    )
