"""CreateFleet of type instant: several offerings, partial answers, an error for each refusal.

Of a pool the local cloud knows only whether it is exhausted, so no pool is deeper than another.
What is left of `price-capacity-optimized`, and of `capacity-optimized`, is the lowest price.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult
from moto.ec2.models.fleets import Fleet
from moto.ec2.responses import EC2Response
from moto.ec2.utils import random_fleet_id

from toolkit.local.aws import (
    create_instances,
    fleet_launches,
    launch_conflicts,
    request_limits,
)
from toolkit.local.aws.aws_errors import code_of, ec2_error
from toolkit.local.aws.fleet_offering import FleetOffering, FleetResult
from toolkit.local.aws.launch_request import SPOT, Launch
from toolkit.local.aws.run_instances import Compute, plain
from toolkit.local.aws.spot_prices import on_demand_price, spot_price

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.local.aws.client_tokens import ClientTokens
    from toolkit.local.aws.fleet_launches import FleetLaunch
    from toolkit.local.aws.instance_tables import Tables
    from toolkit.local.aws.moto_patches import Patches
    from toolkit.local.faults import Faults


class Fleets:
    """Answers CreateFleet for instant fleets; other types stay with moto."""

    def __init__(
        self, tables: Tables, faults: Faults, tokens: ClientTokens, compute: Compute
    ) -> None:
        """Launch through `compute`, look for capacity in `faults`."""
        self._tables = tables
        self._faults = faults
        self._tokens = tokens
        self._compute = compute

    def install(self, patches: Patches) -> None:
        """Put this in place of moto's always full fleets."""
        fleets = self
        original: list[Any] = []

        def create_fleet(response: Any) -> Any:
            params = plain(response.params)
            if params.get("Type") != "instant":
                return original[0](response)
            response.error_on_dryrun()
            region = response.region
            make = partial(fleets.create, region, params)
            return ActionResult(fleets._tokens.run_once("CreateFleet", region, params, make))

        inherited = EC2Response.create_fleet
        original.append(patches.replace(EC2Response, "create_fleet", create_fleet) or inherited)

    def create(self, region: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Fill the fleet as far as pools allow; returns the answer."""
        capacities = fleet_launches.capacities(params)
        launch_conflicts.check_fleet(params)
        fleet_id = random_fleet_id()
        result = FleetResult()
        for market, capacity in capacities.items():
            options = _options(params, market)
            offerings = self._offerings(region, params, market, fleet_id, result)
            self._fill(region, offerings, capacity, options, result)
        self._record(region, fleet_id, params)
        return result.answer(fleet_id)

    def _offerings(
        self,
        region: str,
        params: Mapping[str, Any],
        market: str,
        fleet_id: str,
        result: FleetResult,
    ) -> list[FleetOffering]:
        """Return the request's usable offerings in the order of EC2's attempts."""
        offerings = []
        backend = self._tables.ec2(region)
        for launch in fleet_launches.fleet_launches(self._compute, backend, params, market):
            offering = self._offering(launch, fleet_id)
            try:
                create_instances.check(backend, offering.launch)
                self._raise_injected_error()
            except Exception as error:  # noqa: BLE001 - what EC2 would refuse is part of the answer
                result.add_error(offering, *code_of(error))
            else:
                offerings.append(offering)
        options = _options(params, market)
        if request_limits.by_priority(options):
            return sorted(offerings, key=lambda candidate: candidate.priority)
        if request_limits.diversified(options):
            return offerings
        return sorted(
            offerings, key=lambda candidate: candidate.price / Decimal(str(candidate.weight))
        )

    def _raise_injected_error(self) -> None:
        """Refuse one offering if a drill puts errors into fleet answers."""
        injection = self._faults.next_injection("CreateFleet", inside=True)
        if injection is not None:
            raise ec2_error(injection.code, injection.message)

    def _offering(self, made: FleetLaunch, fleet_id: str) -> FleetOffering:
        template, override = made.version.template, made.override
        tags = {kind: dict(values) for kind, values in made.launch.tags.items()}
        tags.setdefault("instance", {})["aws:ec2:fleet-id"] = fleet_id
        return FleetOffering(
            launch=replace(made.launch, tags=tags),
            specification={
                "LaunchTemplateId": template.id,
                "LaunchTemplateName": template.name,
                "Version": str(made.version.number),
            },
            override=override,
            weight=float(override.get("WeightedCapacity") or 1),
            priority=float(override.get("Priority") or 0),
            price=self._price(made.launch),
        )

    def _price(self, launch: Launch) -> Decimal:
        if launch.market == SPOT:
            now = self._tables.wall()
            return Decimal(spot_price(launch.instance_type, str(launch.zone), now))
        return on_demand_price(launch.instance_type)

    def _fill(
        self,
        region: str,
        offerings: Sequence[FleetOffering],
        capacity: int,
        options: Mapping[str, Any],
        result: FleetResult,
    ) -> None:
        minimum = float(options.get("MinTargetCapacity") or 0)
        groups = _groups(offerings, options)
        for group in groups:
            if self._capacity(group, capacity) >= minimum:
                self._launch(region, group, capacity, options, result)
                return
        for offering in offerings:
            result.add_error(
                offering,
                "InsufficientInstanceCapacity",
                f"There is not enough capacity for the minimum target capacity of {minimum:g}.",
            )

    def _capacity(self, offerings: Sequence[FleetOffering], capacity: int) -> float:
        """Return the weight that these offerings could give, up to `capacity`."""
        weights = {offering.pool: offering.weight for offering in offerings}
        counts = self._faults.available(weights, capacity)
        return sum(count * weight for count, weight in zip(counts, weights.values(), strict=True))

    def _launch(
        self,
        region: str,
        offerings: Sequence[FleetOffering],
        capacity: int,
        options: Mapping[str, Any],
        result: FleetResult,
    ) -> None:
        remaining_weight = float(capacity)
        diversified = request_limits.diversified(options)
        for position, offering in enumerate(offerings):
            if remaining_weight <= 0:
                return
            share = (
                remaining_weight / (len(offerings) - position) if diversified else remaining_weight
            )
            count = -int(-share // offering.weight)
            try:
                reservation = self._compute.launch(
                    region, offering.launch, at_least=1, at_most=count
                )
            except Exception as error:  # noqa: BLE001 - what EC2 would refuse is part of the answer
                result.add_error(offering, *code_of(error))
                continue
            remaining_weight -= len(reservation.instances) * offering.weight
            result.launches.append((offering, reservation))
            if len(reservation.instances) < count:
                result.add_error(offering, *_PARTIAL_LAUNCH)

    def _record(self, region: str, fleet_id: str, params: Mapping[str, Any]) -> None:
        """Let DescribeFleets know the fleet."""
        backend = self._tables.ec2(region)
        target = dict(params["TargetCapacitySpecification"])
        backend.fleets[fleet_id] = Fleet(
            ec2_backend=backend,
            fleet_id=fleet_id,
            on_demand_options=params.get("OnDemandOptions") or {},
            spot_options=params.get("SpotOptions") or {},
            # An empty fleet: moto would launch the target a second time.
            target_capacity_specification={**target, "TotalTargetCapacity": 0}
            | {"SpotTargetCapacity": 0, "OnDemandTargetCapacity": 0},
            launch_template_configs=[],
            excess_capacity_termination_policy="termination",
            replace_unhealthy_instances=False,
            terminate_instances_with_expiration=False,
            fleet_type="instant",
            valid_from=None,
            valid_until=None,
            tag_specifications=[],
        )


_PARTIAL_LAUNCH = (
    "InsufficientInstanceCapacity",
    "There is no more capacity available that matches your request.",
)


def _options(params: Mapping[str, Any], market: str) -> Mapping[str, Any]:
    return params.get("SpotOptions" if market == SPOT else "OnDemandOptions") or {}


def _groups(
    offerings: Sequence[FleetOffering], options: Mapping[str, Any]
) -> list[Sequence[FleetOffering]]:
    """Return sets of offerings that may launch together, the best first."""
    single_type, single_zone = (
        request_limits.single_type(options),
        request_limits.single_zone(options),
    )
    if not single_type and not single_zone:
        return [offerings]
    groups: dict[tuple[str, str], list[FleetOffering]] = {}
    for offering in offerings:
        kind = offering.launch.instance_type if single_type else ""
        zone = str(offering.launch.zone) if single_zone else ""
        groups.setdefault((kind, zone), []).append(offering)
    return list(groups.values())
