"""The programs with an EC2 that loses, cuts, distorts or refuses answers."""

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
from tests.contract.engine.simulated_cluster import Reply, SimulatedCluster, running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from toolkit.local.endpoint import Call

NODES = hostlist.expand("gpu-[001-002]")
XMLNS = b'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'
THROTTLED = "RequestLimitExceeded"
ROUND = 75.0
"""Seconds between two starts of a job, less than a launch stays unresolved."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimulatedCluster]:
    with running_cluster(tmp_path, speed=10.0) as one:
        patiently(one, 3600)
        yield one


@pytest.fixture
def hurried(tmp_path: Path) -> Iterator[SimulatedCluster]:
    """A cluster whose programs wait five minutes in no time."""
    with running_cluster(tmp_path, skips_sleep=True) as one:
        patiently(one, 600)
        yield one


def patiently(cluster: SimulatedCluster, seconds: int) -> None:
    """Set slurmctld's resume timeout, long enough for a busy test host."""
    cluster.configure(slurm={**cluster._burst()["slurm"], "resume_timeout": seconds})


def with_fleets(cluster: SimulatedCluster, nodes: str = "gpu-[001-008]") -> None:
    """Give the pool gpu two spot types, then one on demand."""
    pool = cluster._burst()["pools"]["gpu"]
    spot, _, demand = pool["offerings"]
    offerings = [spot, {**spot, "type": "g5.2xlarge", "price": "0.5"}, demand]
    cluster.configure(pools={"gpu": {**pool, "nodes": nodes, "offerings": offerings}})


def up(
    cluster: SimulatedCluster, job: int = 7, nodes: tuple[hostlist.NodeName, ...] = NODES
) -> None:
    """Have the job run on instances of its own."""
    cluster.slurm.start(job, nodes)
    assert cluster.resume() == 0
    cluster.boot()
    assert not any("POWERING_UP" in cluster.slurm.flags(node) for node in nodes)


def calls(cluster: SimulatedCluster, action: str) -> list[Call]:
    return [call for call in cluster.ec2.asked if call.action == action]


def tokens(cluster: SimulatedCluster, action: str) -> set[str]:
    return {call.params["ClientToken"] for call in calls(cluster, action)}


def named(call: Call) -> set[str]:
    return {value for key, value in call.params.items() if key.startswith("InstanceId.")}


def remarks(cluster: SimulatedCluster) -> str:
    found: dict[str, Any] = json.loads((cluster.state / "pass.json").read_text())
    return "; ".join(found["remarks"])


# Answers that prove nothing

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
    cluster: SimulatedCluster, action: str
):
    nodes = hostlist.expand(f"gpu-[001-{len(NO_PROOF):03}]")
    alone = {"nodes": hostlist.compress(nodes)}
    cluster.configure(pools={"gpu": {**cluster._burst()["pools"]["gpu"], **alone}})
    if action == "CreateFleet":
        with_fleets(cluster, hostlist.compress(nodes))
    for number, (reply, node) in enumerate(zip(NO_PROOF.values(), nodes, strict=True), start=1):
        cluster.ec2.lie(action, reply, times=2, done=True)
        cluster.slurm.start(number, (node,))
        assert cluster.resume() == 0
        began = {item.node: item for item in cluster.instances()}
        assert len(cluster.instances()) == len(began) == number, list(NO_PROOF)[number - 1]
        assert cluster.slurm.queue[number].state == "RUNNING"
        assert len(tokens(cluster, action)) == number
        cluster.boot()
    assert set(began) == set(nodes)


def test_ten_minutes_of_504_start_two_instances_for_two_nodes(tmp_path: Path):
    with running_cluster(tmp_path) as cluster:
        patiently(cluster, 3600)
        cluster.ec2.lie("RunInstances", Reply(504), done=True)
        cluster.slurm.start(7, NODES)
        until = cluster.clock.now() + 600
        while cluster.clock.now() < until:
            a_round(cluster)
        assert len(cluster.instances()) == 2
        assert not cluster.slurm.queue[7].held
        cluster.ec2.honest()
        until_it_runs(cluster)


def a_round(cluster: SimulatedCluster) -> None:
    """Run resume, slurmctld and the timer once.

    The nodes power down, and the job starts again.
    """
    began = cluster.clock.now()
    cluster.resume()
    if cluster.slurm.queue[7].state == "RUNNING":
        return
    cluster.skip(max(1.0, ROUND - (cluster.clock.now() - began)))
    if cluster.slurm.suspended:
        cluster.suspend()
    cluster.reconcile()
    if cluster.slurm.queue[7].state == "PENDING":
        cluster.slurm.schedule()


def until_it_runs(cluster: SimulatedCluster) -> None:
    for _ in range(12):
        a_round(cluster)
        if len(cluster.live()) == len(NODES):
            break
    assert sorted(str(item.node) for item in cluster.live()) == list(NODES)


# Lists that are invalid


def test_an_instance_that_is_listed_on_two_pages_is_one_instance(cluster: SimulatedCluster):
    """Move the instances to the next page during a read."""
    up(cluster)
    pages_read = on_two_pages(cluster)
    assert cluster.reconcile(3) == 0
    assert len(cluster.live()) == 2
    assert calls(cluster, "TerminateInstances") == []
    assert len(pages_read) >= 3


def on_two_pages(cluster: SimulatedCluster) -> list[Reply]:
    """Have EC2 give each whole list on both of two pages.

    Returns the second pages, as they are read.
    """
    first = Reply()
    pages_read: list[Reply] = []

    def first_page(body: str) -> str:
        nonlocal first
        body = re.sub(r"<nextToken>.*?</nextToken>|<nextToken ?/>", "", body)
        first = Reply(200, body.encode())
        return body.replace("</reservationSet>", "</reservationSet><nextToken>2</nextToken>")

    def is_second(call: Call) -> bool:
        if call.params.get("NextToken") != "2":
            return False
        lie.reply = first
        pages_read.append(first)
        return True

    cluster.ec2.lie("DescribeInstances", alter=first_page)
    lie = cluster.ec2.lie("DescribeInstances", Reply(), when=is_second)
    return pages_read


def test_an_instance_of_another_cluster_is_none_of_ours_though_ec2_lists_it(
    cluster: SimulatedCluster,
):
    patiently(cluster, 36000)
    up(cluster)
    strangers = {item.id for item in cluster.live()}
    cluster.slurm.finish(7)
    for node in NODES:
        cluster.slurm.state[node].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
        cluster.slurm.state[node].instance_id = ""
    (cluster.state / "journal.jsonl").unlink()

    def others(body: str) -> str:
        return body.replace("<value>demo</value>", "<value>another</value>")

    cluster.ec2.lie("DescribeInstances", alter=others)
    cluster.slurm.start(8, NODES)
    assert cluster.resume() == 0
    assert cluster.ec2.count("RunInstances") == 2
    assert strangers.isdisjoint(cluster.slurm.state[node].instance_id for node in NODES)
    cluster.skip(600)
    assert cluster.reconcile() == 0
    assert strangers <= {item.id for item in cluster.live()}


def test_each_node_of_a_fleet_of_250_is_told_its_instance(cluster: SimulatedCluster):
    with_fleets(cluster, "gpu-[001-250]")
    cluster.ec2.lie("DescribeInstances", Reply.refusal("FilterLimitExceeded"), when=over_the_limit)
    nodes = hostlist.expand("gpu-[001-250]")
    cluster.slurm.start(7, nodes)
    assert cluster.resume() == 0
    truth = {item.node: item.id for item in cluster.live()}
    assert {node: cluster.slurm.state[node].instance_id for node in nodes} == truth


def over_the_limit(call: Call) -> bool:
    return sum(".Value." in key for key in call.params) > 200


@pytest.mark.parametrize("state", ["hibernating", ""])
def test_an_instance_in_an_unknown_state_stops_no_pass_and_is_left_alone(
    cluster: SimulatedCluster, state: str
):
    up(cluster)
    odd, fine = cluster.live()
    cluster.ec2.lie("DescribeInstances", alter=lambda body: in_state(body, odd.id, state))
    third, fourth = hostlist.expand("gpu-[003-004]")
    up(cluster, 8, (third,))
    up(cluster, 9, (fourth,))
    cluster.slurm.finish(9)
    cluster.slurm.state[fourth].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    cluster.skip(600)
    assert cluster.reconcile(2) == 0
    assert {item.id for item in cluster.live()} >= {odd.id, fine.id}
    assert {item.node for item in cluster.live()} == {*NODES, third}
    assert f"{odd.id} (node {odd.node})" in remarks(cluster)
    assert repr(state) in remarks(cluster)


def test_a_node_whose_instance_is_in_an_unknown_state_gets_no_second_one(cluster: SimulatedCluster):
    up(cluster)
    odd = next(item for item in cluster.live() if item.node == NODES[0])
    cluster.ec2.lie("DescribeInstances", alter=lambda body: in_state(body, odd.id, "hibernating"))
    cluster.slurm.finish(7)
    cluster.slurm.state[NODES[0]].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    cluster.slurm.start(8, NODES[:1])
    cluster.slurm.start(9, hostlist.expand("gpu-003"))
    assert cluster.resume() == 0
    assert cluster.slurm.state[NODES[0]].reason == "toolkit: instance-unclear"
    assert not cluster.slurm.queue[8].held
    assert sorted(str(item.node) for item in cluster.live()) == [*NODES, "gpu-003"]


def in_state(body: str, instance_id: str, state: str) -> str:
    """Return the answer with this instance in another state."""
    before, mark, after = body.partition(f"<instanceId>{instance_id}</instanceId>")
    pattern = r"(<instanceState>.*?<name>)[^<]*(</name>)"
    return before + mark + re.sub(pattern, rf"\g<1>{state}\2", after, count=1, flags=re.DOTALL)


ODD_TAGS = [
    ("toolkit:price", "1e999"),
    ("toolkit:price", "9e999999"),
    ("toolkit:price", "9e999999"),  # Decimal holds one of them, but not the sum of two
    ("toolkit:price", "-9e999999"),
    ("toolkit:price", "NaN"),
    ("toolkit:price", "sNaN"),
    ("toolkit:price", "-Infinity"),
    ("toolkit:order", "00abcd"),
    ("toolkit:order", "-1abcd"),
    ("toolkit:order", ""),
    ("toolkit:nodes", "gpu-[000-999999999]"),
    ("toolkit:role", ""),
]


def test_an_invalid_tag_is_put_aside_for_its_instance_alone(cluster: SimulatedCluster):
    pool = cluster._burst()["pools"]["gpu"]
    pool |= {"nodes": "gpu-[001-020]", "max_spot_share": 0.9}
    cluster.configure(pools={"gpu": pool})
    up(cluster, 6, hostlist.expand("gpu-[003-014]"))
    for machine, (key, value) in zip(cluster.live(), ODD_TAGS, strict=True):
        odd = [{"Key": key, "Value": value}]
        cluster.local.client("ec2").create_tags(Resources=[machine.id], Tags=odd)
    cluster.slurm.start(7, NODES)
    assert cluster.resume() == 0
    assert {item.node for item in cluster.live()} >= set(NODES)
    assert cluster.slurm.queue[7].state == "RUNNING"
    assert cluster.reconcile() == 0


# Answers without an end


@pytest.mark.parametrize("fresh", [False, True], ids=["the same token", "ever new tokens"])
def test_pages_that_never_end_end_a_pass_and_no_instance(cluster: SimulatedCluster, *, fresh: bool):
    up(cluster)
    numbers = itertools.count()

    def more(body: str) -> str:
        token = next(numbers) if fresh else 1
        body = re.sub(r"<nextToken>.*?</nextToken>|<nextToken ?/>", "", body)
        return body.replace("</reservationSet>", f"</reservationSet><nextToken>{token}</nextToken>")

    lie = cluster.ec2.lie("DescribeInstances", alter=more)
    lie.when = lambda call: bool(call.params.pop("NextToken", "")) or True
    assert cluster.run("reconcile") == 1
    assert "nothing is done: cloud-unreachable" in (cluster.state / "pass.json").read_text()
    assert len(cluster.live()) == 2


def test_an_answer_that_drips_without_end_ends_a_pass(cluster: SimulatedCluster):
    up(cluster)
    over = threading.Event()

    def drip() -> Iterator[bytes]:
        while not over.wait(0.2):
            yield b" "

    cluster.ec2.lie("DescribeInstances", Reply(200, drip()))
    try:
        assert cluster.run("reconcile") == 1
    finally:
        over.set()
    assert "nothing is done: cloud-unreachable" in (cluster.state / "pass.json").read_text()
    cluster.ec2.honest()
    assert cluster.reconcile() == 0
    assert len(cluster.live()) == 2


# Refusals


@pytest.mark.parametrize("naming", [True, False])
def test_one_protected_instance_keeps_no_other_alive_and_is_named(
    cluster: SimulatedCluster, *, naming: bool
):
    nodes = hostlist.expand("gpu-[001-008]")
    up(cluster, 7, nodes)
    kept = next(item for item in cluster.live() if item.node == nodes[4])
    text = f"The instance '{kept.id}' may not be terminated." if naming else "Not permitted."
    cluster.ec2.lie(
        "TerminateInstances",
        Reply.refusal("OperationNotPermitted", text),
        when=lambda call: kept.id in named(call),
    )
    cluster.slurm.finish(7)
    cluster.slurm.power_down(nodes)
    cluster.slurm.tick()
    assert cluster.suspend() == 0
    assert [item.id for item in cluster.live()] == [kept.id]
    cluster.skip(30)
    assert cluster.reconcile() == 0
    assert kept.id in remarks(cluster)
    assert "OperationNotPermitted" in remarks(cluster)
    told = [
        json.loads(line) for line in (cluster.state / "decisions.jsonl").read_text().splitlines()
    ]
    failed = [item for item in told if item["event"] == LogEvent.ACTION_FAILED]
    assert {(item["node"], item["instance"]) for item in failed} == {(kept.node, kept.id)}
    assert len(calls(cluster, "TerminateInstances")) < 40


@pytest.mark.parametrize(
    ("action", "code"),
    [("DescribeInstances", "RequestExpired"), ("RunInstances", "AuthFailure")],
)
def test_a_refusal_that_heals_by_itself_holds_no_job(
    cluster: SimulatedCluster, action: str, code: str
):
    cluster.ec2.lie(action, Reply.refusal(code))
    cluster.slurm.start(7, NODES)
    cluster.resume()
    job = cluster.slurm.queue[7]
    assert (job.state, job.held) == ("PENDING", False)
    assert code in cluster.slurm.state[NODES[0]].reason
    assert code in job.comment
    cluster.ec2.honest()
    until_it_runs(cluster)


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "OptInRequired"])
def test_a_refusal_that_only_a_person_mends_holds_the_job(cluster: SimulatedCluster, code: str):
    cluster.ec2.lie("RunInstances", Reply.refusal(code))
    cluster.slurm.start(7, NODES)
    cluster.resume()
    assert cluster.slurm.queue[7].held


def test_a_job_that_slurmctld_could_not_be_asked_for_is_not_taken_for_one_it_does_not_know(
    cluster: SimulatedCluster,
):
    def away(words: list[str], data: dict[str, Any]) -> dict[str, Any]:
        if words[:2] == ["show", "job"]:
            raise SlurmUnreachable("restarts")
        return data

    cluster.controller.alter = away
    cluster.ec2.lie("RunInstances", Reply.refusal("OptInRequired"))
    cluster.slurm.start(7, NODES)
    cluster.resume()
    (said,) = [
        line for line in cluster.log("resume") if line["event"] == LogEvent.JOBS_NOT_NOTIFIED
    ]
    assert said["jobs"] == [7]
    assert "Unable to contact slurm controller" in said["message"]


def test_a_launch_throttled_to_the_end_is_given_back_and_buys_nothing_else(
    hurried: SimulatedCluster,
):
    cluster = hurried
    cluster.ec2.lie("RunInstances", Reply.refusal(THROTTLED, status=503))
    cluster.slurm.start(7, NODES)
    assert cluster.resume() == 0
    assert cluster.slurm.state[NODES[0]].reason == f"toolkit: throttled ({THROTTLED})"
    assert not cluster.slurm.queue[7].held
    assert len(tokens(cluster, "RunInstances")) == 1
    assert cluster.instances() == ()


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


def test_a_throttle_inside_a_fleets_answer_is_repeated_and_buys_nothing_on_demand(
    cluster: SimulatedCluster,
):
    with_fleets(cluster)
    cluster.ec2.lie("CreateFleet", Reply(200, FLEET_THROTTLED.encode()), times=2)
    cluster.slurm.start(7, NODES)
    assert cluster.resume() == 0
    assert {item.lifecycle for item in cluster.live()} == {Lifecycle.SPOT}
    assert len(cluster.live()) == 2
    assert len(tokens(cluster, "CreateFleet")) == 3, "a token is answered as it was before"
    assert cluster.ec2.count("RunInstances") == 0
    setbacks = cluster.state / "offerings.json"
    assert not setbacks.exists() or json.loads(setbacks.read_text()) == {}


def test_a_fleet_throttled_to_the_end_is_given_back_as_throttled(hurried: SimulatedCluster):
    cluster = hurried
    with_fleets(cluster)
    cluster.ec2.lie("CreateFleet", Reply(200, FLEET_THROTTLED.encode()))
    cluster.slurm.start(7, NODES)
    assert cluster.resume() == 0
    assert cluster.slurm.state[NODES[0]].reason == f"toolkit: throttled ({THROTTLED})"
    assert cluster.instances() == ()
    assert cluster.ec2.count("RunInstances") == 0
