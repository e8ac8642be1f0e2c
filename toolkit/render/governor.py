"""The burst governor's part of burst.json (see slurmplugins.config.governor)."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import governor
from toolkit.config.types import seconds

if TYPE_CHECKING:
    from toolkit.config.burst import BurstSection
    from toolkit.config.model import ClusterConfig


FOLDER: Final = "/srv/head/governor"
"""On the head's data volume: a new head instance must know what was spent."""


def governor_json(config: ClusterConfig, folder: str = FOLDER) -> dict[str, Any]:
    """Return the part, also for a cluster without rules."""
    return governor.to_json(rules(config, folder))


def rules(config: ClusterConfig, folder: str = FOLDER) -> governor.GovernorConfig:
    """Return the rules as the head has them."""
    return governor.GovernorConfig(
        rules={rack: _rule(rack, section) for rack, section in config.burst.items()},
        boot=float(config.slurm.resume_timeout),
        tail=float(config.slurm.suspend_time + config.slurm.suspend_timeout),
        folder=folder,
    )


def _rule(rack: str, section: BurstSection) -> governor.RackRule:
    data = section.data
    return governor.RackRule(
        rack=rack,
        cloud=section.partition,
        after=float(seconds(section.after)),
        budgets=section.budgets,
        soon=float(seconds(section.soon)),
        qos={name: float(seconds(after)) for name, after in section.qos.items()},
        deadline=section.deadline,
        data=governor.DataRule(
            on_site=data.at == "site",
            mbit_per_second=float(data.mbit_per_second),
            usd_per_gb=data.usd_per_gb or Decimal(0),
        ),
    )
