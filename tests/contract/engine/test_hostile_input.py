"""The programs on invalid answers of slurmctld, invalid files and reset clocks.

Each program rejects the invalid record alone, and handles the rest of a pass, a job or the state.
"""

from __future__ import annotations

import ctypes
import json
import signal
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from slurmplugins.config import paths
from slurmplugins.model import hostlist
from slurmplugins.system.log_events import LogEvent
from tests.contract.engine.simulated_cluster import Reply, SimulatedCluster, running_cluster
from toolkit.local.instance_events import InstanceEvents

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.engine.fork_server import Program

G = hostlist.expand("gpu-[001-008]")
DEEP = b"[" * 200_000
FOREIGN = "node-099"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimulatedCluster]:
    # Slower than real time: a delay on a busy test host makes nothing late here.
    with running_cluster(tmp_path, speed=0.3) as one:
        yield one


def at_work(cluster: SimulatedCluster, job: int, *nodes: str) -> dict[str, str]:
    """Have a job run on these nodes, and return their instances."""
    cluster.slurm.start(job, [hostlist.parse(node) for node in nodes])
    assert cluster.resume() == 0
    cluster.boot()
    found = {item.node: item.id for item in cluster.live() if item.node in nodes}
    assert found.keys() == set(nodes)
    return found


def lost(cluster: SimulatedCluster, instance_id: str) -> None:
    """Terminate an instance in EC2, so that its node stops responding."""
    cluster.local.client("ec2").terminate_instances(InstanceIds=[instance_id])
    cluster.local.settle()
    cluster.slurm.silence(
        [node for node in G if instance_id == cluster.slurm.state[node].instance_id]
    )


def orphaned(cluster: SimulatedCluster, node: str) -> str:
    """Return an instance whose node is powered down without SuspendProgram.

    Ten minutes have passed since, so the instance is an orphan.
    """
    instance_id = at_work(cluster, 90, node)[node]
    cluster.slurm.finish(90)
    cluster.slurm.state[node].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    cluster.skip(600)
    return instance_id


def live(cluster: SimulatedCluster) -> set[str]:
    return {item.id for item in cluster.live()}


def launches(cluster: SimulatedCluster) -> int:
    return cluster.ec2.count("RunInstances") + cluster.ec2.count("CreateFleet")


def odd_in(cluster: SimulatedCluster, key: str, *records: Any) -> None:
    """Have slurmctld list these records too, before its own."""

    def alter(_: list[str], data: dict[str, Any]) -> dict[str, Any]:
        return {**data, key: [*records, *data[key]]} if key in data else data

    cluster.controller.alter = alter


ENDED = {"job_id": 70, "batch_flag": True, "job_state": ["FAILED"], "nodes": "gpu-001"}


def test_invalid_jobs_end_no_pass(cluster: SimulatedCluster):
    """Run passes while slurmctld lists invalid jobs.

    The orphan is terminated all the same. The job with a lost instance is requeued all the same.
    """
    orphan = orphaned(cluster, G[3])
    mine = at_work(cluster, 7, G[0])
    lost(cluster, mine[G[0]])
    cluster.slurm.fail(7)
    odd_in(
        cluster,
        "jobs",
        {**ENDED, "job_id": [7]},
        {**ENDED, "job_id": {"number": {}}},
        {**ENDED, "end_time": float("nan")},
        {**ENDED, "exit_code": {"return_code": -1e999}},
        {**ENDED, "exit_code": {"status": 3}},
        {**ENDED, "job_state": [[]], "nodes": 5},
        "no job at all",
    )
    cluster.reconcile(2)
    assert orphan not in live(cluster)
    assert "requeue 7" in cluster.slurm.writes


AFTER_A_MINUTE = {"spot": {"policy": "on-demand-after", "after": 60}}
"""A policy for which resume asks squeue, and reads waits.json."""


def test_an_invalid_job_of_squeue_keeps_no_job_from_its_instance_or_its_stop_request(
    cluster: SimulatedCluster,
):
    cluster.configure(partitions=AFTER_A_MINUTE)
    orphan = orphaned(cluster, G[3])
    odd_in(
        cluster,
        "jobs",
        {"job_id": 70, "job_state": [[]], "nodes": 5},
        {"job_id": 71, "job_state": ["RUNNING"], "nodes": 5, "restart_cnt": "x"},
        {"job_id": {"number": {}}, "submit_time": {"set": True, "number": float("nan")}},
        "no job at all",
    )
    mine = at_work(cluster, 7, G[0])
    stop_requests = paths.stop_requests(cluster.folder / "shared")
    stop_requests.mkdir(parents=True)
    InstanceEvents(cluster.local.cloud.tables).interrupt(mine[G[0]], 120.0)
    assert cluster.reconcile(2) == 0
    assert [path.name for path in stop_requests.iterdir()] == ["7.0.json"]
    assert orphan not in live(cluster)


@pytest.mark.parametrize(
    "odd", [{"name": G[5], "state": [["IDLE"]]}, {"name": ["gpu-006"]}], ids=str
)
def test_an_invalid_node_ends_no_pass(cluster: SimulatedCluster, odd: object):
    """Run passes while slurmctld lists an invalid node.

    Another node's orphan is terminated. An instance that may be the invalid node's is not.
    """
    orphan = orphaned(cluster, G[3])
    mine = at_work(cluster, 7, G[5])
    cluster.slurm.finish(7)

    def alter(_: list[str], data: dict[str, Any]) -> dict[str, Any]:
        rest = [item for item in data.get("nodes", ()) if item["name"] != G[5]]
        return {**data, "nodes": [odd, *rest]} if "nodes" in data else data

    cluster.controller.alter = alter
    cluster.skip(600)
    cluster.reconcile(3)
    assert live(cluster) == {mine[G[5]]}
    assert orphan not in live(cluster)
    said = [
        line
        for line in cluster.log("reconcile")
        if line["event"] == LogEvent.SLURM_RECORDS_REJECTED
    ]
    assert said


def test_an_instance_of_a_node_that_may_be_the_invalid_one_does_not_end(cluster: SimulatedCluster):
    """Give an instance a node that burst.json does not have.

    slurmctld lists a node with an unreadable name, which may be that node.
    """
    mine = at_work(cluster, 7, G[0])
    tags = [{"Key": "toolkit:nodes", "Value": FOREIGN}]
    cluster.local.client("ec2").create_tags(Resources=list(mine.values()), Tags=tags)
    odd_in(cluster, "nodes", {"name": 5, "state": ["ALLOCATED"]})
    cluster.skip(600)
    cluster.reconcile(2)
    assert set(mine.values()) <= live(cluster)
    cluster.controller.alter = lambda _, data: data
    cluster.reconcile(2)
    assert live(cluster).isdisjoint(mine.values())


def whole(cluster: SimulatedCluster, content: bytes, nodes: str = "gpu-[001-003]") -> list[int]:
    """Run resume for three nodes; return each launch call's MinCount."""
    cluster.slurm.start(7, G[:3])
    cluster.resume(nodes, content)
    calls = [call for call in cluster.ec2.asked if call.action == "RunInstances"]
    return [int(call.params["MinCount"]) for call in calls]


@pytest.mark.parametrize(
    "content",
    [
        b'{"jobs": [{"job_id": "7", "nodes_resume": "gpu-[001-003]"}]}',
        b'{"jobs": [{"job_id": 7, "nodes_resume": "gpu-[001-003]", "name": "\xff\xfe"}]}',
        b'{"jobs": [{"job_id": [7], "nodes_resume": "gpu-[001-003],rack1,zzz-[0-99999]"}]}',
    ],
)
def test_a_job_of_an_invalid_resume_file_is_all_or_nothing(
    cluster: SimulatedCluster, content: bytes
):
    assert whole(cluster, content) == [3]
    assert len(cluster.live()) == 3


def test_a_resume_file_that_is_nested_too_deeply_costs_no_node_its_instance(
    cluster: SimulatedCluster,
):
    content = b'{"jobs": ' + DEEP
    whole(cluster, content)
    assert len(cluster.live()) == 3


def test_more_strange_nodes_than_can_be_named_cost_no_other_its_instance(cluster: SimulatedCluster):
    content = b'{"jobs": [{"job_id": 7, "nodes_resume": "gpu-[001-003]"}]}'
    assert whole(cluster, content, "aaa-[0-30000],gpu-[001-003],zzz-[0-19999]") == [3]
    (said,) = [
        line for line in cluster.log("resume") if line["event"] == LogEvent.NODE_NAMES_REJECTED
    ]
    assert said["parts"] == ["aaa-[0-30000]", "zzz-[0-19999]"]
    assert said["most"] == 20_000


def test_more_strange_nodes_than_can_be_named_cost_no_other_its_end(cluster: SimulatedCluster):
    at_work(cluster, 7, G[0])
    cluster.slurm.finish(7)
    cluster.slurm.power_down([G[0]])
    cluster.slurm.tick()
    assert cluster.run("suspend", "aaa-[0-30000],gpu-001") == 0
    assert cluster.live() == []


def asked_again(cluster: SimulatedCluster) -> None:
    """Start another job on the nodes that were given back."""
    cluster.slurm.queue.clear()
    cluster.slurm.define(G[:2])
    cluster.slurm.start(8, G[:2])


HOUR, DAY = 3600.0, 24 * 3600.0


BOOTS = pytest.mark.parametrize("reboots", [False, True], ids=["same boot", "next boot"])


@BOOTS
@pytest.mark.parametrize("set_by", [-HOUR, -DAY])
def test_an_unresolved_launch_expires_in_time_though_the_clock_is_set_back(
    cluster: SimulatedCluster, set_by: float, *, reboots: bool
):
    cluster.reconcile(1)
    cluster.slurm.start(7, G[:2])
    killed_in_launch(cluster, done=False)
    cluster.wrong = set_by
    if reboots:
        cluster.reboot()
    cluster.reconcile(1)
    cluster.skip(150)
    asked_again(cluster)
    cluster.ec2.lie("RunInstances", Reply(504, b""), times=1)
    cluster.resume()
    assert not [line for line in cluster.log("resume") if line.get("slug") == "launch-in-doubt"]


@BOOTS
@pytest.mark.parametrize("set_by", [-HOUR, HOUR, -DAY])
def test_an_unresolved_launch_gets_no_double_though_the_clock_is_set(
    cluster: SimulatedCluster, set_by: float, *, reboots: bool
):
    """Hide the launched instances from DescribeInstances, and start resume again."""
    cluster.reconcile(1)
    hide = cluster.ec2.lie("DescribeInstances", alter=lambda _: NONE)
    cluster.slurm.start(7, G[:2])
    killed_in_launch(cluster, done=True)
    cluster.wrong = set_by
    if reboots:
        cluster.reboot()
    cluster.resume()
    hide.times = 0
    assert len(cluster.live()) == 2


def killed_in_launch(cluster: SimulatedCluster, *, done: bool) -> None:
    """Kill resume while EC2 has its launch call.

    No program gets the answer.
    """
    begun: list[subprocess.Popen[bytes] | Program] = []
    start = cluster.start

    def kept(program: str, *argv: str) -> subprocess.Popen[bytes] | Program:
        begun.append(start(program, *argv))
        return begun[-1]

    def kill(_: Any) -> bool:
        begun[-1].kill()
        return True

    reply = None if done else Reply(504)
    lie = cluster.ec2.lie("RunInstances", reply, done=done, times=1, when=kill)
    with mock.patch.object(cluster, "start", kept):
        assert cluster.resume() == -signal.SIGKILL
    assert cluster.ec2.has_ended(lie)


@pytest.mark.parametrize("ahead", [600.0, DAY])
def test_instances_that_boot_are_given_their_time_by_a_clock_that_is_ahead(
    cluster: SimulatedCluster, ahead: float
):
    """Run passes with a clock that is ahead while instances boot.

    None counts as late or as an orphan, and the pool is not protected afterwards.
    """
    cluster.slurm.start(7, G[:5])
    cluster.resume()
    cluster.wrong = ahead
    cluster.reconcile(2)
    assert len(cluster.live()) == 5
    cluster.wrong = 0.0
    cluster.reconcile(1)
    cluster.boot()
    assert all("POWERING_UP" not in cluster.slurm.flags(node) for node in G[:5])
    cluster.slurm.start(8, G[5:6])
    cluster.resume()
    assert not [line for line in cluster.log("resume") if line.get("slug") == "pool-protected"]


STATE_FILES = [
    "journal.jsonl", "offerings.json", "protection.json", "reconcile.json", "pass.json",
    "waits.json", "time.json", "brake.json",
]  # fmt: skip


def test_state_files_that_are_nested_too_deeply_end_no_program(cluster: SimulatedCluster):
    cluster.configure(partitions=AFTER_A_MINUTE)

    def spoil() -> None:
        for name in STATE_FILES:
            (cluster.state / name).write_bytes(DEEP + b"\n")

    orphan = orphaned(cluster, G[3])
    spoil()
    assert cluster.reconcile(2) == 0
    spoil()
    at_work(cluster, 7, G[0])
    assert orphan not in live(cluster)


def test_an_answer_of_slurmctld_that_is_nested_too_deeply_is_none(cluster: SimulatedCluster):
    """Give scontrol a deeply nested answer.

    The pass logs that it could not read Slurm, and fails.
    """
    mine = at_work(cluster, 7, G[0])
    (cluster.folder / "bin" / "scontrol").write_text("#!/bin/sh\nprintf '%0200000d' 0 | tr 0 '['\n")
    assert cluster.reconcile(1) == 1
    (said,) = [
        line for line in cluster.log("reconcile") if line["event"] == LogEvent.PROGRAM_FAILED
    ]
    assert said["slug"] == "slurm-unreachable"
    assert live(cluster) == set(mine.values())


NUMBERS = [float("nan"), float("inf"), 10**400, "5", {}]


def odd_states(number: object) -> dict[str, object]:
    failure = {"instance_id": "i-0123456789abcdef0", "node": G[0], "pool": "gpu", "why": "x"}
    standing = {"failures": 9, "since": number, "retry_at": number, "probes": number}
    failures = [{**failure, "at": number, "launched_at": number}]
    entry = dict.fromkeys(
        ("instance_id", "node", "pool", "partition", "attempt", "type", "zone", "lifecycle"), "x"
    )
    tries = dict.fromkeys(("asked", "started", "since", "at"), number)
    doubt = {"attempt": "x", "count": number, "at": number}
    moments = {"price": "1", "running_at": number, "ended_at": number, "end_cause": None}
    return {
        "offerings.json": {"spot:g5.xlarge:us-east-1a": {"code": "x", "until": number}},
        "protection.json": {
            "pools": {"gpu": {**standing, "last": failures}}, "counted": {"i-1": number}
        },
        "reconcile.json": {
            "unbacked": {G[1]: number}, "doubted_since": number, "woken": {G[2]: number},
            "ledger": {"i-1": {**entry, **moments, "launched_at": number}},
        },
        "waits.json": {"7": number},
        "pass.json": {"at": number, "note": number, "remarks": number},
        "time.json": {"boot": "boot-1", "offset": number, "last": number},
        "brake.json": {
            "jobs": {"7": {**tries, "doubts": [doubt]}, "8": tries, "9": number},
            "ends": {"count": number, "code": number, "since": number, "at": number},
        },
    }  # fmt: skip


def test_invalid_numbers_in_state_files_end_no_program(cluster: SimulatedCluster):
    cluster.configure(partitions=AFTER_A_MINUTE)
    orphan = orphaned(cluster, G[3])
    for number in NUMBERS:
        for name, value in odd_states(number).items():
            (cluster.state / name).write_text(json.dumps(value))
        assert cluster.reconcile(1) == 0, number
    for name, value in odd_states(10**400).items():
        (cluster.state / name).write_text(json.dumps(value))
    at_work(cluster, 7, G[0])
    assert orphan not in live(cluster)


def powerless() -> None:
    """Give up root's write access to read-only files."""
    for right in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, right, 0, 0, 0)


@pytest.mark.parametrize("bare", [False, True])
def test_a_job_with_a_dead_instance_comes_back_though_the_state_is_read_only(
    cluster: SimulatedCluster, bare: bool
):
    """Make the state read-only, with and without earlier files.

    No instance is terminated, because the termination cannot be journalled.
    """
    orphan = orphaned(cluster, G[3])
    mine = at_work(cluster, 7, G[0], G[1])
    cluster.reconcile(1)
    for path in cluster.state.rglob("*"):
        if bare and path.is_file():
            path.unlink()
        elif path.is_file():
            path.chmod(0o440)
    folders = [cluster.state, *(path for path in cluster.state.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o550)
    cluster.before = powerless
    lost(cluster, mine[G[0]])
    cluster.reconcile(2)
    for path in folders:
        path.chmod(0o750)
    assert cluster.slurm.queue[7].state == "PENDING"
    assert cluster.slurm.state[G[0]].reason.startswith("toolkit: machine-ended")
    assert mine[G[1]] in live(cluster)
    assert orphan not in live(cluster)  # the pass before terminated it


def rewritten(cluster: SimulatedCluster, change: Any) -> None:
    """Change each journal line, as if a newer version had written it."""
    path = cluster.state / "journal.jsonl"
    lines = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def longer(record: dict[str, Any]) -> dict[str, Any]:
    record = {**record, "later": {"x": 1}}
    if "machines" in record:
        record["machines"] = [[*machine, "and more"] for machine in record["machines"]]
    if "offering" in record:
        record["offering"]["later"] = 1
    return record


def renamed(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with an unknown kind and another shape."""
    if record["kind"] == "intent":
        return {**record, "kind": "intent-2"}
    if record["kind"] == "launched":
        machines = [{"node": one[0], "id": one[1]} for one in record.pop("machines")]
        return {**record, "kind": "launched-2", "machines": machines}
    return record


@pytest.mark.parametrize("change", [longer, renamed])
def test_what_a_newer_version_launched_gets_no_double(cluster: SimulatedCluster, change: Any):
    """Hide the launched instances from DescribeInstances, and start resume again."""
    hide = cluster.ec2.lie("DescribeInstances", alter=lambda _: NONE)
    cluster.slurm.start(7, G[:2])
    cluster.resume()
    rewritten(cluster, change)
    cluster.resume()
    hide.times = 0
    assert len(cluster.live()) == 2


NONE = "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>"


def test_an_unresolved_launch_of_a_newer_version_gets_no_double(cluster: SimulatedCluster):
    """Start resume again after a launch without an answer.

    The launch is not repeated by its client token either, since the newer version's call may
    differ.
    """
    cluster.slurm.start(7, G[:2])
    cluster.reconcile(1, period=0.0)
    killed_in_launch(cluster, done=False)
    rewritten(cluster, longer)
    before = launches(cluster)
    cluster.resume()
    assert launches(cluster) == before
    assert cluster.slurm.state[G[0]].reason == "toolkit: launch-in-doubt"


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "ended", "ids": ["ID"], "cause": "a-cause-of-2031"},
        {"kind": "ended", "ids": [{"id": "ID", "why": "x"}], "cause": "suspend"},
        {"kind": "condemned-2", "what": {"instances": ["ID"]}},
    ],
    ids=lambda line: line["kind"],
)
def test_an_instance_that_a_newer_version_marked_for_termination_is_given_to_no_job(
    cluster: SimulatedCluster, line: dict[str, Any]
):
    cluster.slurm.start(7, G[:1])
    cluster.resume()
    (one,) = cluster.live()
    stamp = {"at": cluster.clock.now(), "up": cluster.clock.monotonic(), "boot": cluster.boot_id}
    text = json.dumps({**stamp, **line}).replace("ID", one.id)
    with (cluster.state / "journal.jsonl").open("a") as file:
        file.write(text + "\n")
    asked_again(cluster)
    cluster.slurm.queue[8].nodes = G[:1]
    cluster.resume(G[0])
    assert (
        cluster.slurm.assigned.get(one.id) is None
        or cluster.slurm.state[G[0]].instance_id != one.id
    )


def test_an_instance_that_an_unknown_line_names_is_not_ended_while_that_is_new(
    cluster: SimulatedCluster,
):
    """Name an orphan in a journal line of an unknown kind.

    The instance is kept for two minutes. Then it is an orphan as any other, since Slurm has powered
    down its node.
    """
    orphan = orphaned(cluster, G[3])
    stamp = {"at": cluster.clock.now(), "up": cluster.clock.monotonic(), "boot": cluster.boot_id}
    with (cluster.state / "journal.jsonl").open("a") as file:
        file.write(json.dumps({**stamp, "kind": "kept-2", "for": {orphan: "a person"}}) + "\n")
    cluster.reconcile(2)
    assert orphan in live(cluster)
    cluster.skip(120)
    cluster.reconcile(2)
    assert orphan not in live(cluster)
