"""The instances that each node has been, found by time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.accounting.instances import Instance

LONGEST_LOOK_BACK: Final = 31 * 86_400
"""Seconds before a report in which the job that last had an instance is looked for."""


class NodeInstances:
    """The instances of each node, by launch. The head node is none of them.

    A node has one instance after another, in years many. So the ones of a time are
    looked up, not searched.
    """

    def __init__(self, instances: Iterable[Instance], now: int) -> None:
        self._now = now
        by_node: dict[str, list[Instance]] = defaultdict(list)
        for instance in sorted(instances, key=lambda item: (item.launched, item.instance_id)):
            if instance.node and not instance.is_head:
                by_node[instance.node].append(instance)
        self._by_node = dict(by_node)
        self._launches = {
            node: [item.launched for item in node_instances]
            for node, node_instances in by_node.items()
        }
        # The latest end so far: before an instance with a smaller one nothing reaches further.
        self._latest_ends = {
            node: list(accumulate(map(self.end, node_instances), max))
            for node, node_instances in by_node.items()
        }

    def end(self, instance: Instance) -> int:
        """Return the instance's end, or now while it has none."""
        return self._now if instance.ended is None else instance.ended

    def between(self, node: str, start: int, end: int) -> list[Instance]:
        """Return the node's instances that lived in start ≤ t ≤ end."""
        node_instances = self._by_node.get(node)
        if node_instances is None:
            return []
        position = bisect_right(self._launches[node], end)
        latest_ends = self._latest_ends[node]
        lived = []
        while position and latest_ends[position - 1] >= start:
            position -= 1
            if self.end(node_instances[position]) >= start:
                lived.append(node_instances[position])
        return lived[::-1]

    def next_launch(self, instance: Instance) -> int:
        """Return when the node's next instance was launched, or now."""
        launches = self._launches.get(instance.node, [])
        position = bisect_right(launches, instance.launched)
        return launches[position] if position < len(launches) else self._now
