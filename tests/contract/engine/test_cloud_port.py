"""The suite for all implementations of the cloud port.

They are the fake, and EC2 as moto has it. `CLOUDS` lists them by name. Each is a context manager
that yields a function. For each test the function makes an `Offered` with a cluster of its own.
Known gaps are in `gaps`, by test name. Such a test must fail, so the suite notices a gap that
closes.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.cloud import describe_instances, ec2_messages
from slurmplugins.cloud.ec2 import Ec2
from slurmplugins.errors import (
    AlreadyTerminated,
    CloudError,
    CloudUnreachable,
    InvalidRequest,
    NoCapacity,
    NotFound,
    StateError,
)
from slurmplugins.model import hostlist, topology
from slurmplugins.model.instance import InstanceState, Lifecycle, Offering
from slurmplugins.model.launch import LaunchRequest
from tests.fakes.clock import FakeClock
from tests.fakes.cloud import FakeCloud

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurmplugins.cloud.port import Cloud
    from slurmplugins.model.launch import LaunchResult

NODES = hostlist.expand("gpu-[001-003]")


@dataclass(frozen=True)
class Gap:
    """A known gap: the reason of a test's failure, and its error."""

    why: str
    raises: type[BaseException] = AssertionError


SILENT = pytest.fail.Exception
"""pytest.raises raises this when nothing was refused."""

NO_TOKEN = "moto does not look at ClientToken"
ENDLESS = "moto's capacity is endless"
MOTO_GAPS = {
    "test_an_instance_has_network_nodes_above_it": Gap("moto has no such call", CloudUnreachable),
    "test_repeating_a_launch_id_returns_the_same_instances": Gap(NO_TOKEN),
    "test_a_token_whose_instances_have_ended_is_refused": Gap(NO_TOKEN, SILENT),
    "test_repeating_a_fleet_returns_the_same_instances": Gap(NO_TOKEN),
    "test_what_is_not_to_be_had_is_refused": Gap(ENDLESS, SILENT),
    "test_less_than_the_least_is_nothing_at_all": Gap(ENDLESS, SILENT),
    "test_a_fleet_takes_what_one_offering_lacks_from_the_next": Gap(ENDLESS),
    "test_a_fleet_below_its_least_is_nothing_and_says_why": Gap(ENDLESS),
    "test_a_partial_answer_is_the_first_nodes": Gap("moto starts MinCount and no more"),
    "test_an_instance_that_does_not_exist_can_not_be_reassigned": Gap(
        "moto tags what does not exist", SILENT
    ),
    "test_a_tag_that_is_too_long_is_refused": Gap("moto takes tags of any length", SILENT),
    "test_ec2_refuses_a_launch_that_contradicts_itself": Gap(
        "moto does not look at most parameters", SILENT
    ),
    "test_ec2_refuses_a_fleet_that_contradicts_itself": Gap(
        "moto does not look at most parameters", SILENT
    ),
}
HEALTH = (
    "test_instances_without_trouble_are_not_in_the_list_of_troubles",
    "test_an_impaired_instance_is_listed_with_since_when",
    "test_a_scheduled_event_is_listed_with_its_time",
    "test_an_instance_that_is_being_interrupted_is_listed",
    "test_an_instance_of_a_fleet_that_is_being_interrupted_is_listed",
)


@dataclass(frozen=True)
class Offered:
    """An implementation under test.

    `subnet` and `zone` exist. `settle` lets late changes happen. `limit` leaves only so many
    instances of an offering.
    """

    cluster: str
    cloud: Cloud
    other_cluster: Cloud
    subnet: str
    zone: str
    settle: Callable[[], None] = lambda: None
    limit: Callable[[Offering, int], None] = lambda offering, left: None
    gaps: dict[str, Gap] = field(default_factory=dict)
    impair: Callable[[str], None] = lambda _: None
    schedule: Callable[[str, str, float], None] = lambda *_: None
    give_notice: Callable[[str], None] = lambda _: None
    now: Callable[[], float] = time.time

    def launch(self, request: LaunchRequest) -> LaunchResult:
        return self.cloud.launch(request, lambda: None)


@contextlib.contextmanager
def fake() -> Iterator[Callable[[str], Offered]]:
    def offer(cluster: str) -> Offered:
        clock = FakeClock()
        one, two = FakeCloud(cluster, clock), FakeCloud("other", clock)
        two.machines = one.machines
        one.launch_templates, one.subnets = {"demo-gpu"}, {"subnet-1"}
        one.places = {"subnet-1": "us-east-1a"}
        return Offered(
            cluster,
            one,
            two,
            "subnet-1",
            "us-east-1a",
            settle=lambda: clock.advance(60),
            limit=lambda offering, left: one.capacity.update({offering.key: left}),
            impair=one.impair,
            schedule=lambda id_, code, wait: one.schedule(id_, code, clock.now() + wait),
            give_notice=one.give_notice,
            now=clock.now,
        )

    yield offer


@contextlib.contextmanager
def moto() -> Iterator[Callable[[str], Offered]]:
    import boto3
    from moto import mock_aws

    # moto raises FilterNotImplementedError. EC2 has no such code, so it counts as no answer.
    unfiltered = Gap("moto can't filter spot requests by status-code", CloudUnreachable)

    with mock_aws(), pytest.MonkeyPatch.context() as patch:
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(key, "testing")
        client = boto3.client("ec2", region_name="us-east-1")
        describe_instances.attach(client)
        subnet = client.describe_subnets()["Subnets"][0]
        image = client.describe_images()["Images"][0]["ImageId"]
        launch_template(client, image)
        # A request for moto to filter. So the gap shows in each test, whichever runs first.
        client.request_spot_instances(LaunchSpecification={"ImageId": image})

        def offer(cluster: str) -> Offered:
            return Offered(
                cluster,
                Ec2(cluster, lambda: client),
                Ec2("other", lambda: client),
                subnet["SubnetId"],
                subnet["AvailabilityZone"],
                gaps={**MOTO_GAPS, **dict.fromkeys(HEALTH, unfiltered)},
            )

        yield offer


def launch_template(client: Any, image: str) -> None:
    """Create the launch template as the stack would."""
    client.create_launch_template(
        LaunchTemplateName="demo-gpu",
        LaunchTemplateData={"ImageId": image, "MetadataOptions": {"HttpTokens": "required"}},
    )


CLOUDS = {"fake": fake, "moto": moto}
numbers = itertools.count(1)


@pytest.fixture(scope="module", params=CLOUDS)
def offer(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Offered]]:
    """An implementation that is started once; moto loads its catalogue for seconds."""
    with CLOUDS[request.param]() as found:
        yield found


@pytest.fixture
def offered(request: pytest.FixtureRequest, offer: Callable[[str], Offered]) -> Offered:
    found = offer(f"demo{next(numbers)}")
    if (gap := found.gaps.get(request.node.originalname)) is not None:
        request.applymarker(pytest.mark.xfail(reason=gap.why, raises=gap.raises, strict=True))
    return found


def ask(offered: Offered, attempt: str = "a1", **more: Any) -> LaunchRequest:
    offering = Offering("g5.xlarge", Lifecycle.SPOT, offered.zone, "0.4024")
    request = LaunchRequest(
        attempt=attempt,
        cluster=offered.cluster,
        pool="gpu",
        partition="spot",
        launch_template="demo-gpu",
        subnet=offered.subnet,
        offering=offering,
        nodes=NODES,
    )
    return replace(request, **more)


def fleet(offered: Offered, attempt: str = "f1", **more: Any) -> LaunchRequest:
    """Return a request for either of two instance types."""
    other = Offering("g5.2xlarge", Lifecycle.SPOT, offered.zone, "0.5")
    return ask(offered, attempt, others=(other,), **more)


def test_a_launch_returns_one_instance_a_node_in_order(offered: Offered):
    machines = offered.launch(ask(offered)).instances
    assert [item.node for item in machines] == list(NODES)
    assert len({item.id for item in machines}) == 3
    assert all(item.address for item in machines)


def test_an_instance_carries_its_whole_map_in_its_tags(offered: Offered):
    offered.launch(ask(offered))
    offered.settle()
    machines = offered.cloud.instances()
    assert sorted(machine.node for machine in machines) == sorted(NODES)
    for machine in machines:
        assert (machine.role, machine.pool, machine.partition) == ("compute", "gpu", "spot")
        assert (machine.attempt, machine.price) == ("a1", "0.4024")
        assert (machine.type, machine.zone) == ("g5.xlarge", offered.zone)
        assert machine.launched_at > 0


def test_the_offering_decides_between_spot_and_on_demand(offered: Offered):
    request = ask(offered)
    spot = offered.launch(request).instances
    other = replace(request.offering, lifecycle=Lifecycle.ON_DEMAND)
    demand = offered.launch(ask(offered, "a2", offering=other)).instances
    assert {item.lifecycle for item in spot} == {Lifecycle.SPOT}
    assert {item.lifecycle for item in demand} == {Lifecycle.ON_DEMAND}


def test_launched_instances_are_listed_as_live(offered: Offered):
    launched = offered.launch(ask(offered)).instances
    offered.settle()
    listed = offered.cloud.instances()
    assert {item.id for item in listed} == {item.id for item in launched}
    assert all(item.state.live for item in listed)


def test_a_launch_that_can_not_be_journalled_is_not_sent(offered: Offered):
    def refuse() -> None:
        raise StateError("disk full")

    for request in (ask(offered), fleet(offered)):
        with pytest.raises(StateError):
            offered.cloud.launch(request, refuse)
    offered.settle()
    assert offered.cloud.instances() == ()


def test_repeating_a_launch_id_returns_the_same_instances(offered: Offered):
    first = offered.launch(ask(offered)).instances
    again = offered.launch(ask(offered)).instances
    assert [item.id for item in first] == [item.id for item in again]


def test_a_token_whose_instances_have_ended_is_refused(offered: Offered):
    ids = [item.id for item in offered.launch(ask(offered)).instances]
    offered.settle()
    offered.cloud.terminate(ids)
    offered.settle()
    with pytest.raises(AlreadyTerminated) as caught:
        offered.launch(ask(offered))
    assert caught.value.code == "IdempotentInstanceTerminated"


def test_another_launch_id_starts_other_instances(offered: Offered):
    first = offered.launch(ask(offered)).instances
    second = offered.launch(ask(offered, "a2")).instances
    assert not {item.id for item in first} & {item.id for item in second}


def test_terminated_instances_are_over_and_stay_listed_as_such(offered: Offered):
    machines = offered.launch(ask(offered)).instances
    offered.settle()
    ids = [item.id for item in machines]
    assert offered.cloud.terminate(ids) == set(ids)
    offered.settle()
    listed = {item.id: item for item in offered.cloud.instances()}
    assert {listed[item].state for item in ids} == {InstanceState.TERMINATED}
    assert all(listed[item].ended_at for item in ids)


def test_terminating_twice_is_no_error(offered: Offered):
    ids = [item.id for item in offered.launch(ask(offered)).instances]
    offered.settle()
    offered.cloud.terminate(ids)
    assert offered.cloud.terminate(ids) == set(ids)


def test_an_unknown_id_does_not_keep_others_from_ending(offered: Offered):
    ids = [item.id for item in offered.launch(ask(offered)).instances]
    offered.settle()
    over = offered.cloud.terminate([*ids, "i-0123456789abcdef0"])
    assert over == set(ids)


def test_another_cluster_neither_sees_nor_ends_our_instances(offered: Offered):
    ids = [item.id for item in offered.launch(ask(offered)).instances]
    offered.settle()
    assert offered.other_cluster.instances() == ()
    assert offered.other_cluster.terminate(ids) == frozenset()
    assert all(item.state.live for item in offered.cloud.instances())


def test_terminating_no_instances_makes_no_call(offered: Offered):
    assert offered.cloud.terminate([]) == frozenset()


def test_an_absent_launch_template_is_not_found(offered: Offered):
    with pytest.raises(NotFound):
        offered.launch(ask(offered, launch_template="nonesuch"))


def test_every_refusal_is_one_of_our_errors(offered: Offered):
    with pytest.raises(CloudError) as caught:
        offered.launch(ask(offered, subnet="subnet-00000000"))
    assert caught.value.code


Sent = dict[str, Any]


def stopping(sent: Sent) -> None:
    sent["InstanceMarketOptions"]["SpotOptions"]["InstanceInterruptionBehavior"] = "stop"


def persistent(sent: Sent) -> None:
    sent["InstanceMarketOptions"]["SpotOptions"]["SpotInstanceType"] = "persistent"


def unreserved_block(sent: Sent) -> None:
    sent["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    sent["TagSpecifications"] = sent["TagSpecifications"][:1]


def reserved_spot(sent: Sent) -> None:
    target = {"CapacityReservationId": "cr-0123456789abcdef0"}
    sent["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}


@pytest.mark.parametrize("wrong", [stopping, persistent, unreserved_block, reserved_spot])
def test_ec2_refuses_a_launch_that_contradicts_itself(
    offered: Offered, wrong: Callable[[Sent], None], monkeypatch: pytest.MonkeyPatch
):
    sends(monkeypatch, "run_instances", wrong)
    with pytest.raises(InvalidRequest):
        offered.launch(ask(offered))
    offered.settle()
    assert offered.cloud.instances() == ()


def anywhere(sent: Sent) -> None:
    sent["SpotOptions"]["SingleAvailabilityZone"] = False


def prioritized(sent: Sent) -> None:
    sent["SpotOptions"]["AllocationStrategy"] = "prioritized"


def stopping_fleet(sent: Sent) -> None:
    sent["SpotOptions"]["InstanceInterruptionBehavior"] = "stop"


def same_pool_twice(sent: Sent) -> None:
    overrides = sent["LaunchTemplateConfigs"][0]["Overrides"]
    overrides[1]["InstanceType"] = overrides[0]["InstanceType"]


@pytest.mark.parametrize("wrong", [anywhere, prioritized, stopping_fleet, same_pool_twice])
def test_ec2_refuses_a_fleet_that_contradicts_itself(
    offered: Offered, wrong: Callable[[Sent], None], monkeypatch: pytest.MonkeyPatch
):
    sends(monkeypatch, "create_fleet", wrong)
    with pytest.raises(InvalidRequest):
        offered.launch(fleet(offered))
    offered.settle()
    assert offered.cloud.instances() == ()


def sends(monkeypatch: pytest.MonkeyPatch, operation: str, wrong: Callable[[Sent], None]) -> None:
    """Have the adapter send a wrong request."""
    right = getattr(ec2_messages, operation)

    def made(request: LaunchRequest) -> Sent:
        sent: Sent = right(request)
        wrong(sent)
        return sent

    monkeypatch.setattr(ec2_messages, operation, made)


def test_a_tag_that_is_too_long_is_refused(offered: Offered):
    with pytest.raises(InvalidRequest):
        offered.launch(ask(offered, attempt="a" * 257))


def test_what_is_not_to_be_had_is_refused(offered: Offered):
    request = ask(offered)
    offered.limit(request.offering, 0)
    with pytest.raises(NoCapacity):
        offered.launch(request)


def test_a_partial_answer_is_the_first_nodes(offered: Offered):
    request = ask(offered, least=1)
    offered.limit(request.offering, 2)
    launched = offered.launch(request)
    assert [item.node for item in launched.instances] == list(NODES[:2])


def test_less_than_the_least_is_nothing_at_all(offered: Offered):
    request = ask(offered, least=3)
    offered.limit(request.offering, 2)
    with pytest.raises(NoCapacity):
        offered.launch(request)
    offered.settle()
    assert offered.cloud.instances() == ()


def test_nodes_far_apart_keep_their_order_in_the_tags(offered: Offered):
    """Launch nodes whose hostlist is longer than one tag."""
    nodes = tuple(reversed(hostlist.expand("gpu-[001-150]")))[::2]
    launched = offered.launch(ask(offered, nodes=nodes))
    assert [item.node for item in launched.instances] == list(nodes)
    offered.settle()
    known = {item.id: item.node for item in offered.cloud.instances()}
    assert known == {item.id: item.node for item in launched.instances}


def test_each_instance_of_a_fleet_is_another_node_and_listed_as_it(offered: Offered):
    launched = offered.launch(fleet(offered))
    assert [item.node for item in launched.instances] == list(NODES)
    assert all(item.address for item in launched.instances)
    offered.settle()
    listed = {item.id: item for item in offered.cloud.instances()}
    assert {key: item.node for key, item in listed.items()} == {
        item.id: item.node for item in launched.instances
    }
    assert {item.attempt for item in listed.values()} == {"f1"}


def test_an_instance_of_a_fleet_costs_what_its_type_costs(offered: Offered):
    price = {"g5.xlarge": "0.4024", "g5.2xlarge": "0.5"}
    machines = offered.launch(fleet(offered)).instances
    assert len(machines) == len(NODES)
    for machine in machines:
        assert machine.price == price[machine.type]
        assert machine.lifecycle is Lifecycle.SPOT


def test_a_fleet_can_be_on_demand(offered: Offered):
    request = fleet(offered)
    first, second = (replace(item, lifecycle=Lifecycle.ON_DEMAND) for item in request.offerings)
    launched = offered.launch(replace(request, offering=first, others=(second,)))
    assert {item.lifecycle for item in launched.instances} == {Lifecycle.ON_DEMAND}


def test_repeating_a_fleet_returns_the_same_instances(offered: Offered):
    first = offered.launch(fleet(offered)).instances
    again = offered.launch(fleet(offered)).instances
    assert [(item.id, item.node) for item in first] == [(item.id, item.node) for item in again]


def test_a_fleet_takes_what_one_offering_lacks_from_the_next(offered: Offered):
    request = fleet(offered)
    offered.limit(request.offering, 1)
    offered.limit(request.others[0], 2)
    launched = offered.launch(request)
    assert sorted(item.type for item in launched.instances) == [
        "g5.2xlarge",
        "g5.2xlarge",
        "g5.xlarge",
    ]
    assert [item.node for item in launched.instances] == list(NODES)


def test_a_fleet_below_its_least_is_nothing_and_says_why(offered: Offered):
    request = fleet(offered)
    for item in request.offerings:
        offered.limit(item, 1)
    launched = offered.launch(request)
    assert launched.instances == ()
    assert {item.offering.type for item in launched.refusals} == {"g5.xlarge", "g5.2xlarge"}
    assert all(isinstance(item.error, NoCapacity) for item in launched.refusals)


def test_an_instance_reassigned_to_another_node_is_that_node(offered: Offered):
    machine = offered.launch(ask(offered)).instances[0]
    (other,) = hostlist.expand("gpu-009")
    assert offered.cloud.retag_nodes({machine.id: other}, lambda _: True)
    offered.settle()
    listed = {item.id: item.node for item in offered.cloud.instances()}
    assert listed[machine.id] == other


def test_an_instance_that_does_not_exist_can_not_be_reassigned(offered: Offered):
    (other,) = hostlist.expand("gpu-009")
    with pytest.raises(NotFound):
        offered.cloud.retag_nodes({"i-0123456789abcdef0": other}, lambda _: True)


def test_instances_are_reassigned_only_up_to_the_first_that_is_refused(offered: Offered):
    first, second, third = offered.launch(ask(offered)).instances
    seven, eight, nine = hostlist.expand("gpu-[007-009]")
    wanted = {first.id: seven, second.id: eight, third.id: nine}
    assert not offered.cloud.retag_nodes(wanted, lambda key: key != second.id)
    offered.settle()
    listed = {item.id: item.node for item in offered.cloud.instances()}
    assert listed == {first.id: seven, second.id: second.node, third.id: third.node}


def one_machine(offered: Offered) -> str:
    ids = [item.id for item in offered.launch(ask(offered)).instances]
    offered.settle()
    return ids[0]


def test_instances_without_trouble_are_not_in_the_list_of_troubles(offered: Offered):
    one_machine(offered)
    offered.launch(fleet(offered))
    offered.settle()
    assert offered.cloud.health() == ()


def test_an_impaired_instance_is_listed_with_since_when(offered: Offered):
    machine = one_machine(offered)
    offered.impair(machine)
    (found,) = offered.cloud.health()
    assert found.id == machine
    assert found.impaired_since == pytest.approx(offered.now(), abs=60)
    assert (found.events, found.notice) == ((), False)


def test_a_scheduled_event_is_listed_with_its_time(offered: Offered):
    machine = one_machine(offered)
    offered.schedule(machine, "instance-retirement", 86_400)
    (found,) = offered.cloud.health()
    assert (found.id, found.impaired_since) == (machine, None)
    (event,) = found.events
    assert event.code == "instance-retirement"
    assert event.not_before == pytest.approx(offered.now() + 86_400, abs=60)


def test_an_instance_that_is_being_interrupted_is_listed(offered: Offered):
    machine = one_machine(offered)
    offered.give_notice(machine)
    (found,) = offered.cloud.health()
    assert (found.id, found.notice) == (machine, True)


def test_an_instance_of_a_fleet_that_is_being_interrupted_is_listed(offered: Offered):
    """Interrupt an instance whose spot request has none of our tags.

    CreateFleet can't tag a spot request.
    """
    machine = offered.launch(fleet(offered)).instances[0]
    offered.settle()
    offered.give_notice(machine.id)
    (found,) = offered.cloud.health()
    assert (found.id, found.notice) == (machine.id, True)


def test_an_instance_has_network_nodes_above_it(offered: Offered):
    machine = one_machine(offered)
    (instance,) = (item for item in offered.cloud.instances() if item.id == machine)
    places = offered.cloud.network_nodes([instance.type])
    assert topology.unit(places[machine]).startswith("ec2:region:nn-")
    assert machine not in offered.cloud.network_nodes(["m7i.48xlarge"])


def test_the_console_of_an_instance_is_text_and_of_no_instance_is_not_found(offered: Offered):
    assert isinstance(offered.cloud.console(one_machine(offered)), str)
    with pytest.raises(NotFound):
        offered.cloud.console("i-0123456789abcdef0")
