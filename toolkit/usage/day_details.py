"""The instances, attempts and notes of a closed day, as its closing had them."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from datetime import date
from decimal import Decimal
from fractions import Fraction
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from toolkit.accounting.attempts import Attempt
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.accounting.days import DayPart, day_of
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

COLUMNS = (
    ("usage_day", "DATE"),
    ("subject", "VARCHAR"),
    ("number", "INTEGER"),  # its place among those of its subject
    ("content", "VARCHAR"),  # JSON
    # Of an instance:
    ("instance_id", "VARCHAR"),
    ("kind", "VARCHAR"),
    ("is_refunded", "BOOLEAN"),
    ("next_use", "BIGINT"),
    ("prices", "VARCHAR"),  # sources, each with its second: `history@1795000000 …`
    # Of an attempt:
    ("attempt", "DECIMAL(20, 0)"),
    ("job_id", "VARCHAR"),
    ("submitted", "BIGINT"),
    ("account", "VARCHAR"),
    ("user_name", "VARCHAR"),
)

PARTS, ATTEMPT, NOTE, SET_ASIDE, NO_COST = "parts", "attempt", "note", "set aside", "no cost"
SUBJECTS_OF_TEXTS = (NOTE, SET_ASIDE, NO_COST)
_NO_FACTS = (None,) * 5
_text = json.JSONEncoder(check_circular=False).encode  # there are no circles


def rows(segment: Segment) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a day."""
    day = day_of(segment.window.since)
    charged = {part.attempt for item in segment.parts for part in item.parts}
    for number, item in enumerate(segment.parts):
        content = {"instance": _json(segment.instances[item.instance_id]), **_item(item)}
        facts = (item.instance_id, item.kind.value, item.is_refunded, item.next_use, _prices(item))
        yield day, PARTS, number, _text(content), *facts, *_NO_FACTS
    attempts = [attempt for key, attempt in segment.attempts.items() if key in charged]
    for number, attempt in enumerate(attempts):
        names = (attempt.job_id, attempt.submitted, attempt.account, attempt.user)
        text = _text(_json(attempt))
        yield day, ATTEMPT, number, text, *_NO_FACTS, attempt.key, *names
    others = (
        (NOTE, segment.notes),
        (SET_ASIDE, [asdict(aside) for aside in segment.set_aside]),
        (NO_COST, segment.jobs_without_cost),
    )
    for subject, items in others:
        for number, value in enumerate(items):
            yield day, subject, number, _text(value), *_NO_FACTS, *_NO_FACTS


def _prices(item: InstanceParts) -> str:
    pairs = dict.fromkeys((price.source.value, price.as_of) for price in item.prices)
    return " ".join(f"{source}@{as_of}" for source, as_of in pairs)


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
    for content in by_subject.get(PARTS, ()):
        instance = instance_of(content)
        instances[instance.instance_id] = instance
        items.append(parts_of(content, parts.get(instance.instance_id, ())))
    attempts = [_attempt(content) for content in by_subject.get(ATTEMPT, ())]
    return Segment(
        window=window,
        parts=tuple(items),
        instances=instances,
        attempts={attempt.key: attempt for attempt in attempts},
        cost_policy=CostPolicy(**{key: Payer(value) for key, value in policy.items()}),
        notes=tuple(by_subject.get(NOTE, ())),
        set_aside=tuple(SetAside(**item) for item in by_subject.get(SET_ASIDE, ())),
        jobs_without_cost=tuple(by_subject.get(NO_COST, ())),
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


def instance_of(content: Mapping[str, Any]) -> Instance:
    """Return the instance of a row's content."""
    return _instance(content["instance"])


def parts_of(content: Mapping[str, Any], parts: tuple[Part, ...] = ()) -> InstanceParts:
    """Return what a row's content says of its instance, with its parts."""
    return InstanceParts(
        instance_id=content["instance"]["instance_id"],
        kind=Kind(content["instance"]["kind"]),
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


_NAMES = {kind: tuple(entry.name for entry in fields(kind)) for kind in (Instance, Attempt)}
_VALUES = {kind: attrgetter(*names) for kind, names in _NAMES.items()}


def _json(item: Instance | Attempt) -> dict[str, Any]:
    """Return the fields of an instance or an attempt as JSON values."""
    values = dict(zip(_NAMES[type(item)], _VALUES[type(item)](item), strict=True))
    if isinstance(item, Instance):
        values["tag_price"] = None if item.tag_price is None else str(item.tag_price)
    else:
        values["tres"] = [item.tres.cpus, item.tres.memory_mib, item.tres.gpus]
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


def attempt_of(content: str) -> Attempt:
    """Return the attempt of a row's content."""
    return _attempt(json.loads(content))


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


def texts_of(read: Sequence[tuple[str, str]], subject: str) -> tuple[Any, ...]:
    """Return what rows say of a subject, each once."""
    return tuple(dict.fromkeys(json.loads(content) for name, content in read if name == subject))


def set_aside_of(read: Sequence[tuple[str, str]]) -> tuple[SetAside, ...]:
    """Return what rows set aside, each once."""
    items = (SetAside(**json.loads(content)) for name, content in read if name == SET_ASIDE)
    return tuple(dict.fromkeys(items))
