"""The journal's view: the present state that its records add up to. No I/O."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model import hostlist
from slurmplugins.model.hostlist import NodeName
from slurmplugins.model.instance import Assignment, EndCause
from slurmplugins.model.json_input import finite
from slurmplugins.model.launch import LaunchRequest, is_repeatable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from slurmplugins.model.instance import Instance


Record = dict[str, Any]
_Moment = tuple[object, float]
"""A boot's id, and a time by that boot's monotonic clock."""

UNREADABLE_ERRORS: Final = (KeyError, TypeError, ValueError, AttributeError)
"""Errors from reading a line that is damaged, or that another version wrote differently."""

_CAUSES: Final = frozenset(EndCause)
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}", re.ASCII)


@dataclass(frozen=True, slots=True)
class JournalView:
    """The journal's state at one moment. A string key is an instance's id."""

    claimed_nodes: frozenset[NodeName] = frozenset()
    """Nodes that a live ResumeProgram process is working on."""
    claimed_to_resolve: frozenset[NodeName] = frozenset()
    """Subset of `claimed_nodes` that are claimed only while a launch without an answer is looked
    up.
    """
    unresolved_nodes: frozenset[NodeName] = frozenset()
    """Nodes of recent launches with an unknown outcome that no live process waits for."""
    unresolved_launches: tuple[LaunchRequest, ...] = ()
    """The launches of `unresolved_nodes` whose request can be repeated."""
    awaiting_reply: frozenset[str] = frozenset()
    """Ids of launches whose answer a live process waits for."""
    recent_launches: Mapping[str, Assignment] = field(default_factory=dict)
    """Instances launched so recently that EC2 may not list them yet."""
    termination_causes: Mapping[str, EndCause] = field(default_factory=dict)
    """Instances that we have decided to terminate, with the cause."""
    powered_down_ids: frozenset[str] = frozenset()
    """Instances whose node Slurm has powered down since they were launched for it."""
    recent_terminations: Mapping[str, Assignment] = field(default_factory=dict)
    """Instances as recent as `launched` that we have decided to terminate."""
    former_nodes: Mapping[str, Collection[NodeName]] = field(default_factory=dict)
    """Nodes that an instance was before."""
    claim_times: Mapping[NodeName, float] = field(default_factory=dict)
    """Time of a node's last claim, by the monotonic clock, if recent. Its process may have ended.
    """
    unreadable_ids: frozenset[str] = frozenset()
    """Instances named by lines that this version can't read.
    They serve no node, and are not terminated while Slurm needs their node.
    """
    recent_unreadable_ids: frozenset[str] = frozenset()
    """Subset of `unreadable_ids` whose line is so recent that they are not terminated at all."""
    launch_times: Mapping[str, float] = field(default_factory=dict)
    """Launch times by the persistent clock."""
    time: float = 0.0
    """The time of this view, by the persistent clock."""

    def age(self, instance: Instance, now: float) -> float:
        """Return the instance's age in seconds.

        `now`, the head's wall clock, is used only if the journal has no launch time. The head's
        clock and EC2's may differ.
        """
        launched_at = self.launch_times.get(instance.id, math.inf)
        return self.time - launched_at if launched_at <= self.time else now - instance.launched_at

    def with_current_nodes(self, instances: Iterable[Instance]) -> tuple[Instance, ...]:
        """Return the instances with their current nodes.

        A list that was read before this view may have an older node. EC2's tags are eventually
        consistent.
        """
        return tuple(
            item
            if (node := self.current_node(item.id, item.node)) == item.node
            else replace(item, node=node)
            for item in instances
        )

    def current_node(self, instance_id: str, listed_node: NodeName | None) -> NodeName | None:
        """Return an instance's node; `listed_node` is its node by EC2's tags.

        Only a former node is corrected. A process that died before it wrote to the journal may
        have reassigned the instance to a node that the journal does not know.
        """
        assignment = self.recent_launches.get(instance_id)
        if assignment is None or not (
            listed_node is None or listed_node in self.former_nodes.get(instance_id, ())
        ):
            return listed_node
        return assignment.node

    def claimed_since(self, since: float) -> frozenset[NodeName]:
        """Return nodes that are claimed now, or were claimed after `since`.

        Earlier observations of these nodes may be outdated.
        """
        return self.claimed_nodes.union(node for node, at in self.claim_times.items() if at > since)


class JournalReplay:
    """A sum of the journal's records, which it takes in their order.

    `recent`: EC2's lists may not show yet the launch that a record is about.
    `still_listed`: EC2 may still list the record's instances.
    `moment`: the time of a record by the persistent clock. `boot`: the present boot's id; processes
    of other boots have ended.
    """

    def __init__(
        self,
        recent: Callable[[Record], bool],
        still_listed: Callable[[Record], bool],
        moment: Callable[[Record], float],
        boot: str,
    ) -> None:
        self._recent, self._still_listed, self._moment, self._boot = (
            recent,
            still_listed,
            moment,
            boot,
        )
        self.compacted_size = 0.0
        """The file's size after the last compaction."""
        self._unreadable_lines: list[tuple[Record, frozenset[NodeName], frozenset[str]]] = []
        """Lines that this version can't read, with the nodes and instances that they name."""
        self._launch_times: dict[str, float] = {}
        self._claims_by_process: dict[str, set[NodeName]] = {}
        self._resolving_by_process: dict[str, set[NodeName]] = {}
        self._recent_claims: list[tuple[Record, list[NodeName]]] = []
        self._unanswered_calls: dict[str, list[tuple[Record, LaunchRequest]]] = {}
        """By launch id: its calls without an answer. All of them have the same request."""
        self._launches: list[tuple[Record, list[Assignment]]] = []
        self._termination_causes: dict[str, EndCause] = {}
        self._node_by_instance: dict[str, NodeName] = {}
        self._former_nodes: dict[str, set[NodeName]] = defaultdict(set)
        self._instances_by_node: dict[NodeName, dict[str, _Moment]] = defaultdict(dict)
        """By node: its instances, and the time at which each became that node."""
        self._powered_down_ids: set[str] = set()
        self._handlers: Mapping[str, Callable[[Record], None]] = {
            "claim": self._claim,
            "release": self._release,
            "intent": self._intent,
            "failed": self._fail,
            "launched": self._launch,
            "let-go": self._power_down,
            "ended": self._terminate,
            "compacted": self._compact,
        }

    def add(self, record: Record) -> None:
        """Add a record.

        If this version can't read it, all nodes and instances that it names are left alone.
        """
        try:
            self._handlers[record["kind"]](record)
        except UNREADABLE_ERRORS:
            texts = frozenset(_texts(record))
            nodes = frozenset(
                node for text in texts for node in hostlist.expand(text, invalid_names=[])
            )
            ids = frozenset(text for text in texts if _INSTANCE.fullmatch(text))
            if nodes or ids:
                self._unreadable_lines.append((record, nodes, ids))

    def claimed_by(self, process_id: str) -> frozenset[NodeName]:
        """Return all nodes that the process has claimed and not released."""
        return frozenset().union(
            self._claims_by_process.get(process_id, ()),
            self._resolving_by_process.get(process_id, ()),
        )

    def view(self, is_live: Callable[[str], bool]) -> JournalView:
        """Return the view. `is_live` tells whether a process is live."""
        self._drop_old_records()
        nodes_by_process = self._live_claims(is_live)
        awaiting_reply, unresolved_calls = self._open_calls(nodes_by_process)
        unreadable_claimed, unreadable_unresolved = self._unreadable_nodes(is_live)
        recent_launches, recent_terminations = self._recent_assignments()
        return JournalView(
            claimed_nodes=unreadable_claimed.union(*nodes_by_process.values()),
            claimed_to_resolve=frozenset().union(
                *(self._resolving_by_process.get(process_id, ()) for process_id in nodes_by_process)
            ),
            unresolved_nodes=unreadable_unresolved.union(
                node for _, request in unresolved_calls for node in request.nodes
            ),
            unresolved_launches=tuple(
                request for record, request in unresolved_calls if is_repeatable(record)
            ),
            awaiting_reply=awaiting_reply,
            recent_launches=recent_launches,
            recent_terminations=recent_terminations,
            termination_causes=dict(self._termination_causes),
            powered_down_ids=frozenset(self._powered_down_ids),
            former_nodes={
                instance_id: frozenset(self._former_nodes[instance_id])
                for instance_id in self._former_nodes.keys() & recent_launches
            },
            claim_times={
                node: number(at, "up") for at, nodes in self._recent_claims for node in nodes
            },
            unreadable_ids=self._unreadable_ids(self._still_listed),
            recent_unreadable_ids=self._unreadable_ids(self._recent),
            launch_times=dict(self._launch_times),
        )

    def _drop_old_records(self) -> None:
        """Drop the records of which no view tells any more."""
        self._unreadable_lines = [
            item for item in self._unreadable_lines if self._still_listed(item[0])
        ]
        self._launches = [item for item in self._launches if self._recent(item[0])]
        self._recent_claims = [item for item in self._recent_claims if self._recent(item[0])]

    def _live_claims(self, is_live: Callable[[str], bool]) -> dict[str, frozenset[NodeName]]:
        """Return the claimed nodes by live process."""
        process_ids = self._claims_by_process.keys() | self._resolving_by_process.keys()
        return {
            process_id: self.claimed_by(process_id)
            for process_id in process_ids
            if is_live(process_id)
        }

    def _open_calls(
        self, nodes_by_process: Mapping[str, frozenset[NodeName]]
    ) -> tuple[frozenset[str], list[tuple[Record, LaunchRequest]]]:
        """Return the launches with a live process, and the other recent calls.

        The former are the ids of launches whose answer a live process waits for.
        A live process that has released a launch's nodes does not wait for its answer any more.
        """
        last_calls = [
            calls[-1]
            for calls in self._unanswered_calls.values()
            if calls and self._recent(calls[-1][0])
        ]
        awaiting_reply = frozenset(
            request.attempt
            for record, request in last_calls
            if nodes_by_process.get(str(record.get("run")), frozenset()).issuperset(request.nodes)
        )
        return awaiting_reply, [
            item for item in last_calls if item[1].attempt not in awaiting_reply
        ]

    def _recent_assignments(self) -> tuple[dict[str, Assignment], dict[str, Assignment]]:
        """Return recent launches, and recent ones that we decided to terminate."""
        launched: dict[str, Assignment] = {}
        terminated: dict[str, Assignment] = {}
        for _, assignments in self._launches:
            for item in assignments:
                is_terminated = item.instance_id in self._termination_causes
                (terminated if is_terminated else launched)[item.instance_id] = item
        return launched, terminated

    def _unreadable_ids(self, is_counted: Callable[[Record], bool]) -> frozenset[str]:
        """Return instances of unreadable lines whose termination is not decided.

        Only lines that `is_counted` accepts count.
        """
        id_sets = (ids for record, _, ids in self._unreadable_lines if is_counted(record))
        return frozenset().union(*id_sets) - self._termination_causes.keys()

    def _unreadable_nodes(
        self, is_live: Callable[[str], bool]
    ) -> tuple[frozenset[NodeName], frozenset[NodeName]]:
        """Return the nodes that unreadable lines name.

        First the nodes of live processes, then the nodes of other recent lines.
        """
        claimed_nodes: set[NodeName] = set()
        unresolved_nodes: set[NodeName] = set()
        for record, nodes, _ in self._unreadable_lines:
            process_id = record.get("run")
            if isinstance(process_id, str) and is_live(process_id):
                claimed_nodes |= nodes
            elif self._recent(record):
                unresolved_nodes |= nodes
        return frozenset(claimed_nodes), frozenset(unresolved_nodes)

    def _claim(self, record: Record) -> None:
        nodes = list(map(_name, record["nodes"]))
        nodes_by_process = (
            self._resolving_by_process if record.get("settling") else self._claims_by_process
        )
        nodes_by_process.setdefault(record["run"], set()).update(nodes)
        if self._recent(record) and record.get("boot") == self._boot:
            self._recent_claims.append((record, nodes))

    def _release(self, record: Record) -> None:
        for nodes_by_process in (self._claims_by_process, self._resolving_by_process):
            if remaining := nodes_by_process.pop(record["run"], set()).difference(
                map(_name, record["nodes"])
            ):
                nodes_by_process[record["run"]] = remaining

    def _intent(self, record: Record) -> None:
        if self._recent(record):
            call = record, LaunchRequest.from_record(record)
            self._unanswered_calls[record["attempt"]] = [
                *self._unanswered_calls.pop(record["attempt"], ()),
                call,
            ]

    def _fail(self, record: Record) -> None:
        calls = self._unanswered_calls.get(record["attempt"], [])
        del calls[0 if record["settles"] else -1 :]

    def _launch(self, record: Record) -> None:
        at, launched_at = _moment(record), self._moment(record)
        # A newer version may write more fields for an instance.
        assignments = [
            Assignment(_name(node), *map(_text, (instance_id, address, type_)))
            for node, instance_id, address, type_, *_ in record["machines"]
        ]
        self._unanswered_calls.pop(record["attempt"], None)
        for item in assignments:
            node, instance_id = item.node, item.instance_id
            if launched_at > -math.inf:  # otherwise EC2's launch time is better
                self._launch_times.setdefault(instance_id, launched_at)
            if (former := self._node_by_instance.get(instance_id, node)) != node:
                self._former_nodes[instance_id].add(former)
                self._instances_by_node[former].pop(instance_id, None)
            self._instances_by_node[node][instance_id] = at
            self._node_by_instance[instance_id] = node
        if self._recent(record):
            self._launches.append((record, assignments))

    def _power_down(self, record: Record) -> None:
        for node in map(_name, record["nodes"]):
            instances = self._instances_by_node[node]
            for instance_id in [
                key
                for key, moment in instances.items()
                if not _named_after_power_down(record, moment)
            ]:
                del instances[instance_id]
                self._powered_down_ids.add(instance_id)

    def _terminate(self, record: Record) -> None:
        is_known = record.get("cause") in _CAUSES
        cause = EndCause(record["cause"]) if is_known else EndCause.UNKNOWN
        self._termination_causes |= dict.fromkeys(map(_text, _list(record["ids"])), cause)

    def _compact(self, record: Record) -> None:
        self.compacted_size = number(record, "size")


def _named_after_power_down(record: Record, moment: _Moment) -> bool:
    """Return whether the instance became the node after its power-down was seen."""
    boot, uptime = moment
    return record.get("boot") == boot and "since" in record and uptime > number(record, "since")


def _moment(record: Record) -> _Moment:
    return record.get("boot"), number(record, "up")


def number(record: Record, key: str) -> float:
    """Return a number of a record.

    If a damaged record has none, return minus infinity, which means long ago.
    """
    try:
        return finite(record.get(key))
    except ValueError:
        return -math.inf


def _texts(value: object) -> Iterator[str]:
    """Yield every text in a record, at any depth, keys included."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            pending += item


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _name(value: object) -> NodeName:
    return NodeName(_text(value))


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value
