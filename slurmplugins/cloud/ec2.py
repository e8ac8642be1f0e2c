"""The EC2 adapter: launch, tag, list and terminate instances."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.cloud import ec2_messages, error_codes, partial_termination, tags
from slurmplugins.cloud.client import ask, translate
from slurmplugins.errors import (
    CloudError,
    CloudUnreachable,
    Denied,
    InvalidRequest,
    NoCredentials,
    NotAllEnded,
    NotFound,
    Throttled,
)
from slurmplugins.model.launch import Launched
from slurmplugins.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance, InstanceHealth
    from slurmplugins.model.launch import LaunchRequest
    from slurmplugins.system.clock import Clock

TERMINATE_BATCH: Final = 200
"""Ids in one call. EC2 takes 1,000, but refuses the whole call for one bad id."""

SETTLE_TRIES: Final = 5
SETTLE_PAUSE: Final = 0.1
"""Seconds before the first repeat; each pause is twice the one before.

An instance that CreateFleet just returned may be unknown to other EC2 calls for a second or two.
"""

FILTER_VALUES: Final = 200
"""Values that EC2 accepts in one filter."""

MOST_PAGES: Final = 300
"""Pages of one list. A page has up to a thousand items, and may have none."""

_PAGE: Final = 1000


class Ec2:
    """An implementation of `cloud.port.Cloud` on a botocore EC2 client, for one cluster."""

    def __init__(
        self, cluster: str, connect: Callable[[], Any], clock: Clock | None = None
    ) -> None:
        self._cluster = cluster
        self._connect = connect
        self._client: Any = None
        self._connecting = threading.Lock()
        self._clock = clock or SystemClock()

    def launch(self, request: LaunchRequest, intend: Callable[[], None]) -> Launched:
        self._connected()  # it may have to fetch credentials
        intend()
        if request.others:
            return self._fleet(request)
        answer = self._call("run_instances", **ec2_messages.run_instances(request))
        found = ec2_messages.instances(_there(answer, "Instances")["Instances"])
        by_node = {item.node: item for item in found if item.node is not None}
        machines = tuple(by_node[node] for node in request.nodes if node in by_node)
        if len(machines) < len(found) or len(found) < request.at_least:
            text = f"asked for {len(request.nodes)} machines, got {len(found)} that make no sense"
            raise self._undone([item.id for item in found], "OddAnswer", text)
        return Launched(machines)

    def give(self, names: Mapping[str, NodeName], may: Callable[[str], bool]) -> bool:
        return all(
            self._tag([instance_id], {tags.NODE: node}, partial(may, instance_id))
            for instance_id, node in names.items()
        )

    def _fleet(self, request: LaunchRequest) -> Launched:
        """Launch a fleet, then tag its instances with their nodes.

        One CreateTags call tags all of them.
        """
        answer = self._call("create_fleet", **ec2_messages.create_fleet(request))
        # Sorted, so that a repeat gives each the same node, in whatever order EC2 lists them.
        groups = _there(answer, "Instances", "FleetId", "Errors").get("Instances", ())
        ids = sorted(item for group in groups for item in group["InstanceIds"])
        refusals = ec2_messages.refusals(request, answer.get("Errors", ()))
        if len(ids) > len(request.nodes) or len(set(ids)) < len(ids):
            text = f"asked for {len(request.nodes)}, got {len(ids)}"
            raise self._undone(list(dict.fromkeys(ids)), "OddAnswer", text)
        if not ids:
            return Launched((), refusals)
        try:
            self._tag(ids, tags.order_tags(ids))
        except (CloudUnreachable, NoCredentials) as error:
            # Tagged or not: repeating the same attempt finds the same instances and tags them.
            text = f"started, not named: {error.message}"
            raise error_codes.error("Unreachable", text, started=len(ids)) from error
        except CloudError as error:
            # Denied and InvalidRequest hold the job. With any other class of EC2's the caller could
            # repeat the call, and would get the terminated instances again.
            code = error.code if isinstance(error, Denied | InvalidRequest) else "NotNamed"
            text = f"started, not named: {error.code}: {error.message}"
            raise self._undone(ids, code, text) from error
        known = {item.id: item for item in self._listed(ids)}
        made = zip(request.nodes, ids, strict=False)
        machines = (
            known.get(item) or ec2_messages.unlisted(request, item, node) for node, item in made
        )
        return Launched(tuple(machines), refusals)

    def _tag(
        self, ids: Sequence[str], values: Mapping[str, str], may: Callable[[], bool] = lambda: True
    ) -> bool:
        """Tag new instances, with retries, while `may()` is true.

        EC2 may not know them everywhere yet. Returns False when `may()` is false.
        Raises CloudError.
        """
        for again in range(SETTLE_TRIES):
            if not may():
                return False
            try:
                self._call("create_tags", Resources=list(ids), Tags=ec2_messages.tag_pairs(values))
            except (NotFound, Throttled):
                if again == SETTLE_TRIES - 1:
                    raise
                self._clock.sleep(SETTLE_PAUSE * 2**again)
            else:
                break
        return True

    def _listed(self, ids: Sequence[str]) -> list[Instance]:
        """Return the instances that have a node.

        Their addresses are included if EC2 lists them within seconds. Raises nothing.
        """
        found: list[Instance] = []
        for again in range(SETTLE_TRIES):
            if again:
                self._clock.sleep(SETTLE_PAUSE * 2**again)
            try:
                found = self._ours(ids)
            except CloudError:
                continue  # they exist and are tagged: the address is optional
            if len(found) == len(ids) and all(item.address for item in found):
                break
        return [item for item in found if item.node is not None]

    def _end(self, ids: Sequence[str]) -> bool:
        """Terminate instances that this call just launched.

        No list may show them yet. Returns False if EC2 refuses: reconcile terminates them later.
        """
        try:
            if ids:
                self._call("terminate_instances", InstanceIds=list(ids))
        except CloudError:
            return False
        return True

    def _undone(self, ids: Sequence[str], code: str, text: str) -> CloudError:
        """Terminate instances that this call just launched; return the error to raise.

        If they may still run, no other instance may be launched for their nodes. The error is then
        CloudUnreachable: the call's outcome is unknown.
        """
        if self._end(ids):
            return error_codes.error(code, f"{text}; ended", started=len(ids))
        return error_codes.error("Unreachable", f"{text}; not ended", started=len(ids))

    def instances(self) -> tuple[Instance, ...]:
        return tuple(self._described(f"tag:{tags.CLUSTER}", [self._cluster]))

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        over: frozenset[str] = frozenset()
        kept: dict[str, CloudError] = {}
        for part in _parts(ids, TERMINATE_BATCH):
            ours = self._ours(part)
            over |= {item.id for item in ours if item.state.over}
            live = [item.id for item in ours if not item.state.over]
            ended, refused = partial_termination.ended(live, self._terminate)
            over |= ended
            kept |= refused
        if kept:
            raise NotAllEnded(over, kept)
        return over

    def health(self) -> tuple[InstanceHealth, ...]:
        """Return the health of instances with problems only.

        At 10,000 instances each answer then stays one page. DescribeInstanceStatus knows no tags,
        and the spot requests of a fleet have none. Therefore instances of others are included.
        """
        statuses = [
            item
            for name, values in ec2_messages.TROUBLE_FILTERS
            for item in self._pages(
                "describe_instance_status",
                "InstanceStatuses",
                Filters=[{"Name": name, "Values": list(values)}],
            )
        ]
        marked = self._pages(
            "describe_spot_instance_requests",
            "SpotInstanceRequests",
            Filters=[{"Name": "status-code", "Values": [ec2_messages.MARKED]}],
        )
        return ec2_messages.health(statuses, marked)

    def console(self, instance_id: str) -> str:
        text = self._call("get_console_output", InstanceId=instance_id).get("Output")
        return str(text or "")

    def _terminate(self, ids: Sequence[str]) -> frozenset[str]:
        answer = self._call("terminate_instances", InstanceIds=list(ids))
        return frozenset(
            item["InstanceId"]
            for item in _there(answer, "TerminatingInstances")["TerminatingInstances"]
            if item["CurrentState"]["Name"] in {"shutting-down", "terminated"}
        )

    def _ours(self, ids: Sequence[str]) -> list[Instance]:
        """Return the instances with these ids that carry our tag.

        The call uses a filter, since EC2 refuses all InstanceIds if it does not know one.
        """
        parts = _parts(ids, FILTER_VALUES)
        return [item for part in parts for item in self._described("instance-id", part)]

    def _described(self, name: str, values: Sequence[str]) -> list[Instance]:
        """Return our instances that match the filter, each once.

        The tag of each item is checked, since EC2 has ignored filters. An instance may move from
        one page to another while the pages are read.
        """
        mine = {"Key": tags.CLUSTER, "Value": self._cluster}
        filters = [{"Name": name, "Values": list(values)}]
        pages = self._pages("describe_instances", "Reservations", Filters=filters)
        items = (item for page in pages for item in page.get("Instances", ()))
        return ec2_messages.instances(item for item in items if mine in item.get("Tags", []))

    def _pages(self, operation: str, key: str, **arguments: Any) -> Iterable[dict[str, Any]]:
        seen = {""}
        more: dict[str, str] = {}
        while len(seen) <= MOST_PAGES:
            page = self._call(operation, MaxResults=_PAGE, **arguments, **more)
            yield from _there(page, key)[key]
            token = page.get("NextToken") or ""
            if not token:
                return
            if token in seen:
                break
            seen.add(token)
            more = {"NextToken": token}
        raise error_codes.error("Unreachable", f"{operation}: pages without end")

    def _call(self, operation: str, **arguments: Any) -> Any:
        client = self._connected()
        return ask(self._clock, operation, partial(getattr(client, operation), **arguments))

    def _connected(self) -> Any:
        try:
            with self._connecting:
                if self._client is None:
                    self._client = self._connect()
                return self._client
        except Exception as error:
            raise translate(error) from error


def _there(answer: Any, *keys: str) -> Any:
    """Return the answer if it has one of these keys.

    Raises CloudUnreachable otherwise: such an answer is worth as much as no answer.
    """
    if not any(key in answer for key in keys):
        raise error_codes.error("Unreachable", f"an answer without {keys[0]}")
    return answer


def _parts(ids: Sequence[str], size: int) -> list[Sequence[str]]:
    return [ids[start : start + size] for start in range(0, len(ids), size)]
