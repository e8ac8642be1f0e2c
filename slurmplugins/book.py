"""The journal's records, added up to what they say now. Pure."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from slurmplugins import intents, names
from slurmplugins.claims import Claims
from slurmplugins.model import Assignment, EndCause
from slurmplugins.names import NodeName
from slurmplugins.safe_json import finite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from slurmplugins.model import LaunchRequest

Record = dict[str, Any]
_Moment = tuple[object, float]
"""Of the steady clock, and of which boot that was."""

ODD: Final = (KeyError, TypeError, ValueError, AttributeError)
"""What reading a line raises that is damaged, or of a version that writes it in another way."""

_CAUSES: Final = frozenset(EndCause)
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}", re.ASCII)


class Book:
    """Takes records in their order, and tells at any time what they say by then. `age`: how old one
    is; one that is `recent` may be of what EC2 does not show yet, and one that is not `young` of
    what it has forgotten. `boot`: the one that is now; runs of others are over. `compacted`: the
    file's size when what meant nothing was last dropped.
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
        self._strange: list[tuple[Record, frozenset[NodeName], frozenset[str]]] = []
        """Lines that nobody here understands, and what they name."""
        self._born: dict[str, float] = {}
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
        """Take one that is damaged, or that a newer version wrote, as naming what is not ours."""
        try:
            self._kinds[record["kind"]](record)
        except ODD:
            found = frozenset(_texts(record))
            nodes = frozenset(node for text in found for node in names.expand(text, odd=[]))
            ids = frozenset(text for text in found if _INSTANCE.fullmatch(text))
            if nodes or ids:
                self._strange.append((record, nodes, ids))

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
        unknown = [item for item in last if item[1].attempt not in known]
        doubts = tuple(request for record, request in unknown if intents.askable(record))
        self._strange = [item for item in self._strange if self._young(item[0])]
        at_work, unclear = self._not_ours(alive)
        self._launches = [item for item in self._launches if self._recent(item[0])]
        self._taken = [item for item in self._taken if self._recent(item[0])]
        recent = {one.instance_id: one for _, told in self._launches for one in told}
        launched = {key: one for key, one in recent.items() if key not in self._ended}
        return Claims(
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
        """The instances of the strange lines of late whose end is not decided."""
        found = (ids for record, _, ids in self._strange if lately(record))
        return frozenset().union(*found) - self._ended.keys()

    def _not_ours(
        self, alive: Callable[[str], bool]
    ) -> tuple[frozenset[NodeName], frozenset[NodeName]]:
        """The nodes of the strange lines: those of live runs, and those of lately in doubt."""
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
            call = record, intents.from_record(record)
            self._open[record["attempt"]] = [*self._open.pop(record["attempt"], ()), call]

    def _fail(self, record: Record) -> None:
        calls = self._open.get(record["attempt"], [])
        del calls[0 if record["settles"] else -1 :]

    def _launch(self, record: Record) -> None:
        at, born = _moment(record), self._moment(record)
        # A newer version may say more of a machine.
        told = [
            Assignment(_name(node), *map(_text, (instance_id, address, type_)))
            for node, instance_id, address, type_, *_ in record["machines"]
        ]
        self._open.pop(record["attempt"], None)
        for item in told:
            node, instance_id = item.node, item.instance_id
            if born > -math.inf:  # else EC2 knows it better
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
    """The machine got its name after the node was seen off."""
    boot, up = named
    return let_go.get("boot") == boot and "since" in let_go and up > number(let_go, "since")


def _moment(record: Record) -> _Moment:
    return record.get("boot"), number(record, "up")


def number(record: Record, key: str) -> float:
    """Minus infinity, long ago, where a damaged record has none."""
    try:
        return finite(record.get(key))
    except ValueError:
        return -math.inf


def _texts(value: object) -> Iterator[str]:
    """Every text in a record, however deep; the keys too."""
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
