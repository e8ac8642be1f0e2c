"""The section of cluster.yaml on jobs of racks that may go to the cloud.

The section's key is the partition of racks to which jobs are submitted.
"""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field

from toolkit.config import types
from toolkit.config.money import Usd, UsdTotal
from toolkit.config.raw import Finding, KeyPath, mapping
from toolkit.config.section import Section
from toolkit.config.suggestions import suggestion
from toolkit.config.types import Label, PartitionName, SiteAccountName

Period = Annotated[str, Field(pattern=types.WAIT)]


class BurstBudget(Section):
    """The most that an account's jobs may cost in the cloud."""

    usd_per_month: UsdTotal
    """US dollars of a calendar month (UTC), at the dearest price and with the whole time limit."""


class BurstData(Section):
    """The place of the jobs' data. A job's own comment comes first: `site-data=800G`, `s3-data`."""

    at: Literal["s3", "site"] = "s3"
    """`site`: a job without such a comment stays, because nobody knows what must be moved."""
    mbit_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """The throughput from the site to AWS."""
    usd_per_gb: Usd | None = None
    """The price of moving a GB, such as a line's own. AWS takes nothing for it."""


class BurstSection(Section):
    """A rule: the jobs of this partition that may go to the cloud while they wait."""

    partition: PartitionName
    """The partition of cloud nodes that such a job gets as its second."""
    after: Period = "30m"
    """How long a job waits for racks before that."""
    soon: Period = "15m"
    """A job stays while backfill expects its start on racks within this time."""
    qos: Annotated[dict[Label, Period], Field(max_length=100)] = Field(default={})
    """`after` by QOS, such as `urgent: 5m`. Then jobs of any other QOS stay."""
    accounts: Annotated[dict[SiteAccountName, BurstBudget], Field(min_length=1)]
    """The accounts whose jobs may go, each with its budget."""
    deadline: bool = True
    """A job that racks would finish after its --deadline may go at once."""
    data: BurstData = BurstData()

    @property
    def budgets(self) -> dict[str, Decimal]:
        """Return US dollars a month by account."""
        return {name: item.usd_per_month for name, item in self.accounts.items()}


def burst_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield unknown names, and pairs of partitions that can't work."""
    partitions = mapping(raw, "partitions")
    accounts = raw.get("accounts")
    rows = accounts if isinstance(accounts, list) else []
    names = {str(row.get("name")) for row in rows if isinstance(row, dict)}
    for rack, section in mapping(raw, "burst").items():
        path: KeyPath = ("burst", rack)
        cloud = section.get("partition") if isinstance(section, dict) else None
        # The partitions of a site that the cluster joins are in the site's own slurm.conf.
        if raw.get("kind") != "join" and rack not in partitions:
            yield path, f"unknown partition '{rack}'{suggestion(str(rack), partitions)}"
        if isinstance(cloud, str):
            yield from _cloud((*path, "partition"), rack, cloud, raw)
        for name in mapping(section, "accounts"):
            if raw.get("kind") != "join" and name not in names:
                yield (
                    (*path, "accounts", name),
                    f"unknown account '{name}'{suggestion(str(name), names)}",
                )


def _cloud(path: KeyPath, rack: str, cloud: str, raw: Mapping[str, Any]) -> Iterator[Finding]:
    partitions = mapping(raw, "partitions")
    if cloud == rack:
        yield path, "expected another partition than the racks' own"
    elif cloud not in partitions:
        yield path, f"unknown partition '{cloud}'{suggestion(cloud, partitions)}"
    elif rack in partitions and _priority(partitions, cloud) > _priority(partitions, rack):
        yield path, f"has a higher priority than {rack}: Slurm would try it before racks"
    elif cloud in mapping(raw, "burst"):
        yield path, "has a rule of its own; a job would go through two clouds"


def _priority(partitions: Mapping[str, Any], name: str) -> int:
    value = mapping(partitions, name).get("priority", 1)
    return value if isinstance(value, int) else 1
