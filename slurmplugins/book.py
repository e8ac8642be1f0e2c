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


class Book:
    """Takes records in their order. `recent`: whether EC2 may still not show what one is about.
    `boot`: the one that is now; runs of others are over.
    """

    def __init__(self, recent: Callable[[Record], bool], boot: str) -> None:
        self._recent, self._boot = recent, boot
        self._claimed: dict[str, set[NodeName]] = {}
        self._settling: dict[str, set[NodeName]] = {}
        self._claimed_at: dict[NodeName, float] = {}
        self._open: dict[str, list[tuple[str, LaunchRequest]]] = {}
        """By attempt, its calls that have no answer: the run, and the one request of them all."""
        self._launched: dict[str, Assignment] = {}
        self._ended: dict[str, EndCause] = {}
        self._node: dict[str, NodeName] = {}
        self._former: dict[str, set[NodeName]] = defaultdict(set)
        self._machines: dict[NodeName, dict[str, Record]] = defaultdict(dict)
        """By node, its machines, and the record of when each became it."""
        self._let_go: set[str] = set()
        self._kinds: Mapping[str, Callable[[Record], None]] = {
            "claim": self._claim,
            "release": self._release,
            "intent": self._intent,
            "failed": self._fail,
            "launched": self._launch,
            "let-go": self._let_go_of,
            "ended": self._end,
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
        live = {run for run in self._claimed.keys() | self._settling.keys() if alive(run)}
        held = {run: self.claimed(run) for run in live}
        last = [calls[-1] for calls in self._open.values() if calls]
        # A live run that has let go of a launch's nodes does not know what became of it either.
        known = {
            request.attempt
            for run, request in last
            if held.get(run, frozenset()).issuperset(request.nodes)
        }
        doubts = tuple(request for _, request in last if request.attempt not in known)
        return Claims(
            busy=frozenset().union(*held.values()),
            settling=frozenset().union(*(self._settling.get(run, ()) for run in live)),
            doubtful=frozenset(node for request in doubts for node in request.nodes),
            open=doubts,
            asked=frozenset(known),
            launched={key: item for key, item in self._launched.items() if key not in self._ended},
            ended=self._ended,
            let_go=frozenset(self._let_go),
            former=self._former,
            claimed=self._claimed_at,
        )

    def _claim(self, record: Record) -> None:
        nodes = [NodeName(node) for node in record["nodes"]]
        of = self._settling if record.get("settling") else self._claimed
        of.setdefault(record["run"], set()).update(nodes)
        if self._recent(record) and record.get("boot") == self._boot:
            self._claimed_at |= dict.fromkeys(nodes, number(record, "up"))

    def _release(self, record: Record) -> None:
        for of in (self._claimed, self._settling):
            of.get(record["run"], set()).difference_update(record["nodes"])

    def _intent(self, record: Record) -> None:
        if self._recent(record):
            call = record["run"], intents.from_record(record)
            self._open.setdefault(record["attempt"], []).append(call)

    def _fail(self, record: Record) -> None:
        calls = self._open.get(record["attempt"], [])
        del calls[0 if record["settles"] else -1 :]

    def _launch(self, record: Record) -> None:
        self._open.pop(record["attempt"], None)
        recent = self._recent(record)
        for node, instance_id, address, type_ in record["machines"]:
            if (former := self._node.get(instance_id, node)) != node:
                self._former[instance_id].add(former)
                self._machines[former].pop(instance_id, None)
            self._machines[node][instance_id] = record
            self._node[instance_id] = node
            if recent:
                self._launched[instance_id] = Assignment(node, instance_id, address, type_)

    def _let_go_of(self, record: Record) -> None:
        for node in record["nodes"]:
            mine = self._machines[node]
            for instance_id in [key for key, named in mine.items() if not _since(record, named)]:
                del mine[instance_id]
                self._let_go.add(instance_id)

    def _end(self, record: Record) -> None:
        self._ended |= dict.fromkeys(record["ids"], EndCause(record["cause"]))


def _since(let_go: Record, named: Record) -> bool:
    """The machine got its name after the node was seen off."""
    same = let_go.get("boot") == named.get("boot")
    return same and "since" in let_go and number(named, "up") > number(let_go, "since")


def number(record: Record, key: str) -> float:
    """Minus infinity, long ago, where a damaged record has none."""
    value = record.get(key)
    return float(value) if isinstance(value, int | float) else -math.inf
