"""The engine against a cloud and a slurmctld that do their worst, in any order.

What must hold whatever happens: at most one machine that counts for a node; nothing of others is
ended; and once the trouble stops, within a bounded time, no orphan, no half-launched job, and
every node either works or can be used again.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slurmplugins import bursting, names, reconcile
from slurmplugins.cloud import codes
from slurmplugins.errors import EngineError
from slurmplugins.model import EndCause, Instance, InstanceState, JobAsk, Lifecycle
from tests.fakes.engine import ON_DEMAND, SPOT_A, SPOT_B, Bench

NODES = names.expand("gpu-[001-006]")
KEYS = [SPOT_A, SPOT_B, ON_DEMAND]
STRANGER = "i-stranger"


class Killed(BaseException):
    """kill -9, at whatever call comes next."""


class Trouble(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._files = contextlib.ExitStack()
        # In memory where there is such a place: the journal's fsync is not what is tested here.
        fast = "/dev/shm" if Path("/dev/shm").is_dir() else None
        state = Path(self._files.enter_context(tempfile.TemporaryDirectory(dir=fast)))
        self.bench = Bench(state)
        self.asks: list[JobAsk] = []
        self.asked: list[JobAsk] = []
        self.jobs = 0

    def teardown(self) -> None:
        try:
            self._calm()
        finally:
            self._files.close()

    @initialize()
    def someone_elses_machine(self) -> None:
        stranger = Instance(
            id=STRANGER,
            state=InstanceState.RUNNING,
            role="compute",
            node=NODES[0],
            pool="gpu",
            partition="spot",
            attempt="x",
            type="g5.xlarge",
            zone="us-east-1a",
            lifecycle=Lifecycle.SPOT,
            address="10.9.9.9",
            price="1",
            launched_at=self.bench.clock.now(),
        )
        self.bench.cloud.add(stranger, cluster="another")

    # What people and Slurm do

    @rule(size=st.integers(1, 4))
    def submit(self, size: int) -> None:
        free = [name for name in NODES if self.bench.slurm.flags(name) >= {"IDLE", "POWERED_DOWN"}]
        if len(free) >= size:
            self.jobs += 1
            self.asks.append(self.bench.slurm.start(self.jobs, free[:size]))

    @rule()
    def finish_or_cancel(self) -> None:
        for job, state in list(self.bench.slurm.queue.items())[:1]:
            del state
            self.bench.slurm.finish(job)

    @rule()
    def idle_nodes_are_powered_down(self) -> None:
        up = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "ALLOCATED"}
        idle = [name for name in NODES if not self.bench.slurm.flags(name) & up]
        if idle and not self.bench.slurm.unreachable:
            self.bench.slurm.power_down(idle)

    @rule(seconds=st.sampled_from([1, 5, 20, 70, 200]))
    def time_passes(self, seconds: int) -> None:
        self.bench.clock.advance(seconds)
        self.bench.slurm.tick()

    @rule()
    def machines_boot(self) -> None:
        self.bench.boot()

    # What the engine does

    @rule()
    def resume(self) -> None:
        self.asked, self.asks = self.asks or self.asked, []
        with contextlib.suppress(EngineError):
            bursting.resume(self.bench.engine, self.asked)

    @rule(size=st.integers(1, 4))
    def submit_and_resume(self, size: int) -> None:
        self.submit(size)
        self.resume()

    @precondition(lambda self: self.still_wanted())
    @rule()
    def resume_again(self) -> None:
        """A slurmctld that restarts asks a second time."""
        with contextlib.suppress(EngineError):
            bursting.resume(self.bench.engine, self.still_wanted())

    def still_wanted(self) -> list[JobAsk]:
        return [
            ask
            for ask in self.asked
            if all("POWERING_UP" in self.bench.slurm.flags(node) for node in ask.nodes)
        ]

    @rule(after=st.integers(0, 3), lag=st.sampled_from([0.0, 60.0]))
    def resume_killed(self, after: int, lag: float) -> None:
        """Between the journal and the cloud's answer, or after it."""
        self.submit(2)
        self.bench.cloud.lag = lag
        self.asked, self.asks = self.asks, []
        cloud, launch, count = self.bench.cloud, self.bench.cloud.launch, [0]

        def mortal(request):
            count[0] += 1
            if count[0] > after // 2:
                if after % 2:
                    with contextlib.suppress(EngineError):
                        launch(request)
                raise Killed
            return launch(request)

        cloud.launch = mortal  # type: ignore[method-assign]
        try:
            with contextlib.suppress(EngineError, Killed):
                bursting.resume(self.bench.engine, self.asked)
        finally:
            cloud.launch = launch  # type: ignore[method-assign]

    @rule()
    def suspend(self) -> None:
        nodes, self.bench.slurm.suspended = self.bench.slurm.suspended, []
        with contextlib.suppress(EngineError):
            bursting.suspend(self.bench.engine, nodes, EndCause.SUSPEND)

    @rule()
    def power_down_and_suspend_killed(self) -> None:
        self.idle_nodes_are_powered_down()
        self.bench.slurm.tick()
        self.bench.slurm.suspended = []

    @rule()
    def resume_fail(self) -> None:
        nodes, self.bench.slurm.resume_failed = self.bench.slurm.resume_failed, []
        with contextlib.suppress(EngineError):
            bursting.suspend(self.bench.engine, nodes, EndCause.RESUME_FAILED)

    @rule()
    def reconcile(self) -> None:
        with contextlib.suppress(EngineError):
            reconcile.run(self.bench.engine)

    # Trouble

    @rule(key=st.sampled_from(KEYS), left=st.integers(0, 3))
    def capacity(self, key: str, left: int) -> None:
        self.bench.cloud.capacity[key] = left

    @rule()
    def capacity_returns(self) -> None:
        self.bench.cloud.capacity = {}

    @rule(code=st.sampled_from(["RequestLimitExceeded", "Unreachable", "UnauthorizedOperation"]))
    def one_error(self, code: str) -> None:
        self.bench.cloud.next_errors.append(codes.error(code, "trouble"))

    @rule(answers=st.integers(1, 6))
    def answers_are_lost(self, answers: int) -> None:
        self.bench.cloud.lose_answers = answers

    @rule(lag=st.sampled_from([0.0, 10.0, 60.0]))
    def listings_lag(self, lag: float) -> None:
        self.bench.cloud.lag = lag

    @rule(which=st.integers(0, 5))
    def interruption(self, which: int) -> None:
        live = [item for item in self.bench.cloud.live() if item.id != STRANGER]
        if live:
            self.bench.cloud.interrupt(live[which % len(live)].id)

    @rule(cloud=st.booleans(), slurm=st.booleans())
    def blindness(self, cloud: bool, slurm: bool) -> None:
        self.bench.cloud.unreadable, self.bench.slurm.unreachable = cloud, slurm

    # Laws

    @invariant()
    def no_node_has_two_machines(self) -> None:
        ended = self.bench.engine.journal.claims().ended
        counted = [
            item.node
            for item in self.bench.cloud.live()
            if item.id != STRANGER and item.id not in ended
        ]
        assert len(counted) == len(set(counted)), counted

    @invariant()
    def what_is_not_ours_lives(self) -> None:
        assert self.bench.cloud.machines[STRANGER].over_at is None

    @invariant()
    def every_launch_is_in_the_journal(self) -> None:
        intents = {
            item["attempt"]
            for item in self.bench.engine.journal._records()
            if item["kind"] == "intent"
        }
        assert {item.attempt for item in self.bench.cloud.requests} <= intents

    def _calm(self) -> None:
        """The trouble is over: some minutes of normal life must put everything right."""
        bench = self.bench
        bench.cloud.capacity, bench.cloud.next_errors = {}, []
        bench.cloud.lose_answers, bench.cloud.lag = 0, 0.0
        self.blindness(cloud=False, slurm=False)
        self.asked = self.still_wanted()
        for _ in range(40):
            self.resume()
            self.asked = []
            bench.clock.advance(15)
            self.machines_boot()
            bench.slurm.tick()
            self.suspend()
            self.resume_fail()
            self.reconcile()
        self._all_is_well()

    def _all_is_well(self) -> None:
        bench = self.bench
        live = {item.node: item for item in bench.cloud.live() if item.id != STRANGER}
        for name in NODES:
            flags = bench.slurm.flags(name)
            settled = {"IDLE", "POWERED_DOWN"} if name not in live else set()
            assert flags >= settled, (name, flags)
            assert not flags & {"DOWN", "DRAIN", "POWERING_UP"}, (name, flags)
            assert (name in live) == (not flags & {"POWERED_DOWN", "POWERING_DOWN"}), (name, flags)
        for job in bench.slurm.queue.values():
            assert job.state == "PENDING" or all(name in live for name in job.nodes), job


Trouble.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # Shrinking takes minutes; to shrink a failure, add Phase.shrink for one run.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TestEngine = Trouble.TestCase
