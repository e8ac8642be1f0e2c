"""Makes statements of a period's uses. Pure.

All accounts and the cluster are rounded to cents together, so they add up to the report's cost. The
lines of an account are rounded to its own cents.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from toolkit.accounting.attempt_names import Names
from toolkit.accounting.charges import Component, joined_prices
from toolkit.accounting.money import MICRO, SECONDS_PER_HOUR, round_to_micro
from toolkit.statements.cents import apportioned, percent_of, usd_text
from toolkit.statements.model import (
    Charged,
    Line,
    PeriodStatements,
    RateLine,
    Statement,
)
from toolkit.statements.settings import RATE_CARD, AccountFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from toolkit.statements.model import Issue
    from toolkit.statements.settings import StatementSettings
    from toolkit.statements.uses import Use

_WORK: Final = frozenset({Component.WORK.value, Component.LOST.value})
_GROUPS: Final[Mapping[str, tuple[Component, ...]]] = {
    "Useful work": (Component.WORK,),
    "Lost work": (Component.LOST,),
    "Boot and wait for nodes": (Component.BOOT, Component.WAIT),
    "Idle time": (Component.IDLE_GAP, Component.IDLE_TAIL, Component.IDLE, Component.MINIMUM),
    "Spot refunds": (Component.REFUND,),
}
_OTHER: Final = "Other and shared cost"
_GROUP_OF: Final = {item.value: name for name, items in _GROUPS.items() for item in items}


@dataclass(frozen=True, slots=True)
class Content:
    """The material of a period's statements."""

    uses: tuple[Use, ...]
    corrections: Mapping[str, tuple[Use, ...]]
    """Of earlier periods, by their names."""
    outside_grants: Mapping[str, int]
    """Micro-dollars of jobs that started outside of their account's grant."""


def build(
    content: Content, settings: StatementSettings, issue: Issue, names: Names
) -> PeriodStatements:
    """Return the statements of all accounts with a cost.

    Accounts above them have one too.
    """
    is_rated = settings.list_price == RATE_CARD
    amount = _rated(settings) if is_rated else _micro
    costs = _cents_of(content.uses, _micro)
    prices = _Prices(
        costs=costs,
        lists=_cents_of(content.uses, amount),
        corrected={
            period: _cents_of(uses, amount) for period, uses in sorted(content.corrections.items())
        },
    )
    uses: dict[str, list[Use]] = defaultdict(list)
    for use in content.uses:
        uses[use.account].append(use)
    maker = _Maker(settings, issue, names, prices, content.outside_grants)
    made = {name: maker.statement(name, uses[name]) for name in _accounts(content, settings)}
    whole = tuple(maker.with_below(item, made) for item in made.values())
    cluster = costs.get("", 0) + sum(item.get("", 0) for item in prices.corrected.values())
    return PeriodStatements(issue, whole, tuple(map(_charged, whole)), cluster)


@dataclass(frozen=True, slots=True)
class _Prices:
    """The cents of each account: at cost, at the list price, and of earlier periods."""

    costs: Mapping[str, int]
    lists: Mapping[str, int]
    corrected: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class _Maker:
    """A maker of the statements of one period."""

    settings: StatementSettings
    issue: Issue
    names: Names
    prices: _Prices
    outside_grants: Mapping[str, int]

    def statement(self, name: str, uses: Sequence[Use]) -> Statement:
        """Return the statement of an account, without those below it."""
        settings, account = self.settings, self.settings.account(name)
        cost, list_price = (item.get(name, 0) for item in (self.prices.costs, self.prices.lists))
        corrected = {
            period: amounts.get(name, 0) for period, amounts in self.prices.corrected.items()
        }
        is_rated = settings.list_price == RATE_CARD
        due_lines, reduction = _due_lines(account, list_price, corrected, is_rated=is_rated)
        rate_lines = _rate_lines(uses, settings, list_price if is_rated else None)
        return Statement(
            issue=self.issue,
            account=account,
            cost_lines=_lines(uses, lambda use: _GROUP_OF.get(use.component, _OTHER), cost),
            cost=cost,
            rate_lines=rate_lines,
            rated=None if settings.rates is None else sum(line.cents for line in rate_lines),
            due_lines=due_lines,
            reduction=reduction,
            due=sum(line.cents for line in due_lines),
            projects=_lines(uses, lambda use: use.project or "(no project)", cost),
            users=()
            if self.names is Names.NONE
            else _lines(uses, lambda use: use.user or "(no user)", cost),
            unknown=tuple(sorted({use.instance for use in uses if not use.known})),
            notes=_grant_notes(account, self.outside_grants.get(name, 0)),
            prices=joined_prices(use.prices for use in uses) if self.issue.has_prices else None,
        )

    def with_below(self, own: Statement, made: Mapping[str, Statement]) -> Statement:
        """Return a statement with the accounts below it."""

        def children(name: str) -> list[str]:
            return [child for child in self.settings.children(name) if child in made]

        def total(name: str) -> int:
            return made[name].due + sum(map(total, children(name)))

        name = own.account.name
        users = list(own.users)
        if self.names is Names.ALL:
            for child in self.settings.below(name):
                lines = made[child].users if child in made else ()
                users += [Line(f"{child}/{line.text}", line.cents) for line in lines]
        below = tuple(Line(child, total(child)) for child in children(name))
        return replace(own, below=below, total=total(name), users=tuple(users))


def _accounts(content: Content, settings: StatementSettings) -> list[str]:
    """Return the accounts that get a statement, by name."""
    uses = [*content.uses, *(use for own in content.corrections.values() for use in own)]
    found = {use.account for use in uses if use.account}
    for name in tuple(found):
        parent = settings.account(name).parent
        while parent in settings.accounts and parent not in found:
            found.add(parent)
            parent = settings.accounts[parent].parent
    return sorted(found)


def _cents_of(uses: Iterable[Use], amount: Callable[[Use], int]) -> dict[str, int]:
    """Return the amount of each account in cents.

    They add up to the rounded sum.
    """
    sums: dict[str, int] = defaultdict(int)
    for use in uses:
        sums[use.account] += amount(use)
    return dict(zip(sums, apportioned(list(sums.values())), strict=True))


def _micro(use: Use) -> int:
    return use.micro


def _rated(settings: StatementSettings) -> Callable[[Use], int]:
    """Return the function that gives a use's amount by the rate card.

    A rate covers all that its instances cost, so work is charged and nothing else. A type without
    a rate has its actual cost.
    """

    def amount(use: Use) -> int:
        rates = settings.rates
        usd = None if rates is None else rates.per_hour(use.instance_type)
        if usd is None:
            return use.micro if use.instance_type else 0
        if use.component not in _WORK:
            return 0
        return round_to_micro(Fraction(usd) * MICRO * use.seconds / SECONDS_PER_HOUR)

    def whole(use: Use) -> int:
        return use.micro if not use.account else amount(use)

    return whole


def _due_lines(
    account: AccountFacts, list_price: int, corrected: Mapping[str, int], *, is_rated: bool
) -> tuple[tuple[Line, ...], int]:
    """Return the lines up to the due, and their reduction of it."""
    name = "by the rate card" if is_rated else "actual cost"
    lines = [Line(f"List price ({name})", list_price)]
    lines += [
        Line(f"Correction of {period}", amount) for period, amount in corrected.items() if amount
    ]
    before = sum(line.cents for line in lines)
    discount = percent_of(before, account.discount_percent)
    if account.discount_percent:
        lines.append(Line(f"Discount of {account.discount_percent.normalize():f} %", -discount))
    subsidy = min(account.subsidy_cents, max(before - discount, 0))
    if account.subsidy_cents:
        lines.append(Line(f"Subsidy, up to {usd_text(account.subsidy_cents)} a month", -subsidy))
    return tuple(lines), discount + subsidy


def _lines(uses: Iterable[Use], name: Callable[[Use], str], total: int) -> tuple[Line, ...]:
    """Return the cost by a name, the dearest first.

    The lines add up to the total.
    """
    sums: dict[str, int] = defaultdict(int)
    for use in uses:
        sums[name(use)] += use.micro
    order = sorted(sums, key=lambda text: (-sums[text], text))
    amounts = apportioned([sums[text] for text in order], total)
    lines = (Line(text, amount) for text, amount in zip(order, amounts, strict=True))
    return tuple(line for line in lines if line.cents or sums[line.text])


def _rate_lines(
    uses: Sequence[Use], settings: StatementSettings, total: int | None
) -> tuple[RateLine, ...]:
    """Return the use of each instance type.

    The lines add up to the total, if there is one.
    """
    rates = settings.rates
    if rates is None:
        return ()
    amount = _rated(settings)
    micros: dict[str, int] = defaultdict(int)
    seconds: dict[str, Fraction] = defaultdict(Fraction)
    for use in uses:
        if use.instance_type:
            micros[use.instance_type] += amount(use)
            seconds[use.instance_type] += use.seconds if use.component in _WORK else 0
    types = sorted(micros, key=lambda name: (-micros[name], name))
    parts = apportioned([micros[name] for name in types], total)
    return tuple(
        RateLine(name, _hours(seconds[name]), rates.per_hour(name), amount_in_cents)
        for name, amount_in_cents in zip(types, parts, strict=True)
    )


def _hours(seconds: Fraction) -> Decimal:
    """Return hours with four places: times a rate, they give the cents."""
    return Decimal(round(seconds * 10_000 / SECONDS_PER_HOUR)) / 10_000


def _grant_notes(account: AccountFacts, outside: int) -> tuple[str, ...]:
    grant = account.grant
    if grant is None or not outside:
        return ()
    (amount,) = apportioned([outside])
    text = (
        f"{usd_text(amount)} USD of the cost are of jobs that started outside of the grant"
        f" {grant.name} ({grant.since} to {grant.until}): the grant does not cover them"
    )
    return (text,)


def _charged(statement: Statement) -> Charged:
    account = statement.account
    return Charged(
        account=account.name,
        cost_centre=account.cost_centre or account.name,
        list_price=statement.due + statement.reduction,
        reduction=statement.reduction,
        due=statement.due,
    )
