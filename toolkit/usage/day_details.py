"""The instances, attempts and notes of a closed day, as its closing had them."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from toolkit.accounting.attempts import Attempt
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.accounting.days import DayPart
from toolkit.accounting.instances import Instance, Kind
from toolkit.accounting.parts import InstanceParts
from toolkit.accounting.segments import Segment
from toolkit.accounting.set_aside import SetAside
from toolkit.accounting.tres import Tres
from toolkit.prices import Price, PriceSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.parts import Part

COLUMNS = (("subject", "VARCHAR"), ("content", "VARCHAR"))

_PARTS, _ATTEMPT, _NOTE, _SET_ASIDE, _NO_COST = "parts", "attempt", "note", "set aside", "no cost"


def rows(segment: Segment) -> Iterator[tuple[str, str]]:
    """Yield the rows of a day."""
    charged = {part.attempt for item in segment.parts for part in item.parts}
    for item in segment.parts:
        instance = segment.instances[item.instance_id]
        yield _PARTS, json.dumps({"instance": _json(instance), **_item(item)})
    for key, attempt in segment.attempts.items():
        if key in charged:
            yield _ATTEMPT, json.dumps(_json(attempt))
    for note in segment.notes:
        yield _NOTE, json.dumps(note)
    for aside in segment.set_aside:
        yield _SET_ASIDE, json.dumps(asdict(aside))
    for name in segment.jobs_without_cost:
        yield _NO_COST, json.dumps(name)


def segment_of(
    read: Sequence[tuple[str, str]],
    parts: Mapping[str, tuple[Part, ...]],
    window: Window,
    policy: Mapping[str, str],
    first_cost: int | None,
) -> Segment:
    """Return a closed day as a segment of a report."""
    by_subject: dict[str, list[Any]] = {}
    for subject, content in read:
        by_subject.setdefault(subject, []).append(json.loads(content))
    instances, items = {}, []
    for content in by_subject.get(_PARTS, ()):
        instance = _instance(content.pop("instance"))
        instances[instance.instance_id] = instance
        items.append(_parts(instance, content, parts.get(instance.instance_id, ())))
    attempts = [_attempt(content) for content in by_subject.get(_ATTEMPT, ())]
    return Segment(
        window=window,
        parts=tuple(items),
        instances=instances,
        attempts={attempt.key: attempt for attempt in attempts},
        cost_policy=CostPolicy(**{key: Payer(value) for key, value in policy.items()}),
        notes=tuple(by_subject.get(_NOTE, ())),
        set_aside=tuple(SetAside(**item) for item in by_subject.get(_SET_ASIDE, ())),
        jobs_without_cost=tuple(by_subject.get(_NO_COST, ())),
        first_cost=first_cost,
    )


def _item(item: InstanceParts) -> dict[str, Any]:
    return {
        "seconds": item.seconds,
        "prices": [
            [str(price.usd_per_hour), price.source.value, price.as_of] for price in item.prices
        ],
        "days": [
            [day.day.isoformat(), day.seconds, str(day.micro), day.price_known] for day in item.days
        ],
        "is_refunded": item.is_refunded,
        "next_use": item.next_use,
    }


def _parts(instance: Instance, content: dict[str, Any], parts: tuple[Part, ...]) -> InstanceParts:
    return InstanceParts(
        instance_id=instance.instance_id,
        kind=instance.kind,
        seconds=content["seconds"],
        parts=parts,
        prices=tuple(
            Price(Decimal(usd), PriceSource(source), as_of)
            for usd, source, as_of in content["prices"]
        ),
        days=tuple(
            DayPart(date.fromisoformat(day), seconds, Fraction(micro), known)
            for day, seconds, micro, known in content["days"]
        ),
        is_refunded=content["is_refunded"],
        next_use=content["next_use"],
    )


def _json(item: Instance | Attempt) -> dict[str, Any]:
    """Return the fields of an instance or an attempt as JSON values."""
    values = {entry.name: getattr(item, entry.name) for entry in fields(item)}
    for name, value in values.items():
        if isinstance(value, Decimal):
            values[name] = str(value)
        elif isinstance(value, Tres):
            values[name] = [value.cpus, value.memory_mib, value.gpus]
    return values


def _instance(values: dict[str, Any]) -> Instance:
    usd = values["tag_price"]
    return Instance(
        **{
            **values,
            "tag_price": None if usd is None else Decimal(usd),
            "stops": tuple((stopped, started) for stopped, started in values["stops"]),
            "kind": Kind(values["kind"]),
        }
    )


def _attempt(values: dict[str, Any]) -> Attempt:
    return Attempt(
        **{
            **values,
            "exit_codes": tuple(values["exit_codes"]),
            "nodes": tuple(values["nodes"]),
            "other_nodes": tuple(values["other_nodes"]),
            "tres": Tres(*values["tres"]),
        }
    )
