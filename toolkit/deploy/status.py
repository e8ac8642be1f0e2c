"""The health of a cluster: gathers facts, then judges them by a pure function."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurmplugins.cloud import tags
from slurmplugins.model import backup, data_volume, records
from slurmplugins.model.node import REASON_PREFIX
from toolkit import accounts
from toolkit.deploy import backup_age, instances, login_nodes, names, record_age
from toolkit.deploy.backup_age import LastBackup
from toolkit.deploy.head import Head, find_head
from toolkit.deploy.head_setup import HeadSetup
from toolkit.deploy.record_age import LastRecords
from toolkit.deploy.stack_events import stack_status
from toolkit.deploy.storage import Bucket
from toolkit.errors import HeadCommandFailed, ToolkitError
from toolkit.explain import head_facts
from toolkit.render.versions import SlurmVersion, is_release
from toolkit.slurm_nodes import SlurmNodes, read_states

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mypy_boto3_ec2.type_defs import InstanceTypeDef

    from slurmplugins.head.report import HeadReport
    from slurmplugins.model.data_volume import FreeShares
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.head_runner import Runner
    from toolkit.slurm_nodes import NodeInfo

RECONCILE = "slurm-reconcile.timer"
SERVICES = ("slurmctld", "slurmdbd", "mariadb", RECONCILE, "slurm-imds-access")
# A timer starts reconcile every 15 seconds, and one pass may take five minutes.
STALE_SECONDS = 360
HEALTHY_STACK = {
    "CREATE_COMPLETE",
    "UPDATE_COMPLETE",
    "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS",
    "UPDATE_ROLLBACK_COMPLETE",
}
# Flags of a node's state that a person should see, beside idle or allocated.
SHOWN_FLAGS = ("POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "DRAIN", "DOWN", "NOT_RESPONDING")
# How many of a kind are listed: accounts and users that slurmdbd lacks, reconcile's remarks.
MAX_LISTED = 5


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
    slurm: str = ""  # the head's release, such as 25.11.8
    other_slurm: Mapping[str, str] = field(default_factory=dict)  # by node, where it differs
    down: tuple[Down, ...] = ()
    instances: Mapping[str, int] = field(default_factory=dict)  # count by pool
    trouble: tuple[str, ...] = ()
    missing_accounts: tuple[str, ...] = ()  # declared accounts and users that slurmdbd lacks
    alarms: Mapping[str, str] = field(default_factory=dict)  # CloudWatch's state by subject
    login_nodes: Mapping[str, str] = field(default_factory=dict)  # state by name
    data_volume: FreeShares | None = None  # what is free; None: an older head, or not asked
    backup: LastBackup = field(default_factory=LastBackup)
    records: LastRecords = field(default_factory=LastRecords)
    warnings: tuple[str, ...] = ()  # people can work all the same

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
        yield "there is no head node: `toolkit deploy` makes one"
        return
    if status.head_state != "running":
        yield f"head node {status.head_instance} is {status.head_state}"
        return
    if status.setup != "ok":
        yield f"head node's set-up is {status.setup or 'not reported yet'}"
    yield from status.trouble
    yield from (
        f"{name} {state}" for name, state in status.login_nodes.items() if state != login_nodes.UP
    )
    yield from (
        f"{name} is {state}" for name, state in status.services.items() if state != "active"
    )
    if status.services and not status.slurmctld_answers:
        yield "slurmctld doesn't answer"
    yield from _full_volume(status.data_volume)
    yield from (f"node {node.name} is down: {node.reason}" for node in status.down)
    yield from _newer_nodes(status)
    if missing_names := status.missing_accounts:
        rest_text = (
            f" and {len(missing_names) - MAX_LISTED} more"
            if len(missing_names) > MAX_LISTED
            else ""
        )
        yield (
            f"slurmdbd lacks {', '.join(missing_names[:MAX_LISTED])}{rest_text}:"
            " `toolkit accounts apply` adds them"
        )


def _full_volume(free: FreeShares | None) -> Iterator[str]:
    """Yield what the head's data volume lacks, and how to mend it."""
    if free is not None and (text := data_volume.shortage(free)):
        yield (
            f"{text}: when it is full, slurmctld saves no state, and forgets jobs at its next"
            f" start. `toolkit run -- du -xhd2 {data_volume.PATH}` says what fills it;"
            " a larger head.data_gib and `toolkit deploy` grow it"
        )


def _newer_nodes(status: Status) -> Iterator[str]:
    """Yield the nodes whose series is later than the head's."""
    for name, release in status.other_slurm.items():
        if SlurmVersion.parse(release) > SlurmVersion.parse(status.slurm):
            yield (
                f"node {name} runs Slurm {release}, later than the head node's {status.slurm}:"
                " `toolkit deploy --replace-head` upgrades the head node first"
            )


def gather(config: ClusterConfig, clients: Clients, now: Callable[[], float] = time.time) -> Status:
    """Read all facts; a failed read is a reason, not an exception."""
    stack = stack_status(clients.client("cloudformation"), names.stack(config))
    if stack in {"", "REVIEW_IN_PROGRESS"}:
        return Status(cluster=config.cluster, stack="", instances=own_instances(config, clients))
    head = find_head(clients, config)
    bucket = Bucket(clients.client("s3"), names.bucket(config, clients.account))
    boot = HeadSetup(clients, config, bucket).status()
    last_backup = backup_age.parse(bucket.read_json(backup.STATUS))
    last_records = record_age.parse(bucket.read_json(records.STATUS))
    status = Status(
        cluster=config.cluster,
        stack=stack,
        head_instance=head["InstanceId"] if head is not None else "",
        head_state=str(head["State"]["Name"]) if head is not None else "",
        setup=boot.state if boot is not None else "",
        instances=own_instances(config, clients),
        alarms=_alarms(config, clients),
        backup=last_backup,
        records=last_records,
        warnings=(
            *_backup_warnings(config, last_backup, now(), head),
            *_record_warnings(last_records, now(), head),
        ),
    )
    return _with_head(config, clients, status) if status.head_state == "running" else status


def _with_head(config: ClusterConfig, clients: Clients, status: Status) -> Status:
    head = Head(clients, config)
    trouble: list[str] = []
    services: dict[str, str] = {}
    answers = False
    slurm = SlurmNodes(())
    logins: dict[str, str] = {}
    missing_names: tuple[str, ...] = ()
    free: FreeShares | None = None
    try:
        services = _services(config, head)
        answers, slurm = _slurm(head)
        if services.get(RECONCILE) == "active":
            report = head_facts.fetch_report(head, "pass")
            free = report.data_volume
            trouble += engine_problems(report)
            logins = login_nodes.states(login_nodes.find(clients, config), report)
        if services.get("slurmdbd") == "active":
            missing_names = missing_accounts(config, head)
    except ToolkitError as error:
        trouble.append(error.message)
    counts = Counter(state_text(node) for node in slurm.nodes)
    return replace(
        status,
        services=services,
        slurmctld_answers=answers,
        nodes=dict(sorted(counts.items())),
        slurm=slurm.release,
        other_slurm=other_slurm(slurm),
        down=tuple(Down(node.name, node.reason) for node in slurm.nodes if _needs_admin(node)),
        trouble=tuple(trouble),
        missing_accounts=missing_names,
        login_nodes=logins,
        data_volume=free,
    )


def _backup_warnings(
    config: ClusterConfig, last: LastBackup, now: float, head: InstanceTypeDef | None
) -> tuple[str, ...]:
    """Return a warning on the backups, if there is a head."""
    if not config.backups.enabled or head is None:
        return ()
    text = backup_age.warning(last, config.backups.period, now, head["LaunchTime"].timestamp())
    return (text,) if text else ()


def _record_warnings(
    last: LastRecords, now: float, head: InstanceTypeDef | None
) -> tuple[str, ...]:
    """Return a warning on the records, if there is a head."""
    if head is None:
        return ()
    text = record_age.warning(last, now, head["LaunchTime"].timestamp())
    return (text,) if text else ()


def missing_accounts(config: ClusterConfig, runner: Runner) -> tuple[str, ...]:
    """List the accounts and users of cluster.yaml that slurmdbd does not have."""
    declared = accounts.declared_accounts(config)
    if not (declared.accounts or declared.associations):
        return ()
    current = accounts.read(runner, config.cluster)
    # Only what is missing counts here. `adopt`: deploy says whose the others are.
    plan = accounts.plan(declared, current, config.cluster, adopt=True)
    return tuple(change.description for change in plan.changes if change.verb == "add")


def engine_problems(report: HeadReport) -> list[str]:
    """Return the engine's own problems.

    reconcile is blocked or does not run, or a pool is protected.
    """
    problems = []
    last_pass = report.last_pass
    if last_pass.note:
        problems.append(f"reconcile is blocked: {last_pass.note}")
    problems += [f"reconcile warning: {warning}" for warning in last_pass.remarks[:MAX_LISTED]]
    if (rest_count := len(last_pass.remarks) - MAX_LISTED) > 0:
        problems.append(
            f"reconcile has {rest_count} more warnings: `toolkit reconcile --plan` shows them"
        )
    if last_pass.at and report.at - last_pass.at > STALE_SECONDS:
        problems.append(f"reconcile has not run for {report.at - last_pass.at:.0f} s")
    if report.unended:
        problems.append(report.unended)
    problems += [
        f"pool {item.pool} is protected: {item.failures} instances in a row did not become nodes"
        f" (`toolkit why NODE` shows the console of the last one)"
        for item in report.standings
        if item.protected_since is not None
    ]
    return problems


def _services(config: ClusterConfig, head: Head) -> dict[str, str]:
    units = _units(config)
    try:
        states = head.run(["systemctl", "is-active", *units])
    except HeadCommandFailed as error:
        # Exit code 3: none is active. The states are on standard output all the same.
        states = error.stdout
        if len(states.split()) != len(units):
            raise
    return dict(zip(units, states.split(), strict=True))


def _units(config: ClusterConfig) -> list[str]:
    """Return the units that run on this cluster's head node."""
    units = [*SERVICES]
    units.append("slurm-records.timer")
    if config.burst:
        units.append("slurm-govern.timer")
    if config.budgets:
        units.append("slurm-budget.timer")
    if config.slurm.submit_line:
        units.append("slurm-prices.timer")
    if config.mlflow.enabled:
        units += ["optuna", "mlflow", "slurm-runs.timer"]
    if config.backups.enabled:
        units.append("slurm-backup.timer")
    if not config.login_nodes.count and any(user.ssh_keys for user in config.users):
        units.append("slurm-sshd")
    if config.logs.enabled:
        units.append("slurm-log-shipper")
    if config.alarms.enabled:
        units.append("slurm-heartbeat.timer")
    return units


def _slurm(head: Head) -> tuple[bool, SlurmNodes]:
    try:
        head.run(["scontrol", "ping"])
        return True, read_states(head)
    except HeadCommandFailed:
        return False, SlurmNodes(())


def other_slurm(slurm: SlurmNodes) -> dict[str, str]:
    """Return the running nodes' releases that differ from the head's.

    A node that is powered down has the version of its last instance, which says nothing.
    """
    if not is_release(slurm.release):
        return {}
    return {
        node.name: node.version
        for node in slurm.nodes
        if is_release(node.version)
        and node.version != slurm.release
        and not {"POWERED_DOWN", "POWERING_UP"} & node.states
    }


def state_text(node: NodeInfo) -> str:
    """Return a node's state as people read it: idle+powered_down."""
    flags = [flag.lower() for flag in SHOWN_FLAGS if flag in node.states and flag != "DOWN"]
    return "+".join([node.base_state, *flags])


def _needs_admin(node: NodeInfo) -> bool:
    return "DOWN" in node.states and not node.reason.startswith(REASON_PREFIX)


def _alarms(config: ClusterConfig, clients: Clients) -> dict[str, str]:
    """Return the state of each alarm, as CloudWatch judged it last."""
    if not config.alarms.enabled:
        return {}
    subjects = {names.alarm(config, subject): subject for subject in names.ALARMS}
    response = clients.client("cloudwatch").describe_alarms(AlarmNames=list(subjects))
    return {
        subjects[item["AlarmName"]]: str(item["StateValue"]) for item in response["MetricAlarms"]
    }


def own_instances(config: ClusterConfig, clients: Clients) -> dict[str, int]:
    """Return the number of live instances by pool, with the head node."""
    own_tag = {tags.CLUSTER: config.cluster}
    live = instances.find(clients.client("ec2"), own_tag, instances.RUNNING)
    counts: Counter[str] = Counter()
    for values in map(instances.tag_values, live):
        counts[values.get(tags.POOL) or values.get(tags.ROLE, "unknown")] += 1
    return dict(sorted(counts.items()))
