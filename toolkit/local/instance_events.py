"""Events of instances on demand: interruptions, rebalance, failing checks, scheduled events."""

from __future__ import annotations

import json
import logging
from typing import Any

from moto.events.models import events_backends

from slurmplugins.cloud import tags
from toolkit.local.aws.iam.principals import iso
from toolkit.local.aws.instance_tables import LIVE_STATES, LocalInstance, Notice, Tables
from toolkit.local.aws.launch_request import SPOT
from toolkit.local.options import ACCOUNT

log = logging.getLogger(__name__)

DEFAULT_NOTICE = 120.0  # seconds EC2 promises


class NoSuchTarget(LookupError):  # noqa: N818 - what it is
    """No live instance of that id, node name or Name tag, or one that can't be interrupted."""


class InstanceEvents:
    """Announces interruptions, failing checks and events of instances.

    The machine controller carries an interruption out once its notice is over.
    """

    def __init__(self, tables: Tables) -> None:
        """Find instances in the tables."""
        self._tables = tables

    def find_instance(self, target: str) -> LocalInstance:
        """Return the live instance with this id, node or Name tag."""
        live_instances = [
            instance
            for instance in self._tables.instances.values()
            if instance.state in LIVE_STATES
        ]
        for instance in live_instances:
            if target == instance.id:
                return instance
        for instance in live_instances:
            if target == node_of(instance):
                return instance
        namesakes = [
            instance for instance in live_instances if instance.tags.get(tags.NAME) == target
        ]
        if len(namesakes) == 1:
            return namesakes[0]
        if namesakes:
            ids = ", ".join(instance.id for instance in namesakes)
            raise NoSuchTarget(f"{len(namesakes)} instances are named {target}: {ids}")
        raise NoSuchTarget(f"no live instance has the id, the node or the Name tag {target}")

    def interrupt(self, target: str, notice: float = DEFAULT_NOTICE) -> LocalInstance:
        """Give notice of that many seconds.

        A second notice can only bring the end nearer.
        """
        with self._tables.lock:
            instance = self.find_instance(target)
            if instance.pool.market != SPOT:
                raise NoSuchTarget(
                    f"{instance.id} is an on-demand instance: EC2 does not interrupt it"
                )
            now, wall = self._tables.clock(), self._tables.wall()
            if instance.notice is None or instance.notice.deadline > now + notice:
                instance.notice = Notice(time=wall + notice, deadline=now + notice)
            instance.rebalance_time = instance.rebalance_time or wall
            detail = {"instance-id": instance.id, "instance-action": "terminate"}
            self._publish(instance, "EC2 Spot Instance Interruption Warning", detail)
        log.info("%s has notice of %g s", instance.id, notice)
        return instance

    def rebalance(self, target: str) -> LocalInstance:
        """Announce that an instance is at elevated risk; nothing else happens."""
        with self._tables.lock:
            instance = self.find_instance(target)
            if instance.pool.market != SPOT:
                raise NoSuchTarget(
                    f"{instance.id} is an on-demand instance: EC2 recommends no rebalance"
                )
            instance.rebalance_time = self._tables.wall()
            detail = {"instance-id": instance.id}
            self._publish(instance, "EC2 Instance Rebalance Recommendation", detail)
        return instance

    def impair(self, target: str, ago: float, *, restore: bool = False) -> LocalInstance:
        """Let the instance's status check fail, or pass again.

        It fails since `ago` seconds.
        """
        with self._tables.lock:
            instance = self.find_instance(target)
            instance.impaired_since = None if restore else self._tables.wall() - ago
        return instance

    def schedule(
        self, target: str, code: str, seconds: float, *, cancel: bool = False
    ) -> LocalInstance:
        """Announce an event for the instance, or cancel all of them."""
        with self._tables.lock:
            instance = self.find_instance(target)
            instance.events = (
                () if cancel else (*instance.events, (code, self._tables.wall() + seconds))
            )
        return instance

    def _publish(self, instance: LocalInstance, kind: str, detail: dict[str, Any]) -> None:
        """Send EC2's event to EventBridge; rules pass it on, e.g. to SQS."""
        event = {
            "Source": "aws.ec2",
            "DetailType": kind,
            "Detail": json.dumps(detail),
            "Resources": [f"arn:aws:ec2:{instance.pool.zone}:instance/{instance.id}"],
        }
        try:
            events_backends[ACCOUNT][instance.region].put_events([event])
        except Exception:
            log.exception("no event for %s", instance.id)


def node_of(instance: LocalInstance) -> str | None:
    """Return an instance's Slurm node, from its tags at launch."""
    return tags.node_of(instance.tags, int(instance.row.ami_launch_index), instance.id)


def describe(instance: LocalInstance) -> dict[str, Any]:
    """Return one instance as `toolkit local status` lists it."""
    return {
        "instance_id": instance.id,
        "state": instance.state,
        "node": node_of(instance),
        "name": instance.tags.get(tags.NAME),
        "type": instance.pool.instance_type,
        "zone": instance.pool.zone,
        "market": instance.pool.market,
        "address": instance.row.private_ip,
        "image": instance.row.image_id,
        "region": instance.region,
        "notice": iso(instance.notice.time) if instance.notice else None,
        "impaired": iso(instance.impaired_since) if instance.impaired_since is not None else None,
        "events": [
            {"code": code, "not_before": iso(start_time)} for code, start_time in instance.events
        ],
        "reason": instance.reason_text,
    }
