"""CloudWatch Logs where moto differs: the group's ARN, its retention, limits of a call.

Sources: CloudFormation's reference of AWS::Logs::LogGroup; CloudWatch Logs API reference,
PutLogEvents and FilterLogEvents. Nothing expires here: no local cloud lives that long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from moto.logs.exceptions import InvalidParameterException
from moto.logs.models import LogGroup, LogsBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.local.aws.moto_patches import Patches

MOST_EVENTS: Final = 10_000
MOST_BYTES: Final = 1_048_576
EVENT_BYTES: Final = 26
LONGEST_SPAN: Final = 24 * 3600 * 1000
"""Milliseconds between the first and the last event of a call."""


def install(patches: Patches) -> None:
    """Replace moto's methods."""
    put = vars(LogsBackend)["put_log_events"]
    find = vars(LogsBackend)["filter_log_events"]

    def put_log_events(
        backend: Any, log_group_name: str, log_stream_name: str, log_events: list[dict[str, Any]]
    ) -> Any:
        _check(log_events)
        return put(backend, log_group_name, log_stream_name, log_events)

    def filter_log_events(backend: Any, *args: Any, **named: Any) -> Any:
        # AWS ignores the parameter since 2019, and always mixes streams by time.
        if "interleaved" in named:
            named["interleaved"] = True
        else:
            args = (*args[:-1], True)
        return find(backend, *args, **named)

    def get_cfn_attribute(group: Any, attribute_name: str) -> str:
        del attribute_name  # `has_cfn_attr` lets Arn through alone
        return f"{group.arn}:*"

    def update_from_cloudformation_json(
        _cls: type[Any], /, original_resource: Any, cloudformation_json: Any, **_: Any
    ) -> Any:
        days = cloudformation_json["Properties"].get("RetentionInDays")
        original_resource.set_retention_policy(days)
        return original_resource

    patches.replace(LogsBackend, "put_log_events", put_log_events)
    patches.replace(LogsBackend, "filter_log_events", filter_log_events)
    patches.replace(LogGroup, "get_cfn_attribute", get_cfn_attribute)
    patches.replace(
        LogGroup, "update_from_cloudformation_json", classmethod(update_from_cloudformation_json)
    )


def _check(events: Sequence[dict[str, Any]]) -> None:
    """Raise what CloudWatch answers to a call beyond its limits."""
    size = sum(len(str(event["message"]).encode()) + EVENT_BYTES for event in events)
    if not 1 <= len(events) <= MOST_EVENTS:
        raise InvalidParameterException(f"Log events: expected 1 to {MOST_EVENTS}")
    if size > MOST_BYTES:
        raise InvalidParameterException(f"Upload too large: {size} bytes exceeds {MOST_BYTES}")
    stamps = [int(event["timestamp"]) for event in events]
    if max(stamps) - min(stamps) > LONGEST_SPAN:
        raise InvalidParameterException("The batch of log events cannot span more than 24 hours.")
