"""Hostile names, broken disks, invalid files and absent credentials.

Each leads to a reason code. Nothing is launched twice, and nothing is lost.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud import ec2_messages, error_codes
from slurmplugins.config import burst as burst_config
from slurmplugins.errors import BadName, ConfigError, SlurmRefused, SlurmUnreachable, StateError
from slurmplugins.execution.down_nodes import give_back_without_engine
from slurmplugins.head.assemble import check_cluster
from slurmplugins.launch import launch_call
from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause
from slurmplugins.model.launch import JobRequest, LaunchRequest, LaunchResult
from slurmplugins.power_save import prepare
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler.pass_state import LastPass
from slurmplugins.reconciler.run import run_pass
from slurmplugins.slurm import resume_file
from slurmplugins.system import files
from slurmplugins.system.log_events import LogEvent
from tests.fakes.boundaries import watch
from tests.fakes.engine import Bench, burst

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurmplugins.model.node import Node

G = hostlist.expand("gpu-[001-008]")
HOSTILE = ["$(id)", "a b", "x\ny", "é", "../../etc", "a" * 300, "-rf", "gpu;true", '"', "{{7*7}}"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def reasons(bench: Bench) -> set[str]:
    return {item.reason for item in bench.slurm.state.values() if "DOWN" in item.flags}


# Names


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_node_name_is_no_name(text: str):
    with pytest.raises(BadName):
        hostlist.parse(text)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("key", ["partition", "launch_template", "type", "zone", "pool"])
def test_a_hostile_word_in_burst_json_is_refused(key: str, text: str):
    document = burst()
    pools = document["pools"]
    gpu = pools["gpu"]  # type: ignore[index]
    if key == "pool":
        pools[text] = pools.pop("gpu")  # type: ignore[index, attr-defined]
    elif key in {"type", "zone"}:
        gpu["offerings"][0][key] = text
    else:
        gpu[key] = text
    with pytest.raises(ConfigError):
        burst_config.parse(document)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_jobs_owner_writes_reaches_no_tag_and_no_command(bench: Bench, text: str):
    entry = {
        "job_id": 7,
        "nodes_resume": "gpu-001",
        "partition": text,
        "features": text,
        "extra": text,
        "reservation": text,
        "name": text,
        "account": text,
    }
    content = json.dumps({"jobs": [entry]}).encode()
    asks = resume_file.job_requests(content, "gpu-001")
    bench.slurm.start(7, asks[0].nodes)
    resume(bench.engine, asks)
    (machine,) = bench.cloud.machines.values()
    assert not any(text in value for value in machine.tags.values())
    assert not any(text in line for line in bench.slurm.writes)


@pytest.mark.parametrize("job", [0, -1, 2**40, True, "x", None, 1.5])
def test_an_invalid_job_number_is_no_job_but_its_nodes_are_launched(job: object):
    content = json.dumps({"jobs": [{"job_id": job, "nodes_resume": "gpu-001"}]}).encode()
    assert resume_file.job_requests(content, "gpu-001") == (JobRequest(None, G[:1]),)


def test_a_file_that_repeats_names_without_end_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(resume_file, "MAX_NAMES", 3000)
    jobs = [{"job_id": n, "nodes_resume": "other-[001-999]"} for n in range(1, 9)]
    last = {"job_id": 9, "nodes_resume": "gpu-001"}
    content = json.dumps({"jobs": [*jobs, last]}).encode()
    assert resume_file.job_requests(content, "gpu-001") == (JobRequest(None, G[:1]),)


def test_every_tag_of_a_launch_is_within_ec2s_bounds():
    nodes = hostlist.expand("a" * 40 + "-[000001-002000]")[::17]
    offering = burst_config.parse(burst()).pools["gpu"].offerings[0]
    request = LaunchRequest(
        "a" * 24, "demo", "gpu", "p", "t", "subnet-a", offering, nodes, others=(offering,) * 3
    )
    pairs = ec2_messages.tag_list(request)
    assert len(pairs) <= 50
    assert all(len(item["Value"]) <= 256 and len(item["Key"]) <= 128 for item in pairs)


# Disks


class FullDisk:
    """A write(2) on a disk that is full after some calls.

    The first `after` calls succeed. The next call writes up to `room` bytes and returns their
    number. Every further call raises ENOSPC, and so does the first one if `room` is 0.
    """

    def __init__(self, after: int, room: int = 0) -> None:
        self.left = after
        self.room = room
        self.write = os.write

    def __call__(self, descriptor: int, content: bytes) -> int:
        self.left -= 1
        if self.left >= 0:
            return self.write(descriptor, content)
        fits, self.room = content[: self.room], 0
        if not fits:
            raise OSError(28, "No space left on device")
        return self.write(descriptor, fits)


@pytest.mark.parametrize("room", [0, 20])
@pytest.mark.parametrize("after", range(4))
def test_a_disk_that_fills_up_at_any_write_leaves_no_half_job(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, after: int, room: int
):
    ask = bench.slurm.start(7, G[:3])
    launch = bench.cloud.launch

    def noted(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        def intended() -> None:
            intend()
            lines = (bench.engine.state / "journal.jsonl").read_text().splitlines()
            assert request.attempt in {json.loads(line).get("attempt") for line in lines}

        return launch(request, intended)

    monkeypatch.setattr(bench.cloud, "launch", noted)
    monkeypatch.setattr(os, "write", FullDisk(after, room))
    resume(bench.engine, [ask])
    monkeypatch.undo()
    live = bench.cloud.live()
    if live:
        assert len(live) == 3
        assert bench.slurm.queue[7].state == "RUNNING"
    else:
        assert reasons(bench) == {"toolkit: state"}
    resume(bench.engine, [ask])
    counted = [item.node for item in bench.cloud.live()]
    assert len(counted) == len(set(counted))


def test_on_a_full_disk_reconcile_gives_jobs_back_and_terminates_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    bench.clock.advance(120)
    bench.boot()
    taken = bench.cloud.live()[0]
    bench.cloud.interrupt(taken.id)
    orphan = replace(taken, id="i-0000000000000abcd", node=G[5], attempt="x")
    bench.cloud.add(orphan)
    monkeypatch.setattr(os, "write", FullDisk(0))
    monkeypatch.setattr(files, "write_atomically", FullDisk(0))
    with contextlib.suppress(StateError):
        run_pass(bench.engine)
    assert bench.slurm.queue[7].state == "PENDING"
    assert orphan.id in {item.id for item in bench.cloud.live()}
    assert bench.events(LogEvent.TERMINATIONS_BLOCKED)
    monkeypatch.undo()
    run_pass(bench.engine)
    assert orphan.id not in {item.id for item in bench.cloud.live()}


def test_a_state_folder_that_can_not_be_used_gives_the_nodes_back(tmp_path: Path):
    bench = Bench(tmp_path)
    (tmp_path / "runs").write_text("not a folder")
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert bench.cloud.requests == []
    assert reasons(bench) == {"toolkit: state"}
    assert bench.slurm.queue[7].state == "PENDING"


@pytest.mark.parametrize("by", ["suspend", "reconcile"])
def test_a_damaged_line_keeps_no_idle_instance_and_says_what_it_names(bench: Bench, by: str):
    """Damage the launches in the journal, then restart.

    A damaged line does not terminate an instance in use either.
    """
    resume(bench.engine, [bench.slurm.start(1, G[:2]), bench.slurm.start(2, G[2:3])])
    bench.boot()
    journal = bench.engine.state / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"machines"', '"machimes"'))
    bench.clock.advance(900)
    bench.restart()
    run_pass(bench.engine)
    assert len(bench.cloud.live()) == 3
    (remark,) = LastPass.load(bench.engine.state).warnings
    assert all(item.id in remark for item in bench.cloud.live())
    bench.slurm.finish(1)
    bench.slurm.power_down(G[:2])
    bench.slurm.tick()
    bench.restart()
    if by == "suspend":
        suspend(bench.engine, G[:2], EndCause.SUSPEND)
    else:
        run_pass(bench.engine)
    assert [item.node for item in bench.cloud.live()] == [G[2]]


def test_a_file_of_unavailable_offerings_that_can_not_be_written_stops_nothing(tmp_path: Path):
    bench = Bench(tmp_path)
    (tmp_path / "offerings.json").mkdir()
    bench.cloud.capacity = {"spot:g5.xlarge:us-east-1a": 0}
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert len(bench.cloud.live()) == 2


# Credentials and configuration


def test_credentials_that_were_not_found_once_hold_nobody(bench: Bench):
    """Let all tries but the last find no credentials.

    The metadata service was slow, and EC2 has not answered at all.
    """
    missing = error_codes.error("MissingCredentials", "Unable to locate credentials")
    bench.cloud.next_list_errors = [missing] * (prepare.LIST_CALL_TRIES - 1)
    bench.cloud.next_errors = [missing] * (launch_call.UNANSWERED_TRIES - 1)
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert len(bench.cloud.live()) == 2


@pytest.mark.parametrize("code", ["AuthFailure", "RequestExpired", "UnauthorizedOperation"])
def test_what_ec2_says_of_who_asks_is_believed_at_once(bench: Bench, code: str):
    bench.cloud.next_list_errors = [error_codes.error(code, "no")]
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert bench.slurm.queue[7].held is (code == "UnauthorizedOperation")
    assert bench.clock.slept == []


def test_a_missing_credential_gives_the_job_back_and_says_so(bench: Bench):
    def refused() -> tuple[()]:
        raise error_codes.error("MissingCredentials", "Unable to locate credentials")

    bench.cloud.instances = refused  # type: ignore[method-assign]
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert reasons(bench) == {"toolkit: unauthenticated (MissingCredentials)"}
    assert not bench.slurm.queue[7].held
    assert "Unable to locate credentials" in bench.slurm.queue[7].comment


def test_a_slurm_conf_of_another_cluster_is_noticed(tmp_path: Path):
    path = tmp_path / "slurm.conf"
    path.write_text("# x\nClusterName = Demo # ours\nSlurmctldHost=h\n")
    check_cluster("demo", path)
    path.write_text("clustername=other\n")
    with pytest.raises(ConfigError, match=r"for cluster demo, but slurm\.conf is for other"):
        check_cluster("demo", path)
    check_cluster("demo", tmp_path / "absent")


def test_without_an_engine_the_nodes_are_given_back_with_the_reason(bench: Bench):
    error = ConfigError(("burst.json is for cluster demo, but slurm.conf is for other",))
    asks = [bench.slurm.start(7, G[:2])]
    give_back_without_engine(bench.slurm, bench.clock, bench.engine.log, asks, error)
    assert reasons(bench) == {"toolkit: config"}
    assert bench.slurm.queue[7].state == "PENDING"
    assert bench.slurm.queue[7].held, "or it would be back, and refused, every few seconds"
    assert "slurm.conf is for other" in bench.slurm.queue[7].comment


def test_without_an_engine_the_nodes_are_given_back_also_where_slurm_answers_the_second_time(
    bench: Bench,
):
    asks = [bench.slurm.start(7, G[:2])]
    nodes, silent = bench.slurm.nodes, [1]

    def deaf_once(wanted: Sequence[str] | None = None) -> tuple[Node, ...]:
        if silent:
            silent.pop()
            raise SlurmUnreachable("socket timed out")
        return nodes(wanted)

    bench.slurm.nodes = deaf_once  # type: ignore[method-assign]
    give_back_without_engine(bench.slurm, bench.clock, bench.engine.log, asks, ConfigError(("no",)))
    assert reasons(bench) == {"toolkit: config"}
    assert bench.slurm.queue[7].held


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_without_an_engine_a_slurmctld_that_falls_silent_is_told_once_more_however_many_jobs(
    bench: Bench, answered: int
):
    """Let slurmctld fall silent after `answered` calls.

    Each further call would take a minute to fail.
    """
    asks = [bench.slurm.start(7 + turn, [node]) for turn, node in enumerate(G[:3])]
    told: list[str] = []

    def silent(place: str) -> None:
        if place.endswith("about to") and place != "slurm.nodes: about to":
            told.append(place)
            bench.slurm.unreachable = len(told) > answered

    slurm = watch(bench.engine, silent).slurm
    give_back_without_engine(slurm, bench.clock, bench.engine.log, asks, ConfigError(("no",)))
    assert len(told) == answered + 1


def test_without_an_engine_no_job_is_told_that_it_is_held_where_it_is_not(bench: Bench):
    def refused(_job: int) -> None:
        raise SlurmRefused("Job is not pending")

    bench.slurm.hold = refused  # type: ignore[method-assign]
    asks = [bench.slurm.start(7, G[:2])]
    give_back_without_engine(bench.slurm, bench.clock, bench.engine.log, asks, ConfigError(("no",)))
    assert bench.slurm.queue[7].comment == "toolkit: config no"


def test_without_an_engine_a_node_that_is_up_and_its_job_are_left_alone(bench: Bench):
    asks = [bench.slurm.start(7, G[:2])]
    for node in G[:2]:
        bench.slurm.register(node, f"i-{node}")
    give_back_without_engine(bench.slurm, bench.clock, bench.engine.log, asks, ConfigError(("no",)))
    assert bench.slurm.writes == []
    assert bench.slurm.queue[7].comment == ""


def leave_no_offering(bench: Bench) -> None:
    pool = replace(bench.config.pools["gpu"], offerings=bench.config.pools["gpu"].offerings[2:])
    policies = burst_config.parse(burst(partitions={"spot": {"policy": "spot-only"}})).policies
    settings = replace(bench.config, pools={"gpu": pool}, policies=policies)
    bench.engine = replace(bench.engine, config=settings)


def test_a_policy_that_leaves_nothing_gives_the_nodes_back(bench: Bench):
    leave_no_offering(bench)
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert reasons(bench) == {"toolkit: no-offering"}


def test_an_instance_that_is_there_for_a_job_without_any_offering_ends(bench: Bench):
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    leave_no_offering(bench)
    resume(bench.engine, [JobRequest(8, G[:2])])
    assert bench.cloud.live() == []
    assert reasons(bench) == {"toolkit: no-offering"}
