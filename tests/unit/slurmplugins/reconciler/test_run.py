"""Passes of reconcile on the stateful fakes, over time."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.errors import CloudUnreachable, SlurmUnreachable, StateError
from slurmplugins.model import hostlist
from slurmplugins.model.actions import Terminate
from slurmplugins.model.instance import EndCause, Instance, InstanceState, Lifecycle
from slurmplugins.model.launch import JobRequest
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler import instance_ledger
from slurmplugins.reconciler.pass_state import LastPass, LedgerPass, PassState
from slurmplugins.reconciler.run import run_pass
from tests.fakes.boundaries import Killed, watch
from tests.fakes.cloud import FakeStore
from tests.fakes.engine import Bench, burst

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from slurmplugins.model.node import Job

G = hostlist.expand("gpu-[001-008]")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def up(bench: Bench, job: int = 7, nodes: tuple[hostlist.NodeName, ...] = G[:2]) -> None:
    resume(bench.engine, [bench.slurm.start(job, nodes)])
    bench.clock.advance(10)
    bench.boot()


def passes(bench: Bench, seconds: float) -> None:
    """Run reconcile every 15 seconds, slurmctld and its programs in between."""
    for _ in range(int(seconds // 15)):
        bench.clock.advance(15)
        bench.slurm.tick()
        suspended, bench.slurm.suspended = bench.slurm.suspended, []
        if suspended:
            suspend(bench.engine, suspended, EndCause.SUSPEND)
        run_pass(bench.engine)


def entries(bench: Bench) -> list[dict[str, object]]:
    return list(bench.store.objects.values())


def test_a_healthy_cluster_is_left_alone(bench: Bench):
    up(bench)
    passes(bench, 300)
    assert len(bench.cloud.live()) == 2
    assert [line for line in bench.slurm.writes if not line.startswith("assign")] == []


def test_an_interrupted_instance_gives_its_job_back_within_one_pass(bench: Bench):
    up(bench)
    bench.cloud.interrupt(bench.cloud.live()[0].id)
    passes(bench, 15)
    job = bench.slurm.queue[7]
    assert (job.state, job.restarts) == ("PENDING", 1)


def test_after_an_interruption_the_node_is_usable_again_within_a_minute(bench: Bench):
    up(bench)
    bench.cloud.interrupt(bench.cloud.live()[0].id)
    passes(bench, 60)
    assert bench.slurm.flags(G[0]) == {"IDLE", "CLOUD", "POWERED_DOWN"}
    up(bench, 8, (G[0],))
    passes(bench, 60)
    assert bench.slurm.queue[8].state == "RUNNING"


def test_a_node_drained_by_us_is_terminated_once_its_job_has_left(bench: Bench):
    up(bench)
    bench.slurm.drain([G[0]], "toolkit: spot interruption")
    passes(bench, 30)
    assert len(bench.cloud.live()) == 2, "its job still runs"
    bench.slurm.finish(7)
    passes(bench, 45)
    assert [item.node for item in bench.cloud.live()] == [G[1]]


def test_an_instance_slurm_does_not_want_ends_after_the_grace(bench: Bench):
    up(bench)
    bench.slurm.finish(7)
    for node in G[:2]:
        bench.slurm.state[node].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    passes(bench, 105)
    assert bench.cloud.live() == []


def test_a_resume_that_died_before_its_launch_returns_its_job(bench: Bench):
    bench.slurm.start(7, G[:2])
    passes(bench, 90)
    assert bench.slurm.queue[7].state == "PENDING"
    assert bench.slurm.state[G[0]].reason == "toolkit: no-machine"


def test_a_job_does_not_wait_for_an_instance_whose_node_slurm_powered_down_before_it_asked(
    bench: Bench,
):
    """Power a node down while EC2 is unreadable, then start a job.

    EC2 got no request to terminate the instance. The resume for the next job died before its claim.
    """
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    bench.slurm.finish(7)
    bench.slurm.down(G[:1], "cancelled")
    bench.slurm.power_down(G[:1])
    bench.slurm.tick()
    bench.cloud.unreadable = True
    with pytest.raises(CloudUnreachable):
        suspend(bench.engine, G[:1], EndCause.SUSPEND)
    bench.cloud.unreadable, bench.slurm.suspended = False, []
    bench.slurm.resume(G[:1])
    bench.slurm.start(8, G[:1])
    passes(bench, 75)
    assert bench.slurm.queue[8].state == "PENDING"
    assert bench.cloud.live() == []


@pytest.mark.parametrize("blind", ["cloud", "slurm"])
def test_half_a_snapshot_terminates_nothing(bench: Bench, blind: str):
    up(bench)
    bench.slurm.finish(7)
    bench.slurm.power_down(list(G[:2]))
    bench.slurm.tick()
    bench.cloud.unreadable = blind == "cloud"
    bench.slurm.unreachable = blind == "slurm"
    with pytest.raises((CloudUnreachable, SlurmUnreachable)):
        run_pass(bench.engine)
    assert len(bench.cloud.live()) == 2


def test_the_ledger_has_every_instance_from_birth_to_end(bench: Bench):
    up(bench)
    passes(bench, 15)
    assert [item["ended_at"] for item in entries(bench)] == [None, None]
    assert all(item["running_at"] for item in entries(bench))
    gone = bench.cloud.live()[0].id
    bench.cloud.interrupt(gone)
    passes(bench, 15)
    entry = bench.store.objects[instance_ledger.object_key(gone)]
    assert entry["end_cause"] == "interruption"
    assert entry["price"] == "0.4024"
    assert (entry["node"], entry["pool"], entry["partition"]) == ("gpu-001", "gpu", "spot")


def test_an_instance_named_after_it_was_first_seen_has_its_node_in_the_ledger(bench: Bench):
    """Show a pass an instance before its tags name the node.

    EC2 lists the instances of a fleet some seconds before their tags name nodes. The resume that
    launched them has ended, so it can't tell one from another.
    """
    up(bench)
    (bench.engine.state / "journal.jsonl").unlink()
    fake = bench.cloud.machines[bench.cloud.live()[0].id]
    named = fake.instance
    fake.instance = dataclasses.replace(named, node=None)
    passes(bench, 15)
    where = instance_ledger.object_key(named.id)
    assert bench.store.objects[where]["node"] == ""
    fake.instance = named
    passes(bench, 15)
    assert bench.store.objects[where]["node"] == "gpu-001"
    fake.instance = dataclasses.replace(named, node=G[5])
    passes(bench, 15)
    assert bench.store.objects[where]["node"] == "gpu-006", "it was given to another job"
    fake.instance = dataclasses.replace(named, node=None)
    passes(bench, 15)
    assert bench.store.objects[where]["node"] == "gpu-006", "what was known is not unlearned"


def test_the_ledger_knows_why_an_instance_was_terminated(bench: Bench):
    up(bench)
    bench.slurm.finish(7)
    bench.slurm.power_down(list(G[:2]))
    passes(bench, 60)
    assert {item["end_cause"] for item in entries(bench)} == {"suspend"}


def test_an_end_that_no_pass_saw_is_marked_in_the_ledger(bench: Bench):
    up(bench)
    passes(bench, 15)
    assert [item["end_seen"] for item in entries(bench)] == [True, True]
    gone = bench.cloud.live()[0].id
    del bench.cloud.machines[gone]
    bench.slurm.silence(G[:1])
    passes(bench, 30)
    entry = bench.store.objects[instance_ledger.object_key(gone)]
    assert (entry["end_cause"], entry["end_seen"]) == ("unknown", False)
    assert entry["ended_at"] is not None


def test_an_instance_that_ec2_lists_again_has_not_ended_in_the_ledger(bench: Bench):
    up(bench)
    passes(bench, 15)
    hidden = bench.cloud.live()[0].id
    machine = bench.cloud.machines.pop(hidden)
    passes(bench, 15)
    assert bench.store.objects[instance_ledger.object_key(hidden)]["ended_at"] is not None
    bench.cloud.machines[hidden] = machine
    passes(bench, 15)
    entry = bench.store.objects[instance_ledger.object_key(hidden)]
    assert (entry["ended_at"], entry["end_cause"], entry["end_seen"]) == (None, None, True)


def test_an_older_heads_entry_without_the_mark_is_read(bench: Bench):
    up(bench)
    passes(bench, 15)
    value = dict(entries(bench)[0])
    del value["end_seen"]
    entry = instance_ledger.from_json(value)
    assert entry is not None
    assert entry.end_seen
    assert instance_ledger.from_json(value | {"end_seen": "no"}) is None


def test_the_ledger_has_the_head(bench: Bench):
    head = Instance(
        id="i-head",
        state=InstanceState.RUNNING,
        role="head",
        node=None,
        pool="",
        partition="",
        attempt="",
        type="m7i.large",
        zone="us-east-1a",
        lifecycle=Lifecycle.ON_DEMAND,
        address="10.42.1.10",
        price="0.1008",
        launched_at=bench.clock.now() - 60,
    )
    bench.cloud.add(head)
    passes(bench, 15)
    entry = bench.store.objects[instance_ledger.object_key("i-head")]
    assert (entry["pool"], entry["node"], entry["price"]) == ("head", "head", "0.1008")


def test_an_unchanged_instance_is_written_once(bench: Bench):
    up(bench)
    passes(bench, 15)
    before = bench.store.puts
    passes(bench, 60)
    assert bench.store.puts == before


def test_an_instance_seen_first_is_written_in_one_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr(FakeStore, "get")
    up(bench)
    passes(bench, 15)
    assert (len(bench.store.objects), bench.store.puts) == (2, 2)


def test_what_a_pass_wrote_before_it_died_is_not_written_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    def dies(*_: object) -> None:
        raise Killed

    up(bench)
    with monkeypatch.context() as fatal:
        fatal.setattr(PassState, "save", dies)
        with pytest.raises(Killed):
            passes(bench, 15)
    before = dict(bench.store.objects)
    assert before
    passes(bench, 60)
    assert bench.store.objects == before


def test_a_pass_that_learned_nothing_leaves_its_memory_as_it_is(bench: Bench):
    up(bench)
    passes(bench, 60)
    path = bench.engine.state / "reconcile.json"
    before = path.stat()
    passes(bench, 60)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_what_could_not_be_written_is_written_later(bench: Bench):
    bench.store.broken = True
    up(bench)
    passes(bench, 30)
    bench.store.broken = False
    passes(bench, 15)
    assert len(bench.store.objects) == 2


@pytest.fixture
def one_instance_taken(bench: Bench) -> Bench:
    """A bench with one interrupted instance and one marked for termination.

    A job was running on each of them.
    """
    up(bench)
    up(bench, 8, G[2:3])
    instances = {item.node: item.id for item in bench.cloud.live()}
    bench.cloud.interrupt(instances[G[0]])
    bench.engine.journal.mark_terminating([instances[G[2]]], EndCause.SUSPEND)
    return bench


def test_a_journal_that_fails_in_the_middle_of_a_pass_costs_what_it_was_asked_for_and_no_more(
    one_instance_taken: Bench, monkeypatch: pytest.MonkeyPatch
):
    bench = one_instance_taken
    inner, calls = bench.engine.journal.view, []

    def claims(but: str = ""):
        calls.append(but)
        if len(calls) > 1:
            raise StateError("the journal can't be used: too many open files")
        return inner(but)

    with monkeypatch.context() as broken:
        broken.setattr(bench.engine.journal, "view", claims)
        passes(bench, 15)
    assert G[2] not in {item.node for item in bench.cloud.live()}
    assert bench.slurm.queue[7].state == "RUNNING"
    passes(bench, 15)
    assert bench.slurm.queue[7].state == "PENDING"


def test_a_disk_that_has_no_room_for_memory_costs_no_pass_and_no_tidying_and_is_told_of(
    one_instance_taken: Bench, monkeypatch: pytest.MonkeyPatch
):
    bench = one_instance_taken
    done: list[str] = []

    def full(*_: object) -> None:
        done.append("memory")
        raise StateError("reconcile's memory can't be written: no space left on device")

    monkeypatch.setattr(PassState, "save", full)
    inner = bench.engine.journal.compact
    monkeypatch.setattr(bench.engine.journal, "compact", lambda: done.append("journal") or inner())
    passes(bench, 15)
    assert bench.slurm.queue[7].state == "PENDING"
    assert len(bench.store.objects) == 3
    assert done[:2] == ["journal", "memory"]
    assert "no space left" in LastPass.load(bench.engine.state).blocked_by


def test_a_journal_that_has_no_room_to_be_made_smaller_costs_no_memory(
    one_instance_taken: Bench, monkeypatch: pytest.MonkeyPatch
):
    bench = one_instance_taken

    def full() -> None:
        raise StateError("the journal can't be used: no space left on device")

    monkeypatch.setattr(bench.engine.journal, "compact", full)
    passes(bench, 15)
    assert len(PassState.load(bench.engine.state).ledger) == 3


def test_losing_the_state_directory_loses_no_fact_of_the_ledger(bench: Bench, tmp_path: Path):
    up(bench)
    passes(bench, 15)
    bench.slurm.finish(7)
    bench.slurm.power_down(list(G[:2]))
    passes(bench, 45)
    before = dict(bench.store.objects)
    for name in ("reconcile.json", "journal.jsonl"):
        (tmp_path / name).unlink()
    passes(bench, 15)
    assert bench.store.objects == before


def test_an_ec2_that_suddenly_lists_nothing_costs_no_job_and_no_ledger_entry(bench: Bench):
    up(bench, nodes=G[:4])
    passes(bench, 15)
    before = dict(bench.store.objects)
    hidden, bench.cloud.machines = bench.cloud.machines, {}
    passes(bench, 300)
    assert bench.slurm.queue[7].state == "RUNNING"
    assert bench.store.objects == before
    assert "not trusted" in LastPass.load(bench.engine.state).blocked_by
    bench.cloud.machines = hidden
    passes(bench, 15)
    assert LastPass.load(bench.engine.state).blocked_by == ""
    assert len(bench.cloud.live()) == 4


def test_an_ec2_that_leaves_out_instances_whose_nodes_answer_costs_no_job(bench: Bench):
    up(bench, nodes=G[:4])
    up(bench, 8, G[4:])
    passes(bench, 150)
    hidden = [item.id for item in bench.cloud.live()][:2]
    left_out = {key: bench.cloud.machines.pop(key) for key in hidden}
    passes(bench, 90)
    assert bench.slurm.queue[7].state == "RUNNING"
    assert f"node {G[0]} responds" in LastPass.load(bench.engine.state).warnings[0]
    bench.cloud.machines |= left_out
    passes(bench, 30)
    assert len(bench.cloud.live()) == 8
    assert LastPass.load(bench.engine.state).warnings == ()


def test_an_ec2_that_lists_nothing_for_ten_minutes_is_believed(bench: Bench):
    up(bench, nodes=G[:4])
    passes(bench, 15)
    bench.cloud.machines = {}
    bench.slurm.silence(G[:4])
    passes(bench, 600 + 60 + 45)
    assert bench.slurm.queue[7].state == "PENDING"
    assert all(item["ended_at"] for item in entries(bench))


def test_a_pass_that_could_not_look_says_so(bench: Bench):
    bench.slurm.unreachable = True
    with pytest.raises(SlurmUnreachable):
        run_pass(bench.engine)
    found = LastPass.load(bench.engine.state)
    assert found.blocked_by == "nothing is done: slurm-unreachable: connect failure"
    assert found.at == bench.clock.now()


def test_only_a_pass_that_wrote_the_ledger_says_that_it_is_up_to_date(bench: Bench):
    def reason() -> str:
        ledger_pass = LedgerPass.load(bench.engine.state)
        return ledger_pass.stale_reason(bench.clock.now(), bench.clock.boot())

    assert reason() == "reconcile has not looked at EC2 since the head's start"
    run_pass(bench.engine)
    assert reason() == ""
    bench.clock.advance(301)
    bench.slurm.unreachable = True
    with pytest.raises(SlurmUnreachable):
        run_pass(bench.engine)
    assert reason() == "reconcile has not looked at EC2 for 301 s"
    bench.slurm.unreachable = False
    run_pass(bench.engine)
    assert reason() == ""


def test_a_ledger_that_lacks_an_end_is_not_up_to_date(bench: Bench):
    up(bench, nodes=G[:2])
    passes(bench, 60)
    written_at = LedgerPass.load(bench.engine.state).at
    bench.cloud.interrupt(bench.cloud.live()[0].id)
    bench.store.broken = True
    passes(bench, 60)
    assert LedgerPass.load(bench.engine.state).at == written_at > 0
    bench.store.broken = False
    passes(bench, 30)
    assert LedgerPass.load(bench.engine.state).at > written_at


def test_an_ec2_that_is_not_believed_makes_the_ledger_old(bench: Bench):
    up(bench, nodes=G[:4])
    passes(bench, 15)
    looked_at = LedgerPass.load(bench.engine.state).at
    bench.cloud.machines = {}
    passes(bench, 60)
    assert LedgerPass.load(bench.engine.state).at == looked_at > 0


def test_without_status_checks_a_pass_goes_on(bench: Bench):
    up(bench)
    bench.cloud.health_unreadable = True
    bench.cloud.interrupt(bench.cloud.live()[0].id)
    passes(bench, 15)
    assert bench.slurm.queue[7].state == "PENDING"


def asked(bench: Bench) -> dict[str, dict]:
    """Return the stop requests by their file names."""
    found = sorted(bench.engine.stop_requests.iterdir())
    return {path.name: json.loads(path.read_text()) for path in found}


def test_a_notice_that_the_node_agent_misses_reaches_the_job_from_the_head_once(bench: Bench):
    up(bench)
    bench.cloud.give_notice(bench.cloud.live()[0].id)
    passes(bench, 15)
    assert "DRAIN" in bench.slurm.flags(G[0])
    assert asked(bench) == {}, "the agent, if it works, is quicker and says more"
    passes(bench, 60)
    (request,) = asked(bench).values()
    assert (request["job_id"], request["restart_count"]) == (7, 0)
    assert request["cause"] == "spot-interruption"
    assert request["at"] < request["deadline"] < request["at"] + 120
    assert "asked to save and stop: EC2 interrupts gpu-001" in bench.slurm.queue[7].comment
    assert "DRAIN" not in bench.slurm.flags(G[1])


def test_to_ask_the_jobs_of_a_node_slurm_is_asked_for_these_alone(bench: Bench):
    """Give an interruption notice and record the queries for jobs.

    Reading the whole of a long queue would take longer than the notice leaves.
    """
    up(bench)
    bench.cloud.give_notice(bench.slurm.state[G[0]].instance_id)
    jobs, reads = bench.slurm.jobs, []

    def read(nodes: Sequence[str] | None = None) -> tuple[Job, ...]:
        reads.append(nodes)
        return jobs(nodes)

    bench.slurm.jobs = read  # type: ignore[method-assign]
    passes(bench, 30)
    assert list(asked(bench)) == ["7.0.json"]
    assert reads == [[G[0]]]


def test_a_job_that_could_not_be_asked_is_asked_at_the_next_pass(bench: Bench):
    up(bench)
    bench.cloud.give_notice(bench.cloud.live()[0].id)
    passes(bench, 15)
    bench.slurm.queue[7].state = "COMPLETING"
    bench.slurm.refuse = {G[0]}
    passes(bench, 15)
    bench.slurm.queue[7].state = "RUNNING"
    bench.slurm.refuse = set()
    passes(bench, 15)
    assert list(asked(bench)) == ["7.0.json"]


def test_a_full_shared_filesystem_leaves_the_job_to_be_asked_at_the_next_pass(bench: Bench):
    up(bench)
    bench.cloud.give_notice(bench.cloud.live()[0].id)
    passes(bench, 15)
    place = bench.engine.stop_requests
    place.rmdir()
    passes(bench, 15)
    place.mkdir()
    passes(bench, 15)
    assert list(asked(bench)) == ["7.0.json"]


def test_jobs_are_asked_in_as_many_calls_as_there_are_jobs_however_many_their_nodes(bench: Bench):
    up(bench, 7, G[:6])
    up(bench, 8, G[6:])
    for instance in bench.cloud.live():
        bench.cloud.give_notice(instance.id)
    passes(bench, 15)
    places: list[str] = []
    bench.engine = watch(bench.engine, places.append)
    passes(bench, 15)
    assert set(asked(bench)) == {"7.0.json", "8.0.json"}
    assert places.count("slurm.jobs: done") == 1
    assert places.count("slurm.comment: done") == 2
    assert all("DRAIN" in bench.slurm.flags(node) for node in G)
    assert bench.slurm.queue[7].comment.endswith(
        "asked to save and stop: EC2 interrupts gpu-[001-006]"
    )


def test_nothing_of_a_pass_waits_until_the_jobs_that_are_asked_have_a_comment(bench: Bench):
    up(bench)
    up(bench, 8, G[2:3])
    bench.cloud.give_notice(bench.cloud.live()[0].id)
    passes(bench, 15)
    bench.cloud.interrupt(bench.slurm.state[G[2]].instance_id)
    places: list[str] = []

    def deaf(place: str) -> None:
        places.append(place)
        if place == "slurm.comment: about to":
            raise SlurmUnreachable("socket timed out")

    run_pass(watch(bench.engine, deaf))
    assert list(asked(bench)) == ["7.0.json"]
    assert bench.slurm.queue[8].state == "PENDING"
    before = places[: places.index("slurm.comment: about to")]
    assert {"slurm.drain: done", "slurm.down: done", "slurm.power_down: done"} <= set(before)


def test_a_notice_that_the_node_agent_has_heard_is_left_to_it(bench: Bench):
    up(bench)
    bench.cloud.give_notice(bench.cloud.live()[0].id)
    passes(bench, 15)
    bench.slurm.drain([G[0]], "toolkit: spot interruption")
    passes(bench, 45)
    assert asked(bench) == {}


def test_an_instance_that_retires_is_replaced_once_its_job_has_left(bench: Bench):
    up(bench, nodes=G[:1])
    bench.cloud.schedule(bench.cloud.live()[0].id, "instance-retirement", bench.clock.now() + 9000)
    passes(bench, 45)
    assert bench.slurm.queue[7].state == "RUNNING"
    bench.slurm.finish(7)
    passes(bench, 60)
    assert bench.cloud.live() == []
    assert bench.slurm.flags(G[0]) == {"IDLE", "CLOUD", "POWERED_DOWN"}


def test_an_impaired_instance_that_fell_silent_gives_its_job_back_in_minutes(bench: Bench):
    up(bench, nodes=G[:1])
    bench.cloud.impair(bench.cloud.live()[0].id)
    bench.slurm.flags(G[0]).add("NOT_RESPONDING")
    passes(bench, 165)
    assert bench.slurm.queue[7].state == "RUNNING"
    passes(bench, 90)
    assert bench.slurm.queue[7].state == "PENDING"
    assert bench.cloud.live() == []


def test_a_node_that_slurmctld_should_have_set_down_is_given_back(bench: Bench):
    bench.slurm.resume_timeout = 1e9
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    passes(bench, 240)
    assert len(bench.cloud.live()) == 1
    passes(bench, 90)
    assert bench.cloud.live() == []
    assert bench.slurm.queue[7].state == "PENDING"
    assert {item["end_cause"] for item in entries(bench)} == {"boot-failed"}


def test_static_nodes_get_an_instance_and_a_new_one_when_it_is_taken(tmp_path: Path):
    settings = burst()
    settings["pools"]["gpu"]["static"] = 2  # type: ignore[index]
    bench = Bench(tmp_path, pools=settings["pools"])

    def wake() -> list[hostlist.NodeName]:
        asked, bench.slurm.resumed = bench.slurm.resumed, []
        resume(bench.engine, [JobRequest(None, (node,)) for node in asked])
        bench.clock.advance(10)
        bench.boot()
        return asked

    run_pass(bench.engine)
    assert wake() == list(G[:2])
    passes(bench, 60)
    assert wake() == []
    assert len(bench.cloud.live()) == 2
    bench.cloud.interrupt(bench.cloud.live()[0].id)
    for _ in range(20):
        passes(bench, 15)
        if bench.slurm.resumed:
            break
    assert wake() == [G[0]]
    assert len(bench.cloud.live()) == 2


def test_hundreds_of_instances_end_in_calls_of_two_hundred_and_throttles_are_outlasted(
    tmp_path: Path,
):
    bench = Bench(tmp_path)
    found = []
    for number in range(450):
        item = instance(f"i-{number:x}", bench.clock.now() - 600)
        bench.cloud.add(item)
        found.append(Terminate(item, EndCause.SUSPEND, "test"))
    sizes: list[int] = []
    inner, refuse = bench.cloud.terminate, [1, 2]

    def terminate(ids):
        sizes.append(len(ids))
        if len(sizes) in refuse:
            raise error_codes.error("RequestLimitExceeded", "slow down")
        return inner(ids)

    bench.cloud.terminate = terminate  # type: ignore[method-assign]
    outcomes = bench.engine.executor.run(found)
    assert all(item.error == "" for item in outcomes)
    assert sizes == [200, 200, 200, 200, 50]


def test_a_batch_that_is_refused_does_not_keep_the_others_alive(tmp_path: Path):
    bench = Bench(tmp_path)
    found = []
    for number in range(250):
        item = instance(f"i-{number:x}", bench.clock.now() - 600)
        bench.cloud.add(item)
        found.append(Terminate(item, EndCause.SUSPEND, "test"))
    inner = bench.cloud.terminate

    def terminate(ids):
        if "i-0" in ids:
            raise error_codes.error("UnauthorizedOperation", "no")
        return inner(ids)

    bench.cloud.terminate = terminate  # type: ignore[method-assign]
    outcomes = bench.engine.executor.run(found)
    assert sum(1 for item in outcomes if not item.error) == 50
    assert len(bench.cloud.live()) == 200


def instance(instance_id: str, launched_at: float) -> Instance:
    return Instance(
        id=instance_id,
        state=InstanceState.RUNNING,
        role="compute",
        node=G[0],
        pool="gpu",
        partition="spot",
        attempt="a",
        type="g5.xlarge",
        zone="us-east-1a",
        lifecycle=Lifecycle.SPOT,
        address="10.42.1.9",
        price="1",
        launched_at=launched_at,
    )
