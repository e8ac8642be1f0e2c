"""The journal's records, added up to what they say now. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from slurmplugins import intents
from slurmplugins.claims import Claims
from slurmplugins.model import Assignment, EndCause
from slurmplugins.names import NodeName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurmplugins.model import LaunchRequest

Record = dict[str, Any]
_Moment = tuple[object, float]
"""Of the steady clock, and of which boot that was."""


class Book:
    """Takes records in their order, and tells at any time what they say by then. `recent`: whether
    EC2 may still not show what one is about. `boot`: the one that is now; runs of others are over.
    `compacted`: the file's size when what meant nothing was last dropped.
    """

    def __init__(self, recent: Callable[[Record], bool], boot: str) -> None:
        self._recent, self._boot = recent, boot
        self.compacted = 0.0
        self._claimed: dict[str, set[NodeName]] = {}
        self._settling: dict[str, set[NodeName]] = {}
        self._taken: list[tuple[Record, list[NodeName]]] = []
        self._open: dict[str, list[tuple[Record, LaunchRequest]]] = {}
        """By attempt, its calls that have no answer, and the one request of them all."""
        self._launches: list[tuple[Record, list[Assignment]]] = []
        self._ended: dict[str, EndCause] = {}
        self._node: dict[str, NodeName] = {}
        self._former: dict[str, set[NodeName]] = defaultdict(set)
        self._machines: dict[NodeName, dict[str, _Moment]] = defaultdict(dict)
        """By node, its machines, and when each became it."""
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
        """KeyError, TypeError or ValueError for a record that is damaged; others are left alone."""
        if (take := self._kinds.get(record.get("kind", ""))) is not None:
            take(record)

    def claimed(self, run: str) -> frozenset[NodeName]:
        """What the run has claimed, for whatever reason, and not released."""
        return frozenset().union(self._claimed.get(run, ()), self._settling.get(run, ()))

    def claims(self, alive: Callable[[str], bool]) -> Claims:
        """The sum, where `alive` tells which runs still are."""
        runs = self._claimed.keys() | self._settling.keys()
        held = {run: self.claimed(run) for run in runs if alive(run)}
        last = [calls[-1] for calls in self._open.values() if calls and self._recent(calls[-1][0])]
        # A live run that has let go of a launch's nodes does not know what became of it either.
        known = {
            request.attempt
            for record, request in last
            if held.get(str(record.get("run")), frozenset()).issuperset(request.nodes)
        }
        doubts = tuple(request for _, request in last if request.attempt not in known)
        self._launches = [item for item in self._launches if self._recent(item[0])]
        self._taken = [item for item in self._taken if self._recent(item[0])]
        launched = {
            one.instance_id: one
            for _, told in self._launches
            for one in told
            if one.instance_id not in self._ended
        }
        return Claims(
            busy=frozenset().union(*held.values()),
            settling=frozenset().union(*(self._settling.get(run, ()) for run in held)),
            doubtful=frozenset(node for request in doubts for node in request.nodes),
            open=doubts,
            asked=frozenset(known),
            launched=launched,
            ended=dict(self._ended),
            let_go=frozenset(self._let_go),
            former={key: frozenset(self._former[key]) for key in self._former.keys() & launched},
            claimed={node: number(at, "up") for at, nodes in self._taken for node in nodes},
        )

    def _claim(self, record: Record) -> None:
        nodes = [NodeName(node) for node in record["nodes"]]
        of = self._settling if record.get("settling") else self._claimed
        of.setdefault(record["run"], set()).update(nodes)
        if self._recent(record) and record.get("boot") == self._boot:
            self._taken.append((record, nodes))

    def _release(self, record: Record) -> None:
        for of in (self._claimed, self._settling):
            if left := of.pop(record["run"], set()).difference(record["nodes"]):
                of[record["run"]] = left

    def _intent(self, record: Record) -> None:
        if self._recent(record):
            call = record, intents.from_record(record)
            self._open[record["attempt"]] = [*self._open.pop(record["attempt"], ()), call]

    def _fail(self, record: Record) -> None:
        calls = self._open.get(record["attempt"], [])
        del calls[0 if record["settles"] else -1 :]

    def _launch(self, record: Record) -> None:
        self._open.pop(record["attempt"], None)
        told, at = [], _moment(record)
        for node, instance_id, address, type_ in record["machines"]:
            if (former := self._node.get(instance_id, node)) != node:
                self._former[instance_id].add(former)
                self._machines[former].pop(instance_id, None)
            self._machines[node][instance_id] = at
            self._node[instance_id] = node
            told.append(Assignment(node, instance_id, address, type_))
        if self._recent(record):
            self._launches.append((record, told))

    def _let_go_of(self, record: Record) -> None:
        for node in record["nodes"]:
            mine = self._machines[node]
            for instance_id in [key for key, named in mine.items() if not _since(record, named)]:
                del mine[instance_id]
                self._let_go.add(instance_id)

    def _end(self, record: Record) -> None:
        self._ended |= dict.fromkeys(record["ids"], EndCause(record["cause"]))

    def _compact(self, record: Record) -> None:
        self.compacted = number(record, "size")


def _since(let_go: Record, named: _Moment) -> bool:
    """The machine got its name after the node was seen off."""
    boot, up = named
    return let_go.get("boot") == boot and "since" in let_go and up > number(let_go, "since")


def _moment(record: Record) -> _Moment:
    return record.get("boot"), number(record, "up")


def number(record: Record, key: str) -> float:
    """Minus infinity, long ago, where a damaged record has none."""
    value = record.get(key)
    return float(value) if isinstance(value, int | float) else -math.inf
