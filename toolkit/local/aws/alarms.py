"""CloudWatch's alarms: in stacks, which moto can't make, and their states, which moto never judges.

Sources: CloudWatch User Guide, "Alarm evaluation" and "Configuring how CloudWatch alarms treat
missing data"; CloudFormation's reference of the two types. An alarm is judged when somebody asks
for it. Its actions are recorded in the stack's template, and nobody gets mail. EC2 sends no metrics
of its own here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from moto.cloudwatch.models import CloudWatchBackend, cloudwatch_backends
from moto.cloudwatch.responses import CloudWatchResponse
from moto.core.common_models import CloudFormationModel
from moto.sns.models import sns_backends

from toolkit.local.aws.stack_type import StackType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from toolkit.local.aws.moto_patches import Patches

OK, ALARM, UNKNOWN = "OK", "ALARM", "INSUFFICIENT_DATA"

_STATISTICS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "Sum": sum,
    "Maximum": max,
    "Minimum": min,
    "SampleCount": len,
}
_BREACHES: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "LessThanThreshold": lambda value, threshold: value < threshold,
    "GreaterThanThreshold": lambda value, threshold: value > threshold,
}


def install(patches: Patches, wall: Callable[[], float]) -> None:
    """Judge alarms whenever they are described."""
    describe = vars(CloudWatchResponse)["describe_alarms"]

    def describe_alarms(response: Any) -> Any:
        judge_all(response.cloudwatch_backend, wall())
        return describe(response)

    patches.replace(CloudWatchResponse, "describe_alarms", describe_alarms)


def judge_all(backend: CloudWatchBackend, now: float) -> None:
    """Give each alarm the state that its metric's data say."""
    for alarm in backend.alarms.values():
        if alarm.rule is not None or alarm.metric_data_queries:
            continue  # composite alarms and expressions: not the toolkit's
        state = state_of(alarm, backend.metric_data, now)
        if state != alarm.state_value:
            alarm.update_state(f"Threshold crossed: judged {state}", "{}", state)


def state_of(alarm: Any, data: Iterable[Any], now: float) -> str:
    """Return an alarm's state by the data of its last periods.

    A period without data counts as the alarm says: as breaching, as not, or as nothing.
    """
    period, count = int(alarm.period), int(alarm.evaluation_periods)
    values: list[list[float]] = [[] for _ in range(count)]
    for datum in data:
        age = now - _seconds(datum.timestamp)
        if _is_of(alarm, datum) and 0 <= age < period * count:
            values[int(age // period)].append(float(datum.value))
    compute = _STATISTICS[alarm.statistic]
    breaches = _BREACHES[alarm.comparison_operator]
    verdicts = [
        breaches(compute(items), float(alarm.threshold)) if items else _missing(alarm)
        for items in values
    ]
    known = [verdict for verdict in verdicts if verdict is not None]
    if not known:
        return UNKNOWN
    return ALARM if sum(known) >= int(alarm.datapoints_to_alarm or count) else OK


def _missing(alarm: Any) -> bool | None:
    """Return what a period without data counts as; None for nothing."""
    return {"breaching": True, "notBreaching": False}.get(alarm.treat_missing_data)


def _is_of(alarm: Any, datum: Any) -> bool:
    def place(item: Any) -> Any:
        return item.namespace, {(each.name, each.value) for each in item.dimensions}

    name = getattr(datum, "name", "")
    return bool(name == alarm.metric_name and place(datum) == place(alarm))


def _seconds(stamp: datetime) -> float:
    return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()


class StackAlarm(StackType, CloudFormationModel):  # type: ignore[misc]  # moto is untyped here
    """An alarm of a stack; Ref gives its name."""

    TYPE = "AWS::CloudWatch::Alarm"
    NAME_PROPERTY = "AlarmName"

    def __init__(self, name: str, arn: str) -> None:
        """Stand for an alarm of the backend."""
        self.name = name
        self.arn = arn

    @property
    def physical_resource_id(self) -> str:
        """Return what Ref gives."""
        return self.name

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        """Say which attributes GetAtt may read."""
        return attr == "Arn"

    def get_cfn_attribute(self, attribute_name: str) -> str:
        """Return an attribute."""
        del attribute_name
        return self.arn

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
        **_: Any,
    ) -> StackAlarm:
        """Create the alarm; before its first judgement its state is not known."""
        backend = cloudwatch_backends[account_id][region_name]
        alarm = _put(backend, resource_name, cloudformation_json["Properties"])
        alarm.state_value = UNKNOWN
        return cls(alarm.name, alarm.alarm_arn)

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
    ) -> StackAlarm:
        """Change the alarm, which keeps its state until it is judged again."""
        del new_resource_name
        resource: StackAlarm = original_resource
        backend = cloudwatch_backends[account_id][region_name]
        state = backend.alarms[resource.name].state_value
        alarm = _put(backend, resource.name, cloudformation_json["Properties"])
        alarm.state_value = state
        return resource

    def delete(self, account_id: str, region_name: str) -> None:
        """Delete the alarm."""
        cloudwatch_backends[account_id][region_name].delete_alarms([self.name])


def _put(backend: CloudWatchBackend, name: str, properties: Mapping[str, Any]) -> Any:
    return backend.put_metric_alarm(
        name=name,
        namespace=properties["Namespace"],
        metric_name=properties["MetricName"],
        comparison_operator=properties["ComparisonOperator"],
        evaluation_periods=int(properties["EvaluationPeriods"]),
        period=int(properties["Period"]),
        threshold=float(properties["Threshold"]),
        statistic=properties["Statistic"],
        description=properties.get("AlarmDescription", ""),
        dimensions=properties.get("Dimensions", []),
        alarm_actions=properties.get("AlarmActions", []),
        ok_actions=properties.get("OKActions", []),
        treat_missing_data=properties.get("TreatMissingData"),
        tags=properties.get("Tags"),
    )


class StackSubscription(StackType, CloudFormationModel):  # type: ignore[misc]  # moto is untyped here
    """A subscription of a stack, such as the address of a person; Ref gives its ARN."""

    TYPE = "AWS::SNS::Subscription"

    def __init__(self, arn: str) -> None:
        """Stand for a subscription of the backend."""
        self.arn = arn

    @property
    def physical_resource_id(self) -> str:
        """Return what Ref gives."""
        return self.arn

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
        **_: Any,
    ) -> StackSubscription:
        """Subscribe the endpoint to the topic."""
        del resource_name
        properties = cloudformation_json["Properties"]
        subscription = sns_backends[account_id][region_name].subscribe(
            properties["TopicArn"], properties["Endpoint"], properties["Protocol"]
        )
        return cls(subscription.arn)

    def delete(self, account_id: str, region_name: str) -> None:
        """End the subscription."""
        sns_backends[account_id][region_name].unsubscribe(self.arn)
