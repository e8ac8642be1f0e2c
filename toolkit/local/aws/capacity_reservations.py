"""Capacity reservations and capacity blocks, which moto doesn't have.

Launches don't count against them here: the local cloud's capacity is in `toolkit.local.faults`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolkit.local.aws.moto_patches import Patches

ID_BYTES = 8  # an id has 17 hexadecimal digits, the first of which is 0
_FILTERS = {
    "instance-type": "InstanceType",
    "availability-zone": "AvailabilityZone",
    "state": "State",
    "placement-group-arn": "PlacementGroupArn",
}


@dataclass(slots=True)
class Row:
    """A reservation or block, in the members of DescribeCapacityReservations."""

    id: str
    region: str
    instance_type: str
    zone: str
    count: int
    starts_at: datetime
    ends_at: datetime | None = None
    cancelled: bool = False
    placement_group: str = ""
    is_block: bool = False

    def state(self, now: datetime) -> str:
        """Return EC2's state at a moment."""
        if self.cancelled:
            return "cancelled"
        if self.ends_at is not None and self.ends_at <= now:
            return "expired"
        return "active" if self.starts_at <= now else "scheduled"

    def members(self, now: datetime) -> dict[str, Any]:
        """Return the row as EC2 describes it."""
        state = self.state(now)
        members: dict[str, Any] = {
            "CapacityReservationId": self.id,
            "OwnerId": ACCOUNT,
            "InstanceType": self.instance_type,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": self.zone,
            "Tenancy": "default",
            "TotalInstanceCount": self.count,
            "AvailableInstanceCount": self.count if state == "active" else 0,
            "State": state,
            "StartDate": self.starts_at,
            "CreateDate": self.starts_at,
            "EndDateType": "limited" if self.ends_at else "unlimited",
            "InstanceMatchCriteria": "targeted" if self.is_block else "open",
            "ReservationType": "capacity-block" if self.is_block else "default",
        }
        if self.ends_at is not None:
            members["EndDate"] = self.ends_at
        if self.placement_group:
            members["PlacementGroupArn"] = self.placement_group
        return members


class CapacityReservations:
    """CreateCapacityReservation, DescribeCapacityReservations, CancelCapacityReservation."""

    def __init__(self, wall: Callable[[], float]) -> None:
        """Begin without any."""
        self._wall = wall
        self._rows: dict[str, Row] = {}

    def install(self, patches: Patches) -> None:
        """Add the calls to moto's EC2."""
        reservations = self

        def create(response: Any) -> Any:
            response.error_on_dryrun()
            row = reservations.create(response.region, response.params)
            return ActionResult({"CapacityReservation": row.members(reservations._now())})

        def describe(response: Any) -> Any:
            response.error_on_dryrun()
            filters = response._filters_from_querystring()  # noqa: SLF001 - moto's way to read them
            ids = response.params.get("CapacityReservationIds") or ()
            return ActionResult(
                {"CapacityReservations": reservations.describe(response.region, ids, filters)}
            )

        def cancel(response: Any) -> Any:
            response.error_on_dryrun()
            row = reservations.row(response.region, str(response.params["CapacityReservationId"]))
            row.cancelled = True
            return ActionResult({"Return": True})

        patches.replace(EC2Response, "create_capacity_reservation", create)
        patches.replace(EC2Response, "describe_capacity_reservations", describe)
        patches.replace(EC2Response, "cancel_capacity_reservation", cancel)

    def create(self, region: str, params: Mapping[str, Any]) -> Row:
        """Make a reservation that is active at once."""
        ends_at = params.get("EndDate")
        return self.add(
            Row(
                id=new_id(),
                region=region,
                instance_type=str(params["InstanceType"]),
                zone=str(params["AvailabilityZone"]),
                count=int(params["InstanceCount"]),
                starts_at=self._now(),
                ends_at=_moment(ends_at) if ends_at else None,
                placement_group=str(params.get("PlacementGroupArn") or ""),
            )
        )

    def add(self, row: Row) -> Row:
        """Keep a row, such as a block that was bought."""
        self._rows[row.id] = row
        return row

    def row(self, region: str, reservation_id: str) -> Row:
        """Return a row; refuse an unknown id as EC2 does."""
        row = self._rows.get(reservation_id)
        if row is None or row.region != region:
            message = f"The capacity reservation '{reservation_id}' does not exist."
            raise ec2_error("InvalidCapacityReservationId.NotFound", message)
        return row

    def describe(self, region: str, ids: Any, filters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows with these ids, or all, that match every filter."""
        unknown = filters.keys() - _FILTERS.keys()
        if unknown:
            message = f"The filter '{min(unknown)}' is invalid"
            raise ec2_error("InvalidParameterValue", message)
        rows = [self.row(region, str(one)) for one in ids] or list(self._rows.values())
        described = [row.members(self._now()) for row in rows if row.region == region]
        return [
            members
            for members in described
            if all(members.get(_FILTERS[name]) in values for name, values in filters.items())
        ]

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._wall(), UTC)


def new_id() -> str:
    """Return a new id, as EC2 writes it."""
    return f"cr-0{secrets.token_hex(ID_BYTES)}"


def _moment(value: Any) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
