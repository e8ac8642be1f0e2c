"""The health of a cluster: gathers facts, then judges them by a pure function."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurmplugins.cloud import tags
from toolkit import accounts
from toolkit.deploy import names
from toolkit.deploy.changes import stack_status
from toolkit.deploy.head import Head, find
from toolkit.deploy.head_setup import HeadBoot
from toolkit.deploy.storage import Bucket
from toolkit.errors import HeadCommandFailed, ToolkitError
from toolkit.explain import head_facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from slurmplugins.head.report import HeadReport
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.head_runner import Runner
    from toolkit.slurm_nodes import NodeInfo

RECONCILE = "slurm-reconcile.timer"
SERVICES = ("slurmctld", "slurmdbd", "mariadb", RECONCILE)
# A timer starts reconcile every 15 seconds, and one pass may take five minutes.
STALE_SECONDS = 360
HEALTHY_STACK = {"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"}
# Flags of a node's state that a person should see, beside idle or allocated.
FLAGS = ("POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "DRAIN", "DOWN", "NOT_RESPONDING")
# Reasons with this prefix are the toolkit's own, and it clears them itself.
OWN_REASON = "toolkit:"
# How many of a kind are listed: accounts and users that slurmdbd lacks, reconcile's remarks.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Down:
    """A node that needs a person, with Slurm's reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Status:
    """The facts about a cluster; `reasons` judges them."""

    cluster: str
    stack: str
    head_instance: str = ""
    head_state: str = ""
    setup: str = ""  # state of the head node's playbook
    services: Mapping[str, str] = field(default_factory=dict)
    slurmctld_answers: bool = False
    nodes: Mapping[str, int] = field(default_factory=dict)  # count by state
    down: tuple[Down, ...] = ()
    instances: Mapping[str, int] = field(default_factory=dict)  # count by pool
    trouble: tuple[str, ...] = ()
    missing_accounts: tuple[str, ...] = ()  # declared accounts and users that slurmdbd lacks

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why the cluster isn't healthy, the most basic reason first."""
        return tuple(_reasons(self))

    @property
    def healthy(self) -> bool:
        """Return whether people can work."""
        return not self.reasons


def _reasons(status: Status) -> Iterator[str]:
    if not status.stack:
        yield f"cluster {status.cluster} is not deployed"
        return
    if status.stack not in HEALTHY_STACK:
        yield f"stack is {status.stack}"
    if not status.head_instance:
        yield "there is no head node"
        return
    if status.head_state != "running":
        yield f"head node {status.head_instance} is {status.head_state}"
        return
    if status.setup != "ok":
        yield f"head node's set-up is {status.setup or 'not reported yet'}"
    yield from status.trouble
    yield from (
        f"{name} is {state}" for name, state in status.services.items() if state != "active"
    )
    if status.services and not status.slurmctld_answers:
        yield "slurmctld doesn't answer"
    yield from (f"node {node.name} is down: {node.reason}" for node in status.down)
    if missing := status.missing_accounts:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        yield (
            f"slurmdbd lacks {', '.join(missing[:NAMED])}{more}: `toolkit accounts apply` adds them"
        )


def gather(config: ClusterConfig, clients: Clients) -> Status:
    """Read all facts; a failed read is a reason, not an exception."""
    stack = stack_status(clients.client("cloudformation"), names.stack(config))
    if stack in {"", "REVIEW_IN_PROGRESS"}:
        return Status(cluster=config.cluster, stack="", instances=_instances(config, clients))
    head = find(clients, config)
    bucket = Bucket(clients.client("s3"), names.bucket(config, clients.account))
    boot = HeadBoot(clients, config, bucket).status()
    known = Status(
        cluster=config.cluster,
        stack=stack,
        head_instance=head["InstanceId"] if head is not None else "",
        head_state=str(head["State"]["Name"]) if head is not None else "",
        setup=boot.state if boot is not None else "",
        instances=_instances(config, clients),
    )
    return (
        _ask_head(config, Head(clients, config), known) if known.head_state == "running" else known
    )


def _ask_head(config: ClusterConfig, head: Head, known: Status) -> Status:
    trouble: list[str] = []
    services: dict[str, str] = {}
    answers = False
    nodes: Sequence[NodeInfo] = ()
    missing: tuple[str, ...] = ()
    try:
        services = _services(config, head)
        answers, nodes = _slurm(head)
        if services.get(RECONCILE) == "active":
            trouble += engine_trouble(head_facts.ask(head, "pass"))
        if services.get("slurmdbd") == "active":
            missing = missing_accounts(config, head)
    except ToolkitError as error:
        trouble.append(error.message)
    counts = Counter(_word(node) for node in nodes)
    return Status(
        cluster=known.cluster,
        stack=known.stack,
        head_instance=known.head_instance,
        head_state=known.head_state,
        setup=known.setup,
        services=services,
        slurmctld_answers=answers,
        nodes=dict(sorted(counts.items())),
        down=tuple(Down(node.name, node.reason) for node in nodes if _needs_someone(node)),
        instances=known.instances,
        trouble=tuple(trouble),
        missing_accounts=missing,
    )


def missing_accounts(config: ClusterConfig, runner: Runner) -> tuple[str, ...]:
    """List the accounts and users of cluster.yaml that slurmdbd does not have."""
    wanted = accounts.wanted(config)
    if not (wanted.accounts or wanted.memberships):
        return ()
    found = accounts.plan(wanted, accounts.read(runner, config.cluster), config.cluster)
    return tuple(change.what for change in found.changes if change.verb == "add")


def engine_trouble(sheet: HeadReport) -> list[str]:
    """Return the engine's own problems.

    reconcile holds back or does not run, or a pool's instances don't come up.
    """
    found = []
    last = sheet.last_pass
    if last.note:
        found.append(f"reconcile holds back: {last.note}")
    found += [f"reconcile remarks: {remark}" for remark in last.remarks[:NAMED]]
    if (more := len(last.remarks) - NAMED) > 0:
        found.append(f"reconcile remarks {more} more: `toolkit reconcile --plan` shows them")
    if last.at and sheet.at - last.at > STALE_SECONDS:
        found.append(f"reconcile has not looked for {sheet.at - last.at:.0f} s")
    if sheet.unended:
        found.append(sheet.unended)
    found += [
        f"pool {item.pool} is protected: {item.failures} machines in a row did not come up"
        f" (`toolkit why NODE` shows the last words of one)"
        for item in sheet.standings
        if item.protected_since is not None
    ]
    return found


def _services(config: ClusterConfig, head: Head) -> dict[str, str]:
    wanted = [*SERVICES, *(["mlflow"] if config.mlflow.enabled else [])]
    try:
        said = head.run(["systemctl", "is-active", *wanted])
    except HeadCommandFailed as error:
        # Exit code 3: at least one is not active; the states are on standard output all the same.
        said = error.stdout
        if len(said.split()) != len(wanted):
            raise
    return dict(zip(wanted, said.split(), strict=True))


def _slurm(head: Head) -> tuple[bool, Sequence[NodeInfo]]:
    from toolkit.slurm_nodes import nodes

    try:
        head.run(["scontrol", "ping"])
        return True, nodes(head)
    except HeadCommandFailed:
        return False, ()


def _word(node: NodeInfo) -> str:
    flags = [flag.lower() for flag in FLAGS if flag in node.states and flag != "DOWN"]
    return "+".join([node.base_state, *flags])


def _needs_someone(node: NodeInfo) -> bool:
    return "DOWN" in node.states and not node.reason.startswith(OWN_REASON)


def _instances(config: ClusterConfig, clients: Clients) -> dict[str, int]:
    """Return the number of live instances by pool, with the head node."""
    pages = (
        clients.client("ec2")
        .get_paginator("describe_instances")
        .paginate(
            Filters=[
                {"Name": f"tag:{tags.CLUSTER}", "Values": [config.cluster]},
                {"Name": "instance-state-name", "Values": ["pending", "running"]},
            ]
        )
    )
    counts: Counter[str] = Counter()
    for page in pages:
        for reservation in page["Reservations"]:
            for instance in reservation["Instances"]:
                label = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
                counts[label.get(tags.POOL) or label.get(tags.ROLE, "unknown")] += 1
    return dict(sorted(counts.items()))
