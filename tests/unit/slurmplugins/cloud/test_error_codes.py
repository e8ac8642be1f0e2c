"""Laws on the judgement of EC2's answers."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import BotoCoreError, ChecksumError, ClientError, IncompleteReadError
from botocore.parsers import ResponseParserError

from slurmplugins import errors
from slurmplugins.cloud import ec2, ec2_messages, error_codes, partial_termination, tags
from slurmplugins.cloud.client import call, call_with_limit, translate
from slurmplugins.cloud.ec2 import Ec2
from slurmplugins.config import burst as burst_config
from slurmplugins.launch import launch_call
from slurmplugins.launch.fallback import Spend, spend_by_pool
from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause, InstanceState, Lifecycle
from slurmplugins.model.launch import Refusal
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler.run import run_pass
from slurmplugins.system.log_events import LogEvent
from tests.fakes.clock import FakeClock
from tests.fakes.engine import ON_DEMAND, SPOT_A, Bench, burst
from tests.unit.slurmplugins.cloud.test_ec2 import Answers, described, request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurmplugins.model.launch import LaunchRequest, LaunchResult

G = hostlist.expand("gpu-[001-008]")
BIG = "spot:g5.2xlarge:us-east-1a"
THROTTLED = "RequestLimitExceeded"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def answered(code: str, status: int) -> Exception:
    response: Any = {
        "Error": {"Code": code, "Message": "m"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return translate(ClientError(response, "RunInstances"))


# The outcome that an answer proves


@pytest.mark.parametrize("status", [200, 302, 400, 403, 404, 408, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("code", ["", "NobodyKnowsThis", "its status"])
def test_an_answer_without_an_ec2_error_code_leaves_the_launch_unresolved(code: str, status: int):
    found = answered(str(status) if code == "its status" else code, status)
    assert isinstance(found, errors.CloudUnreachable)
    assert found.code == ("NobodyKnowsThis" if code == "NobodyKnowsThis" else f"HTTP {status}")
    assert found.retryable
    assert not found.resolves_launch


@pytest.mark.parametrize("status", [400, 500, 503])
@pytest.mark.parametrize(
    "code",
    [code for code, kind in error_codes.CLASSES.items() if kind is not errors.CloudUnreachable],
)
def test_a_code_of_ec2s_means_the_same_with_any_status(code: str, status: int):
    assert type(answered(code, status)) is error_codes.CLASSES[code]


def test_what_botocore_can_not_read_is_no_answer():
    def unread() -> None:
        raise ResponseParserError("x" * 100_000)

    with pytest.raises(errors.CloudUnreachable) as caught:
        call(FakeClock(), "run_instances", unread)
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize(
    "error",
    [
        IncompleteReadError(actual_bytes=1, expected_bytes=2),
        ChecksumError(checksum_type="crc32", expected_checksum="a", actual_checksum="b"),
    ],
)
def test_a_damaged_answer_is_no_refusal(error: BotoCoreError):
    """Know that the call was sent: EC2 may have carried it out."""
    translated = translate(error)
    assert isinstance(translated, errors.CloudUnreachable)
    assert translated.code == type(error).__name__


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x"), AttributeError("x")])
def test_what_botocore_did_not_expect_is_no_answer(error: Exception):
    client = Answers(run_instances=error)
    with pytest.raises(errors.CloudUnreachable, match="can't be read"):
        Ec2("demo", lambda: client).launch(request(), lambda: None)


@pytest.mark.parametrize(
    ("fleet", "answer"), [(False, {}), (True, {}), (False, {"ResponseMetadata": {}})]
)
def test_an_answer_to_a_launch_that_says_nothing_of_instances_is_none(
    answer: dict[str, Any], *, fleet: bool
):
    asked = request()
    if fleet:
        asked = replace(asked, others=(replace(asked.offering, type="g5.2xlarge"),))
    client = Answers(run_instances=answer, create_fleet=answer)
    with pytest.raises(errors.CloudUnreachable, match="has no Instances"):
        Ec2("demo", lambda: client, FakeClock()).launch(asked, lambda: None)


@pytest.mark.parametrize(
    ("code", "kind", "holds"),
    [
        ("RequestExpired", errors.Unauthenticated, False),
        ("AuthFailure", errors.Unauthenticated, False),
        ("ExpiredToken", errors.Unauthenticated, False),
        ("SignatureDoesNotMatch", errors.Unauthenticated, False),
        ("MissingCredentials", errors.NoCredentials, False),
        ("UnauthorizedOperation", errors.Denied, True),
        ("OptInRequired", errors.Denied, True),
        ("Blocked", errors.Denied, True),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", errors.Denied, True),
        ("OperationNotPermitted", errors.InvalidRequest, True),
        ("UnsupportedHostConfiguration", errors.NoCapacity, False),
        ("InstanceCreditSpecification.NotSupported", errors.NoCapacity, False),
    ],
)
def test_a_job_is_held_only_for_what_surely_needs_a_person(
    code: str, kind: type[errors.CloudError], *, holds: bool
):
    found = error_codes.error(code, "m")
    assert type(found) is kind
    assert found.holds_job is holds


def test_a_launch_that_ec2_refuses_for_its_time_is_asked_nowhere_else(bench: Bench):
    bench.cloud.next_errors = [error_codes.error("RequestExpired", "m")]
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert bench.cloud.calls.count("launch") == 1
    assert not bench.slurm.queue[7].held
    assert bench.slurm.state[G[0]].reason == "toolkit: unauthenticated (RequestExpired)"


# Lists of instances


def in_state(number: int, state: str) -> dict[str, Any]:
    return {**described(number), "State": {"Name": state}}


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        (["pending", "running"], "running"),
        (["running", "shutting-down"], "shutting-down"),
        (["terminated", "running"], "terminated"),
    ],
)
def test_an_instance_listed_twice_is_one_in_its_newest_state(states: list[str], kept: str):
    pages = [
        {"Reservations": [{"Instances": [in_state(0, states[0])]}], "NextToken": "t"},
        {"Reservations": [{"Instances": [in_state(0, states[1])]}]},
    ]
    client = Answers(describe_instances=pages)
    (only,) = Ec2("demo", lambda: client).instances()
    assert only.state == kept


def test_an_instance_without_our_tag_is_not_listed_whatever_was_asked():
    foreign = {**described(0), "Tags": [{"Key": "toolkit:cluster", "Value": "another"}]}
    untagged = {key: value for key, value in described(1).items() if key != "Tags"}
    items = [foreign, untagged, described(2)]
    client = Answers(describe_instances={"Reservations": [{"Instances": items}]})
    assert [item.id for item in Ec2("demo", lambda: client).instances()] == ["i-2"]


def test_no_filter_has_more_values_than_ec2_takes():
    client = Answers(
        create_fleet={"Instances": [{"InstanceIds": [f"i-{n:04}" for n in range(450)]}]},
        create_tags={},
        describe_instances={"Reservations": []},
    )
    nodes = hostlist.expand("gpu-[001-450]")
    asked = request()
    asked = replace(asked, nodes=nodes, others=(replace(asked.offering, type="g5.2xlarge"),))
    found = Ec2("demo", lambda: client, FakeClock()).launch(asked, lambda: None)
    assert [item.node for item in found.instances] == list(nodes)
    sizes = [len(given["Filters"][0]["Values"]) for name, given in client.calls[2:]]
    assert max(sizes) <= 200
    assert sum(sizes) == ec2.NEW_INSTANCE_TRIES * 450


@pytest.mark.parametrize("fresh", [True, False])
def test_endless_pages_of_a_listing_are_an_error(*, fresh: bool):
    class Endless(Answers):
        def describe_instances(self, **given: Any) -> dict[str, Any]:
            self.calls.append(("describe_instances", given))
            token = str(len(self.calls)) if fresh else "t"
            return {"Reservations": [{"Instances": [described(0)]}], "NextToken": token}

    client = Endless()
    with pytest.raises(errors.CloudUnreachable, match="pages do not end"):
        Ec2("demo", lambda: client).instances()
    assert len(client.calls) == (ec2.MAX_PAGES if fresh else 2)


class Dripping(Answers):
    """Take 40 s for each page of DescribeInstances, just within the limit of one call."""

    def __init__(self, clock: FakeClock, pages: int) -> None:
        super().__init__()
        self._clock, self._pages = clock, pages

    def describe_instances(self, **given: Any) -> dict[str, Any]:
        self.calls.append(("describe_instances", given))
        self._clock.advance(40.0)
        page: dict[str, Any] = {"Reservations": [{"Instances": [described(0)]}]}
        return page | ({"NextToken": str(len(self.calls))} if len(self.calls) < self._pages else {})


def test_a_listing_whose_pages_drip_is_given_up_as_a_whole():
    clock = FakeClock()
    slow, bearable = Dripping(clock, pages=100), Dripping(clock, pages=3)
    with pytest.raises(errors.CloudUnreachable, match="list took more than 120 s"):
        Ec2("demo", lambda: slow, clock).instances()
    assert len(slow.calls) == 3
    assert [item.id for item in Ec2("demo", lambda: bearable, clock).instances()] == ["i-0"]


def test_all_batches_of_one_question_share_its_time():
    clock = FakeClock()
    client = Dripping(clock, pages=1)
    with pytest.raises(errors.CloudUnreachable, match="list took more than 120 s"):
        Ec2("demo", lambda: client, clock)._describe_ids([f"i-{n:04}" for n in range(2000)])
    assert len(client.calls) == 3


def test_an_endless_call_is_given_up():
    class Impatient(FakeClock):
        def monotonic(self) -> float:
            self.advance(30.0)
            return super().monotonic()

    release = threading.Event()
    with pytest.raises(errors.CloudUnreachable, match="did not answer within"):
        call_with_limit(Impatient(), release.wait)
    release.set()


def test_a_bounded_call_returns_and_raises_what_it_does():
    def broken() -> None:
        raise KeyError("x")

    assert call_with_limit(FakeClock(), lambda: 7) == 7
    with pytest.raises(KeyError):
        call_with_limit(FakeClock(), broken)


# Instances with unknown states or invalid fields


@pytest.mark.parametrize("state", ["hibernating", "", "RUNNING", "unclear"])
def test_a_state_that_is_none_we_know_is_neither_live_nor_over(state: str):
    found = ec2_messages.instance(in_state(0, state))
    assert found.state is InstanceState.UNCLEAR
    assert found.unclear == state
    assert {found.state.live, found.state.terminated, found.state.not_working} == {False}


def test_an_instance_without_a_state_or_an_id_stops_no_list():
    stateless = {key: value for key, value in described(1).items() if key != "State"}
    nameless = {key: value for key, value in described(2).items() if key != "InstanceId"}
    found = ec2_messages.instances([described(0), stateless, nameless])
    assert [item.id for item in found] == ["i-0", "i-1"]


def unclear(bench: Bench, node: str) -> str:
    """Put the node's instance into an unknown state, and return its id."""
    machine = next(item for item in bench.cloud.machines.values() if item.instance.node == node)
    machine.instance = replace(machine.instance, state=InstanceState.UNCLEAR, unclear="hibernating")
    return machine.instance.id


def up(bench: Bench, job: int, nodes: Sequence[hostlist.NodeName]) -> None:
    resume(bench.engine, [bench.slurm.start(job, nodes)])
    bench.clock.advance(15)
    bench.boot()


def test_a_job_at_work_on_an_instance_in_an_unclear_state_goes_on(bench: Bench):
    up(bench, 7, G[:2])
    odd = unclear(bench, G[0])
    bench.slurm.silence([G[0]])
    for _ in range(20):
        bench.clock.advance(15)
        run_pass(bench.engine)
    assert bench.slurm.queue[7].state == "RUNNING"
    assert bench.cloud.machines[odd].over_at is None
    (remark,) = json.loads((bench.engine.state / "pass.json").read_text())["remarks"]
    assert odd in remark
    assert "'hibernating'" in remark


def test_an_instance_in_an_unclear_state_is_no_double_and_is_not_handed_out(bench: Bench):
    up(bench, 7, G[:1])
    odd = unclear(bench, G[0])
    bench.cloud.add(
        replace(bench.cloud.machines[odd].instance, id="i-2", state=InstanceState.RUNNING)
    )
    run_pass(bench.engine)
    assert bench.cloud.machines[odd].over_at is None
    bench.cloud.machines.pop("i-2")
    bench.slurm.finish(7)
    bench.slurm.state[G[0]].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    before = len(bench.cloud.machines)
    resume(bench.engine, [bench.slurm.start(8, G[:1])])
    assert len(bench.cloud.machines) == before
    assert bench.slurm.state[G[0]].reason == "toolkit: instance-unclear"
    assert not bench.slurm.queue[8].held


def test_an_instance_in_an_unclear_state_is_terminated_when_slurm_powers_its_node_down(
    bench: Bench,
):
    up(bench, 7, G[:1])
    odd = unclear(bench, G[0])
    bench.slurm.finish(7)
    bench.slurm.power_down(G[:1])
    bench.slurm.tick()
    run_pass(bench.engine)
    assert bench.cloud.machines[odd].over_at is not None


@pytest.mark.parametrize(
    "price", ["1e999", "9e999999", "NaN", "sNaN", "-1", "Infinity", "x", "1e6"]
)
def test_a_price_that_no_instance_has_counts_as_none(bench: Bench, price: str):
    up(bench, 7, G[:2])
    machines = [replace(item, price=price) for item in bench.cloud.live()]
    assert spend_by_pool(machines)["gpu"] == Spend()


@pytest.mark.parametrize("order", ["", "0", "00", "00abcd", "-1abcd", "-5", "+0ab", "xx", "99a"])
def test_an_invalid_order_names_no_node(order: str):
    tag = {"toolkit:nodes": "gpu-[001-003]", "toolkit:order": order}
    assert tags.node_of(tag, 0, "i-0abcd") is None


# Instances that may not be terminated


def refusing(
    kept: set[str], asked: list[int], *, naming: bool
) -> Callable[[Sequence[str]], frozenset[str]]:
    def end(ids: Sequence[str]) -> frozenset[str]:
        asked.append(len(ids))
        refused = sorted(kept.intersection(ids))
        if refused:
            text = f"The instance '{refused[0]}' may not be terminated." if naming else "no"
            raise error_codes.error("OperationNotPermitted", text)
        return frozenset(ids)

    return end


@pytest.mark.parametrize("naming", [True, False])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_all_instances_but_those_that_ec2_refuses_are_terminated(count: int, *, naming: bool):
    ids = [f"i-{number:04}" for number in range(200)]
    kept, asked = set(ids[::57][:count]), list[int]()
    over, named = partial_termination.terminate_all_possible(
        ids, refusing(kept, asked, naming=naming)
    )
    assert over == set(ids) - kept
    assert named.keys() == kept


@pytest.mark.parametrize("naming", [True, False])
def test_the_calls_of_one_list_are_bounded_and_each_instance_is_accounted_for(*, naming: bool):
    ids = [f"i-{number:04}" for number in range(200)]
    asked: list[int] = []
    over, named = partial_termination.terminate_all_possible(
        ids, refusing(set(ids[::2]), asked, naming=naming)
    )
    assert len(asked) == partial_termination.MAX_CALLS
    assert over.isdisjoint(named)
    assert over | named.keys() == set(ids)


def test_an_error_that_is_not_about_the_list_does_not_split_the_call():
    def end(_: Sequence[str]) -> frozenset[str]:
        asked.append(1)
        raise error_codes.error(THROTTLED, "slow")

    asked: list[int] = []
    with pytest.raises(errors.Throttled):
        partial_termination.terminate_all_possible(["i-1", "i-2"], end)
    assert asked == [1]


def test_a_protected_instance_is_asked_for_once_and_the_others_count_as_over(bench: Bench):
    up(bench, 7, G[:3])
    kept = next(item.id for item in bench.cloud.live() if item.node == G[1])
    terminate, asked = bench.cloud.terminate, list[list[str]]()

    def partly(ids: Sequence[str]) -> frozenset[str]:
        asked.append(list(ids))
        over = terminate([item for item in ids if item != kept])
        if kept in ids:
            raise errors.SomeNotTerminated(
                over, {kept: error_codes.error("OperationNotPermitted", "no")}
            )
        return over

    bench.cloud.terminate = partly  # type: ignore[method-assign]
    bench.slurm.finish(7)
    bench.slurm.power_down(G[:3])
    bench.slurm.tick()
    suspend(bench.engine, G[:3], EndCause.SUSPEND)
    assert [item.id for item in bench.cloud.live()] == [kept]
    assert len(asked) == 1
    (failed,) = bench.events(LogEvent.ACTION_FAILED)
    assert (failed["instance"], failed["node"]) == (kept, G[1])
    assert failed["error"] == "OperationNotPermitted: no"


# Throttled fleets


def with_fleets(bench: Bench) -> Bench:
    document: Any = burst()
    first = document["pools"]["gpu"]["offerings"][0]
    document["pools"]["gpu"]["offerings"][1] = {**first, "type": "g5.2xlarge", "price": "0.5"}
    bench.config = burst_config.parse(document)
    bench.engine = replace(bench.engine, config=bench.config)
    return bench


def throttling(bench: Bench, times: float, least: int = 0) -> list[LaunchRequest]:
    """Throttle each fleet among the next `times` launches.

    Such a fleet starts `least` instances. Returns the list to which each request is appended.
    """
    launch, asked = bench.cloud.launch, list[Any]()

    def throttled(wanted: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        asked.append(wanted)
        if not wanted.others or len(asked) > times:
            return launch(wanted, intend)
        bench.cloud.capacity = {SPOT_A: least, BIG: 0}
        found = launch(wanted, intend)
        bench.cloud.capacity = {}
        error = error_codes.error(THROTTLED, "slow")
        return replace(found, refusals=tuple(Refusal(item, error) for item in wanted.offerings))

    bench.cloud.launch = throttled  # type: ignore[method-assign]
    return asked


def test_a_fleet_throttled_inside_its_answer_is_asked_for_again_with_growing_pauses(bench: Bench):
    asked = throttling(with_fleets(bench), 4)
    resume(bench.engine, [bench.slurm.start(7, G[:3])])
    assert {item.lifecycle for item in bench.cloud.live()} == {Lifecycle.SPOT}
    assert len(bench.cloud.live()) == 3
    assert len({item.attempt for item in asked}) == len(asked) == 5
    assert bench.engine.unavailable_offerings.entries() == {}
    pauses = bench.clock.slept[-4:]
    least = [launch_call.FIRST_PAUSE * 2**again / 2 for again in range(4)]
    assert all(low <= pause <= 3 * low for low, pause in zip(least, pauses, strict=True))


def test_jobs_keep_the_instances_of_a_throttled_fleet_and_the_rest_is_launched_again(bench: Bench):
    asked = throttling(with_fleets(bench), 1, least=3)
    jobs = [bench.slurm.start(7, G[:3]), bench.slurm.start(8, G[3:6])]
    resume(bench.engine, jobs)
    assert [item.nodes for item in asked] == [G[:6], G[3:6]]
    assert {item.lifecycle for item in bench.cloud.live()} == {Lifecycle.SPOT}
    assert sorted(str(item.node) for item in bench.cloud.live()) == list(G[:6])


def test_a_fleet_throttled_without_end_costs_half_of_resume_timeout_and_no_on_demand(bench: Bench):
    began = bench.clock.monotonic()
    throttling(with_fleets(bench), 1000)
    resume(bench.engine, [bench.slurm.start(7, G[:3])])
    assert bench.clock.monotonic() - began <= bench.config.resume_timeout / 2
    assert bench.cloud.live() == []
    assert bench.slurm.state[G[0]].reason == f"toolkit: throttled ({THROTTLED})"
    assert not bench.slurm.queue[7].held


def test_capacity_that_ran_out_after_a_throttle_is_what_the_job_is_told(bench: Bench):
    asked = throttling(with_fleets(bench), 1)
    bench.cloud.refusals = dict.fromkeys((SPOT_A, BIG, ON_DEMAND), "InsufficientInstanceCapacity")
    resume(bench.engine, [bench.slurm.start(7, G[:3])])
    assert len(asked) > 2
    assert bench.slurm.state[G[0]].reason == "toolkit: no-capacity (InsufficientInstanceCapacity)"


def test_nodes_of_an_endlessly_throttled_call_are_given_back_at_half_of_resume_timeout(
    bench: Bench,
):
    began = bench.clock.monotonic()
    bench.cloud.next_errors = [error_codes.error(THROTTLED, "slow")] * 1000
    resume(bench.engine, [bench.slurm.start(7, G[:3])])
    assert bench.clock.monotonic() - began <= bench.config.resume_timeout / 2
    assert bench.cloud.requests == []
    assert bench.slurm.state[G[0]].reason == f"toolkit: throttled ({THROTTLED})"
