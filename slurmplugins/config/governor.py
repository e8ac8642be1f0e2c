"""The burst governor's part of burst.json: which jobs of which racks may burst."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import burst_part
from slurmplugins.errors import ConfigError
from slurmplugins.model.json_input import finite

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


KEY: Final = "governor"
SOON: Final = 900.0
"""Seconds. A job whose rack is free so soon stays: an instance boots for minutes, too."""


@dataclass(frozen=True, slots=True)
class DataRule:
    """The place of the jobs' data, and the price of moving it."""

    on_site: bool = False
    """A job's data is on site unless its comment says otherwise."""
    mbit_per_second: float = 1000.0
    """The throughput from the site to the cloud."""
    usd_per_gb: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class RackRule:
    """The rule for jobs that were submitted to one partition of racks. Times are seconds."""

    rack: str
    """The partition of racks."""
    cloud: str
    """The partition that a job gets too."""
    after: float
    """Seconds that a job waits for racks before it may burst."""
    budgets: Mapping[str, Decimal]
    """US dollars a calendar month (UTC) by account. Jobs of other accounts stay."""
    soon: float = SOON
    qos: Mapping[str, float] = field(default_factory=dict)
    """`after` by QOS. Where it has any, jobs of other QOS stay."""
    deadline: bool = True
    """A job that racks would finish after its deadline may burst at once."""
    data: DataRule = DataRule()

    def after_of(self, qos: str) -> float | None:
        """Return `after` for a QOS; None if its jobs stay."""
        return self.qos.get(qos) if self.qos else self.after


@dataclass(frozen=True, slots=True)
class GovernorConfig:
    """All rules, by the partition of racks."""

    rules: Mapping[str, RackRule] = field(default_factory=dict)
    boot: float = 600.0
    """Seconds from the launch of an instance to the start of the job, at worst."""
    tail: float = 0.0
    """Seconds that an instance stays after its job."""
    folder: str = ""
    """The folder of what was spent. It must outlive the controller's instance."""


def load(path: Path) -> GovernorConfig:
    """Read the governor's part of burst.json. Raises ConfigError."""
    return parse(burst_part.read(path))


def parse(document: object) -> GovernorConfig:
    """Return the rules of a burst.json, or none.

    Raises ConfigError with the first problem: nothing is guessed where money is spent.
    """
    part = burst_part.part_of(document, KEY)
    if part is None:
        return GovernorConfig()
    try:
        return GovernorConfig(
            rules={str(rack): rule(str(rack), item) for rack, item in part["racks"].items()},
            boot=finite(part["boot"]),
            tail=finite(part["tail"]),
            folder=str(part["folder"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, InvalidOperation) as error:
        raise ConfigError((f"burst.json: {KEY}: {type(error).__name__}: {error}",)) from error


def rule(rack: str, item: Mapping[str, Any]) -> RackRule:
    """Read one rule. Raises KeyError, TypeError, ValueError or InvalidOperation."""
    data = item["data"]
    return RackRule(
        rack=rack,
        cloud=str(item["cloud"]),
        after=finite(item["after"]),
        budgets={str(name): _usd(usd) for name, usd in item["accounts"].items()},
        soon=finite(item["soon"]),
        qos={str(name): finite(after) for name, after in item["qos"].items()},
        deadline=item["deadline"] is True,
        data=DataRule(
            on_site=data["at"] == "site",
            mbit_per_second=finite(data["mbit_per_second"]),
            usd_per_gb=_usd(data["usd_per_gb"]),
        ),
    )


def to_json(config: GovernorConfig) -> dict[str, Any]:
    """Return the part as burst.json has it."""
    return {
        "racks": {name: _rule_json(item) for name, item in config.rules.items()},
        "boot": config.boot,
        "tail": config.tail,
        "folder": config.folder,
    }


def _rule_json(item: RackRule) -> dict[str, Any]:
    return {
        "cloud": item.cloud,
        "after": item.after,
        "soon": item.soon,
        "qos": dict(item.qos),
        "accounts": {name: f"{usd:f}" for name, usd in item.budgets.items()},
        "deadline": item.deadline,
        "data": {
            "at": "site" if item.data.on_site else "s3",
            "mbit_per_second": item.data.mbit_per_second,
            "usd_per_gb": f"{item.data.usd_per_gb:f}",
        },
    }


def _usd(text: object) -> Decimal:
    usd = Decimal(str(text))
    if not usd.is_finite() or usd < 0:
        raise ValueError(f"expected US dollars, found {text!r}")
    return usd
