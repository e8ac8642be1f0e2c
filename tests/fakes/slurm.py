"""A slurmctld with the power-saving states of 24.11.

They were seen on a real one. States move on `tick`. A real controller accepts power_down for a
powered-down node, whose flag POWER_DOWN then sticks. Here the call fails, so that no plan relies on
it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurmplugins.errors import SlurmRefused, SlurmUnreachable
from slurmplugins.model.hostlist import NodeName, compress
from slurmplugins.model.launch import JobRequest
from slurmplugins.model.node import EndedJob, Job, Node
from slurmplugins.slurm.scontrol import append_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.model.instance import Assignment
    from tests.fakes.clock import FakeClock


@dataclass
class NodeState:
    flags: set[str]
    since: float = 0.0
    reason: str = ""
    instance_id: str = ""
    address: str = ""
    asked_at: float = 0.0
    topology: str = ""


@dataclass
class JobState:
    nodes: tuple[NodeName, ...] = ()
    state: str = "PENDING"
    restarts: int = 0
    comment: str = ""
    held: bool = False
    submitted_at: float = 0.0
    size: int = 0
    whole: int | None = None
    """The het job of which this job is a component."""
    shape: tuple[str, ...] = ()
    """The kinds of its nodes: the first part of each name."""


@dataclass
class FakeSlurm:
    clock: FakeClock
    resume_timeout: float = 180.0
    suspend_timeout: float = 60.0
    unreachable: bool = False
    state: dict[str, NodeState] = field(default_factory=dict)
    queue: dict[int, JobState] = field(default_factory=dict)
    suspended: list[NodeName] = field(default_factory=list)
    resumed: list[NodeName] = field(default_factory=list)
    resume_failed: list[NodeName] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    refuse: set[str] = field(default_factory=set)
    asked_for_ended: int = 0
    over: dict[int, EndedJob] = field(default_factory=dict)
    assigned: dict[str, NodeName] = field(default_factory=dict)
    """Every instance that was ever assigned to a node, by instance id."""
    forgotten: dict[str, str] = field(default_factory=dict)
    """The instance of each node that registered and will not register again by itself."""

    def define(self, names: Iterable[NodeName]) -> None:
        for name in names:
            self.state[name] = NodeState({"IDLE", "CLOUD", "POWERED_DOWN"}, address=name)

    # The port

    def nodes(self, names: Sequence[str] | None = None) -> tuple[Node, ...]:
        self._reach()
        if names is not None and not self.state.keys() >= set(names):
            raise SlurmRefused("Invalid node name specified")
        return tuple(self._node(name) for name in self.state if names is None or name in names)

    def jobs(self, nodes: Sequence[str] | None = None) -> tuple[Job, ...]:
        self._reach()
        return tuple(
            Job(
                number,
                frozenset({job.state}),
                compress(job.nodes),
                job.restarts,
                job.comment,
                job.submitted_at,
            )
            for number, job in self.queue.items()
            if nodes is None or not set(nodes).isdisjoint(job.nodes)
        )

    def het_jobs(self) -> dict[int, int]:
        self._reach()
        return {number: job.whole for number, job in self.queue.items() if job.whole is not None}

    def begun_jobs(self) -> frozenset[int]:
        self._reach()
        return frozenset(
            job.whole or number
            for number, job in self.queue.items()
            if all(self.is_ready(part) for part in self._request(number))
        )

    def is_ready(self, number: int) -> bool:
        job = self.queue[number]
        return job.state == "RUNNING" and all(self._node(name).up for name in job.nodes)

    def assign(self, assignments: Sequence[Assignment]) -> None:
        self._write("assign", [item.node for item in assignments])
        for item in assignments:
            self.give(item.instance_id, item.node)
            self.state[item.node].address = item.address

    def give(self, instance_id: str, node: str) -> None:
        """Give an instance to a node; it is never another's."""
        before = self.assigned.setdefault(instance_id, node)
        assert before == node, f"{instance_id} is {before}, and now {node}"
        self.state[node].instance_id = instance_id

    def place(self, nodes: Sequence[str], topology: str) -> None:
        self._write("place", nodes)
        for name in nodes:
            self.state[name].topology = topology

    def down(self, nodes: Sequence[str], reason: str) -> None:
        self._write("down", nodes)
        for name in nodes:
            if not self._node(name).drained_by_a_person:
                self.state[name].reason = reason
            self._base(name, "DOWN")
            self._requeue_from(name)

    def drain(self, nodes: Sequence[str], reason: str) -> None:
        self._write("drain", nodes)
        for name in nodes:
            if not self._node(name).drained_by_a_person:
                self.state[name].flags.add("DRAIN")
                self.state[name].reason = reason

    def power_down(self, nodes: Sequence[str]) -> None:
        self._write("power_down", nodes)
        for name in nodes:
            flags = self.state[name].flags
            assert "POWERED_DOWN" not in flags, f"{name}: POWER_DOWN would stick"
            if "DOWN" in flags:
                flags.discard("POWERING_UP")
            flags.add("POWER_DOWN")

    def power_up(self, nodes: Sequence[str]) -> None:
        self._write("power_up", nodes)
        for name in nodes:
            item = self.state[name]
            assert "POWERED_DOWN" in item.flags, f"{name} is not powered down"
            item.flags = {"IDLE", "CLOUD", "POWERING_UP", "NOT_RESPONDING"}
            item.asked_at = self.clock.monotonic()
            item.since, item.reason = self.clock.now(), ""
            self.resumed.append(NodeName(name))

    def resume(self, nodes: Sequence[str]) -> None:
        self._write("resume", nodes)
        for name in nodes:
            item = self.state[name]
            item.flags.discard("DRAIN")
            if "DOWN" in item.flags:
                self._base(name, "IDLE")
            if "POWERING_DOWN" in item.flags:
                self._powered_down(name)

    def comment(self, job: int, text: str) -> None:
        self._reach()
        if job not in self.queue:
            raise SlurmRefused(f"Invalid job id {job}")
        state = self.queue[job]
        state.comment = append_line(state.comment, text)

    def hold(self, job: int) -> None:
        self._reach()
        if job not in self.queue or self.queue[job].state != "PENDING":
            raise SlurmRefused(f"Job {job} is not pending")
        self.queue[job].held = True

    def release(self, job: int) -> None:
        """Release a held job, as a person does."""
        self.queue[job].held = False

    def ended_jobs(self) -> tuple[EndedJob, ...]:
        self._reach()
        self.asked_for_ended += 1
        return tuple(self.over.values())

    def requeue(self, job: int) -> None:
        self._reach()
        if job not in self.over:
            raise SlurmRefused(f"Invalid job id {job}")
        was = self.over.pop(job)
        self.queue[job] = JobState(state="PENDING", restarts=1, comment=was.admin_comment)
        self.writes.append(f"requeue {job}")

    # The test's side

    def fail(self, job: int, code: int = 1) -> None:
        """End the job's script with an error.

        slurmctld remembers the job for some minutes.
        """
        state = self.queue[job]
        self.finish(job)
        self.over[job] = EndedJob(
            id=job,
            flags=frozenset({"FAILED"}),
            nodes=compress(state.nodes),
            ended_at=self.clock.now(),
            code=code,
            requeue=True,
            admin_comment=state.comment,
        )

    def start(self, job: int, nodes: Sequence[NodeName], *, whole: int | None = None) -> JobRequest:
        """Allocate powered-down nodes to a job.

        Returns the job request that ResumeProgram gets. Nodes that are powering up already are
        shared. `whole` is the het job of which the job is a component.
        """
        for name in nodes:
            if self.flags(name) >= {"ALLOCATED", "POWERING_UP"}:
                continue
            assert self.flags(name) >= {"IDLE", "POWERED_DOWN"}, (name, self.flags(name))
            item = self.state[name]
            item.flags = {"ALLOCATED", "CLOUD", "POWERING_UP", "NOT_RESPONDING"}
            item.asked_at = self.clock.monotonic()
            item.since, item.reason = self.clock.now(), ""
        known = self.queue.setdefault(job, JobState(whole=whole))
        assert known.whole == whole, f"slurmctld starts no component alone, as here {job}"
        known.nodes, known.state, known.size = tuple(nodes), "RUNNING", len(nodes)
        known.shape = known.shape or tuple(_kind(name) for name in nodes)
        return JobRequest(job, tuple(nodes))

    def asks(self) -> list[JobRequest]:
        """Return the job requests that a resume file would list now.

        They have the nodes of each job that are powering up.
        """
        waiting = {
            number: tuple(name for name in job.nodes if "POWERING_UP" in self.flags(name))
            for number, job in self.queue.items()
        }
        return [JobRequest(number, nodes) for number, nodes in waiting.items() if nodes]

    def schedule(self, limit: int | None = None) -> list[JobRequest]:
        """Allocate nodes to requeued jobs while any are free.

        Nodes that are up come first.
        """
        asks = []
        for number, job in list(self.queue.items())[:limit]:
            if job.state != "PENDING" or job.held:
                continue
            placed: dict[int, list[NodeName]] = {}
            for part in self._request(number):
                taken = {name for nodes in placed.values() for name in nodes}
                if (chosen := self._choose(part, taken)) is not None:
                    placed[part] = chosen
            if len(placed) == len(self._request(number)):
                asks += [ask for part, nodes in placed.items() for ask in self._place(part, nodes)]
        return asks

    def _choose(self, number: int, taken: set[NodeName]) -> list[NodeName] | None:
        """Return free nodes, as many of each kind as the job had.

        Nodes that are up come first. Returns None if too few are free.
        """
        job = self.queue[number]
        free = [NodeName(name) for name in self.state if self._free(name) and name not in taken]
        free.sort(key=self._is_off)
        chosen: list[NodeName] = []
        for kind in job.shape or [""] * job.size:
            fitting = (n for n in free if n not in chosen and kind in {"", _kind(n)})
            if (node := next(fitting, None)) is None:
                return None
            chosen.append(node)
        return chosen

    def _place(self, number: int, chosen: list[NodeName]) -> list[JobRequest]:
        job = self.queue[number]
        woken = [name for name in chosen if self._is_off(name)]
        for name in chosen:
            if not self._is_off(name):
                self._base(name, "ALLOCATED")
        asks = [self.start(number, woken, whole=job.whole)] if woken else []
        job.nodes, job.state = tuple(chosen), "RUNNING"
        job.size = len(chosen)
        return asks

    def _request(self, number: int) -> list[int]:
        """Return the job, or all components of its het job.

        The components start together.
        """
        whole = self.queue[number].whole
        if whole is None:
            return [number]
        return [other for other, job in self.queue.items() if job.whole == whole]

    def _free(self, name: str) -> bool:
        unfit = {"DRAIN", "DOWN", "ALLOCATED", "POWER_DOWN", "POWERING_DOWN", "POWERING_UP"}
        return "IDLE" in self.flags(name) and not self.flags(name) & unfit

    def _is_off(self, name: str) -> bool:
        return "POWERED_DOWN" in self.flags(name)

    def register(
        self, name: str, instance_id: str, address: str = "", booted_at: float = math.inf
    ) -> bool:
        """Register a node's slurmd, and tell whether slurmctld accepted it.

        A node that is up accepts it. A node that powers up accepts only an instance that booted
        after the power-up.
        """
        item = self.state[name]
        off = item.flags & {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"}
        if off and not item.flags >= {"POWERED_DOWN", "ALLOCATED"}:
            return False
        if "POWERING_UP" in item.flags and booted_at < item.asked_at:
            return False
        item.flags -= {"POWERING_UP", "NOT_RESPONDING", "POWERED_DOWN"}
        item.instance_id, item.address = instance_id, address or item.address
        self.assigned[instance_id] = NodeName(name)
        return True

    def killed(self, names: Iterable[str], *, saved: str = "POWERING_UP") -> None:
        """Restore nodes with jobs to the state saved before they registered.

        `saved` is POWERED_DOWN if that state is older than the allocation. The state of the jobs
        was saved later.
        """
        for name in names:
            item = self.state[name]
            assert "ALLOCATED" in item.flags, (name, item.flags)
            silent = {"NOT_RESPONDING"} if saved == "POWERING_UP" else set()
            item.flags = {"ALLOCATED", "CLOUD", saved} | silent
            self.forgotten[name] = item.instance_id

    def silence(self, names: Iterable[str]) -> None:
        """Let no slurmd answer for these nodes."""
        for name in names:
            if not self._is_off(name):
                self.state[name].flags.add("NOT_RESPONDING")

    def finish(self, job: int) -> None:
        self._leave(self.queue.pop(job).nodes)

    def _leave(self, nodes: Sequence[NodeName]) -> None:
        """Make nodes idle that a job has left.

        A node with another job stays allocated.
        """
        busy = {name for job in self.queue.values() for name in job.nodes}
        for name in set(nodes) - busy:
            if "ALLOCATED" in self.state[name].flags:
                self._base(name, "IDLE")

    def flags(self, name: str) -> set[str]:
        return self.state[name].flags

    def tick(self) -> None:
        """Do the work that slurmctld does by itself every few seconds."""
        now = self.clock.now()
        for name, item in self.state.items():
            waited = now - item.since
            if "POWER_DOWN" in item.flags and not item.flags & {"ALLOCATED", "POWERING_UP"}:
                item.flags = {"IDLE", "CLOUD", "POWERING_DOWN"} | (item.flags & {"DRAIN"})
                item.since = now
                self.suspended.append(NodeName(name))
            elif "POWERING_DOWN" in item.flags and waited >= self.suspend_timeout:
                self._powered_down(name)
            elif "POWERING_UP" in item.flags and waited >= self.resume_timeout:
                self._requeue_from(name)
                item.flags = {"DOWN", "CLOUD", "POWERED_DOWN"} | (item.flags & {"DRAIN"})
                item.reason = f"{item.reason} : " if item.reason else ""
                item.reason += "ResumeTimeout reached"
                item.instance_id = ""
                self.resume_failed.append(NodeName(name))

    def _powered_down(self, name: str) -> None:
        item = self.state[name]
        item.flags = (item.flags - {"POWERING_DOWN", "POWER_DOWN"}) | {"POWERED_DOWN"}
        item.instance_id, item.address = "", name
        item.topology = ""

    def _requeue_from(self, name: str) -> None:
        """Requeue the node's jobs, het jobs with all components."""
        there = [number for number, job in self.queue.items() if name in job.nodes]
        for number in {part for job in there for part in self._request(job)}:
            job = self.queue[number]
            left, job.nodes = [other for other in job.nodes if other != name], ()
            self._leave(left)
            job.state, job.restarts = "PENDING", job.restarts + 1

    def _node(self, name: str) -> Node:
        item = self.state[name]
        return Node(
            name, frozenset(item.flags), item.reason, item.instance_id, item.address, item.topology
        )

    def _base(self, name: str, base: str) -> None:
        item = self.state[name]
        item.flags = (item.flags - {"IDLE", "ALLOCATED", "DOWN"}) | {base}

    def _write(self, verb: str, nodes: Sequence[str]) -> None:
        self._reach()
        if self.refuse & set(nodes):
            raise SlurmRefused(f"invalid node in {verb}")
        self.writes.append(f"{verb} {','.join(nodes)}")

    def _reach(self) -> None:
        if self.unreachable:
            raise SlurmUnreachable("connect failure")


def _kind(name: str) -> str:
    return name.partition("-")[0]


class FakeNodeReader:
    """The reader of people's commands, on the fake slurmctld."""

    def __init__(self, slurm: FakeSlurm) -> None:
        self._slurm = slurm
        self.source = ""

    def nodes(self) -> tuple[Node, ...]:
        self.source = "pyslurm 25.11.2"
        return self._slurm.nodes()
