"""Bad news on demand: EC2's spot notice, its rebalance recommendation, failing checks, events."""

from __future__ import annotations

import json
import logging
from typing import Any

from moto.events.models import events_backends

from slurmplugins.cloud import tags
from toolkit.local.aws.instance_tables import ALIVE, Life, Notice, Tables
from toolkit.local.aws.launch_request import SPOT
from toolkit.local.imds_tree import iso
from toolkit.local.options import ACCOUNT

log = logging.getLogger(__name__)

DEFAULT_NOTICE = 120.0  # seconds EC2 promises


class NoSuchTarget(LookupError):  # noqa: N818 - what it is
    """No live instance of that id, node name or Name tag, or one that can't be interrupted."""


class Interruptions:
    """Announces the end of spot instances; the keeper reclaims them when the time has come."""

    def __init__(self, tables: Tables) -> None:
        """Find instances in the tables."""
        self._tables = tables

    def find(self, target: str) -> Life:
        """Return the live instance with this id, node or Name tag."""
        alive = [life for life in self._tables.lives.values() if life.state in ALIVE]
        for life in alive:
            if target == life.id:
                return life
        for life in alive:
            if target == node_of(life):
                return life
        named = [life for life in alive if life.tags.get(tags.NAME) == target]
        if len(named) == 1:
            return named[0]
        if named:
            ids = ", ".join(life.id for life in named)
            raise NoSuchTarget(f"{len(named)} instances are named {target}: {ids}")
        raise NoSuchTarget(f"no live instance is, or is the node, {target}")

    def interrupt(self, target: str, notice: float = DEFAULT_NOTICE) -> Life:
        """Give notice of that many seconds.

        A second notice can only bring the end nearer.
        """
        with self._tables.lock:
            life = self.find(target)
            if life.pool.market != SPOT:
                raise NoSuchTarget(f"{life.id} is an on-demand instance: EC2 does not reclaim it")
            now, wall = self._tables.clock(), self._tables.wall()
            if life.notice is None or life.notice.deadline > now + notice:
                life.notice = Notice(time=wall + notice, deadline=now + notice)
            life.rebalance = life.rebalance or wall
            detail = {"instance-id": life.id, "instance-action": "terminate"}
            self._publish(life, "EC2 Spot Instance Interruption Warning", detail)
        log.info("%s has notice of %g s", life.id, notice)
        return life

    def rebalance(self, target: str) -> Life:
        """Announce that an instance is at elevated risk; nothing else happens."""
        with self._tables.lock:
            life = self.find(target)
            if life.pool.market != SPOT:
                raise NoSuchTarget(f"{life.id} is an on-demand instance: it is not rebalanced")
            life.rebalance = self._tables.wall()
            detail = {"instance-id": life.id}
            self._publish(life, "EC2 Instance Rebalance Recommendation", detail)
        return life

    def impair(self, target: str, ago: float, *, restore: bool = False) -> Life:
        """Let the instance's status check fail, or pass again.

        It fails since `ago` seconds.
        """
        with self._tables.lock:
            life = self.find(target)
            life.impaired = None if restore else self._tables.wall() - ago
        return life

    def schedule(self, target: str, code: str, seconds: float, *, cancel: bool = False) -> Life:
        """Announce an event for the instance, or cancel all of them."""
        with self._tables.lock:
            life = self.find(target)
            life.events = () if cancel else (*life.events, (code, self._tables.wall() + seconds))
        return life

    def _publish(self, life: Life, kind: str, detail: dict[str, Any]) -> None:
        """Send EC2's event to EventBridge; rules pass it on, e.g. to SQS."""
        event = {
            "Source": "aws.ec2",
            "DetailType": kind,
            "Detail": json.dumps(detail),
            "Resources": [f"arn:aws:ec2:{life.pool.zone}:instance/{life.id}"],
        }
        try:
            events_backends[ACCOUNT][life.region].put_events([event])
        except Exception:
            log.exception("no event for %s", life.id)


def node_of(life: Life) -> str | None:
    """Return an instance's Slurm node, from its tags at launch."""
    return tags.node_of(life.tags, int(life.instance.ami_launch_index), life.id)


def shown(life: Life) -> dict[str, Any]:
    """Return one instance as `toolkit local status` lists it."""
    return {
        "instance_id": life.id,
        "state": life.state,
        "node": node_of(life),
        "name": life.tags.get(tags.NAME),
        "type": life.pool.instance_type,
        "zone": life.pool.zone,
        "market": life.pool.market,
        "address": life.instance.private_ip,
        "image": life.instance.image_id,
        "region": life.region,
        "notice": iso(life.notice.time) if life.notice else None,
        "impaired": iso(life.impaired) if life.impaired is not None else None,
        "events": [{"code": code, "not_before": iso(when)} for code, when in life.events],
        "reason": life.why,
    }
