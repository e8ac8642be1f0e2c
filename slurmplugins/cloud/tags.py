"""EC2 tags: their keys, and which node an instance is by them.

Together with Slurm's InstanceId they are the only map from node to instance: written at launch,
read by the instance and by all. Instances of RunInstances are numbered by EC2, so the hostlist of
the launch is the whole map. Those of a fleet are not; theirs is completed by a second tag that
lists the tails of their ids in the order of the hostlist, the same on all of them and so one call
for hundreds.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BadName
from slurmplugins.model.hostlist import expand, hostlists, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.offering import Offering


CLUSTER: Final = "toolkit:cluster"
ROLE: Final = "toolkit:role"
POOL: Final = "toolkit:pool"
PARTITION: Final = "toolkit:partition"
NODES: Final = "toolkit:nodes"
"""Hostlist of the launch; the instance's AmiLaunchIndex says which of them it is. Goes on in
`toolkit:nodes.2` and so on where it is longer than a tag's value.
"""
ORDER: Final = "toolkit:order"
"""Only on machines of a fleet, whose launch index says nothing: which instance is which entry of
NODES, written once the fleet has answered, and PENDING until then. Goes on like NODES.
"""
PENDING: Final = "pending"
NODE: Final = "toolkit:node"
"""Overrides NODES when present: set when a machine is given to another node later."""
ATTEMPT: Final = "toolkit:attempt"
PRICE: Final = "toolkit:price"
"""USD an hour as a decimal string: what resume believed at launch."""
PRICES: Final = "toolkit:prices"
"""The same for a fleet of several instance types: `type=price,…`. Goes on like NODES."""
NAME: Final = "Name"

MAX_VALUE: Final = 256
"""EC2 refuses longer tag values."""

MAX_PARTS: Final = 20
"""Tags one hostlist may take of the 50 that EC2 allows a machine."""

FLEET_PARTS: Final = 12
"""Tags the hostlist of a fleet may take: the tails of a thousand ids take 24 to 28 more."""

_SHORTEST_TAIL: Final = 4
_WIDTH_DIGITS: Final = 2


def node_tags(nodes: Sequence[NodeName]) -> dict[str, str]:
    """The tags that carry the launch's hostlist. BadName when it takes too many."""
    parts = hostlists(nodes, characters=MAX_VALUE)
    if len(parts) > MAX_PARTS:
        raise BadName(f"{len(nodes)} names do not fit into {MAX_PARTS} tags")
    return _numbered(NODES, parts)


def order_tags(ids: Sequence[str]) -> dict[str, str]:
    """The tags that say: the n-th of these instances is the n-th node of the launch."""
    width = _SHORTEST_TAIL
    while len({item[-width:] for item in ids}) < len(ids):
        width += 1
    text = f"{width:0{_WIDTH_DIGITS}d}" + "".join(item[-width:] for item in ids)
    return _numbered(ORDER, _cut(text))


def price_tags(offerings: Sequence[Offering]) -> dict[str, str]:
    """What a machine of this launch is believed to cost."""
    if len(offerings) == 1:
        return {PRICE: offerings[0].price}
    text = ",".join(f"{item.type}={item.price}" for item in offerings)
    return _numbered(PRICES, _cut(text))


def node_of(tag: Mapping[str, str], launch_index: int, instance_id: str) -> NodeName | None:
    """The node, or None when the tags name none (yet)."""
    try:
        if NODE in tag:
            return parse(tag[NODE])
        launched = _expanded(",".join(_parts(tag, NODES)))
        if ORDER in tag:
            launch_index = _seat("".join(_parts(tag, ORDER)), instance_id)
    except (BadName, ValueError):
        return None
    return launched[launch_index] if 0 <= launch_index < len(launched) else None


def price_of(tag: Mapping[str, str], instance_type: str) -> str:
    """USD an hour, empty when the tags do not say."""
    if PRICES not in tag:
        return tag.get(PRICE, "")
    pairs = (item.partition("=") for item in "".join(_parts(tag, PRICES)).split(","))
    return next((price for name, _, price in pairs if name == instance_type), "")


def part_keys(key: str) -> Iterable[str]:
    """The keys a long value is spread over; those after the first absent one are absent too."""
    yield key
    for number in range(2, MAX_PARTS + 1):
        yield f"{key}.{number}"


def _numbered(key: str, parts: Sequence[str]) -> dict[str, str]:
    return dict(zip(part_keys(key), parts, strict=False))


def _parts(tag: Mapping[str, str], key: str) -> list[str]:
    found: list[str] = []
    for part in part_keys(key):
        if part not in tag:
            break
        found.append(tag[part])
    return found


def _cut(text: str) -> list[str]:
    return [text[at : at + MAX_VALUE] for at in range(0, len(text), MAX_VALUE)]


def _seat(order: str, instance_id: str) -> int:
    """ValueError when the order is not written yet, or this machine is not in it."""
    width = int(order[:_WIDTH_DIGITS])
    if width < 1:
        raise ValueError(order[:_WIDTH_DIGITS])
    return _seats(order, width)[instance_id[-width:]] if instance_id else -1


@functools.lru_cache(maxsize=256)
def _expanded(hostlist: str) -> tuple[NodeName, ...]:
    """All machines of a launch carry the same hostlist: 500 of them would expand it 500 times."""
    return expand(hostlist)


class _Seats(dict[str, int]):
    def __missing__(self, tail: str) -> int:
        raise ValueError(tail)


@functools.lru_cache(maxsize=256)
def _seats(order: str, width: int) -> _Seats:
    tails = order[_WIDTH_DIGITS:]
    return _Seats({tails[at : at + width]: at // width for at in range(0, len(tails), width)})
