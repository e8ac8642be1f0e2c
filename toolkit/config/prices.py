"""The section of cluster.yaml on prices that no public list has."""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from typing import Annotated

from pydantic import AfterValidator, Field

from toolkit.config import types
from toolkit.config.money import Moment, Part, Percent, Usd, UsdTotal, Watts, Years
from toolkit.config.rack_names import rack_nodes
from toolkit.config.section import Section
from toolkit.config.types import Label, PoolName

Region = Annotated[str, Field(pattern=types.REGION)]
Family = Annotated[str, Field(pattern=types.FAMILY)]
Count = Annotated[int, Field(ge=1, le=10_000)]


def _hostlist(text: str) -> str:
    rack_nodes(text)
    return text


class OnDemandPrice(Section):
    """A negotiated price of on-demand instances, or a discount on the list price."""

    type: Label | None = None
    """Its instance type; without one, every type."""
    region: Region | None = None
    """Its region; without one, every region."""
    usd_per_hour: Usd | None = None
    discount_percent: Percent | None = None
    since: Moment | None = None
    until: Moment | None = None


class ReservedInstances(Section):
    """Instances that are paid for a term, whether they run or not."""

    type: Label | None = None
    family: Family | None = None
    """Instead of a type: its instances of any size, at one price."""
    count: Count
    usd_per_hour: Usd
    """The price of one instance's hour, with what was paid upfront spread over the term."""
    since: Moment
    until: Moment


class SavingsPlan(Section):
    """A commitment to pay an amount each hour, for instances at lower prices."""

    type: Label | None = None
    family: Family | None = None
    """Without type and family it is for every instance."""
    commitment_usd_per_hour: Usd
    discount_percent: Percent | None = None
    """The discount on the price on demand, for types without a rate."""
    rates: dict[Label, Usd] = Field(default={})
    """The plan's price of an hour, by instance type."""
    since: Moment
    until: Moment


class CapacityBlock(Section):
    """A capacity block, which was paid in advance."""

    reservation: Annotated[str, Field(pattern=types.RESERVATION)] | None = None
    """Its id, as in the offering of a pool."""
    pool: PoolName | None = None
    """Instead of an id: the pool whose on-demand instances run in it."""
    count: Count
    """Its instances."""
    usd_total: UsdTotal
    since: Moment
    until: Moment


class RackShape(Section):
    """The resources of one node of a rack."""

    cpus: Annotated[int, Field(ge=1, le=4096)]
    memory_gib: Annotated[int, Field(ge=1, le=65_536)]
    gpus: Annotated[int, Field(ge=0, le=64)] = 0


class Rack(Section):
    """Nodes of one's own, each at the same rate. Amounts are those of one node."""

    nodes: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_hostlist)]
    """A hostlist such as rack-[01-16]."""
    shape: RackShape | None = None
    """Without it, Slurm's figures of today."""
    usd_per_hour: Usd | None = None
    """The rate of a node's hour. Without it, the rate is derived from the keys below."""
    capex_usd: UsdTotal | None = None
    years: Years | None = None
    """The years over which the purchase is spread."""
    watts: Watts | None = None
    """The mean draw of a node, with its cooling."""
    usd_per_kwh: Usd | None = None
    staff_usd_per_year: UsdTotal | None = None
    target_utilisation: Part | None = None
    """The part of all hours in which jobs are expected to hold the node."""


class StoragePrices(Section):
    """Prices of a GB-month."""

    fsx_usd_per_gb_month: Usd | None = None
    ebs_usd_per_gb_month: Usd | None = None
    s3_usd_per_gb_month: Usd | None = None


class NetworkPrices(Section):
    """Prices of the NAT gateway and of traffic."""

    nat_usd_per_hour: Usd | None = None
    nat_usd_per_gb: Usd | None = None
    cross_zone_usd_per_gb: Usd | None = None


class Prices(Section):
    """The prices of contracts, purchases, racks, storage and traffic."""

    as_of: Moment | None = None
    """The day on which these prices were true; the report states it beside each amount."""
    on_demand: tuple[OnDemandPrice, ...] = ()
    reserved_instances: tuple[ReservedInstances, ...] = ()
    savings_plans: tuple[SavingsPlan, ...] = ()
    capacity_blocks: tuple[CapacityBlock, ...] = ()
    racks: tuple[Rack, ...] = ()
    storage: StoragePrices = StoragePrices()
    network: NetworkPrices = NetworkPrices()
