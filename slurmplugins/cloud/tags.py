"""EC2 tags: their keys, and an instance's node from its tags.

Together with Slurm's InstanceId, the tags are the only map from node to instance. They are written
at launch. The instance itself and all programs read them.

EC2 numbers the instances of RunInstances, so the hostlist of the launch is the whole map. EC2 does
not number the instances of a fleet. A second tag completes their map: it lists the tails of the
instance ids in the order of the hostlist. It is the same on all instances of the fleet, so that one
call tags hundreds.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BadName
from slurmplugins.model.hostlist import expand, hostlists, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Offering


CLUSTER: Final = "toolkit:cluster"
ROLE: Final = "toolkit:role"
POOL: Final = "toolkit:pool"
PARTITION: Final = "toolkit:partition"
NODES: Final = "toolkit:nodes"
"""Hostlist of the launch. The instance's AmiLaunchIndex is its index in that list.

A hostlist longer than one tag's value continues in `toolkit:nodes.2` and so on.
"""
ORDER: Final = "toolkit:order"
"""Maps a fleet's instances to the entries of NODES. Only a fleet has it: its AmiLaunchIndex is
meaningless. It is PENDING until the fleet has answered. Continues like NODES.
"""
PENDING: Final = "pending"
NODE: Final = "toolkit:node"
"""Overrides NODES if present. Set when an instance is given to another node later."""
LAUNCH_ID: Final = "toolkit:attempt"
"""The launch's id."""
PRICE: Final = "toolkit:price"
"""USD an hour as a decimal string: the price known at launch."""
PRICES: Final = "toolkit:prices"
"""The same for a fleet of several instance types: `type=price,…`. Continues like NODES."""
BACKUPS_OF: Final = "toolkit:backups-of"
"""On the bucket of a cluster's backups, which is no part of the cluster: the cluster's name."""
BUNDLE: Final = "toolkit:bundle"
"""SHA-256 of the bundle that the head node may run. Deploy alone writes it."""
NAME: Final = "Name"

MAX_VALUE: Final = 256
"""Characters of a tag's value; EC2 refuses longer ones."""

MAX_PARTS: Final = 20
"""Tags that one hostlist may take of the 50 that EC2 allows an instance."""

FLEET_PARTS: Final = 12
"""Tags that a fleet's hostlist may take. The tails of a thousand ids take 24 to 28 more."""

_SHORTEST_TAIL: Final = 4
_WIDTH_DIGITS: Final = 2


def node_tags(nodes: Sequence[NodeName]) -> dict[str, str]:
    """Return the tags that hold the launch's hostlist.

    Raises BadName if it needs more than MAX_PARTS tags.
    """
    parts = hostlists(nodes, characters=MAX_VALUE)
    if len(parts) > MAX_PARTS:
        raise BadName(f"{len(nodes)} names do not fit into {MAX_PARTS} tags")
    return _numbered(NODES, parts)


def order_tags(ids: Sequence[str]) -> dict[str, str]:
    """Return the tags that map each id to its node's index."""
    width = _SHORTEST_TAIL
    while len({item[-width:] for item in ids}) < len(ids):
        width += 1
    text = f"{width:0{_WIDTH_DIGITS}d}" + "".join(item[-width:] for item in ids)
    return _numbered(ORDER, _cut(text))


def price_tags(offerings: Sequence[Offering]) -> dict[str, str]:
    """Return the tags that hold the launch's known prices."""
    if len(offerings) == 1:
        return {PRICE: offerings[0].price}
    text = ",".join(f"{item.type}={item.price}" for item in offerings)
    return _numbered(PRICES, _cut(text))


def node_of(tag_values: Mapping[str, str], launch_index: int, instance_id: str) -> NodeName | None:
    """Return the instance's node, or None if the tags name none (yet)."""
    try:
        if NODE in tag_values:
            return parse(tag_values[NODE])
        launch_nodes = _expand_cached(",".join(_parts(tag_values, NODES)))
        if ORDER in tag_values:
            launch_index = _order_index("".join(_parts(tag_values, ORDER)), instance_id)
    except (BadName, ValueError):
        return None
    return launch_nodes[launch_index] if 0 <= launch_index < len(launch_nodes) else None


def price_of(tag_values: Mapping[str, str], instance_type: str) -> str:
    """Return USD an hour, empty if the tags do not hold it."""
    if PRICES not in tag_values:
        return tag_values.get(PRICE, "")
    pairs = (item.partition("=") for item in "".join(_parts(tag_values, PRICES)).split(","))
    return next((price for name, _, price in pairs if name == instance_type), "")


def part_keys(key: str) -> Iterable[str]:
    """Yield the keys over which a long value is spread.

    After the first absent key, all others are absent too.
    """
    yield key
    for number in range(2, MAX_PARTS + 1):
        yield f"{key}.{number}"


def _numbered(key: str, parts: Sequence[str]) -> dict[str, str]:
    return dict(zip(part_keys(key), parts, strict=False))


def _parts(tag_values: Mapping[str, str], key: str) -> list[str]:
    values: list[str] = []
    for part in part_keys(key):
        if part not in tag_values:
            break
        values.append(tag_values[part])
    return values


def _cut(text: str) -> list[str]:
    return [text[start : start + MAX_VALUE] for start in range(0, len(text), MAX_VALUE)]


def _order_index(order: str, instance_id: str) -> int:
    """Return the instance's index in the order.

    Raises ValueError if the order is not written yet, or does not hold this instance.
    """
    width = int(order[:_WIDTH_DIGITS])
    if width < 1:
        raise ValueError(order[:_WIDTH_DIGITS])
    return _order_indexes(order, width)[instance_id[-width:]] if instance_id else -1


@functools.lru_cache(maxsize=256)
def _expand_cached(hostlist: str) -> tuple[NodeName, ...]:
    """Expand a hostlist once for all instances of a launch.

    All of them carry the same: 500 instances would expand it 500 times.
    """
    return expand(hostlist)


class _OrderIndexes(dict[str, int]):
    def __missing__(self, tail: str) -> int:
        raise ValueError(tail)


@functools.lru_cache(maxsize=256)
def _order_indexes(order: str, width: int) -> _OrderIndexes:
    tails = order[_WIDTH_DIGITS:]
    return _OrderIndexes(
        {tails[start : start + width]: start // width for start in range(0, len(tails), width)}
    )
