"""The EC2 adapter: launch, tag, list and terminate instances."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.cloud import ec2_messages, error_codes, partial_termination, tags
from slurmplugins.cloud.client import call, translate
from slurmplugins.errors import (
    CloudError,
    CloudUnreachable,
    Denied,
    InvalidRequest,
    NoCredentials,
    NotFound,
    SomeNotTerminated,
    Throttled,
)
from slurmplugins.model.launch import LaunchResult
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.retry import doubling, retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance, InstanceHealth
    from slurmplugins.model.launch import LaunchRequest
    from slurmplugins.system.clock import Clock

TERMINATE_BATCH: Final = 200
"""Ids in one call. EC2 takes 1,000, but refuses the whole call for one bad id."""

NEW_INSTANCE_TRIES: Final = 5
NEW_INSTANCE_PAUSE: Final = 0.1
"""Seconds before the first repeat; each pause is twice the one before.

An instance that CreateFleet just returned may be unknown to other EC2 calls for a second or two.
"""

FILTER_VALUES: Final = 200
"""Values that EC2 accepts in one filter."""

MAX_PAGES: Final = 300
"""Pages of one list. A page has up to a thousand items, and may have none."""

LIST_SECONDS: Final = 120.0
"""Seconds after which no further page of a list is requested.

Each page may take as long as a call. 300 such pages would take hours, in which resume launches
nothing.
"""

_PAGE_SIZE: Final = 1000

TOPOLOGY_PAGE: Final = 100
"""The largest MaxResults of DescribeInstanceTopology."""


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

    def launch(self, request: LaunchRequest, before_call: Callable[[], None]) -> LaunchResult:
        self._ec2_client()  # it may have to fetch credentials
        before_call()
        if request.others:
            return self._launch_fleet(request)
        answer = self._call("run_instances", **ec2_messages.run_instances(request))
        instances = ec2_messages.instances(_require_key(answer, "Instances")["Instances"])
        by_node = {item.node: item for item in instances if item.node is not None}
        ordered_instances = tuple(by_node[node] for node in request.nodes if node in by_node)
        if len(ordered_instances) < len(instances) or len(instances) < request.min_instances:
            text = (
                f"EC2 returned {len(instances)} instances, not the {len(request.nodes)} requested"
            )
            raise self._undo_launch([item.id for item in instances], "OddAnswer", text)
        return LaunchResult(ordered_instances)

    def retag_nodes(
        self, node_by_id: Mapping[str, NodeName], may_retag: Callable[[str], bool]
    ) -> bool:
        return all(
            self._tag([instance_id], {tags.NODE: node}, partial(may_retag, instance_id))
            for instance_id, node in node_by_id.items()
        )

    def _launch_fleet(self, request: LaunchRequest) -> LaunchResult:
        """Launch a fleet, then tag its instances with their nodes.

        One CreateTags call tags all of them.
        """
        answer = self._call("create_fleet", **ec2_messages.create_fleet(request))
        # Sorted, so that a repeat gives each the same node, in whatever order EC2 lists them.
        groups = _require_key(answer, "Instances", "FleetId", "Errors").get("Instances", ())
        ids = sorted(item for group in groups for item in group["InstanceIds"])
        refusals = ec2_messages.refusals(request, answer.get("Errors", ()))
        if len(ids) > len(request.nodes) or len(set(ids)) < len(ids):
            text = f"EC2 returned {len(ids)} instance ids for {len(request.nodes)} nodes"
            raise self._undo_launch(list(dict.fromkeys(ids)), "OddAnswer", text)
        if not ids:
            return LaunchResult((), refusals)
        try:
            self._tag(ids, tags.order_tags(ids))
        except (CloudUnreachable, NoCredentials) as error:
            # A repeat with the same launch id finds the same instances and tags them.
            text = f"instances started, but not tagged: {error.message}"
            raise error_codes.error("Unreachable", text, started=len(ids)) from error
        except CloudError as error:
            # Denied and InvalidRequest hold the job. With any other class of EC2's the caller could
            # repeat the call, and would get the terminated instances again.
            code = error.code if isinstance(error, Denied | InvalidRequest) else "NotNamed"
            text = f"instances started, but not tagged: {error.code}: {error.message}"
            raise self._undo_launch(ids, code, text) from error
        described = {item.id: item for item in self._describe_launched(ids)}
        pairs = zip(request.nodes, ids, strict=False)
        instances = (
            described.get(item) or ec2_messages.undescribed_instance(request, item, node)
            for node, item in pairs
        )
        return LaunchResult(tuple(instances), refusals)

    def _tag(
        self,
        ids: Sequence[str],
        values: Mapping[str, str],
        is_allowed: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Tag new instances, with retries, while `is_allowed()` is true.

        EC2 may not know them everywhere yet. Returns False when `is_allowed()` is false.
        Raises CloudError.
        """

        def tag() -> bool:
            if not is_allowed():
                return False
            self._call("create_tags", Resources=list(ids), Tags=ec2_messages.tag_pairs(values))
            return True

        pauses = doubling(NEW_INSTANCE_PAUSE, NEW_INSTANCE_TRIES)
        return retry(tag, (NotFound, Throttled), pauses, self._clock)

    def _describe_launched(self, ids: Sequence[str]) -> list[Instance]:
        """Return the instances that have a node.

        Their addresses are included if EC2 lists them within seconds. Raises nothing.
        """
        instances: list[Instance] = []
        # Not `retry`: an incomplete list counts as a failure, and is returned in the end.
        for try_index in range(NEW_INSTANCE_TRIES):
            if try_index:
                self._clock.sleep(NEW_INSTANCE_PAUSE * 2**try_index)
            try:
                instances = self._describe_ids(ids)
            except CloudError:
                continue  # they exist and are tagged: the address is optional
            if len(instances) == len(ids) and all(item.address for item in instances):
                break
        return [item for item in instances if item.node is not None]

    def _try_terminate(self, ids: Sequence[str]) -> bool:
        """Terminate instances that this call just launched.

        No list may show them yet. Returns False if EC2 refuses: reconcile terminates them later.
        """
        try:
            if ids:
                self._call("terminate_instances", InstanceIds=list(ids))
        except CloudError:
            return False
        return True

    def _undo_launch(self, ids: Sequence[str], code: str, text: str) -> CloudError:
        """Terminate instances that this call just launched; return the error to raise.

        If they may still run, no other instance may be launched for their nodes. The error is then
        CloudUnreachable: the call's outcome is unknown.
        """
        if self._try_terminate(ids):
            return error_codes.error(code, f"{text}; they were terminated", started=len(ids))
        return error_codes.error(
            "Unreachable", f"{text}; they could not be terminated", started=len(ids)
        )

    def instances(self) -> tuple[Instance, ...]:
        return tuple(self._describe_own(f"tag:{tags.CLUSTER}", [self._cluster]))

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        terminated_ids: frozenset[str] = frozenset()
        errors_by_id: dict[str, CloudError] = {}
        for batch in _batches(ids, TERMINATE_BATCH):
            own_instances = self._describe_ids(batch)
            terminated_ids |= {item.id for item in own_instances if item.state.terminated}
            live_ids = [item.id for item in own_instances if not item.state.terminated]
            batch_ids, batch_errors = partial_termination.terminate_all_possible(
                live_ids, self._terminate
            )
            terminated_ids |= batch_ids
            errors_by_id |= batch_errors
        if errors_by_id:
            raise SomeNotTerminated(terminated_ids, errors_by_id)
        return terminated_ids

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
        spot_requests = self._pages(
            "describe_spot_instance_requests",
            "SpotInstanceRequests",
            Filters=[{"Name": "status-code", "Values": [ec2_messages.MARKED_FOR_TERMINATION]}],
        )
        return ec2_messages.health(statuses, spot_requests)

    def network_nodes(self, types: Sequence[str]) -> dict[str, tuple[str, ...]]:
        # By type, not by id: EC2 refuses the call for one id of a type that it does not support.
        return {
            item["InstanceId"]: tuple(item.get("NetworkNodes", ()))
            for batch in _batches(types, FILTER_VALUES)
            for item in self._pages(
                "describe_instance_topology",
                "Instances",
                page_size=TOPOLOGY_PAGE,
                Filters=[{"Name": "instance-type", "Values": list(batch)}],
            )
        }

    def console(self, instance_id: str) -> str:
        text = self._call("get_console_output", InstanceId=instance_id).get("Output")
        return str(text or "")

    def _terminate(self, ids: Sequence[str]) -> frozenset[str]:
        answer = self._call("terminate_instances", InstanceIds=list(ids))
        return frozenset(
            item["InstanceId"]
            for item in _require_key(answer, "TerminatingInstances")["TerminatingInstances"]
            if item["CurrentState"]["Name"] in {"shutting-down", "terminated"}
        )

    def _describe_ids(self, ids: Sequence[str]) -> list[Instance]:
        """Return the instances with these ids that carry our tag.

        The call uses a filter, since EC2 refuses all InstanceIds if it does not know one.
        """
        deadline = self._list_deadline()
        return [
            item
            for batch in _batches(ids, FILTER_VALUES)
            for item in self._describe_own("instance-id", batch, deadline)
        ]

    def _list_deadline(self) -> float:
        return self._clock.monotonic() + LIST_SECONDS

    def _describe_own(
        self, name: str, values: Sequence[str], deadline: float | None = None
    ) -> list[Instance]:
        """Return our instances that match the filter, each once.

        The tag of each item is checked, since EC2 has ignored filters. An instance may move from
        one page to another while the pages are read.
        """
        cluster_tag = {"Key": tags.CLUSTER, "Value": self._cluster}
        filters = [{"Name": name, "Values": list(values)}]
        pages = self._pages(
            "describe_instances", "Reservations", deadline=deadline, Filters=filters
        )
        items = (item for page in pages for item in page.get("Instances", ()))
        return ec2_messages.instances(item for item in items if cluster_tag in item.get("Tags", []))

    def _pages(
        self,
        operation: str,
        key: str,
        page_size: int = _PAGE_SIZE,
        deadline: float | None = None,
        **arguments: Any,
    ) -> Iterable[dict[str, Any]]:
        """Yield the items of all pages.

        `deadline` is for a list that shares its time with others.
        Raises CloudUnreachable if the list has no end, or comes too slowly.
        """
        deadline = self._list_deadline() if deadline is None else deadline
        seen_tokens = {""}
        next_page: dict[str, str] = {}
        while len(seen_tokens) <= MAX_PAGES:
            if self._clock.monotonic() >= deadline:
                text = f"{operation}: EC2's list took more than {LIST_SECONDS:.0f} s"
                raise error_codes.error("Unreachable", text)
            page = self._call(operation, MaxResults=page_size, **arguments, **next_page)
            yield from _require_key(page, key)[key]
            token = page.get("NextToken") or ""
            if not token:
                return
            if token in seen_tokens:
                break
            seen_tokens.add(token)
            next_page = {"NextToken": token}
        raise error_codes.error("Unreachable", f"{operation}: EC2's pages do not end")

    def _call(self, operation: str, **arguments: Any) -> Any:
        client = self._ec2_client()
        return call(self._clock, operation, partial(getattr(client, operation), **arguments))

    def _ec2_client(self) -> Any:
        try:
            with self._connecting:
                if self._client is None:
                    self._client = self._connect()
                return self._client
        except Exception as error:
            raise translate(error) from error


def _require_key(answer: Any, *keys: str) -> Any:
    """Return the answer if it has one of these keys.

    Raises CloudUnreachable otherwise: such an answer is worth as much as no answer.
    """
    if not any(key in answer for key in keys):
        raise error_codes.error("Unreachable", f"EC2's answer has no {keys[0]}")
    return answer


def _batches(ids: Sequence[str], size: int) -> list[Sequence[str]]:
    return [ids[start : start + size] for start in range(0, len(ids), size)]
