"""The offerings of a fleet request, and their outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolkit.local.faults import CapacityPool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from toolkit.local.aws.launch_request import Launch


@dataclass(frozen=True, slots=True)
class FleetOffering:
    """An override of one template: a place where a part of the fleet may come from."""

    launch: Launch
    specification: Mapping[str, Any]  # the template, as the answer repeats it
    override: Mapping[str, Any]
    weight: float
    priority: float
    price: Decimal

    @property
    def pool(self) -> CapacityPool:
        """Return the pool this offering draws on."""
        return CapacityPool(self.launch.instance_type, str(self.launch.zone), self.launch.market)

    def launch_template_and_overrides(self) -> dict[str, Any]:
        """Return what the answer calls LaunchTemplateAndOverrides."""
        override = {**self.override, "AvailabilityZone": self.launch.zone}
        return {"LaunchTemplateSpecification": dict(self.specification), "Overrides": override}


@dataclass(slots=True)
class FleetResult:
    """The instances of a fleet, and its errors."""

    launches: list[tuple[FleetOffering, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)

    def add_error(self, offering: FleetOffering, code: str, message: str) -> None:
        """Note a refusal of an offering."""
        self.errors.append(
            {
                "LaunchTemplateAndOverrides": offering.launch_template_and_overrides(),
                "Lifecycle": offering.launch.market,
                "ErrorCode": code,
                "ErrorMessage": message,
            }
        )

    def answer(self, fleet_id: str) -> dict[str, Any]:
        """Return CreateFleet's answer."""
        instances = [
            {
                "LaunchTemplateAndOverrides": offering.launch_template_and_overrides(),
                "Lifecycle": offering.launch.market,
                "InstanceIds": [instance.id for instance in reservation.instances],
                "InstanceType": offering.launch.instance_type,
            }
            for offering, reservation in self.launches
        ]
        return {"FleetId": fleet_id, "Instances": instances, "Errors": self.errors}
