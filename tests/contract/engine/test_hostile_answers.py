"""The programs against an EC2 whose answers are lost, cut, odd, endless or a refusal."""

from __future__ import annotations

import itertools
import json
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.errors import SlurmUnreachable
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Lifecycle
from slurmplugins.system.log_events import LogEvent
from tests.contract.engine.world import Reply, World, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from toolkit.local.endpoint import Call

NODES = hostlist.expand("gpu-[001-002]")
XMLNS = b'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'
THROTTLED = "RequestLimitExceeded"
ROUND = 90.0
"""Seconds from one start of a job to the next, less than a doubt lasts."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened(tmp_path, speed=10.0) as one:
        patiently(one, 3600)
        yield one


@pytest.fixture
def hurried(tmp_path: Path) -> Iterator[World]:
    """A world in which five minutes are ten seconds."""
    with opened(tmp_path, speed=30.0) as one:
        patiently(one, 600)
        yield one


def patiently(world: World, seconds: int) -> None:
    """Have slurmctld wait so long for nodes: a busy machine must not decide a test."""
    world.configure(slurm={**world._burst()["slurm"], "resume_timeout": seconds})


def with_fleets(world: World, nodes: str = "gpu-[001-008]", wait: int = 3600) -> None:
    """Give the pool gpu two spot types in one zone, and one type on demand after them."""
    pool = world._burst()["pools"]["gpu"]
    spot, _, demand = pool["offerings"]
    offerings = [spot, {**spot, "type": "g5.2xlarge", "price": "0.5"}, demand]
    slurm = {**world._burst()["slurm"], "resume_timeout": wait}
    pools = {"gpu": {**pool, "nodes": nodes, "offerings": offerings}}
    world.configure(pools=pools, slurm=slurm)


def up(world: World, job: int = 7, nodes: tuple[hostlist.NodeName, ...] = NODES) -> None:
    """Have the job at work on instances of its own."""
    world.slurm.start(job, nodes)
    assert world.resume() == 0
    world.boot()
    assert not any("POWERING_UP" in world.slurm.flags(node) for node in nodes)


def calls(world: World, action: str) -> list[Call]:
    return [call for call in world.ec2.asked if call.action == action]


def tokens(world: World, action: str) -> set[str]:
    return {call.params["ClientToken"] for call in calls(world, action)}


def named(call: Call) -> set[str]:
    return {value for key, value in call.params.items() if key.startswith("InstanceId.")}


def remarks(world: World) -> str:
    found: dict[str, Any] = json.loads((world.state / "pass.json").read_text())
    return "; ".join(found["remarks"])


# An answer that proves nothing

NO_PROOF = {
    "an empty 504": Reply(504),
    "an empty 500": Reply(500),
    "HTML and 503": Reply(503, b"<html><body>Service Unavailable</body></html>", "text/html"),
    "HTML with a doctype and 502": Reply(502, b"<!DOCTYPE html><html>Bad<br>", "text/html"),
    "an unknown code and 500": Reply.refusal("NobodyKnowsThis", status=500),
    "an unknown code and 400": Reply.refusal("NobodyKnowsThis", status=400),
    "an empty 400": Reply(400),
    "a cut answer": Reply(200, b"<RunInstancesResponse " + XMLNS + b"><reservationId>r-1</reser"),
    "another page": Reply(200, b"<html><body>Sign in</body></html>", "text/html"),
    "no answer": Reply(200),
}


@pytest.mark.parametrize("action", ["RunInstances", "CreateFleet"])
def test_a_launch_whose_answer_proves_nothing_is_asked_again_by_its_token(
    world: World, action: str
):
    nodes = hostlist.expand(f"gpu-[001-{len(NO_PROOF):03}]")
    alone = {"nodes": hostlist.compress(nodes)}
    world.configure(pools={"gpu": {**world._burst()["pools"]["gpu"], **alone}})
    if action == "CreateFleet":
        with_fleets(world, hostlist.compress(nodes))
    for number, (reply, node) in enumerate(zip(NO_PROOF.values(), nodes, strict=True), start=1):
        world.ec2.lie(action, reply, times=2, done=True)
        world.slurm.start(number, (node,))
        assert world.resume() == 0
        began = {item.node: item for item in world.instances()}
        assert len(world.instances()) == len(began) == number, list(NO_PROOF)[number - 1]
        assert world.slurm.queue[number].state == "RUNNING"
        assert len(tokens(world, action)) == number
        world.boot()
    assert set(began) == set(nodes)


def test_ten_minutes_of_504_start_two_instances_for_two_nodes(tmp_path: Path):
    with opened(tmp_path, speed=2.0) as world:
        patiently(world, 3600)
        world.ec2.lie("RunInstances", Reply(504), done=True)
        world.slurm.start(7, NODES)
        until = world.clock.now() + 600
        while world.clock.now() < until:
            a_round(world)
        assert len(world.instances()) == 2
        assert not world.slurm.queue[7].held
        world.ec2.honest()
        until_it_runs(world)


def a_round(world: World) -> None:
    """Have resume run, then slurmctld and the timer: nodes go off, and the job starts again."""
    began = world.clock.now()
    world.resume()
    if world.slurm.queue[7].state == "RUNNING":
        return
    world.skip(max(1.0, ROUND - (world.clock.now() - began)))
    if world.slurm.suspended:
        world.suspend()
    world.reconcile()
    if world.slurm.queue[7].state == "PENDING":
        world.slurm.schedule()


def until_it_runs(world: World) -> None:
    for _ in range(12):
        a_round(world)
        if len(world.live()) == len(NODES):
            break
    assert sorted(str(item.node) for item in world.live()) == list(NODES)


# A list that is not as it should be


def test_an_instance_that_is_listed_twice_is_one_instance(world: World):
    up(world)
    world.ec2.lie("DescribeInstances", alter=twice)
    assert world.reconcile(3) == 0
    assert len(world.live()) == 2
    assert calls(world, "TerminateInstances") == []


def twice(body: str) -> str:
    return re.sub(r"(<reservationSet>)(.*)(</reservationSet>)", r"\1\2\2\3", body, flags=re.DOTALL)


def test_an_instance_of_another_cluster_is_none_of_ours_though_ec2_lists_it(world: World):
    patiently(world, 36000)
    up(world)
    strangers = {item.id for item in world.live()}
    world.slurm.finish(7)
    for node in NODES:
        world.slurm.state[node].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
        world.slurm.state[node].instance_id = ""
    (world.state / "journal.jsonl").unlink()

    def others(body: str) -> str:
        return body.replace("<value>demo</value>", "<value>another</value>")

    world.ec2.lie("DescribeInstances", alter=others)
    world.slurm.start(8, NODES)
    assert world.resume() == 0
    assert world.ec2.count("RunInstances") == 2
    assert strangers.isdisjoint(world.slurm.state[node].instance_id for node in NODES)
    world.skip(600)
    assert world.reconcile() == 0
    assert strangers <= {item.id for item in world.live()}


def test_each_node_of_a_fleet_of_250_is_told_its_instance(world: World):
    with_fleets(world, "gpu-[001-250]")
    world.ec2.lie("DescribeInstances", Reply.refusal("FilterLimitExceeded"), when=over_the_limit)
    nodes = hostlist.expand("gpu-[001-250]")
    world.slurm.start(7, nodes)
    assert world.resume() == 0
    truth = {item.node: item.id for item in world.live()}
    assert {node: world.slurm.state[node].instance_id for node in nodes} == truth


def over_the_limit(call: Call) -> bool:
    return sum(".Value." in key for key in call.params) > 200


@pytest.mark.parametrize("state", ["hibernating", ""])
def test_an_instance_in_an_unknown_state_stops_no_pass_and_is_left_alone(world: World, state: str):
    up(world)
    odd, fine = world.live()
    world.ec2.lie("DescribeInstances", alter=lambda body: in_state(body, odd.id, state))
    third, fourth = hostlist.expand("gpu-[003-004]")
    up(world, 8, (third,))
    up(world, 9, (fourth,))
    world.slurm.finish(9)
    world.slurm.state[fourth].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    world.skip(600)
    assert world.reconcile(2) == 0
    assert {item.id for item in world.live()} >= {odd.id, fine.id}
    assert {item.node for item in world.live()} == {*NODES, third}
    assert f"{odd.id} (node {odd.node})" in remarks(world)
    assert repr(state) in remarks(world)


def test_a_node_whose_instance_is_in_an_unknown_state_gets_no_second_one(world: World):
    up(world)
    odd = next(item for item in world.live() if item.node == NODES[0])
    world.ec2.lie("DescribeInstances", alter=lambda body: in_state(body, odd.id, "hibernating"))
    world.slurm.finish(7)
    world.slurm.state[NODES[0]].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    world.slurm.start(8, NODES[:1])
    world.slurm.start(9, hostlist.expand("gpu-003"))
    assert world.resume() == 0
    assert world.slurm.state[NODES[0]].reason == "toolkit: instance-unclear"
    assert not world.slurm.queue[8].held
    assert sorted(str(item.node) for item in world.live()) == [*NODES, "gpu-003"]


def in_state(body: str, instance_id: str, state: str) -> str:
    """The answer, with this instance in another state."""
    before, mark, after = body.partition(f"<instanceId>{instance_id}</instanceId>")
    pattern = r"(<instanceState>.*?<name>)[^<]*(</name>)"
    return before + mark + re.sub(pattern, rf"\g<1>{state}\2", after, count=1, flags=re.DOTALL)


ODD_TAGS = [
    ("toolkit:price", "1e999"),
    ("toolkit:price", "9e999999"),
    ("toolkit:price", "9e999999"),
    ("toolkit:price", "NaN"),
    ("toolkit:price", "sNaN"),
    ("toolkit:price", "-Infinity"),
    ("toolkit:order", "00abcd"),
    ("toolkit:order", "-1abcd"),
    ("toolkit:order", ""),
    ("toolkit:nodes", "gpu-[000-999999999]"),
    ("toolkit:role", ""),
]


def test_an_odd_tag_is_put_aside_for_its_instance_alone(world: World):
    pool = world._burst()["pools"]["gpu"]
    pool |= {"nodes": "gpu-[001-020]", "max_spot_share": 0.9}
    world.configure(pools={"gpu": pool})
    up(world, 6, hostlist.expand("gpu-[003-013]"))
    for machine, (key, value) in zip(world.live(), ODD_TAGS, strict=True):
        odd = [{"Key": key, "Value": value}]
        world.local.client("ec2").create_tags(Resources=[machine.id], Tags=odd)
    world.slurm.start(7, NODES)
    assert world.resume() == 0
    assert {item.node for item in world.live()} >= set(NODES)
    assert world.slurm.queue[7].state == "RUNNING"
    assert world.reconcile() == 0


# An answer without an end


@pytest.mark.parametrize("fresh", [False, True], ids=["the same token", "ever new tokens"])
def test_pages_that_never_end_end_a_pass_and_no_instance(world: World, *, fresh: bool):
    up(world)
    numbers = itertools.count()

    def more(body: str) -> str:
        token = next(numbers) if fresh else 1
        body = re.sub(r"<nextToken>.*?</nextToken>|<nextToken ?/>", "", body)
        return body.replace("</reservationSet>", f"</reservationSet><nextToken>{token}</nextToken>")

    lie = world.ec2.lie("DescribeInstances", alter=more)
    lie.when = lambda call: bool(call.params.pop("NextToken", "")) or True
    assert world.run("reconcile", timeout=100) == 1
    assert "nothing is done: cloud-unreachable" in (world.state / "pass.json").read_text()
    assert len(world.live()) == 2


def test_an_answer_that_drips_without_end_ends_a_pass(world: World):
    up(world)
    over = threading.Event()

    def drip() -> Iterator[bytes]:
        while not over.wait(0.2):
            yield b" "

    world.ec2.lie("DescribeInstances", Reply(200, drip()))
    try:
        assert world.run("reconcile", timeout=60) == 1
    finally:
        over.set()
    assert "nothing is done: cloud-unreachable" in (world.state / "pass.json").read_text()
    world.ec2.honest()
    assert world.reconcile() == 0
    assert len(world.live()) == 2


# A refusal


@pytest.mark.parametrize("naming", [True, False])
def test_one_protected_instance_keeps_no_other_alive_and_is_named(world: World, *, naming: bool):
    nodes = hostlist.expand("gpu-[001-008]")
    up(world, 7, nodes)
    kept = next(item for item in world.live() if item.node == nodes[4])
    text = f"The instance '{kept.id}' may not be terminated." if naming else "Not permitted."
    world.ec2.lie(
        "TerminateInstances",
        Reply.refusal("OperationNotPermitted", text),
        when=lambda call: kept.id in named(call),
    )
    world.slurm.finish(7)
    world.slurm.power_down(nodes)
    world.slurm.tick()
    assert world.suspend() == 0
    assert [item.id for item in world.live()] == [kept.id]
    world.skip(30)
    assert world.reconcile() == 0
    assert kept.id in remarks(world)
    assert "OperationNotPermitted" in remarks(world)
    told = [json.loads(line) for line in (world.state / "decisions.jsonl").read_text().splitlines()]
    failed = [item for item in told if item["event"] == LogEvent.ACTION_FAILED]
    assert {(item["node"], item["instance"]) for item in failed} == {(kept.node, kept.id)}
    assert len(calls(world, "TerminateInstances")) < 40


@pytest.mark.parametrize(
    ("action", "code"),
    [("DescribeInstances", "RequestExpired"), ("RunInstances", "AuthFailure")],
)
def test_a_refusal_that_heals_by_itself_holds_no_job(world: World, action: str, code: str):
    world.ec2.lie(action, Reply.refusal(code))
    world.slurm.start(7, NODES)
    world.resume()
    job = world.slurm.queue[7]
    assert (job.state, job.held) == ("PENDING", False)
    assert code in world.slurm.state[NODES[0]].reason
    assert code in job.comment
    world.ec2.honest()
    until_it_runs(world)


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "OptInRequired"])
def test_a_refusal_that_only_a_person_mends_holds_the_job(world: World, code: str):
    world.ec2.lie("RunInstances", Reply.refusal(code))
    world.slurm.start(7, NODES)
    world.resume()
    assert world.slurm.queue[7].held


def test_a_job_that_slurmctld_could_not_be_asked_for_is_not_taken_for_one_it_does_not_know(
    world: World,
):
    def away(words: list[str], data: dict[str, Any]) -> dict[str, Any]:
        if words[:2] == ["show", "job"]:
            raise SlurmUnreachable("restarts")
        return data

    world.controller.alter = away
    world.ec2.lie("RunInstances", Reply.refusal("OptInRequired"))
    world.slurm.start(7, NODES)
    world.resume()
    (said,) = [line for line in world.log("resume") if line["event"] == LogEvent.JOBS_NOT_NOTIFIED]
    assert said["jobs"] == [7]
    assert "Unable to contact slurm controller" in said["message"]


def test_a_launch_throttled_to_the_end_is_given_back_and_buys_nothing_else(hurried: World):
    world = hurried
    world.ec2.lie("RunInstances", Reply.refusal(THROTTLED, status=503))
    world.slurm.start(7, NODES)
    assert world.resume() == 0
    assert world.slurm.state[NODES[0]].reason == f"toolkit: throttled ({THROTTLED})"
    assert not world.slurm.queue[7].held
    assert len(tokens(world, "RunInstances")) == 1
    assert world.instances() == ()


FLEET_THROTTLED = (
    "<CreateFleetResponse "
    + XMLNS.decode()
    + "><requestId>r</requestId><fleetId>fleet-1</fleetId><errorSet>"
    + "".join(
        "<item><launchTemplateAndOverrides><overrides><instanceType>"
        + kind
        + "</instanceType></overrides></launchTemplateAndOverrides><lifecycle>spot</lifecycle>"
        + f"<errorCode>{THROTTLED}</errorCode><errorMessage>slow down</errorMessage></item>"
        for kind in ("g5.xlarge", "g5.2xlarge")
    )
    + "</errorSet><fleetInstanceSet/></CreateFleetResponse>"
)


def test_a_throttle_inside_a_fleets_answer_is_repeated_and_buys_nothing_on_demand(world: World):
    with_fleets(world)
    world.ec2.lie("CreateFleet", Reply(200, FLEET_THROTTLED.encode()), times=2)
    world.slurm.start(7, NODES)
    assert world.resume() == 0
    assert {item.lifecycle for item in world.live()} == {Lifecycle.SPOT}
    assert len(world.live()) == 2
    assert len(tokens(world, "CreateFleet")) == 3, "a token is answered as it was before"
    assert world.ec2.count("RunInstances") == 0
    setbacks = world.state / "offerings.json"
    assert not setbacks.exists() or json.loads(setbacks.read_text()) == {}


def test_a_fleet_throttled_to_the_end_is_given_back_as_throttled(hurried: World):
    world = hurried
    with_fleets(world, wait=600)
    world.ec2.lie("CreateFleet", Reply(200, FLEET_THROTTLED.encode()))
    world.slurm.start(7, NODES)
    assert world.resume() == 0
    assert world.slurm.state[NODES[0]].reason == f"toolkit: throttled ({THROTTLED})"
    assert world.instances() == ()
    assert world.ec2.count("RunInstances") == 0
