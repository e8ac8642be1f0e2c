"""Changes between the reads and the actions of reconcile and suspend."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.config.burst import CAPACITY_SHARE
from slurmplugins.errors import SlurmUnreachable
from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause
from slurmplugins.model.launch import JobRequest
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler.pass_state import LastPass
from slurmplugins.reconciler.run import run_pass
from slurmplugins.slurm import node_queries
from tests.fakes.boundaries import Killed, watch
from tests.fakes.engine import ON_DEMAND, SPOT_A, SPOT_B, Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurmplugins.model.instance import Instance
    from slurmplugins.model.launch import LaunchRequest, LaunchResult
    from slurmplugins.model.node import Node

G = hostlist.expand("gpu-[001-008]")
SEEN = "slurm.nodes: done"
LOOKED = "journal.view: done"  # the last read of a pass


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def up(bench: Bench, job: int, *nodes: hostlist.NodeName) -> None:
    resume(bench.engine, [bench.slurm.start(job, nodes)])
    bench.clock.advance(10)
    bench.boot()


def once(at: str, happens: Callable[[], None]) -> Callable[[str], None]:
    """Make a step of `watch` that acts the first time at `at`."""
    todo = [happens]

    def step(place: str) -> None:
        if place == at and todo:
            todo.pop()()

    return step


def orphan(bench: Bench, job: int, node: hostlist.NodeName) -> None:
    """Leave an instance running after Slurm has powered its node down."""
    up(bench, job, node)
    bench.slurm.finish(job)
    bench.slurm.state[node].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    bench.clock.advance(200)


def test_between_reading_slurm_and_acting_on_a_node_no_call_to_ec2_is_waited_for(bench: Bench):
    up(bench, 7, G[0])
    up(bench, 8, G[1])
    orphan(bench, 9, G[2])
    bench.cloud.interrupt(bench.slurm.state[G[0]].instance_id)
    bench.cloud.give_notice(bench.slurm.state[G[1]].instance_id)
    places: list[str] = []
    run_pass(watch(bench.engine, places.append))
    acts = [at for at, place in enumerate(places) if place.startswith("slurm.")]
    assert {"slurm.down: done", "slurm.drain: done", "slurm.power_down: done"} <= set(places)
    between = places[places.index(SEEN) : acts[-1]]
    assert not [place for place in between if place.startswith("cloud.")]
    assert "cloud.terminate: done" in places[acts[-1] :]


def test_an_interrupted_job_goes_back_before_instances_that_ec2_does_not_end_are_waited_for(
    bench: Bench,
):
    up(bench, 7, G[0])
    orphan(bench, 8, G[1])
    bench.cloud.interrupt(bench.slurm.state[G[0]].instance_id)
    states: list[str] = []

    def hangs(_ids: object) -> frozenset[str]:
        states.append(bench.slurm.queue[7].state)
        bench.clock.advance(30)
        raise error_codes.error("Unreachable", "no answer")

    bench.cloud.terminate = hangs  # type: ignore[method-assign]
    run_pass(bench.engine)
    assert states[0] == "PENDING"


@pytest.mark.parametrize(("at", "left"), [(SEEN, 0), (LOOKED, 1)])
def test_a_pass_that_was_held_up_leaves_what_it_saw_to_the_next(bench: Bench, at: str, left: int):
    """Delay a pass by 20 seconds after one of its reads.

    Meanwhile one node registers and a person drains another, so both have changed. If only Slurm's
    answer took that long, the remaining actions are done.
    """
    bench.slurm.start(7, G[:1])
    run_pass(bench.engine)
    bench.slurm.state[G[1]].flags = {"IDLE", "CLOUD", "POWERING_DOWN"}
    orphan(bench, 8, G[2])

    def held_up() -> None:
        bench.clock.advance(20)
        bench.slurm.register(G[0], "i-1")
        bench.slurm.drain([G[1]], "bad NIC, ticket 12")

    before = len(bench.slurm.writes)
    run_pass(watch(bench.engine, once(at, held_up)))
    assert bench.slurm.writes[before:] == [f"drain {G[1]}"]
    assert len(bench.cloud.live()) == left
    assert bench.slurm.queue[7].state == "RUNNING"


def test_a_slurmctld_that_takes_long_for_each_answer_is_acted_on_all_the_same(bench: Bench):
    """Let slurmctld take 25 seconds for each answer.

    Some actions are done in each pass. Otherwise nothing would be done until the end of the burst
    that slows slurmctld down.
    """
    orphan(bench, 8, G[0])
    up(bench, 7, G[1])
    bench.cloud.interrupt(bench.slurm.state[G[1]].instance_id)

    def slow(place: str) -> None:
        if place == "slurm.nodes: about to":
            bench.clock.advance(25)

    for _ in range(4):
        run_pass(watch(bench.engine, slow))
    assert bench.cloud.live() == []
    assert bench.slurm.queue[7].state == "PENDING"


def test_a_pass_that_leaves_something_to_the_next_says_so(bench: Bench):
    orphan(bench, 8, G[0])
    held_up = watch(bench.engine, once(LOOKED, lambda: bench.clock.advance(16)))
    run_pass(held_up)
    assert len(bench.cloud.live()) == 1
    note = LastPass.load(bench.engine.state).blocked_by
    assert note == "slurm-slow: Slurm's answer was 16 s old before all actions were done"
    run_pass(bench.engine)
    assert (bench.cloud.live(), LastPass.load(bench.engine.state).blocked_by) == ([], "")


def test_a_slow_slurmctld_is_not_told_of_where_nothing_was_left_to_do(bench: Bench):
    up(bench, 7, G[0])
    seen = watch(bench.engine, once(SEEN, lambda: bench.clock.advance(16)))
    run_pass(seen)
    assert LastPass.load(bench.engine.state).blocked_by == ""


@pytest.mark.parametrize("drained", [True, False])
def test_a_node_that_a_person_took_since_the_snapshot_is_not_reopened(
    bench: Bench, *, drained: bool
):
    """Let a person drain or down a node after the snapshot.

    The snapshot is ten seconds old, which is young enough for all other actions.
    """
    for node in G[:2]:
        bench.slurm.state[node].flags = {"IDLE", "CLOUD", "POWERING_DOWN"}
    take = bench.slurm.drain if drained else bench.slurm.down

    def taken() -> None:
        bench.clock.advance(10)
        take([G[0]], "bad NIC, ticket 12")

    run_pass(watch(bench.engine, once(SEEN, taken)))
    assert {"DRAIN", "DOWN"} & bench.slurm.flags(G[0])
    assert bench.slurm.state[G[0]].reason == "bad NIC, ticket 12"
    assert bench.slurm.flags(G[1]) == {"IDLE", "CLOUD", "POWERED_DOWN"}


def test_the_reason_that_a_person_gave_since_the_snapshot_stays(bench: Bench):
    """Let a person drain two nodes after the snapshot.

    With our reason in place of theirs, the node would be reopened once its instance is terminated.
    """
    up(bench, 7, G[0])
    up(bench, 8, G[1])
    bench.cloud.interrupt(bench.slurm.state[G[0]].instance_id)
    bench.cloud.give_notice(bench.slurm.state[G[1]].instance_id)

    def drained() -> None:
        bench.slurm.drain(G[:2], "bad NIC, ticket 12")

    run_pass(watch(bench.engine, once(SEEN, drained)))
    assert {bench.slurm.state[node].reason for node in G[:2]} == {"bad NIC, ticket 12"}


def impaired(bench: Bench) -> str:
    """Launch an instance that fails its status checks beyond the grace time.

    Its node has not registered yet. Returns the id of the instance.
    """
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    bench.clock.advance(20)
    (instance,) = bench.cloud.live()
    bench.cloud.impair(instance.id)
    bench.clock.advance(185)
    return instance.id


def registered_wrong(bench: Bench) -> str:
    up(bench, 7, G[0])
    bench.slurm.finish(7)
    bench.slurm.state[G[0]].flags |= {"INVALID_REG", "DRAIN"}
    bench.slurm.state[G[0]].reason = "Low RealMemory"
    return bench.cloud.live()[0].id


def second(bench: Bench) -> str:
    """Give a node that is not up two instances.

    Returns the id of the second instance.
    """
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    (first,) = bench.cloud.live()
    bench.clock.advance(100)
    late = replace(first, id="i-0second", launched_at=bench.clock.monotonic())
    bench.cloud.add(late)
    return late.id


def second_of_one_that_is_up(bench: Bench) -> str:
    instance = second(bench)
    bench.boot()
    bench.slurm.register(G[0], bench.cloud.live()[0].id)
    return instance


def comes_up(bench: Bench, instance: str) -> None:
    bench.slurm.register(G[0], instance)


def is_drained(bench: Bench, _instance: str) -> None:
    bench.slurm.drain(G[:1], "looking at its console, ticket 12")


def registers_right(bench: Bench, _instance: str) -> None:
    bench.slurm.state[G[0]].flags = {"ALLOCATED", "CLOUD"}


@pytest.mark.parametrize(
    ("scene", "happens"),
    [
        (impaired, comes_up),
        (impaired, is_drained),
        (registered_wrong, registers_right),
        (second, comes_up),
        (second_of_one_that_is_up, comes_up),
    ],
)
def test_a_node_that_is_left_alone_for_what_it_has_become_keeps_its_instance(
    bench: Bench, scene: Callable[[Bench], str], happens: Callable[[Bench, str], None]
):
    """Change the node between the snapshot and the actions.

    The next pass keeps the instance too. This holds with and without a planned call to slurmctld.
    """
    instance = scene(bench)
    before = len(bench.slurm.writes)
    run_pass(watch(bench.engine, once(SEEN, lambda: happens(bench, instance))))
    assert [line for line in bench.slurm.writes[before:] if not line.startswith("drain")] == []
    run_pass(bench.engine)
    assert instance in {item.id for item in bench.cloud.live()}


def test_a_termination_is_in_the_journal_before_slurmctld_is_told_of_its_node(
    bench: Bench,
):
    """Record the order of calls for an impaired instance.

    Otherwise SuspendProgram would come first, and the pool's boot failure would count as a suspend.
    """
    instance = impaired(bench)
    places: list[str] = []
    run_pass(watch(bench.engine, places.append))
    assert places.index("journal.mark_terminating_if_idle: done") < places.index(
        "slurm.down: about to"
    )
    assert bench.engine.journal.view().termination_causes == {instance: EndCause.BOOT_FAILED}


def test_a_slurmctld_that_answers_no_second_time_reopens_nothing(bench: Bench):
    bench.slurm.state[G[0]].flags = {"IDLE", "CLOUD", "POWERING_DOWN"}

    def gone() -> None:
        bench.slurm.unreachable = True

    run_pass(watch(bench.engine, once(SEEN, gone)))
    bench.slurm.unreachable = False
    assert bench.slurm.writes == []
    run_pass(bench.engine)
    assert bench.slurm.writes == [f"resume {G[0]}"]


@pytest.mark.parametrize("lasts", [True, False])
def test_a_node_claimed_since_the_snapshot_is_left_to_its_claimant(bench: Bench, *, lasts: bool):
    """Claim a node after the snapshot.

    The claim counts even if its process ends before the pass acts.
    """
    orphan(bench, 8, G[0])
    orphan(bench, 9, G[1])
    run = bench.engine.journal.resume_process()

    def claims() -> None:
        bench.clock.advance(0.1)
        bench.engine.journal.claim(run.__enter__(), lambda _: G[:1])
        if not lasts:
            run.__exit__(None, None, None)

    run_pass(watch(bench.engine, once(SEEN, claims)))
    assert [item.node for item in bench.cloud.live()] == [G[0]]


def test_a_node_that_a_run_claims_while_its_instance_is_to_end_keeps_it(bench: Bench):
    up(bench, 7, *G[:2])
    bench.slurm.finish(7)
    bench.slurm.power_down(list(G[:2]))
    bench.slurm.tick()

    def claims() -> None:
        bench.clock.advance(0.1)
        with bench.engine.journal.resume_process() as run:
            bench.engine.journal.claim(run, lambda _: G[:1])

    seen = watch(bench.engine, once("journal.view: done", claims))
    suspend(seen, G[:2], EndCause.SUSPEND)
    assert [item.node for item in bench.cloud.live()] == [G[0]]


def unlisted(bench: Bench, happens: Callable[[], None]) -> None:
    """Let EC2's list always fail; call `happens` at the first try."""
    todo = [happens]

    def fails() -> tuple[()]:
        bench.clock.advance(30)
        if todo:
            todo.pop()()
        raise error_codes.error("UnauthorizedOperation", "no")

    bench.cloud.instances = fails  # type: ignore[method-assign]


def test_a_run_downs_no_node_that_is_up_and_holds_no_job_that_runs(bench: Bench):
    ask = bench.slurm.start(7, G[:2])
    unlisted(bench, lambda: [bench.slurm.register(node, f"i-{node}") for node in G[:2]])
    resume(bench.engine, [ask])
    assert bench.slurm.writes == []
    assert not bench.slurm.queue[7].held
    assert bench.slurm.queue[7].comment == ""


def test_a_run_gives_back_no_node_that_another_live_run_has_claimed(bench: Bench):
    asks = [bench.slurm.start(7, G[:1]), bench.slurm.start(8, G[1:2])]
    with bench.engine.journal.resume_process() as other:
        unlisted(bench, lambda: bench.engine.journal.claim(other, lambda _: G[:1]))
        resume(bench.engine, asks)
    assert bench.slurm.queue[7].state == "RUNNING"
    assert bench.slurm.queue[8].held


def test_from_the_moment_a_run_has_begun_no_pass_gives_its_nodes_back(bench: Bench):
    """Run three passes while resume waits for EC2's list.

    EC2 may delay the launch for any time.
    """

    def passes() -> None:
        for _ in range(3):
            bench.clock.advance(15)
            bench.slurm.tick()
            run_pass(bench.engine)

    ask = bench.slurm.start(7, G[:2])
    resume(watch(bench.engine, once("cloud.instances: about to", passes)), [ask])
    assert bench.slurm.queue[7].state == "RUNNING"
    assert [item.node for item in bench.cloud.live()] == list(G[:2])


def test_nodes_of_a_job_that_is_decided_are_free_while_the_run_goes_on(bench: Bench):
    bench.cloud.capacity = dict.fromkeys((SPOT_A, SPOT_B, ON_DEMAND), 0)
    cpu = hostlist.expand("cpu-[1-2]")
    busy: list[frozenset[hostlist.NodeName]] = []

    def look(place: str) -> None:
        if place == "cloud.launch: about to":
            busy.append(bench.engine.journal.view().claimed_nodes)

    asks = [bench.slurm.start(7, G[:2]), bench.slurm.start(8, cpu)]
    resume(watch(bench.engine, look), asks)
    assert busy == [{*G[:2], *cpu}, {*G[:2], *cpu}, {*G[:2], *cpu}, set(cpu)]


def test_resume_terminates_no_instance_of_a_node_that_is_up(bench: Bench):
    """Request a node that is up together with one that is not.

    A person may ask by hand, or a process that was stopped for long. resume launches only for the
    other node.
    """
    up(bench, 7, G[0])
    bench.clock.advance(1000)
    (old,) = bench.cloud.live()
    bench.slurm.start(8, G[1:2])
    resume(bench.engine, [JobRequest(None, G[:2])])
    assert bench.slurm.queue[7].state == "RUNNING"
    assert [item.node for item in bench.cloud.live()] == list(G[:2])
    assert old in bench.cloud.live()


def test_the_time_for_finding_capacity_is_counted_from_the_begin_of_the_run(bench: Bench):
    inner, began = bench.cloud.instances, bench.clock.monotonic()

    def slow() -> tuple[Instance, ...]:
        bench.clock.advance(50)
        return inner()

    bench.cloud.instances = slow  # type: ignore[method-assign]
    bench.cloud.next_errors = [error_codes.error("RequestLimitExceeded", "slow down")] * 99
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    budget = bench.config.resume_timeout * CAPACITY_SHARE
    assert bench.clock.monotonic() - began <= budget


def test_a_node_without_an_instance_after_a_launch_is_resolved_gets_one_from_the_waiting_resume(
    bench: Bench,
):
    journal = bench.engine.journal
    with journal.resume_process() as other:
        journal.claim(other, lambda _: G[:2], to_resolve=True)
        bench.clock.sleep = lambda _: journal.release(other, G[:2])  # type: ignore[method-assign]
        resume(bench.engine, [bench.slurm.start(7, G[:3])])
    assert [item.node for item in bench.cloud.live()] == list(G[:3])


def test_resume_waits_a_bounded_time_for_anothers_resolution_of_a_launch(bench: Bench):
    journal = bench.engine.journal
    with journal.resume_process() as other:
        journal.claim(other, lambda _: G[:1], to_resolve=True)
        resume(bench.engine, [bench.slurm.start(7, G[1:2])])
        resume(bench.engine, [bench.slurm.start(8, [G[0], *G[2:4]])])
    assert [item.node for item in bench.cloud.live()] == [G[1]]


def test_nothing_is_launched_for_a_job_with_a_node_whose_launch_another_resume_resolves(
    bench: Bench,
):
    """Request a job with a node whose launch another process resolves.

    That process does not want the node, and need not find an instance for it.
    """
    journal = bench.engine.journal
    asks = [bench.slurm.start(7, G[:4]), bench.slurm.start(8, G[4:5])]
    with journal.resume_process() as other:
        journal.claim(other, lambda _: G[:1], to_resolve=True)
        resume(bench.engine, asks)
    assert [item.node for item in bench.cloud.live()] == [G[4]]
    assert bench.slurm.state[G[1]].reason == "toolkit: launch-in-doubt"
    assert "outcome is known within minutes" in bench.slurm.queue[7].comment


CPU = "on-demand:m7i.large:us-east-1a"


def test_a_run_terminates_no_instance_of_a_node_that_is_up_without_setting_that_node_down(
    bench: Bench,
):
    """Let a node register while the rest of its job fails."""
    ask = bench.slurm.start(7, [G[0], *hostlist.expand("cpu-1")])
    bench.cloud.capacity = {CPU: 0}
    launch = bench.cloud.launch

    def slowly(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        if request.pool == "cpu":
            bench.clock.advance(40)
            bench.boot()
        return launch(request, intend)

    bench.cloud.launch = slowly  # type: ignore[method-assign]
    resume(bench.engine, [ask])
    assert bench.cloud.live() == []
    assert bench.slurm.flags(G[0]) >= {"DOWN", "POWER_DOWN"}


def test_the_claim_on_an_adopted_node_is_released_at_once(bench: Bench):
    """Request an adopted node and a second job.

    The job of the adopted node may end long before this process does.
    """
    up(bench, 7, G[0])
    asks = [JobRequest(7, G[:1]), bench.slurm.start(8, G[1:2])]
    seen: list[frozenset[hostlist.NodeName]] = []
    watched = once("cloud.launch: about to", lambda: seen.append(busy(bench)))
    resume(watch(bench.engine, watched), asks)
    assert seen == [frozenset(G[1:2])]


def busy(bench: Bench) -> frozenset[hostlist.NodeName]:
    return bench.engine.journal.view().claimed_nodes


@pytest.mark.parametrize("again", [0, 1])
def test_after_a_kill_in_a_reassignment_each_node_has_one_instance_of_its_own(
    bench: Bench, again: int
):
    asks = [bench.slurm.start(7, G[:2]), bench.slurm.start(8, G[2:3])]
    bench.cloud.capacity = {SPOT_A: 1}

    def dies() -> None:
        raise Killed

    with pytest.raises(Killed):
        resume(watch(bench.engine, once("cloud.retag_nodes: done", dies)), asks)
    bench.restart()
    bench.cloud.capacity = {}
    given = bench.cloud.live()[0].id
    resume(bench.engine, [asks[again]])
    live = {item.id: item.node for item in bench.cloud.live()}
    assert len(live) == len(set(live.values()))
    assert live[given] == G[2]
    assert bench.slurm.assigned.get(given) in (None, G[2])


def test_a_job_is_told_why_also_where_slurm_does_not_say_how_its_nodes_are(bench: Bench):
    ask = bench.slurm.start(7, G[:2])
    bench.cloud.next_errors = [error_codes.error("UnauthorizedOperation", "no")] * 5

    def deaf(_names: object = None) -> NoReturn:
        raise SlurmUnreachable("socket timed out")

    bench.slurm.nodes = deaf  # type: ignore[method-assign]
    resume(bench.engine, [ask])
    assert "UnauthorizedOperation" in bench.slurm.queue[7].comment


def test_no_node_is_dropped_from_its_job_because_slurm_could_not_be_read(bench: Bench):
    up(bench, 7, G[0])
    bench.clock.advance(400)
    bench.slurm.finish(7)
    bench.slurm.state[G[0]].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    ask, nodes, left = bench.slurm.start(8, G[:2]), bench.slurm.nodes, [1] * node_queries.READ_TRIES

    def at_first_deaf(wanted: Sequence[str] | None = None) -> tuple[Node, ...]:
        if left:
            left.pop()
            raise SlurmUnreachable("socket timed out")
        return nodes(wanted)

    bench.slurm.nodes = at_first_deaf  # type: ignore[method-assign]
    resume(bench.engine, [ask])
    assert bench.slurm.queue[8].state == "PENDING"
    assert "slurm-unreachable" in bench.slurm.queue[8].comment
    assert len(bench.cloud.requests) == 1


def one_with_an_instance_from_before(bench: Bench) -> list[JobRequest]:
    """Start five jobs of one node; the third has an old instance.

    Slurm has powered that node down before.
    """
    orphan(bench, 9, G[2])
    return [bench.slurm.start(11 + turn, [node]) for turn, node in enumerate(G[:5])]


def test_an_answer_that_slurmctld_misses_costs_no_job_of_a_run_its_instances(bench: Bench):
    asks = one_with_an_instance_from_before(bench)
    (old,) = bench.cloud.live()

    def missed() -> None:
        raise SlurmUnreachable("took longer than 30 s")

    resume(watch(bench.engine, once("slurm.nodes: about to", missed)), asks)
    assert {bench.slurm.queue[ask.job or 0].state for ask in asks} == {"RUNNING"}
    assert [item.node for item in bench.cloud.live()] == [*G[:2], *G[3:5], G[2]]
    assert old not in bench.cloud.live()


def test_while_slurmctld_is_silent_resume_gives_back_only_jobs_whose_instance_must_be_terminated(
    bench: Bench,
):
    asks = one_with_an_instance_from_before(bench)
    (old,) = bench.cloud.live()
    reads: list[str] = []

    def silent(place: str) -> None:
        if place == "slurm.nodes: about to":
            reads.append(place)
            if len(reads) <= node_queries.READ_TRIES:
                raise SlurmUnreachable("took longer than 30 s")

    resume(watch(bench.engine, silent), asks)
    states = [bench.slurm.queue[ask.job or 0].state for ask in asks]
    assert states == ["RUNNING", "RUNNING", "PENDING", "RUNNING", "RUNNING"]
    assert "slurm-unreachable" in bench.slurm.queue[13].comment
    assert [item.node for item in bench.cloud.live()] == [G[2], *G[:2], *G[3:5]]
    assert old in bench.cloud.live()
    assert len(reads) == node_queries.READ_TRIES + 1  # The launches wait for no further read.
