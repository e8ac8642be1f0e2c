"""Requests to EC2, and the reading of its answers and errors."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins import errors
from slurmplugins.cloud import ec2_messages, error_codes
from slurmplugins.cloud.client import translate
from slurmplugins.cloud.ec2 import NEW_INSTANCE_PAUSE, NEW_INSTANCE_TRIES, Ec2
from slurmplugins.cloud.tags import node_of
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Lifecycle, Offering
from slurmplugins.model.launch import LaunchRequest
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

G = hostlist.expand("gpu-[001-003]")
SPOT = Offering("g5.xlarge", Lifecycle.SPOT, "us-east-1a", "0.4024")


def request(offering: Offering = SPOT) -> LaunchRequest:
    return LaunchRequest("a1", "demo", "gpu", "spot", "demo-gpu", "subnet-a", offering, G)


def test_a_launch_is_all_or_nothing_and_carries_its_tags():
    sent = ec2_messages.run_instances(request())
    tags = {item["Key"]: item["Value"] for item in sent["TagSpecifications"][0]["Tags"]}
    assert (sent["MinCount"], sent["MaxCount"]) == (3, 3)
    assert sent["InstanceMarketOptions"]["MarketType"] == "spot"
    assert tags == {
        "Name": "demo-gpu",
        "toolkit:cluster": "demo",
        "toolkit:role": "compute",
        "toolkit:pool": "gpu",
        "toolkit:partition": "spot",
        "toolkit:nodes": "gpu-[001-003]",
        "toolkit:attempt": "a1",
        "toolkit:price": "0.4024",
    }


def test_on_demand_has_no_market_options():
    on_demand = Offering("g5.xlarge", Lifecycle.ON_DEMAND, "us-east-1a", "1")
    assert "InstanceMarketOptions" not in ec2_messages.run_instances(request(on_demand))


@pytest.mark.parametrize("sent", [ec2_messages.run_instances, ec2_messages.create_fleet])
def test_the_client_token_depends_on_the_launch_id_alone(
    sent: Callable[[LaunchRequest], dict[str, Any]],
):
    first = request()
    others = [replace(first, attempt="a2"), replace(first, nodes=G[:1])]
    assert [sent(item)["ClientToken"] for item in (first, *others)] == [
        ec2_messages.client_token(attempt) for attempt in ("a1", "a2", "a1")
    ]


def test_the_client_token_is_made_from_the_launch_id_and_fits():
    assert (
        ec2_messages.client_token("a1")
        == ec2_messages.client_token("a1")
        != ec2_messages.client_token("a2")
    )
    assert len(ec2_messages.client_token("a1")) <= 64


@pytest.mark.parametrize(
    ("tag", "index", "expected"),
    [
        ({"toolkit:nodes": "gpu-[001-003]"}, 2, "gpu-003"),
        ({"toolkit:nodes": "gpu-[001-003]"}, 3, None),
        ({"toolkit:nodes": "gpu-[001-003]"}, -1, None),
        ({"toolkit:nodes": "gpu-[001-003]", "toolkit:node": "gpu-9"}, 0, "gpu-9"),
        ({"toolkit:node": "x;y"}, 0, None),
        ({"toolkit:nodes": "gpu-["}, 0, None),
        ({}, 0, None),
    ],
)
def test_an_instance_is_the_node_its_tags_and_index_say(
    tag: dict[str, str], index: int, expected: str | None
):
    assert node_of(tag, index, "i-1") == expected


def test_the_time_and_cause_of_a_termination_are_read_from_the_instances_description():
    found = ec2_messages.instance(
        {
            "InstanceId": "i-1",
            "State": {"Name": "terminated"},
            "StateReason": {"Code": "Server.SpotInstanceTermination"},
            "StateTransitionReason": "Service initiated (2026-11-21 10:15:00 GMT)",
            "LaunchTime": datetime(2026, 11, 21, 10, tzinfo=UTC),
        }
    )
    assert found.ended_at == datetime(2026, 11, 21, 10, 15, tzinfo=UTC).timestamp()
    assert found.end_code == "Server.SpotInstanceTermination"


def test_each_error_code_is_in_one_class_only():
    listed = [code for _, group in error_codes._BY_CLASS for code in group]
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", errors.NoCapacity),
        ("VcpuLimitExceeded", errors.QuotaExceeded),
        ("RequestLimitExceeded", errors.Throttled),
        ("UnauthorizedOperation", errors.Denied),
        ("NeverSeenBefore", errors.UnknownCloudError),
        # These are not in the table: their names decide the class.
        ("InsufficientVolumeCapacity", errors.NoCapacity),
        ("SpotFleetRequestsLimitExceeded", errors.QuotaExceeded),
        ("InvalidKeyPair.NotFound", errors.NotFound),
        ("InvalidSnapshot.NotFound", errors.NotFound),
        ("InvalidParameterDependency", errors.InvalidRequest),
        ("InvalidNetworkInterfaceID.Malformed", errors.InvalidRequest),
        # A prefix with the side at fault does not change the class.
        ("Client.RequestLimitExceeded", errors.Throttled),
        ("Server.InsufficientInstanceCapacity", errors.NoCapacity),
        ("Server.InternalError", errors.CloudUnreachable),
    ],
)
def test_codes_have_their_class_and_keep_their_name(code: str, kind: type[errors.CloudError]):
    found = error_codes.error(code, "text")
    assert type(found) is kind
    assert found.code == code


def test_only_errors_that_a_repeat_can_mend_are_retryable():
    retryable = {kind for kind in error_codes.CLASSES.values() if kind.retryable}
    assert retryable == {errors.Throttled, errors.CloudUnreachable, errors.NoCredentials}


class Answers:
    """A boto3 client that gives prepared answers."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.calls.append((name, arguments))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer.pop(0) if isinstance(answer, list) else answer

        return call


def described(number: int) -> dict[str, Any]:
    return {
        "InstanceId": f"i-{number}",
        "State": {"Name": "pending"},
        "AmiLaunchIndex": number,
        "Tags": [
            {"Key": "toolkit:nodes", "Value": "gpu-[001-003]"},
            {"Key": "toolkit:cluster", "Value": "demo"},
        ],
    }


@pytest.mark.parametrize("known", [True, False])
def test_an_answer_with_too_few_instances_is_a_failure_once_they_are_terminated(*, known: bool):
    """Answer with one instance, which TerminateInstances knows or does not know.

    If EC2 does not know the instance yet, the same request is made again.
    """
    from botocore.exceptions import ClientError

    unknown = ClientError({"Error": {"Code": "InvalidInstanceID.NotFound"}}, "TerminateInstances")
    client = Answers(
        run_instances={"Instances": [described(0)]},
        describe_instances={"Reservations": []},
        terminate_instances={"TerminatingInstances": []} if known else unknown,
    )
    with pytest.raises(errors.CloudError, match="returned 1") as caught:
        Ec2("demo", lambda: client).launch(request(), lambda: None)
    assert isinstance(caught.value, errors.CloudUnreachable) is not known
    assert caught.value.instances_started == 1
    assert client.calls[-1] == ("terminate_instances", {"InstanceIds": ["i-0"]})


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        ("UnauthorizedOperation", errors.Denied, False),
        ("TagLimitExceeded", errors.InvalidRequest, False),
        ("RequestLimitExceeded", errors.UnknownCloudError, False),
        ("RequestTimeout", errors.CloudUnreachable, True),
        ("MissingCredentials", errors.CloudUnreachable, True),
    ],
)
def test_a_fleet_that_can_not_be_tagged_is_terminated_unless_the_answer_is_unclear(
    code: str, kind: type[errors.CloudError], *, retryable: bool
):
    """Refuse CreateTags of a fleet with different error codes.

    EC2 would answer a repeated request with the terminated instances, so a clear refusal is not
    retryable. After an unclear answer, a repeat finds the instances, tagged or not. An error that
    only a person can mend must hold the job. Otherwise each requeue would launch a fleet.
    """
    error, ended = unnamed(code)
    assert type(error) is kind
    assert error.retryable is retryable
    assert ended == ([] if retryable else ["i-1", "i-2", "i-3"])


@pytest.mark.parametrize(
    "code", {kind: code for code, kind in error_codes.CLASSES.items()}.values()
)
def test_a_launch_is_not_repeated_after_its_instances_were_terminated(code: str):
    """Refuse CreateTags with a code of each error class.

    EC2 would answer a repeat with the terminated instances. The offerings would then count as
    exhausted.
    """
    error, ended = unnamed(code)
    assert not (ended and error.retryable)
    assert error.instances_started == 3


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "UnauthorizedOperation"])
def test_a_fleet_that_can_be_neither_tagged_nor_terminated_is_unresolved(code: str):
    """Refuse both CreateTags and TerminateInstances.

    The instances live, so no other instance may be launched for their nodes.
    """
    error, _ = unnamed(code, endable=False)
    assert type(error) is errors.CloudUnreachable
    assert error.instances_started == 3
    assert error.message.endswith("could not be terminated")


def unnamed(code: str, *, endable: bool = True) -> tuple[errors.CloudError, list[str]]:
    """Launch a fleet whose CreateTags is refused.

    Returns the error, and the ids of the instances that were terminated.
    """
    from botocore.exceptions import ClientError

    refusal = ClientError({"Error": {"Code": code, "Message": "m"}}, "CreateTags")
    client = Answers(
        create_fleet={"Instances": [{"InstanceIds": ["i-1", "i-2", "i-3"]}]},
        create_tags=refusal,
        terminate_instances={"TerminatingInstances": []} if endable else refusal,
    )
    fleet = replace(request(), others=(replace(SPOT, type="g5.2xlarge"),))
    with pytest.raises(errors.CloudError) as caught:
        Ec2("demo", lambda: client, FakeClock()).launch(fleet, lambda: None)
    ended = [given for name, given in client.calls if name == "terminate_instances"]
    return caught.value, [item for given in ended for item in given["InstanceIds"]]


class NotYetKnown(Answers):
    """EC2 whose CreateTags does not know new instances at first, and then does."""

    def __init__(self, refusals: int, **answers: Any) -> None:
        super().__init__(**answers)
        self._refusals = refusals

    def create_tags(self, **given: Any) -> dict[str, Any]:
        from botocore.exceptions import ClientError

        self.calls.append(("create_tags", given))
        if sum(name == "create_tags" for name, _ in self.calls) <= self._refusals:
            code = {"Error": {"Code": "InvalidInstanceID.NotFound", "Message": "m"}}
            raise ClientError(code, "CreateTags")
        return {}


@pytest.mark.parametrize("refusals", [1, NEW_INSTANCE_TRIES - 1])
def test_instances_that_create_tags_does_not_know_yet_are_tagged_a_moment_later(refusals: int):
    clock = FakeClock()
    client = NotYetKnown(
        refusals,
        create_fleet={"Instances": [{"InstanceIds": ["i-1", "i-2", "i-3"]}]},
        describe_instances={"Reservations": []},
    )
    fleet = replace(request(), others=(replace(SPOT, type="g5.2xlarge"),))
    found = Ec2("demo", lambda: client, clock).launch(fleet, lambda: None)
    assert [item.node for item in found.instances] == list(G)
    tagged = [given for name, given in client.calls if name == "create_tags"]
    assert tagged == [tagged[0]] * (refusals + 1)
    assert [name for name, _ in client.calls].count("create_fleet") == 1
    assert "terminate_instances" not in [name for name, _ in client.calls]
    assert clock.slept[:refusals] == [NEW_INSTANCE_PAUSE * 2**n for n in range(refusals)]


def test_a_repeated_fleet_gets_the_same_nodes_in_any_order_of_ec2s_list():
    def launched(ids: list[str]) -> tuple[list[tuple[str, str | None]], Any]:
        client = Answers(
            create_fleet={"Instances": [{"InstanceIds": ids[:2]}, {"InstanceIds": ids[2:]}]},
            create_tags={},
            describe_instances={"Reservations": []},
        )
        fleet = replace(request(), others=(replace(SPOT, type="g5.2xlarge"),))
        found = Ec2("demo", lambda: client, FakeClock()).launch(fleet, lambda: None)
        (written,) = [given["Tags"] for name, given in client.calls if name == "create_tags"]
        return [(item.id, item.node) for item in found.instances], written

    assert launched(["i-0003", "i-0001", "i-0002"]) == launched(["i-0002", "i-0003", "i-0001"])


def test_instances_are_returned_in_the_order_of_the_nodes():
    client = Answers(run_instances={"Instances": [described(2), described(0), described(1)]})
    found = Ec2("demo", lambda: client).launch(request(), lambda: None)
    assert [item.node for item in found.instances] == list(G)


def test_an_unresolved_launch_begins_with_the_call_and_not_with_its_client():
    order: list[str] = []
    client = Answers(run_instances={"Instances": [described(0), described(1), described(2)]})

    def connect() -> Answers:
        order.append("connected")
        return client

    Ec2("demo", connect).launch(request(), lambda: order.append(f"intended, {client.calls}"))
    assert order == ["connected", "intended, []"]


def test_every_page_of_a_listing_is_read():
    pages = [
        {"Reservations": [{"Instances": [described(0)]}], "NextToken": "t"},
        {"Reservations": [{"Instances": [described(1)]}]},
    ]
    client = Answers(describe_instances=pages)
    assert len(Ec2("demo", lambda: client).instances()) == 2
    assert client.calls[1][1]["NextToken"] == "t"


def test_an_answer_without_its_list_is_not_an_empty_list():
    with pytest.raises(errors.CloudUnreachable, match="has no Reservations"):
        Ec2("demo", lambda: Answers(describe_instances={})).instances()


def test_botocores_errors_become_ours():
    from botocore.exceptions import (
        ClientError,
        EndpointConnectionError,
        NoCredentialsError,
        ReadTimeoutError,
    )

    client_error = ClientError({"Error": {"Code": "VcpuLimitExceeded", "Message": "m"}}, "Run")
    assert isinstance(translate(client_error), errors.QuotaExceeded)
    assert isinstance(translate(NoCredentialsError()), errors.Denied)
    assert isinstance(translate(ReadTimeoutError(endpoint_url="x")), errors.CloudUnreachable)
    unreachable = translate(EndpointConnectionError(endpoint_url="x"))
    assert isinstance(unreachable, errors.CloudUnreachable)
    bug = KeyError("x")
    assert translate(bug) is bug
