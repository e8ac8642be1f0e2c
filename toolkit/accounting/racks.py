"""Nodes of racks: what jobs held of them, at the amortised rate of a node.

A rack was bought, so no second of it costs anything by itself. A job is charged for its
share of a node while it holds it. The rate has the idle time already, by its target
utilisation. The capacity that no job held is a line only if the cost policy says so.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from toolkit.accounting.attempt_instances import Usage, node_share
from toolkit.accounting.instances import Instance, Kind
from toolkit.prices import Price, PriceSource, PriceSpan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.attempts import Attempt
    from toolkit.prices import PriceBook, Shape


@dataclass(frozen=True, slots=True)
class RackNode:
    """The rate and the shape of one node."""

    price: Price
    shape: Shape | None = None


NO_RATE = Decimal(0)
"""Of a site's node without a rate in cluster.yaml: a job there costs nothing extra."""


def with_site_nodes(
    racks: Mapping[str, RackNode],
    attempts: Iterable[Attempt],
    own_nodes: Collection[str],
    now: int,
) -> dict[str, RackNode]:
    """Return the racks, and a site's other nodes that jobs held.

    On a site, every node that is not ours is the site's own.
    """
    names = {name for attempt in attempts for name in (*attempt.nodes, *attempt.other_nodes)}
    free = RackNode(Price(NO_RATE, PriceSource.RACK, now))
    return {**dict.fromkeys(sorted(names - {*own_nodes, *racks}), free), **racks}


@dataclass(frozen=True, slots=True)
class RackUse:
    """The nodes of racks in a report, and the attempts without them."""

    nodes: tuple[Instance, ...]  # by name
    usages: Mapping[str, tuple[Usage, ...]]  # by name
    attempts: tuple[Attempt, ...]  # with the other nodes alone
    without_shape: tuple[str, ...] = ()  # nodes that jobs held, and whose size nobody knows


def rack_use(
    attempts: Iterable[Attempt], racks: Mapping[str, RackNode], window: Window, now: int
) -> RackUse:
    """Divide attempts into their use of racks, and the rest."""
    usages: dict[str, list[Usage]] = defaultdict(list)
    others = []
    for attempt in attempts:
        names = (*attempt.nodes, *attempt.other_nodes)
        own = [name for name in dict.fromkeys(names) if name in racks]
        if not own:
            others.append(attempt)
            continue
        count = max(attempt.node_count, len(names))
        attempt = replace(attempt, node_count=count)  # noqa: PLW2901  # before it loses its racks
        for name in own:
            usages[name].append(_usage(attempt, racks[name].shape, now))
        others.append(_without(attempt, frozenset(own)))
    nodes = [_node(name, window) for name in sorted(racks)]
    return RackUse(
        tuple(nodes),
        {name: tuple(own) for name, own in usages.items()},
        tuple(others),
        tuple(name for name in sorted(usages) if racks[name].shape is None),
    )


def with_rates(book: PriceBook, racks: Mapping[str, RackNode], window: Window) -> PriceBook:
    """Return the book with the rates of all nodes."""
    spans = {
        name: (PriceSpan(window.since, window.until, node.price),) for name, node in racks.items()
    }
    return replace(book, fixed={**book.fixed, **spans})


def _without(attempt: Attempt, racks: frozenset[str]) -> Attempt:
    """Return the attempt without racks, which still count for its shares."""
    return replace(
        attempt,
        nodes=tuple(name for name in attempt.nodes if name not in racks),
        other_nodes=tuple(name for name in attempt.other_nodes if name not in racks),
        rack_node_count=len(racks),
    )


def _usage(attempt: Attempt, shape: Shape | None, now: int) -> Usage:
    start = now if attempt.started is None else attempt.started
    end = now if attempt.ended is None else attempt.ended
    share = node_share(attempt, shape)
    return Usage(attempt.key, start, max(start, end), share, attempt.lost_from())


def _node(name: str, window: Window) -> Instance:
    return Instance(
        instance_id=name,
        node=name,
        pool="",
        instance_type="rack",
        zone="",
        spot=False,
        launched=window.since,
        ended=None,
        end_cause="",
        tag_price=None,
        kind=Kind.RACK,
    )
