"""A quote as text for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from slurmplugins.governor.words import duration
from toolkit.output import counted, plain, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from toolkit.quote.budget_effect import BudgetEffect
    from toolkit.quote.offers import Offer
    from toolkit.quote.quote import Quote


def lines(quote: Quote) -> str:
    """Return the quote as lines of text."""
    return plain("\n".join(_lines(quote)))


def _lines(quote: Quote) -> Iterator[str]:
    request = quote.request
    of_tasks = f", {request.array_tasks} tasks" if request.array_tasks > 1 else ""
    at = datetime.fromtimestamp(quote.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    bound = f"at most {_time(request.limit)}{of_tasks}"
    yield f"{request.name}: {_nodes(quote.first)}, {bound} ({at})"
    yield ""
    yield table(
        ("OFFERING", "ZONE", "BUY", "USD/H", f"USD IN {_time(quote.request.limit).upper()}",
         "USD AS BEFORE", "PRICE"),
        [_row(quote, offer) for offer in quote.offers],
    )  # fmt: skip
    yield ""
    yield from _sentences(quote)


def _row(quote: Quote, offer: Offer) -> tuple[str, ...]:
    price = quote.price(offer)
    buy = offer.reservation or offer.lifecycle
    if offer.after_seconds:
        buy += f" after {_time(offer.after_seconds)}"
    if not offer.known:
        return (offer.type, offer.zone, buy, "?", "?", "?", offer.source)
    return (
        offer.type,
        offer.zone,
        buy,
        f"{offer.usd_per_hour:.4f}",
        f"{price.usd_limit:.2f}",
        "-" if price.usd_usual is None else f"{price.usd_usual:.2f}",
        offer.source,
    )


def _sentences(quote: Quote) -> Iterator[str]:
    history = quote.history
    days = (history.until - history.since) // 86_400
    yield f"tried first: {_name(quote.first)}{_saving(quote)}"
    first = quote.first
    usd = f"{quote.price(first).usd_instance:.2f}" if first.known else "?"
    boot = history.boot_seconds
    boot_text = "no boot in the records" if boot is None else f"{_time(boot.median)} boot"
    yield (
        f"new instances cost {usd} USD more: {boot_text},"
        f" {_time(quote.tail_seconds)} idle after the job"
    )
    runs = history.run_seconds
    yield (
        f"earlier jobs of this name: no history in {days} days"
        if runs is None
        else f"earlier jobs of this name: {_time(runs.median)} (median of {runs.count}),"
        f" nine of ten below {_time(runs.high)}"
    )
    waits = history.wait_seconds
    yield (
        f"wait in {','.join(quote.request.partitions)}: no history in {days} days"
        if waits is None
        else f"wait in {','.join(quote.request.partitions)}: {_time(waits.median)}"
        f" (median of {waits.count}), nine of ten below {_time(waits.high)}"
    )
    yield f"interruptions: {_interruptions(quote)}"
    yield _share(quote)
    yield from _budgets(quote)


def _saving(quote: Quote) -> str:
    spot, on_demand = quote.cheapest_spot, quote.cheapest_on_demand
    if spot is None or on_demand is None or not on_demand.usd_per_hour:
        return ""
    part = 1 - spot.usd_per_hour / on_demand.usd_per_hour
    return f"; spot is {part:.0%} below on demand" if part > 0 else "; spot is not cheaper now"


def _interruptions(quote: Quote) -> str:
    spot = quote.cheapest_spot
    if spot is None:
        return "none, the partition buys no spot instance"
    past = quote.history.interruptions
    expected = quote.expected_interruptions(spot)
    if past is None or expected is None:
        return "no history of spot instances of these types"
    return (
        f"{past.count} in {past.instance_hours:.1f} instance-hours of these types,"
        f" so {expected:.2g} for this job on spot"
    )


def _share(quote: Quote) -> str:
    if quote.share is None:
        return f"share of {quote.request.account or 'the account'}: not known"
    share = quote.share
    with_job = "?" if share.used_with_job is None else f"{share.used_with_job:.1%}"
    return (
        f"share of {share.account}: {share.share:.0%} of the cluster; recent usage"
        f" {share.used:.1%}, with this job {with_job}"
    )


def _budgets(quote: Quote) -> Iterator[str]:
    """Yield what is left of each budget, and then the warnings."""
    if quote.budgets is None:
        return
    if quote.budgets.effects is None:
        yield f"budget: not known, {quote.budgets.unknown}"
        return
    if not quote.budgets.effects:
        yield f"budget: none pays for jobs of {quote.request.account or quote.request.wckey}"
    for effect in quote.budgets.effects:
        yield (
            f"budget {effect.name}: {effect.usd_left:.2f} of {effect.usd:.2f} USD left until"
            f" {effect.until:%Y-%m-%d}; {_left_after(effect)} after this job"
        )
    for effect in quote.budgets.effects:
        yield from _warnings(effect)


def _left_after(effect: BudgetEffect) -> str:
    if effect.usd_left_after is None:
        return "?"
    amounts = [f"{effect.usd_left_after:.2f}"]
    if effect.usd_left_as_before is not None:
        amounts.append(f"{effect.usd_left_as_before:.2f}")
    return " to ".join(dict.fromkeys(amounts))


def _warnings(effect: BudgetEffect) -> Iterator[str]:
    if effect.stale:
        known = effect.known_until
        at = f"of {known:%Y-%m-%d %H:%M} UTC" if known else "not measured yet"
        yield f"{effect.name}: these figures are {at}, and no new step is taken"
    if effect.ended:
        yield (
            f"warning: {effect.name}: the grant ended on {effect.until:%Y-%m-%d} and pays no job"
        )
        return
    if effect.actions and effect.actions != ("warn",):
        actions = " and ".join(action for action in effect.actions if action != "warn")
        yield f"{effect.name}: {actions} holds now"
    if effect.steps:
        steps = ", ".join(f"{step.do} at {step.at}%" for step in effect.steps)
        yield (
            f"warning: with what runs it may bring {effect.name} to"
            f" {effect.percent_after:.0f}%: {steps}"
        )
    if effect.waits:
        yield f"warning: {effect.name} has too little left for its whole time limit: it waits"


def _name(offer: Offer) -> str:
    return f"{offer.type} in {offer.zone}, {offer.reservation or offer.lifecycle}"


def _nodes(offer: Offer) -> str:
    part = "" if offer.share >= 1 else f" ({offer.share:.0%} of each)"
    gpus = f" with {counted(offer.gpus, 'GPU')}" if offer.gpus else ""
    return f"{counted(offer.nodes, 'node')} of {offer.pool}{part}{gpus}"


def as_json(quote: Quote) -> dict[str, Any]:
    """Return the quote as values for JSON."""
    return {
        "at": quote.at,
        "job_name": quote.request.name,
        "partitions": quote.request.partitions,
        "account": quote.request.account,
        "qos": quote.request.qos,
        "time_limit_seconds": quote.request.limit,
        "array_tasks": quote.request.array_tasks,
        "offers": [_offer_json(quote, offer) for offer in quote.offers],
        "tail_seconds": quote.tail_seconds,
        "history": quote.history,
        "share": quote.share,
        "budgets": quote.budgets,
    }


def _offer_json(quote: Quote, offer: Offer) -> dict[str, Any]:
    price = quote.price(offer)
    return {
        "partition": offer.partition,
        "pool": offer.pool,
        "type": offer.type,
        "zone": offer.zone,
        "lifecycle": offer.lifecycle,
        "reservation": offer.reservation or None,
        "nodes": offer.nodes,
        "share": offer.share,
        "gpus": offer.gpus,
        "after_seconds": offer.after_seconds,
        "price_source": offer.source,
        "usd_per_instance_hour": _usd(offer.usd_per_instance_hour, offer),
        "usd_per_hour": _usd(offer.usd_per_hour, offer),
        "usd_limit": _usd(price.usd_limit, offer),
        "usd_usual": None if price.usd_usual is None else _usd(price.usd_usual, offer),
        "usd_boot_and_tail": _usd(price.usd_instance, offer),
        "expected_interruptions": quote.expected_interruptions(offer),
    }


def _usd(amount: Decimal, offer: Offer) -> str | None:
    return f"{amount:f}" if offer.known else None


def _time(seconds: float) -> str:
    """Return a time such as `8 h`, or `1 h 20 m`."""
    return duration(seconds).removesuffix(" 0 m")
