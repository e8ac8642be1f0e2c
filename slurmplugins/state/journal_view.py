"""The journal's records, added up to what they say now. Pure."""

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
"""Of the steady clock, and of which boot that was."""

ODD: Final = (KeyError, TypeError, ValueError, AttributeError)
"""What reading a line raises that is damaged, or of a version that writes it in another way."""

_CAUSES: Final = frozenset(EndCause)
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}", re.ASCII)


@dataclass(frozen=True, slots=True)
class JournalView:
    """The journal at one moment.

    `busy`: nodes a live run of resume is at; `settling`: those of them that it does not want, and
    is about to let go of. `doubtful`: nodes of recent launches whose outcome no live run is about
    to know; `open`: those launches. `asked`: the attempts whose outcome a live run is about to
    know. `launched`: machines launched so recently that the cloud may not list them yet; `ending`:
    those launched as recently that we have decided to end. `ended`:
    machines we have decided to end, and why. `let_go`: machines that Slurm has powered their node
    down with. `former`: names that machines had before. `claimed`: when a node was last claimed, by
    the steady clock, if that was lately; its run may be over. `strange`: machines that lines name
    which nobody here understands: they are not handed out, and not ended while Slurm wants their
    node; `riddles`: those of them that are named so lately that they are not ended at all. `born`:
    when machines were launched, and `at`: when this was read, both in the time of `steady`.
    """

    busy: frozenset[NodeName] = frozenset()
    settling: frozenset[NodeName] = frozenset()
    doubtful: frozenset[NodeName] = frozenset()
    open: tuple[LaunchRequest, ...] = ()
    asked: frozenset[str] = frozenset()
    launched: Mapping[str, Assignment] = field(default_factory=dict)
    ended: Mapping[str, EndCause] = field(default_factory=dict)
    let_go: frozenset[str] = frozenset()
    ending: Mapping[str, Assignment] = field(default_factory=dict)
    former: Mapping[str, Collection[NodeName]] = field(default_factory=dict)
    claimed: Mapping[NodeName, float] = field(default_factory=dict)
    strange: frozenset[str] = frozenset()
    riddles: frozenset[str] = frozenset()
    born: Mapping[str, float] = field(default_factory=dict)
    at: float = 0.0

    def age(self, machine: Instance, now: float) -> float:
        """Tell how old the machine is: by `now`, the head's clock, only where nobody wrote it down.
        The head's clock and EC2's may differ.
        """
        born = self.born.get(machine.id, math.inf)
        return self.at - born if born <= self.at else now - machine.launched_at

    def named(self, listed: Iterable[Instance]) -> tuple[Instance, ...]:
        """The machines under the names they were given last. A list read before these claims may
        have an older one, and tags are eventually consistent in EC2.
        """
        return tuple(
            item
            if (node := self.name(item.id, item.node)) == item.node
            else replace(item, node=node)
            for item in listed
        )

    def name(self, instance_id: str, listed: NodeName | None) -> NodeName | None:
        """Which node a machine is that is listed as one. Only a former name is corrected: one that
        the journal does not know was given by a run that died before it could say so.
        """
        told = self.launched.get(instance_id)
        if told is None or not (listed is None or listed in self.former.get(instance_id, ())):
            return listed
        return told.node

    def worked_on(self, since: float) -> frozenset[NodeName]:
        """Nodes a run has been at since then, or is at now: what was seen before may be untrue."""
        return self.busy.union(node for node, at in self.claimed.items() if at > since)


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
            nodes = frozenset(node for text in found for node in hostlist.expand(text, odd=[]))
            ids = frozenset(text for text in found if _INSTANCE.fullmatch(text))
            if nodes or ids:
                self._strange.append((record, nodes, ids))

    def claimed(self, run: str) -> frozenset[NodeName]:
        """What the run has claimed, for whatever reason, and not released."""
        return frozenset().union(self._claimed.get(run, ()), self._settling.get(run, ()))

    def claims(self, alive: Callable[[str], bool]) -> JournalView:
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
            call = record, LaunchRequest.from_record(record)
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
