"""EC2's notices about this instance's end, read from the metadata service as one value."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from slurmplugins.model import json_input
from slurmplugins.model.instance import NOTICE_SECONDS, Kind, Notice

if TYPE_CHECKING:
    from slurmplugins.node.imds import Metadata


INSTANCE_ACTION: Final = "spot/instance-action"
REBALANCE: Final = "events/recommendations/rebalance"

SCHEDULED: Final = "events/maintenance/scheduled"


def spot(metadata: Metadata, now: float) -> Notice | None:
    """Return the interruption notice, if there is one.

    Raises MetadataError.
    """
    text = metadata.get(INSTANCE_ACTION)
    if text is None:
        return None
    fields = _object(text)
    action = str(fields.get("action", "terminate"))
    return Notice(Kind.SPOT, action, _time(fields.get("time"), now + NOTICE_SECONDS))


def rebalance(metadata: Metadata, now: float) -> Notice | None:
    """Return the rebalance recommendation, if there is one.

    Raises MetadataError.
    """
    text = metadata.get(REBALANCE)
    if text is None:
        return None
    return Notice(Kind.REBALANCE, "", _time(_object(text).get("noticeTime"), now))


def scheduled(metadata: Metadata, now: float) -> Notice | None:
    """Return the first scheduled event that is still active, or None.

    An event with an unreadable time counts as due: at worst an instance is drained for nothing.
    Raises MetadataError.
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
        value = json_input.loads(text)
    except ValueError:
        return []  # no JSON: the service sends an empty list when there is no event
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def _object(text: str) -> dict[str, object]:
    """Parse a notice; an unreadable one is still a notice."""
    try:
        value = json_input.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _time(value: object, default: float) -> float:
    if not isinstance(value, str):
        return default
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        try:  # scheduled events have a style of their own
            parsed = datetime.strptime(value, "%d %b %Y %H:%M:%S %Z")  # noqa: DTZ007 - GMT below
        except ValueError:
            return default
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
