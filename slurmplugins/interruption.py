"""What EC2 says about this machine's end, from the metadata service, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from slurmplugins import safe_json

if TYPE_CHECKING:
    from slurmplugins.imds import Metadata

INSTANCE_ACTION: Final = "spot/instance-action"
REBALANCE: Final = "events/recommendations/rebalance"

SCHEDULED: Final = "events/maintenance/scheduled"

NOTICE_SECONDS: Final = 120.0
"""What EC2 gives; used where the notice's own time can't be read."""


class Kind(StrEnum):
    SPOT = "spot-interruption"
    REBALANCE = "rebalance-recommendation"
    SCHEDULED = "scheduled-event"


@dataclass(frozen=True, slots=True)
class Notice:
    """`deadline`: when the machine is taken (for a rebalance: when the risk was announced).
    `action`: EC2's word for what happens then.
    """

    kind: Kind
    action: str
    deadline: float


def spot(metadata: Metadata, now: float) -> Notice | None:
    """The interruption notice, if there is one. Raises MetadataError."""
    text = metadata.get(INSTANCE_ACTION)
    if text is None:
        return None
    fields = _object(text)
    action = str(fields.get("action", "terminate"))
    return Notice(Kind.SPOT, action, _time(fields.get("time"), now + NOTICE_SECONDS))


def rebalance(metadata: Metadata, now: float) -> Notice | None:
    """The rebalance recommendation, if there is one. Raises MetadataError."""
    text = metadata.get(REBALANCE)
    if text is None:
        return None
    return Notice(Kind.REBALANCE, "", _time(_object(text).get("noticeTime"), now))


def scheduled(metadata: Metadata, now: float) -> Notice | None:
    """The first event EC2 has scheduled for this machine and not called off, if there is one.

    One whose time can't be read counts as due: that costs a machine, and not a job's work. Raises
    MetadataError.
    """
    text = metadata.get(SCHEDULED)
    events = [] if text is None else _list(text)
    notices = [
        Notice(Kind.SCHEDULED, str(item.get("Code", "")), _time(item.get("NotBefore"), now))
        for item in events
        if item.get("State", "active") == "active"
    ]
    return min(notices, key=lambda item: item.deadline, default=None)


def _list(text: str) -> list[dict[str, object]]:
    try:
        value = safe_json.loads(text)
    except ValueError:
        return []  # the service answers with an empty list when there is none
    found = value if isinstance(value, list) else []
    return [item for item in found if isinstance(item, dict)]


def _object(text: str) -> dict[str, object]:
    """A notice that can't be read is still a notice."""
    try:
        value = safe_json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _time(value: object, otherwise: float) -> float:
    if not isinstance(value, str):
        return otherwise
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        try:  # scheduled events have a style of their own
            parsed = datetime.strptime(value, "%d %b %Y %H:%M:%S %Z")  # noqa: DTZ007 - GMT below
        except ValueError:
            return otherwise
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
