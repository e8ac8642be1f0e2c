"""The facts of cluster.yaml that statements need, and their form in a closed period.

A closed period keeps them, so a later change of cluster.yaml changes no closed statement.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from toolkit.prices import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.config import ClusterConfig
    from toolkit.config.model import Account

ROOT: Final = "root"
RATE_CARD: Final = "rate-card"


@dataclass(frozen=True, slots=True)
class GrantFacts:
    """A grant, with its first and its last day."""

    name: str
    since: str
    until: str

    def covers(self, day: str) -> bool:
        """Return whether a day such as 2026-11-21 is one of its days."""
        return self.since <= day <= self.until


@dataclass(frozen=True, slots=True)
class AccountFacts:
    """The facts of an account in cluster.yaml."""

    name: str
    parent: str = ROOT
    owner: str = ""
    cost_centre: str = ""
    project: str = ""
    grant: GrantFacts | None = None
    discount_percent: Decimal = Decimal(0)
    subsidy_cents: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """The rate card: prices of use in US dollars."""

    as_of: str
    gpu_hour: Decimal | None
    node_hours: Mapping[str, Decimal]
    gpus: Mapping[str, int]
    """The GPUs of each instance type that the catalogue knows."""

    def per_hour(self, instance_type: str) -> Decimal | None:
        """Return the price of a node's hour; None without a rate."""
        if instance_type in self.node_hours:
            return self.node_hours[instance_type]
        gpus = self.gpus.get(instance_type, 0)
        return self.gpu_hour * gpus if self.gpu_hour is not None and gpus else None


@dataclass(frozen=True, slots=True)
class StatementSettings:
    """All that statements and the accounting journal take from cluster.yaml."""

    cluster: str
    issuer: str = ""
    sender: str = ""
    list_price: str = "cost"
    rates: Rates | None = None
    default_discount: Decimal = Decimal(0)
    names: str = "own"
    recovery: str = "recovery"
    subsidy: str = "subsidy"
    overhead: str = "cluster"
    """The account of the house's books for what no account caused."""
    accounts: Mapping[str, AccountFacts] = field(default_factory=dict)

    def account(self, name: str) -> AccountFacts:
        """Return an account's facts; one that cluster.yaml lacks has defaults."""
        known = self.accounts.get(name)
        return known or AccountFacts(name, discount_percent=self.default_discount)

    def children(self, name: str) -> tuple[str, ...]:
        """Return the accounts right below an account."""
        return tuple(item.name for item in self.accounts.values() if item.parent == name)

    def below(self, name: str) -> Iterator[str]:
        """Yield all accounts below an account, at any depth."""
        for child in self.children(name):
            yield child
            yield from self.below(child)

    def account_tags(self, *, owners: bool) -> dict[str, dict[str, str]]:
        """Return each account's facts as tags, for files of finance.

        `owners` adds the addresses of the people who answer for its cost.
        """
        return {
            item.name: {
                "cost_centre": item.cost_centre,
                "grant": item.grant.name if item.grant else "",
                "owner": item.owner if owners else "",
                "parent_account": item.parent if item.parent != ROOT else "",
            }
            for item in self.accounts.values()
        }

    @property
    def projects(self) -> dict[str, str]:
        """Return the project of each account that has one."""
        return {item.name: item.project for item in self.accounts.values() if item.project}


def settings_of(config: ClusterConfig) -> StatementSettings:
    """Return the facts of a cluster.yaml."""
    section = config.statements
    return StatementSettings(
        cluster=config.cluster,
        issuer=section.issuer or "",
        sender=section.sender or "",
        list_price=section.list_price,
        rates=_rates(config),
        default_discount=section.discount_percent,
        names=section.names,
        recovery=section.ledger.recovery,
        subsidy=section.ledger.subsidy,
        overhead=section.ledger.cluster,
        accounts={
            item.name: _account(item, section.discount_percent)
            for item in config.accounts
            if item.name != ROOT
        },
    )


def _account(item: Account, discount: Decimal) -> AccountFacts:
    grant = item.grant
    own = item.discount_percent
    return AccountFacts(
        name=item.name,
        parent=item.parent,
        owner=item.owner or "",
        cost_centre=item.cost_centre or "",
        project=(item.project or "").lower(),  # as slurmdbd keeps a wckey
        grant=None
        if grant is None
        else GrantFacts(grant.name, f"{grant.since:%Y-%m-%d}", f"{grant.until:%Y-%m-%d}"),
        discount_percent=discount if own is None else own,
        subsidy_cents=int((item.subsidy_usd or Decimal(0)) * 100),
    )


def _rates(config: ClusterConfig) -> Rates | None:
    card = config.statements.rate_card
    if card is None:
        return None
    gpus = {
        offering.type: pool.shape.gpus
        for pool in config.pools.values()
        for offering in pool.offerings
    }
    gpus |= {name: shape.gpus for name, shape in Catalogue.bundled().shapes.items()}
    return Rates(
        as_of=f"{card.as_of:%Y-%m-%d}",
        gpu_hour=card.gpu_hour,
        node_hours=dict(card.node_hours),
        gpus={name: count for name, count in gpus.items() if count},
    )


def to_json(settings: StatementSettings) -> dict[str, Any]:
    """Return the settings as JSON values."""
    return {name: _plain(value) for name, value in asdict(settings).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def from_json(data: Mapping[str, Any]) -> StatementSettings:
    """Return the settings of JSON values. Raises KeyError, TypeError, ValueError."""
    rates = data["rates"]
    return StatementSettings(
        **{
            **data,
            "default_discount": Decimal(data["default_discount"]),
            "rates": None if rates is None else _rates_from(rates),
            "accounts": {name: _account_from(item) for name, item in data["accounts"].items()},
        }
    )


def _rates_from(data: Mapping[str, Any]) -> Rates:
    return Rates(
        as_of=data["as_of"],
        gpu_hour=None if data["gpu_hour"] is None else Decimal(data["gpu_hour"]),
        node_hours={name: Decimal(usd) for name, usd in data["node_hours"].items()},
        gpus=dict(data["gpus"]),
    )


def _account_from(data: Mapping[str, Any]) -> AccountFacts:
    grant = data["grant"]
    return AccountFacts(
        **{
            **data,
            "grant": None if grant is None else GrantFacts(**grant),
            "discount_percent": Decimal(data["discount_percent"]),
        }
    )
