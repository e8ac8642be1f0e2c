"""A stateful test of the engine against a hostile cloud and slurmctld.

Faults and calls come in any order. These laws hold at any time:

- At most one instance counts for a node.
- No job has half of its instances.
- Every launch is in the journal before its call.
- No instance of others is terminated.
- The launches of a job are bounded by its request until the job begins.

Two more hold within a bounded time after the faults stop: there is no orphan, and every node works
or can be used again.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slurmplugins.cloud import error_codes
from slurmplugins.errors import EngineError
from slurmplugins.launch import batching
from slurmplugins.model import hostlist
from slurmplugins.model.instance import (
    IMPAIRED_SECONDS,
    EndCause,
    Instance,
    InstanceState,
    Lifecycle,
)
from slurmplugins.model.launch import JobRequest
from slurmplugins.power_save import resume as resume_program, suspend as suspend_program
from slurmplugins.reconciler.run import run_pass
from slurmplugins.slurm import resume_file
from slurmplugins.state import unavailable_offerings
from slurmplugins.state.journal_file import JournalFile
from slurmplugins.state.launch_budget_record import (
    BUDGET_PER_NODE,
    SMALLEST_BUDGET,
    LaunchHistory,
)
from tests.fakes.boundaries import Fuse, Killed, watch
from tests.fakes.engine import ON_DEMAND, SPOT_A, SPOT_B, Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence, Set as AbstractSet

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.launch import LaunchRequest, LaunchResult
    from slurmplugins.model.node import Node

GPU = hostlist.expand("gpu-[001-006]")
CPU = hostlist.expand("cpu-[1-4]")
NODES = (*GPU, *CPU)
KEYS = [SPOT_A, SPOT_B, ON_DEMAND, "on-demand:m7i.large:us-east-1a"]
STRANGER = "i-stranger"
HOUR = 3600.0
AHEAD = 100.0
PERIOD = 15.0
"""Seconds between two passes of reconcile, as in its timer."""

PASSES = 80
QUIET = 4
"""All must be well within PASSES passes, and stay so for QUIET passes."""

ADMIN = "bad NIC, ticket 12"

HELD_UP = 20.0
"""Seconds that a program may stand still at a boundary.

After this time it may no longer act on its earlier answers.
"""

LOOKED = {
    "slurm.nodes: done",
    "journal.view: about to", "journal.view: done",
    "journal.mark_terminating_if_idle: about to", "journal.mark_terminating_if_idle: done",
}  # fmt: skip
ANSWERED = "slurm.nodes: done"
ASKING = ("slurm.jobs:", "slurm.comment:")  # the calls of the one action that takes several
"""The steps between the last read of nodes and the call that names them."""

MOMENTS = {"at": st.integers(1, 16), "seconds": st.sampled_from([0.1, HELD_UP])}

FUSES = st.none() | st.integers(0, 30)
"""The number of steps at the engine's boundary after which the process dies, or None."""


class Trouble(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._files = contextlib.ExitStack()
        # Small batches, so that some jobs take several launch calls.
        for name, most in {"MAX_SHARED_BATCH": 2, "MAX_JOB_BATCH": 3}.items():
            self._files.enter_context(mock.patch.object(batching, name, most))
        # In memory if possible: the journal's fsync is not tested here.
        fast = "/dev/shm" if Path("/dev/shm").is_dir() else None
        state = Path(self._files.enter_context(tempfile.TemporaryDirectory(dir=fast)))
        self.bench = Bench(state, nodes="gpu-[001-006]")
        self._launch, self.bench.cloud.launch = self.bench.cloud.launch, self._launched  # type: ignore[method-assign]
        self.asks: list[JobRequest] = []
        self.asked: list[JobRequest] = []
        self.jobs = 0
        self.whole: dict[int, int] = {}
        self.owner: dict[NodeName, int | None] = {}
        self.asked_by: dict[int | None, Counter[int | None]] = defaultdict(Counter)
        """For each request, the most nodes requested under each number that it was counted by."""
        self.launched_for: dict[str, list[int | None]] = {}
        self.before: Counter[int | None] = Counter()
        self.began = 0.0
        self.bench.boot = functools.partial(self._boot, self.bench.boot)  # type: ignore[method-assign]
        self.drained: set[str] = set()

    def teardown(self) -> None:
        try:
            self._calm()
        finally:
            self._files.close()

    def _launched(self, request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        """Check a launch call, then pass it to the cloud.

        Slurm must wait for each of its nodes, also on a repeated call.
        """
        if not self.bench.slurm.unreachable:
            waiting = [n for n in request.nodes if "POWERING_UP" in self.bench.slurm.flags(n)]
            assert waiting == list(request.nodes)
        if request.attempt not in self.launched_for:
            assert not self._beside(request), request
            self.launched_for[request.attempt] = [self.owner.get(node) for node in request.nodes]
        return self._launch(request, intend)

    def _beside(self, request: LaunchRequest) -> list[str]:
        """Return live instances of the request's nodes, visible to its run.

        They were listed before the run began.
        """
        machines = self.bench.cloud.machines
        return [
            item.id
            for item in self.bench.cloud.live()
            if item.id != STRANGER
            and item.node in request.nodes
            and max(item.launched_at, machines[item.id].visible_at) < self.began
        ]

    def _request(self, job: int | None) -> int | None:
        """Return a component's het job, or the job itself.

        slurmctld starts all components of a het job, or none.
        """
        return None if job is None else self.whole.get(job, job)

    def _boot(self, boot: Callable[[], None]) -> None:
        """Boot the instances; jobs may begin then."""
        boot()
        self._jobs_begin()

    def _jobs_begin(self) -> None:
        """Reset the count of jobs that have begun, and of no others.

        A job has begun once all of its nodes are up. The instances that were launched for it have
        then served their purpose. Without a beginning, time alone resets no count.
        """
        started = self._started()
        unready = {"POWERING_UP", "NOT_RESPONDING", "DOWN"}
        queue = self.bench.slurm.queue
        waiting = {
            self._request(number)
            for number, job in queue.items()
            if not job.nodes or any(self.bench.slurm.flags(node) & unready for node in job.nodes)
        }
        for request in {self._request(number) for number in queue} - waiting:
            self.before[request] = started[request]

    def _started(self) -> Counter[int | None]:
        """Count all instances that were ever launched, by their request."""
        made = Counter(
            item.instance.attempt
            for item in self.bench.cloud.machines.values()
            if item.instance.id != STRANGER
        )
        return Counter(job for key, count in made.items() for job in self.launched_for[key][:count])

    @initialize()
    def someone_elses_machine(self) -> None:
        stranger = Instance(
            id=STRANGER,
            state=InstanceState.RUNNING,
            role="compute",
            node=GPU[0],
            pool="gpu",
            partition="spot",
            attempt="x",
            type="g5.xlarge",
            zone="us-east-1a",
            lifecycle=Lifecycle.SPOT,
            address="10.9.9.9",
            price="1",
            launched_at=self.bench.clock.monotonic(),
        )
        self.bench.cloud.add(stranger, cluster="another")

    # Rules of people and Slurm

    @rule(size=st.integers(1, 4), more=st.integers(0, 2))
    def submit(self, size: int, more: int) -> None:
        """Submit a job in one pool, or in two."""
        chosen = (*self._off(GPU)[:size], *self._off(CPU)[:more])
        if len(chosen) == size + more:
            self.jobs += 1
            self.asks.append(self.bench.slurm.start(self.jobs, chosen))

    @rule(size=st.integers(1, 2), more=st.integers(1, 2))
    def submit_het_job(self, size: int, more: int) -> None:
        """Submit a het job of two components, each in its own pool."""
        parts = self._off(GPU)[:size], self._off(CPU)[:more]
        if (len(parts[0]), len(parts[1])) == (size, more):
            whole = self.jobs + 1
            for nodes in parts:
                self.jobs += 1
                self.whole[self.jobs] = whole
                self.asks.append(self.bench.slurm.start(self.jobs, nodes, whole=whole))

    @rule(size=st.integers(1, 2), more=st.integers(0, 1), late=st.booleans())
    def submit_beside(self, size: int, more: int, late: bool) -> None:
        """Submit a job on others' nodes and some of its own.

        The others' nodes are powering up. If `late`, the first call of ResumeProgram names only its
        own.
        """
        waking = {"ALLOCATED", "POWERING_UP"}
        there = [name for name in NODES if self.bench.slurm.flags(name) >= waking][:size]
        chosen = (*there, *self._off(GPU)[:1], *self._off(CPU)[:more])
        if there and len(chosen) == len(there) + 1 + more:
            self.jobs += 1
            ask = self.bench.slurm.start(self.jobs, chosen)
            own = tuple(node for node in chosen if node not in there)
            self.asks.append(JobRequest(ask.job, own) if late else ask)

    @rule(size=st.integers(1, 2), more=st.integers(1, 2), beside=st.booleans(), fuse=FUSES)
    def submit_whole_and_resume(self, size: int, more: int, beside: bool, fuse: int | None) -> None:
        """Submit a het job, and maybe another on one of its nodes."""
        self.submit_het_job(size, more)
        if beside:
            self.submit_beside(size, 0, late=False)
        self.resume(fuse)

    def _off(self, nodes: Sequence[NodeName]) -> list[NodeName]:
        idle = {"IDLE", "POWERED_DOWN"}
        return [n for n in nodes if self.bench.slurm.flags(n) & {*idle, "DRAIN"} == idle]

    @rule()
    def finish_or_cancel(self) -> None:
        """End the first job; a het job ends with all its components."""
        queue = self.bench.slurm.queue
        first = next(iter(queue.values()), None)
        whole = first and first.whole
        for job in [
            n for n, job in queue.items() if job is first or (whole and job.whole == whole)
        ]:
            self.bench.slurm.finish(job)

    @rule()
    def requeued_jobs_start_again(self) -> None:
        self.asks += self.bench.slurm.schedule()
        self._jobs_begin()  # on nodes that others left up

    @rule()
    def idle_nodes_are_powered_down(self) -> None:
        up = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "ALLOCATED"}
        idle = [name for name in NODES if not self.bench.slurm.flags(name) & up]
        if idle and not self.bench.slurm.unreachable:
            self.bench.slurm.power_down(idle)

    @rule()
    def a_person_releases_what_is_held(self) -> None:
        started = self._started()
        for number, job in self.bench.slurm.queue.items():
            if job.held:
                self.bench.slurm.release(number)
                self.before[self._request(number)] = started[self._request(number)]

    @rule(seconds=st.sampled_from([1, 5, 20, 70, 200]))
    def time_passes(self, seconds: int) -> None:
        self.bench.clock.advance(seconds)
        self.bench.slurm.tick()

    @rule()
    def machines_boot(self) -> None:
        self.bench.boot()

    # Rules of the engine

    def _told(self, wanted: Sequence[JobRequest]) -> tuple[JobRequest, ...]:
        """Return the requests of the file that slurmctld writes for one call.

        A job's entry has the nodes of its allocation that the call powers up. A node may be in the
        entries of two jobs, of which one waits for the other's instance. slurmctld reads the
        allocations as it writes the file (power_save.c). So a node that a job has lost to another
        is in no entry of that job.
        """
        woken = {node for ask in wanted for node in ask.nodes}
        allocations = {
            ask.job: woken.intersection(job.nodes)
            for ask in wanted
            if (job := self.bench.slurm.queue.get(ask.job or 0))
        }
        allocated = {node for job in self.bench.slurm.queue.values() for node in job.nodes}
        jobs = []
        for ask in wanted:
            nodes = allocations.get(ask.job, set()).union(set(ask.nodes) - allocated)
            if nodes:
                compressed = hostlist.compress(sorted(nodes))
                jobs.append(
                    {"job_id": ask.job, "nodes_resume": compressed, "partition": ask.partition}
                )
        return resume_file.job_requests(json.dumps({"jobs": jobs}).encode(), "")

    @rule(fuse=FUSES)
    def resume(self, fuse: int | None) -> None:
        self.asked, self.asks = self.asks or self.asked, []
        self._resume(self.asked, fuse)

    @rule()
    def slurmctld_loses_its_call(self) -> None:
        """Restart slurmctld between saving its state and starting ResumeProgram."""
        self.asks = []

    @rule(size=st.integers(1, 4), more=st.integers(0, 2), fuse=FUSES)
    def submit_and_resume(self, size: int, more: int, fuse: int | None) -> None:
        self.submit(size, more)
        self.resume(fuse)

    @rule(
        size=st.integers(1, 4), late=st.booleans(), lag=st.sampled_from([0.0, 60.0]),
        wait=st.sampled_from([1, 15, 40]),
    )  # fmt: skip
    def nothing_answers_and_the_job_is_tried_again(
        self, size: int, late: bool, lag: float, wait: int
    ) -> None:
        """Start the job again before lists show the unanswered call's instances."""
        self.bench.cloud.lag = lag
        self.bench.cloud.lose_answers, self.bench.cloud.late_effects = 6, 6 * late
        self.submit_and_resume(size, 0, None)
        self.bench.cloud.lose_answers = self.bench.cloud.late_effects = 0
        self.bench.clock.advance(wait)
        self.bench.slurm.tick()
        if not self.bench.slurm.unreachable:
            self.reconcile(None)
        self.requeued_jobs_start_again()
        self.resume(None)

    @rule(
        size=st.integers(1, 4), silent=st.integers(1, 2),
        code=st.sampled_from(["SlowDown", "UnauthorizedOperation", "NeverSeenBefore"]),
        lag=st.sampled_from([0.0, 60.0]), wait=st.sampled_from([1, 15, 40]),
    )  # fmt: skip
    def answers_are_lost_among_errors_and_the_job_is_tried_again(
        self, size: int, silent: int, code: str, lag: float, wait: int
    ) -> None:
        """Fail the repeated call after the answer to the first was lost.

        EC2's error need not be about the first call.
        """
        said = error_codes.error(code, "trouble")
        self.bench.cloud.lag = lag
        self.bench.cloud.lose_answers = silent
        self.bench.cloud.next_errors = [*[None] * silent, *[said] * 12]
        self.submit_and_resume(size, 0, None)
        self.bench.cloud.lose_answers, self.bench.cloud.next_errors = 0, [said]
        self.bench.clock.advance(wait)
        self.requeued_jobs_start_again()
        self.resume(None)

    @rule(size=st.integers(1, 4), rounds=st.integers(2, 10))
    def one_of_two_pools_has_nothing_and_the_job_is_tried_again(
        self, size: int, rounds: int
    ) -> None:
        """Requeue a job several times while one of its pools is empty.

        Each try launches the instances of one pool. It terminates them, since the other pool has no
        capacity.
        """
        last_job = self.jobs
        self.bench.cloud.capacity = {KEYS[-1]: 0}
        self.submit_and_resume(size, 1, None)
        self.bench.cloud.capacity = {}
        if (job := self.jobs) == last_job:  # too few nodes are free
            return
        for _ in range(rounds):
            self.bench.clock.advance(unavailable_offerings.CAPACITY_SECONDS + 1)
            self.bench.slurm.tick()
            self.suspend(None)
            self.reconcile(None)
            state = self.bench.slurm.queue.get(job)
            chosen = (*self._off(GPU)[:size], *self._off(CPU)[:1])
            if state is None or state.state != "PENDING" or state.held or len(chosen) <= size:
                return
            self.bench.cloud.capacity = {KEYS[-1]: 0}
            self.asks.append(self.bench.slurm.start(job, chosen))
            self.resume(None)
            self.bench.cloud.capacity = {}

    @rule(size=st.integers(1, 2), rounds=st.integers(1, 6))
    def nothing_ends_and_jobs_come_back(self, size: int, rounds: int) -> None:
        self.bench.cloud.end_error = error_codes.error("UnauthorizedOperation", "not yours")
        self.submit_and_resume(size, 0, None)
        for _ in range(rounds):
            self.bench.clock.advance(200)
            self.bench.slurm.tick()
            self.resume_fail(None)
            self.suspend(None)
            self.reconcile(None)
            self.requeued_jobs_start_again()
            self.resume(None)

    @rule(size=st.integers(1, 4), at=st.integers(0, 12))
    def two_runs_overlap(self, size: int, at: int) -> None:
        """Start ResumeProgram again while its first run is under way."""
        self.submit(size, 0)
        self.asked, self.asks = self.asks or self.asked, []
        passed = itertools.count()

        def interfere(_place: str) -> None:
            if next(passed) == at:
                self._resume(self.asked, None)

        with contextlib.suppress(EngineError):
            resume_program.resume(watch(self.bench.engine, interfere), self._told(self.asked))

    @rule(
        scene=st.sampled_from(
            ["nobody came", "impaired", "powering down", "powered down", "interrupted"]
        ),
        what=st.sampled_from(["resume", "boot", "drain", "suspend"]),
        **MOMENTS,
    )
    def others_act_while_reconcile_runs(
        self, scene: str, what: str, at: int, seconds: float
    ) -> None:
        if scene == "nobody came":
            self.submit(2, 0)
            self.reconcile(None)
            self.bench.clock.advance(self.bench.config.missing_instance_grace)
        elif scene == "impaired":
            self._machines_boot_badly()
        elif scene == "interrupted":
            self.interruption(0, 0.0)
        else:
            self._a_job_has_left(late=scene == "powered down")
        self._interrupted(run_pass, what, at, seconds)

    @rule(
        late=st.booleans(),
        what=st.sampled_from(["resume", "boot", "drain", "reconcile"]),
        **MOMENTS,
    )
    def others_act_while_suspend_runs(self, late: bool, what: str, at: int, seconds: float) -> None:
        self._a_job_has_left(late=late)
        nodes, self.bench.slurm.suspended = self.bench.slurm.suspended, []
        self._interrupted(
            lambda engine: suspend_program.suspend(engine, nodes, EndCause.SUSPEND),
            what,
            at,
            seconds,
        )

    def _machines_boot_badly(self) -> None:
        """Impair instances for so long that a pass gives their nodes back."""
        self.submit_and_resume(2, 0, None)
        self.bench.clock.advance(1)
        for machine in self.bench.cloud.live():
            if machine.id != STRANGER:
                self.bench.cloud.impair(machine.id)
        self.bench.clock.advance(IMPAIRED_SECONDS)

    def _a_job_has_left(self, *, late: bool) -> None:
        """Let a job end and power its nodes down.

        If `late`, its instances have become orphans.
        """
        self.machines_boot()
        self.finish_or_cancel()
        self.idle_nodes_are_powered_down()
        self.bench.slurm.tick()
        if late:
            self.bench.clock.advance(self.bench.config.orphan_grace + 1)
            self.bench.slurm.tick()

    def _interrupted(
        self, program: Callable[[Engine], None], what: str, at: int, seconds: float
    ) -> None:
        """Run a program while others act at one of its boundaries.

        - An instance is kept if resume has it meanwhile for a node that Slurm waits for.
        - After a long stop since Slurm's last answer, the program changes no further node. The call
          that it was at goes on, and so do changes of nodes that it reads again.
        - The program can't see a change by a person or slurmctld between a read and a call. Such
          changes are left out.
        """
        passed: list[str] = []
        writes: list[int] = []
        given: dict[str, NodeName | None] = {}

        def interfere(place: str) -> None:
            passed.append(place)
            if len(passed) != at:
                return
            about_to = place.startswith("slurm.") and place.endswith("about to")
            under_way = about_to or place.startswith(ASKING)
            looks_again = place in LOOKED and passed.count(ANSWERED) > 1
            unseen = under_way or looks_again
            if what == "suspend" and unseen:
                return
            if what == "drain" and (unseen or (place in LOOKED and seconds < HELD_UP)):
                return
            self.bench.clock.advance(seconds)
            self._acts(what)
            if what == "resume":
                asked = {node for ask in self.asked for node in ask.nodes}
                awaited = {n for n in asked if "POWERING_UP" in self.bench.slurm.flags(n)}
                given.update((i.id, i.node) for i in self._counting() if i.node in awaited)
            writes.append(len(self.bench.slurm.writes) + (under_way or looks_again))

        with contextlib.suppress(EngineError):
            program(watch(watch(self.bench.engine, self._nothing_of_use_ends()), interfere))
        # A head node whose clock is far ahead of EC2's takes every boot for one that is too long.
        if self.bench.clock.now() - self.bench.clock.monotonic() < AHEAD:
            assert given.keys() <= {item.id for item in self._counting()}, given
        if writes and seconds == HELD_UP and ANSWERED in passed[: at - 1]:
            assert self.bench.slurm.writes[writes[0] :] == []

    def _nothing_of_use_ends(self) -> Callable[[str], None]:
        """Return a step that checks terminations against Slurm's answers.

        In the last answer before a termination, the node must not be up on the instance. Unless the
        node powers down, no person may have given it a reason since the first answer.
        """
        looks: list[dict[str, Node]] = []
        known: list[AbstractSet[str]] = []

        def step(place: str) -> None:
            if place == ANSWERED:
                looks.append({node.name: node for node in self.bench.slurm.nodes()})
            elif place.startswith("journal.mark_terminating_if_idle:"):
                known.append(self.bench.engine.journal.view().termination_causes.keys())
            elif place == "cloud.terminate: about to":
                for then, since in zip(known[::2], known[1::2], strict=True):
                    for instance_id in since - then:
                        name = self.bench.cloud.machines[instance_id].instance.node or ""
                        before, now = looks[0][name], looks[-1][name]
                        assert not (now.up and now.instance_id == instance_id), now
                        theirs = not now.reason_is_ours and now.reason != before.reason
                        assert before.powering_off or now.powering_off or not theirs, now

        return step

    def _acts(self, what: str) -> None:
        if what == "resume":
            self.submit_and_resume(2, 0, None)
        elif what == "boot":
            self.machines_boot()
        elif what == "drain":
            self.an_admin_drains(0)
        elif what == "suspend":
            self.bench.slurm.tick()
            self.suspend(None)
        else:
            self.reconcile(None)

    @rule(which=st.integers(0, 5))
    def an_admin_drains(self, which: int) -> None:
        """Drain a node that is up or on its way down."""
        if self.bench.slurm.unreachable:
            return
        unfit = {"POWERING_UP", "DOWN", "DRAIN"}
        nodes = [name for name in NODES if not self.bench.slurm.flags(name) & unfit]
        for name in nodes[which : which + 1]:
            self.bench.slurm.drain([name], ADMIN)
            self.drained.add(name)

    @precondition(lambda self: self.still_wanted())
    @rule(fuse=FUSES)
    def resume_again(self, fuse: int | None) -> None:
        """Repeat the call of ResumeProgram, as a restarted slurmctld does."""
        self._resume(self.still_wanted(), fuse)

    def still_wanted(self) -> list[JobRequest]:
        return [
            ask
            for ask in self.asked
            if all("POWERING_UP" in self.bench.slurm.flags(node) for node in ask.nodes)
        ]

    @rule(fuse=FUSES)
    def suspend(self, fuse: int | None) -> None:
        nodes, self.bench.slurm.suspended = self.bench.slurm.suspended, []
        with self._engine(fuse) as engine:
            suspend_program.suspend(engine, nodes, EndCause.SUSPEND)

    @rule()
    def suspend_is_never_called(self) -> None:
        self.idle_nodes_are_powered_down()
        self.bench.slurm.tick()
        self.bench.slurm.suspended = []

    @rule(fuse=FUSES)
    def resume_fail(self, fuse: int | None) -> None:
        nodes, self.bench.slurm.resume_failed = self.bench.slurm.resume_failed, []
        with self._engine(fuse) as engine:
            suspend_program.suspend(engine, nodes, EndCause.RESUME_FAILED)

    @rule(fuse=FUSES)
    def reconcile(self, fuse: int | None) -> None:
        with self._engine(fuse) as engine:
            run_pass(engine)

    @contextlib.contextmanager
    def _engine(self, fuse: int | None):
        """Yield the engine for one run of a program.

        With a fuse, the process may die in the middle.
        """
        if fuse is None:
            with contextlib.suppress(EngineError):
                yield self.bench.engine
            return
        with contextlib.suppress(EngineError, Killed):
            yield watch(self.bench.engine, Fuse(fuse))
        self.bench.restart()

    def _resume(self, wanted: Sequence[JobRequest], fuse: int | None) -> None:
        asks = self._told(wanted)
        sizes: Counter[tuple[int | None, int | None]] = Counter()
        for ask in asks:
            request = self._request(ask.job)
            self.owner.update(dict.fromkeys(ask.nodes, request))
            # If slurmctld can't be read, a component counts as a job of its own.
            counted = ask.job if self.bench.slurm.unreachable else request
            sizes[request, counted] += len(ask.nodes)
        for (request, counted), size in sizes.items():
            self.asked_by[request][counted] = max(self.asked_by[request][counted], size)
        self.began = self.bench.clock.monotonic()
        before, seen = set(self.bench.cloud.machines), self.bench.cloud.seen_live()
        wanted, settled = self._wanted(), set(self.launched_for)
        with self._engine(fuse) as engine:
            resume_program.resume(engine, asks)
        if fuse is None and not self.bench.cloud.unreadable:
            self._no_job_is_half_launched(asks, before, seen)
            self._no_instance_is_for_nobody(before, wanted, settled)

    def _wanted(self) -> set[NodeName]:
        jobs = self.bench.slurm.queue.values()
        return {node for job in jobs if job.state == "RUNNING" for node in job.nodes}

    def _no_instance_is_for_nobody(
        self, before: set[str], wanted: set[NodeName], settled: set[str]
    ) -> None:
        """Check that a run keeps no instance for jobs given back.

        Only instances that the run itself launched count, with these exceptions:

        - Another run gives back the nodes that it has claimed.
        - The instances of an unresolved launch are resolved later.
        - An instance of an earlier unresolved launch, in `settled`, is left. The next run uses it,
          or reconcile terminates it.
        - An instance that EC2 refused to terminate is left. The journal has it as terminated.
        """
        claims = self.bench.engine.journal.view()
        fresh = {
            item.node
            for item in self._counting()
            if item.id not in before | claims.termination_causes.keys()
            and item.attempt not in settled
        }
        fresh -= claims.claimed_nodes | claims.unresolved_nodes
        assert fresh & wanted <= self._wanted(), sorted(fresh & wanted - self._wanted())

    def _no_job_is_half_launched(
        self, asks: Sequence[JobRequest], before: set[str], seen: Mapping[str, str | None]
    ) -> None:
        """Check that a run launched all instances of a job, or none.

        The job keeps its nodes; other jobs are checked by `_no_instance_is_for_nobody`. Instances
        count as far as the run could see them.

        - An instance that has just ended may still be listed as live, unless we terminated it.
        - A new instance may be missing from lists.
        - A run that can't list launches nothing. It may resolve an earlier launch, whose instance
          is left for the next run or for reconcile.
        - A node that another run has claimed is that run's to launch, or to give back with its job.
        - A node whose instance is being terminated is given back with its job. So is a node of an
          unresolved launch.
        """
        claims = self.bench.engine.journal.view()
        unsure = claims.unresolved_nodes.union(
            item.node for item in claims.recent_terminations.values()
        )
        counting = self._counting()
        fresh = {item.node for item in counting if item.id not in before}
        could_see = {seen[machine] for machine in seen.keys() - claims.termination_causes.keys()}
        could_see.update(self.bench.cloud.seen_live().values())
        there = {item.node for item in counting} | could_see | claims.claimed_nodes
        queue = self.bench.slurm.queue
        running = {number: job.nodes for number, job in queue.items() if job.state == "RUNNING"}
        for ask in asks:
            nodes = set(ask.nodes)
            if not nodes <= set(running.get(ask.job or 0, ())):
                continue
            if nodes & fresh and not nodes & unsure:
                assert nodes <= there, (ask, sorted(there))

    # Rules of faults

    @rule(key=st.sampled_from(KEYS), left=st.integers(0, 3))
    def capacity(self, key: str, left: int) -> None:
        self.bench.cloud.capacity[key] = left

    @rule()
    def capacity_returns(self) -> None:
        self.bench.cloud.capacity = {}

    @rule()
    def half_a_launch_is_found(self) -> None:
        self.bench.cloud.partials = 1

    @rule(code=st.sampled_from(["RequestLimitExceeded", "Unreachable", "UnauthorizedOperation"]))
    def one_error(self, code: str) -> None:
        self.bench.cloud.next_errors.append(error_codes.error(code, "trouble"))

    @rule(
        code=st.sampled_from(["", "UnauthorizedOperation", "RequestLimitExceeded", "InternalError"])
    )
    def ends_are_refused(self, code: str) -> None:
        self.bench.cloud.end_error = error_codes.error(code, "trouble") if code else None

    @rule(on=st.booleans())
    def request_rates(self, on: bool) -> None:
        self.bench.cloud.throttle.enabled = on

    @rule(answers=st.integers(1, 6))
    def answers_are_lost(self, answers: int) -> None:
        self.bench.cloud.lose_answers = answers

    @rule(delay=st.sampled_from([2.0, 20.0]), calls=st.integers(1, 6))
    def calls_happen_after_they_failed(self, delay: float, calls: int) -> None:
        self.bench.cloud.delay, self.bench.cloud.late_effects = delay, calls

    @rule(
        lag=st.sampled_from([0.0, 10.0, 60.0]), stale=st.sampled_from([0.0, 5.0, 30.0]),
        tags=st.sampled_from([0.0, 20.0]),
    )  # fmt: skip
    def listings_lag(self, lag: float, stale: float, tags: float) -> None:
        self.bench.cloud.lag, self.bench.cloud.stale = lag, stale
        self.bench.cloud.tag_lag = tags

    @rule(which=st.integers(0, 5), notice=st.sampled_from([0.0, 120.0]))
    def interruption(self, which: int, notice: float) -> None:
        for machine in self._pick(which):
            self.bench.cloud.interrupt(machine.id, notice=notice)
            if notice:
                self.bench.cloud.give_notice(machine.id)

    @rule(which=st.integers(0, 5))
    def someone_terminates_by_hand(self, which: int) -> None:
        for machine in self._pick(which):
            self.bench.cloud.end(machine.id, "Client.UserInitiatedShutdown")

    @rule(which=st.integers(0, 5))
    def a_machine_never_comes_up(self, which: int) -> None:
        for machine in self._pick(which):
            self.bench.duds.add(machine.id)

    @rule(which=st.integers(0, 5), saved=st.sampled_from(["POWERING_UP", "POWERED_DOWN"]))
    def slurmctld_is_killed_before_it_saved_a_node(self, which: int, saved: str) -> None:
        slurm = self.bench.slurm
        up = [name for name in NODES if slurm.flags(name) == {"ALLOCATED", "CLOUD"}]
        slurm.killed(up[which : which + 1], saved=saved)

    @rule(seconds=st.sampled_from([-60.0, 30.0, HOUR]))
    def the_clock_is_set(self, seconds: float) -> None:
        self.bench.clock.jump(seconds)

    @rule(cloud=st.booleans(), slurm=st.booleans())
    def blindness(self, cloud: bool, slurm: bool) -> None:
        self.bench.cloud.unreadable, self.bench.slurm.unreachable = cloud, slurm

    def _pick(self, which: int) -> list[Instance]:
        live = [item for item in self.bench.cloud.live() if item.id != STRANGER]
        return [live[which % len(live)]] if live else []

    # Laws

    def _counting(self) -> list[Instance]:
        """Return our running instances that are not to be terminated."""
        ended = self.bench.engine.journal.view().termination_causes
        return [
            item for item in self.bench.cloud.live() if item.id != STRANGER and item.id not in ended
        ]

    @invariant()
    def no_node_has_two_machines(self) -> None:
        counted = [item.node for item in self._counting()]
        assert len(counted) == len(set(counted)), counted

    @invariant()
    def no_node_is_said_to_be_two_machines(self) -> None:
        assigned = [i.node for i in self._counting() if i.id in self.bench.slurm.assigned]
        assert len(assigned) == len(set(assigned)), assigned

    @invariant()
    def what_is_not_ours_lives(self) -> None:
        assert self.bench.cloud.machines[STRANGER].over_at is None

    @invariant()
    def every_launch_is_in_the_journal(self) -> None:
        intents = {
            item["attempt"]
            for item in JournalFile(self.bench.engine.state / "journal.jsonl").read()[1]
            if item["kind"] == "intent"
        }
        assert {item.attempt for item in self.bench.cloud.requests} <= intents

    @invariant()
    def launches_of_a_job_that_does_not_begin_are_bounded_by_what_it_asks(self) -> None:
        """Check each job against its launch budget and one more run.

        That run may launch and terminate instances on its way through the fallback order.
        """
        for request, started in (self._started() - self.before).items():
            if request is not None:
                asked = self.asked_by[request].values()
                budget = sum(max(SMALLEST_BUDGET, BUDGET_PER_NODE * size) for size in asked)
                assert started <= budget + sum(asked), (request, started, asked)

    @invariant()
    def what_an_admin_has_drained_stays_so(self) -> None:
        for name in self.drained:
            assert "DRAIN" in self.bench.slurm.flags(name), name
            assert self.bench.slurm.state[name].reason == ADMIN, name

    # The end of the faults

    def _calm(self) -> None:
        """End all faults; some minutes of normal work must put everything right."""
        bench = self.bench
        bench.cloud.calm()
        for job, state in bench.slurm.queue.items():
            if state.held:
                bench.slurm.release(job)
        self.blindness(cloud=False, slurm=False)
        self.asked = self.still_wanted()
        bench.slurm.resume(sorted(self.drained))
        self.drained.clear()
        quiet = 0
        for _ in range(PASSES):
            self.requeued_jobs_start_again()
            self.resume(None)
            self.asked = []
            bench.clock.advance(PERIOD)
            self.machines_boot()
            bench.slurm.tick()
            self.suspend(None)
            self.resume_fail(None)
            self.reconcile(None)
            self.no_node_has_two_machines()
            quiet = 0 if list(self._unwell()) else quiet + 1
            if quiet == QUIET:
                return
        raise AssertionError(list(self._unwell()))

    def _unwell(self) -> Iterator[str]:
        bench = self.bench
        ours = [item for item in bench.cloud.live() if item.id != STRANGER]
        live = {item.node for item in ours}
        if len(ours) != len(live):
            yield f"two machines for a node: {sorted(item.node or '' for item in ours)}"
        unsettled = {"DOWN", "DRAIN", "POWERING_UP", "POWERING_DOWN", "POWER_DOWN"}
        for name in NODES:
            flags = bench.slurm.flags(name)
            if flags >= {"ALLOCATED", "POWER_DOWN"} and name in live:
                continue  # asked for an earlier instance: the node powers down after its job
            if flags & unsettled or (name in live) == ("POWERED_DOWN" in flags):
                yield f"{name} is {sorted(flags)}, its machine {name in live}"
        for number, job in bench.slurm.queue.items():
            if job.state != "PENDING" and not live.issuperset(job.nodes):
                yield f"job {number} has lost a machine"


if os.environ.get("HYPOTHESIS_PROFILE", "ci") == "ci":
    Trouble.TestCase.settings = settings(
        settings(),
        max_examples=250,
        stateful_step_count=30,
        phases=[Phase.explicit, Phase.generate],
    )
TestEngine = Trouble.TestCase


@pytest.mark.parametrize("is_limited", [True, False])
def test_the_law_on_launches_breaks_without_a_launch_budget_and_only_then(*, is_limited: bool):
    """Run a launch-and-end loop with and without the budget."""
    machine = Trouble()
    budget = LaunchHistory.budget if is_limited else property(lambda _: 10**9)
    with mock.patch.object(LaunchHistory, "budget", budget):
        machine.someone_elses_machine()
        machine.one_of_two_pools_has_nothing_and_the_job_is_tried_again(size=2, rounds=10)
    with contextlib.nullcontext() if is_limited else pytest.raises(AssertionError):
        machine.launches_of_a_job_that_does_not_begin_are_bounded_by_what_it_asks()
    machine.teardown()
