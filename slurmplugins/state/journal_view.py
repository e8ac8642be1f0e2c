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
from slurmplugins.model.launch import LaunchRequest, askable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from slurmplugins.model.instance import Instance


Record = dict[str, Any]
_Moment = tuple[object, float]
"""A boot's id, and a time by that boot's monotonic clock."""

ODD: Final = (KeyError, TypeError, ValueError, AttributeError)
"""Errors from reading a line that is damaged, or that another version wrote differently."""

_CAUSES: Final = frozenset(EndCause)
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}", re.ASCII)


@dataclass(frozen=True, slots=True)
class JournalView:
    """The journal's state at one moment. A string key is an instance's id."""

    busy: frozenset[NodeName] = frozenset()
    """Nodes that a live run of resume is working on."""
    settling: frozenset[NodeName] = frozenset()
    """Subset of `busy` that the run holds only while it looks up a launch without an answer."""
    doubtful: frozenset[NodeName] = frozenset()
    """Nodes of recent launches with an unknown outcome that no live run waits for."""
    open: tuple[LaunchRequest, ...] = ()
    """The launches of `doubtful` whose request can be repeated."""
    asked: frozenset[str] = frozenset()
    """Attempts whose answer a live run waits for."""
    launched: Mapping[str, Assignment] = field(default_factory=dict)
    """Instances launched so recently that EC2 may not list them yet."""
    ended: Mapping[str, EndCause] = field(default_factory=dict)
    """Instances that we have decided to terminate, with the cause."""
    let_go: frozenset[str] = frozenset()
    """Instances whose node Slurm has powered down since they were launched for it."""
    ending: Mapping[str, Assignment] = field(default_factory=dict)
    """Instances as recent as `launched` that we have decided to terminate."""
    former: Mapping[str, Collection[NodeName]] = field(default_factory=dict)
    """Nodes that an instance was before."""
    claimed: Mapping[NodeName, float] = field(default_factory=dict)
    """Time of a node's last claim, by the monotonic clock, if recent. Its run may have ended."""
    strange: frozenset[str] = frozenset()
    """Instances named by lines that this version can't read.
    They serve no node, and are not terminated while Slurm needs their node.
    """
    riddles: frozenset[str] = frozenset()
    """Subset of `strange` whose line is so recent that they are not terminated at all."""
    born: Mapping[str, float] = field(default_factory=dict)
    """Launch times by the persistent clock."""
    at: float = 0.0
    """The time of this view, by the persistent clock."""

    def age(self, machine: Instance, now: float) -> float:
        """Return the instance's age in seconds.

        `now`, the head's wall clock, is used only if the journal has no launch time. The head's
        clock and EC2's may differ.
        """
        born = self.born.get(machine.id, math.inf)
        return self.at - born if born <= self.at else now - machine.launched_at

    def named(self, listed: Iterable[Instance]) -> tuple[Instance, ...]:
        """Return the instances with the nodes they were given last.

        A list that was read before this view may have an older node. EC2's tags are eventually
        consistent.
        """
        return tuple(
            item
            if (node := self.name(item.id, item.node)) == item.node
            else replace(item, node=node)
            for item in listed
        )

    def name(self, instance_id: str, listed: NodeName | None) -> NodeName | None:
        """Return an instance's node; `listed` is its node by EC2's tags.

        Only a former node is corrected. A run that died before it wrote to the journal may have
        given the instance a node that the journal does not know.
        """
        told = self.launched.get(instance_id)
        if told is None or not (listed is None or listed in self.former.get(instance_id, ())):
            return listed
        return told.node

    def worked_on(self, since: float) -> frozenset[NodeName]:
        """Return nodes that are busy now, or were claimed after `since`.

        Earlier observations of these nodes may be outdated.
        """
        return self.busy.union(node for node, at in self.claimed.items() if at > since)


class Book:
    """A sum of the journal's records, which it takes in their order.

    `recent`: EC2's lists may not show yet the launch that a record is about.
    `young`: EC2 may still list the record's instances.
    `moment`: the time of a record by the persistent clock. `boot`: the present boot's id; runs of
    other boots have ended.
    """

    def __init__(
        self,
        recent: Callable[[Record], bool],
        young: Callable[[Record], bool],
        moment: Callable[[Record], float],
        boot: str,
    ) -> None:
        self._recent, self._young, self._moment, self._boot = recent, young, moment, boot
        self.compacted = 0.0
        """The file's size after the last compaction."""
        self._strange: list[tuple[Record, frozenset[NodeName], frozenset[str]]] = []
        """Lines that this version can't read, with the nodes and instances that they name."""
        self._born: dict[str, float] = {}
        self._claimed: dict[str, set[NodeName]] = {}
        self._settling: dict[str, set[NodeName]] = {}
        self._taken: list[tuple[Record, list[NodeName]]] = []
        self._open: dict[str, list[tuple[Record, LaunchRequest]]] = {}
        """By attempt: its calls without an answer. All of them have the same request."""
        self._launches: list[tuple[Record, list[Assignment]]] = []
        self._ended: dict[str, EndCause] = {}
        self._node: dict[str, NodeName] = {}
        self._former: dict[str, set[NodeName]] = defaultdict(set)
        self._machines: dict[NodeName, dict[str, _Moment]] = defaultdict(dict)
        """By node: its instances, and the time at which each became that node."""
        self._let_go: set[str] = set()
        self._kinds: Mapping[str, Callable[[Record], None]] = {
            "claim": self._claim,
            "release": self._release,
            "intent": self._intent,
            "failed": self._fail,
            "launched": self._launch,
            "let-go": self._let_go_of,
            "ended": self._end,
            "compacted": self._compact,
        }

    def add(self, record: Record) -> None:
        """Add a record.

        If this version can't read it, all nodes and instances that it names are left alone.
        """
        try:
            self._kinds[record["kind"]](record)
        except ODD:
            found = frozenset(_texts(record))
            nodes = frozenset(node for text in found for node in hostlist.expand(text, odd=[]))
            ids = frozenset(text for text in found if _INSTANCE.fullmatch(text))
            if nodes or ids:
                self._strange.append((record, nodes, ids))

    def claimed(self, run: str) -> frozenset[NodeName]:
        """Return all nodes that the run has claimed and not released."""
        return frozenset().union(self._claimed.get(run, ()), self._settling.get(run, ()))

    def claims(self, alive: Callable[[str], bool]) -> JournalView:
        """Return the view. `alive` tells whether a run is live."""
        runs = self._claimed.keys() | self._settling.keys()
        held = {run: self.claimed(run) for run in runs if alive(run)}
        last = [calls[-1] for calls in self._open.values() if calls and self._recent(calls[-1][0])]
        # A live run that has released a launch's nodes does not wait for its answer any more.
        known = {
            request.attempt
            for record, request in last
            if held.get(str(record.get("run")), frozenset()).issuperset(request.nodes)
        }
        unknown = [item for item in last if item[1].attempt not in known]
        doubts = tuple(request for record, request in unknown if askable(record))
        self._strange = [item for item in self._strange if self._young(item[0])]
        at_work, unclear = self._not_ours(alive)
        self._launches = [item for item in self._launches if self._recent(item[0])]
        self._taken = [item for item in self._taken if self._recent(item[0])]
        recent = {one.instance_id: one for _, told in self._launches for one in told}
        launched = {key: one for key, one in recent.items() if key not in self._ended}
        return JournalView(
            busy=at_work.union(*held.values()),
            settling=frozenset().union(*(self._settling.get(run, ()) for run in held)),
            doubtful=unclear.union(node for _, request in unknown for node in request.nodes),
            open=doubts,
            asked=frozenset(known),
            launched=launched,
            ending={key: one for key, one in recent.items() if key in self._ended},
            ended=dict(self._ended),
            let_go=frozenset(self._let_go),
            former={key: frozenset(self._former[key]) for key in self._former.keys() & launched},
            claimed={node: number(at, "up") for at, nodes in self._taken for node in nodes},
            strange=self._named(self._young),
            riddles=self._named(self._recent),
            born=dict(self._born),
        )

    def _named(self, lately: Callable[[Record], bool]) -> frozenset[str]:
        """Return instances of unreadable lines whose termination is not decided.

        Only lines that `lately` accepts count.
        """
        found = (ids for record, _, ids in self._strange if lately(record))
        return frozenset().union(*found) - self._ended.keys()

    def _not_ours(
        self, alive: Callable[[str], bool]
    ) -> tuple[frozenset[NodeName], frozenset[NodeName]]:
        """Return the nodes that unreadable lines name.

        First the nodes of live runs, then the nodes of other recent lines.
        """
        busy: set[NodeName] = set()
        unclear: set[NodeName] = set()
        for record, nodes, _ in self._strange:
            run = record.get("run")
            if isinstance(run, str) and alive(run):
                busy |= nodes
            elif self._recent(record):
                unclear |= nodes
        return frozenset(busy), frozenset(unclear)

    def _claim(self, record: Record) -> None:
        nodes = list(map(_name, record["nodes"]))
        of = self._settling if record.get("settling") else self._claimed
        of.setdefault(record["run"], set()).update(nodes)
        if self._recent(record) and record.get("boot") == self._boot:
            self._taken.append((record, nodes))

    def _release(self, record: Record) -> None:
        for of in (self._claimed, self._settling):
            if left := of.pop(record["run"], set()).difference(map(_name, record["nodes"])):
                of[record["run"]] = left

    def _intent(self, record: Record) -> None:
        if self._recent(record):
            call = record, LaunchRequest.from_record(record)
            self._open[record["attempt"]] = [*self._open.pop(record["attempt"], ()), call]

    def _fail(self, record: Record) -> None:
        calls = self._open.get(record["attempt"], [])
        del calls[0 if record["settles"] else -1 :]

    def _launch(self, record: Record) -> None:
        at, born = _moment(record), self._moment(record)
        # A newer version may write more fields for an instance.
        told = [
            Assignment(_name(node), *map(_text, (instance_id, address, type_)))
            for node, instance_id, address, type_, *_ in record["machines"]
        ]
        self._open.pop(record["attempt"], None)
        for item in told:
            node, instance_id = item.node, item.instance_id
            if born > -math.inf:  # otherwise EC2's launch time is better
                self._born.setdefault(instance_id, born)
            if (former := self._node.get(instance_id, node)) != node:
                self._former[instance_id].add(former)
                self._machines[former].pop(instance_id, None)
            self._machines[node][instance_id] = at
            self._node[instance_id] = node
        if self._recent(record):
            self._launches.append((record, told))

    def _let_go_of(self, record: Record) -> None:
        for node in map(_name, record["nodes"]):
            mine = self._machines[node]
            for instance_id in [key for key, named in mine.items() if not _since(record, named)]:
                del mine[instance_id]
                self._let_go.add(instance_id)

    def _end(self, record: Record) -> None:
        known = record.get("cause") in _CAUSES
        cause = EndCause(record["cause"]) if known else EndCause.UNKNOWN
        self._ended |= dict.fromkeys(map(_text, _list(record["ids"])), cause)

    def _compact(self, record: Record) -> None:
        self.compacted = number(record, "size")


def _since(let_go: Record, named: _Moment) -> bool:
    """Return whether the instance became the node after its power-down was seen."""
    boot, up = named
    return let_go.get("boot") == boot and "since" in let_go and up > number(let_go, "since")


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
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            left += one


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
