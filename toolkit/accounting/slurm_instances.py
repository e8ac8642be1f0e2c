"""Slurm's own instance accounting: `sacctmgr show instance`.

slurmctld tells slurmdbd the instance of a node (`scontrol update InstanceId=`, `slurmd
--instance-id`). slurmdbd shows it from the node's power-up to the second in which the node
was POWERED_DOWN again. That is `_create_instance_rec` in as_mysql_cluster.c, 23.11 and
later. So the start is before EC2's launch, and the end is behind SuspendProgram by
SuspendTimeout. 24.11, 25.11 and 26.05 answer alike (tests/golden/accounting), but 26.05 has
no Extra from slurmd. Two traps:

* `start=` selects by the start alone. An instance that began before it is not listed.
* `end=` would hide the row from which an earlier instance has its end. It is never given.

sacctmgr escapes nothing and has no delimiter of its own. Extra is the one free text, so it
is the last field. A row that is no instance's life is set aside. A line break in Extra
may forge a row: such an instance is shown as one that Slurm alone knows, and changes
no other.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model.instance import Lifecycle
from slurmplugins.slurm import sacct
from toolkit.accounting.cloudtrail import INSTANCE_ID
from toolkit.accounting.set_aside import SetAside
from toolkit.errors import HeadNotReady, StackMissing, ToolkitError
from toolkit.prices import parse_usd

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from toolkit.head_runner import Runner

_FIELDS: Final = sacct.INSTANCE_FIELDS
_NAME_OF_TEXT: Final = "sacctmgr show instance"
_TIMEOUT: Final = 300.0
_SECOND: Final = re.compile(r"[1-9][0-9]{0,10}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RUNNING: Final = ("Unknown", "None", "")


@dataclass(frozen=True, slots=True)
class SlurmInstance:
    """An instance as one node, by slurmdbd. Times are seconds since the epoch."""

    instance_id: str
    node: str
    instance_type: str
    started: int  # the node began to power up
    ended: int | None  # the node had powered down; None: not yet
    spot: bool = False
    zone: str = ""
    price: Decimal | None = None  # US dollars an hour, as the node knew it


@dataclass(frozen=True, slots=True)
class SlurmInstances:
    """The instances of Slurm's answers, and the rows that are none."""

    instances: tuple[SlurmInstance, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    reach: int | None = None  # the second up to which they are known; None: all are


def argv(cluster: str, since: int) -> list[str]:
    """Return the call for all instances that began since then."""
    return sacct.instances_argv(cluster, since)


def read(runner: Runner, cluster: str, since: int) -> SlurmInstances:
    """Return the cluster's instances since then, and of 30 days before.

    It is a second source: Slurm before 23.11 does not have it, and an older head's readers may
    not ask it. Then the report says so. Raises HeadNotReady or StackMissing without a head.
    """
    try:
        first = since - sacct.INSTANCE_LOOK_BACK
        text = runner.run(argv(cluster, first), timeout=_TIMEOUT)
    except (HeadNotReady, StackMissing):
        raise
    except ToolkitError as error:
        reason = f"not read, so only ledger and EC2 name instances ({str(error)[:200]})"
        name = "Slurm's instance accounting"
        return SlurmInstances((), (SetAside(name, reason, has_unknown_cost=False),), reach=0)
    return parse(text, cluster)


def merged(recorded: SlurmInstances, answer: SlurmInstances) -> SlurmInstances:
    """Return the instances of records and of the head's answer.

    Of one life the newer row counts, unless it alone has no end.
    """
    latest: dict[tuple[str, str, int], SlurmInstance] = {}
    for item in (*recorded.instances, *answer.instances):
        life = (item.instance_id, item.node, item.started)
        known = latest.get(life)
        if known is None or known.ended is None or item.ended is not None:
            latest[life] = item
    reach = None if answer.reach is None else max(answer.reach, recorded.reach or 0)
    return SlurmInstances(tuple(latest.values()), (*recorded.set_aside, *answer.set_aside), reach)


def parse(text: str, cluster: str, source: str = _NAME_OF_TEXT) -> SlurmInstances:
    """Parse sacctmgr's rows.

    A node without an instance has a row without an id.
    """
    instances = []
    set_aside = []
    for number, line in enumerate(text.split("\n"), start=1):
        row = line.split("|", len(_FIELDS) - 1)
        if not line or (len(row) == len(_FIELDS) and not row[4]):
            continue
        instance = _instance(row, cluster)
        if instance is None:
            name = f"row {number} of {source}"
            set_aside.append(SetAside(name, "no life of an instance", has_unknown_cost=False))
        else:
            instances.append(instance)
    return SlurmInstances(tuple(instances), tuple(set_aside))


def _instance(row: Sequence[str], cluster: str) -> SlurmInstance | None:
    if len(row) != len(_FIELDS):
        return None
    row_cluster, node, start, end, instance_id, instance_type, extra = row
    names = (node, instance_type)
    if row_cluster != cluster or not all(map(_NAME.fullmatch, names)):
        return None
    is_open = end in _RUNNING
    if not (_SECOND.fullmatch(start) and (is_open or _SECOND.fullmatch(end))):
        return None
    if not INSTANCE_ID.fullmatch(instance_id) or not (is_open or int(start) <= int(end)):
        return None
    facts = _extra_facts(extra)
    return SlurmInstance(
        instance_id=instance_id,
        node=node,
        instance_type=instance_type,
        started=int(start),
        ended=None if is_open else int(end),
        spot=facts.get("lifecycle") == Lifecycle.SPOT,
        zone=str(facts.get("az", "")),
        price=parse_usd(str(facts.get("price", ""))),
    )


def _extra_facts(extra: str) -> dict[str, Any]:
    """Return what a node's slurmd told of its instance (slurmplugins/node/slurmd_setup.py)."""
    try:
        value = json.loads(extra)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
