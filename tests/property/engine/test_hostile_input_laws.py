"""Laws of hostile input: a reader raises an EngineError or nothing.

The input is any answer of Slurm and any content of our files.
"""

from __future__ import annotations

import ast
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given, strategies as st

from slurmplugins.cloud import error_codes
from slurmplugins.errors import EngineError
from slurmplugins.head.job_history import JobReader
from slurmplugins.model import hostlist, json_input
from slurmplugins.model.launch import JobLaunch
from slurmplugins.power_save import circuit_breaker
from slurmplugins.reconciler import instance_ledger
from slurmplugins.reconciler.pass_state import LastPass, LedgerPass, PassState
from slurmplugins.reconciler.requeue import InstanceLoss, jobs_to_requeue
from slurmplugins.slurm import resume_file
from slurmplugins.slurm.node_queries import known_nodes
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.state.journal import Journal
from slurmplugins.state.launch_budget_file import LaunchBudget
from slurmplugins.state.launch_budget_record import Rate
from slurmplugins.state.persistent_clock import PersistentClock
from slurmplugins.state.queue_time import QueueTimes
from slurmplugins.state.unavailable_offerings import UnavailableOfferings
from slurmplugins.system.command import CommandResult
from tests.fakes.clock import START, FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

G = hostlist.expand("gpu-[001-003]")
RATE = Rate(1000, 2, 90, is_configured=False)
MACHINE = "i-0123456789abcdef0"
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -1, 2**64])
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["gpu-001", MACHINE, "7", "RUNNING", "spot", "gpu-[1-9", "\x00", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["set", "infinite", "number", "name", "return_code", "status", "id"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


def records(*fields: str) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(fields), ODD, max_size=len(fields)) | ODD


class Said:
    """A runner whose commands all give the same answer."""

    def __init__(self, data: object) -> None:
        self._text = json.dumps(data)

    def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        return CommandResult(0, self._text, "")


def only_engine_errors(*calls: Callable[[], object]) -> None:
    for call in calls:
        try:
            call()
        except EngineError:
            continue


NODE = records("name", "state", "reason", "instance_id", "address")
JOB = records(
    "job_id", "job_state", "nodes", "restart_cnt", "admin_comment", "submit_time", "end_time",
    "start_time", "exit_code", "batch_flag", "requeue", "array_job_id", "array_task_id",
    "array_task_string", "hold", "node_count", "max_nodes", "state_reason", "partition", "name",
)  # fmt: skip


@given(st.lists(NODE, max_size=3) | ODD)
def test_invalid_nodes_raise_nothing_but_what_all_expect(found: object):
    slurm = ScontrolSlurm(Said({"nodes": found}), "/usr/bin")
    only_engine_errors(
        slurm.nodes,
        lambda: known_nodes(slurm, G),
        lambda: slurm.down(G, "toolkit: x"),
        lambda: [
            (node.up, node.busy, node.powering_off, node.reason_is_ours) for node in slurm.nodes()
        ],
    )


@given(st.lists(NODE, min_size=1, max_size=3))
def test_an_invalid_node_is_neither_up_nor_off_nor_waited_for(found: list[object]):
    listed = ScontrolSlurm(Said({"nodes": found}), "/usr/bin").nodes()
    assert len(listed) == len(found)
    for node in listed:
        if not node.readable:
            assert not any((node.up, node.powering_off, node.powering_up, node.down, node.busy))


@given(st.lists(JOB, max_size=3) | ODD)
def test_invalid_jobs_raise_nothing_but_what_all_expect(found: object):
    slurm = ScontrolSlurm(Said({"jobs": found}), "/usr/bin")
    lost = [InstanceLoss(node, MACHINE, START) for node in G]
    only_engine_errors(
        slurm.jobs,
        slurm.begun_jobs,
        lambda: slurm.jobs(G),
        lambda: jobs_to_requeue(slurm.ended_jobs(), lost),
        lambda: slurm.comment(7, "x"),
        lambda: slurm.requeue(7),
        lambda: slurm.hold(7),
        JobReader(Said({"jobs": found}), "/usr/bin").jobs,
    )


@given(JOB)
def test_an_invalid_job_hides_no_other(odd: object):
    fine = {
        "job_id": 7, "job_state": ["FAILED"], "nodes": "gpu-001", "batch_flag": True,
        "requeue": True, "end_time": START, "exit_code": {"status": ["ERROR"], "return_code": 1},
    }  # fmt: skip
    slurm = ScontrolSlurm(Said({"jobs": [odd, fine, odd]}), "/usr/bin")
    assert 7 in {job.id for job in slurm.jobs()}
    assert 7 in {
        item.job
        for item in jobs_to_requeue(slurm.ended_jobs(), [InstanceLoss(G[0], MACHINE, START)])
    }


@given(st.lists(records("job_id", "nodes_resume", "nodes", "partition"), max_size=3) | ODD)
def test_every_node_of_the_argument_is_asked_for_once_whatever_the_file_says(found: object):
    content = json.dumps({"jobs": found}).encode()
    asks = resume_file.job_requests(content, "gpu-[001-003]")
    assert sorted(node for ask in asks for node in ask.nodes) == list(G)


LINE = records(
    "kind", "run", "nodes", "settling", "attempt", "machines", "ids", "cause", "since", "size",
    "at", "up", "boot", "steady", "offering", "others", "settles", "cluster", "pool", "least",
)  # fmt: skip
KINDS = st.sampled_from(
    ["claim", "release", "intent", "failed", "launched", "let-go", "ended", "compacted", "new"]
)


@given(st.lists(st.tuples(KINDS, LINE), max_size=4))
def test_invalid_lines_of_a_journal_raise_nothing_and_hide_no_other(lines: list[tuple[str, Any]]):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = [{"kind": kind, **line} if isinstance(line, dict) else line for kind, line in lines]
        text = "".join(json.dumps(line) + "\n" for line in found)
        (folder / "journal.jsonl").write_text(text)
        journal = Journal(folder, FakeClock())
        journal.view()
        with journal.resume_process() as run:
            journal.claim(run, lambda _: G[1:2])
            seen = Journal(folder, FakeClock()).view()
            assert G[1] in seen.claimed_nodes
            hostlist.compress(seen.claimed_nodes | seen.unresolved_nodes)
        journal.mark_terminating([MACHINE], "unknown")  # type: ignore[arg-type]
        assert MACHINE in Journal(folder, FakeClock()).view().termination_causes


@given(ODD, records("until", "code"), ODD, ODD)
def test_invalid_state_files_raise_nothing(
    one: object, setback: object, two: object, three: object
):
    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), FakeClock()
        standing = {"failures": one, "since": two, "retry_at": three, "probes": one, "last": []}
        failure = dict.fromkeys(("instance_id", "node", "pool", "why", "at", "launched_at"), two)
        doubt = {"attempt": one, "count": two, "at": three}
        tries = {
            **dict.fromkeys(("asked", "since", "nodes", "message", "doubts"), one),
            **dict.fromkeys(("started", "at", "slug", "held"), two),
        }
        entry = dict.fromkeys((item for item in instance_ledger.LedgerEntry.__slots__), three)
        for file, value in {
            "time.json": {"boot": one, "offset": two, "last": three},
            "offerings.json": {"spot:x:y": setback},
            "protection.json": {
                "pools": {"gpu": {**standing, "last": [failure]}, "cpu": standing},
                "counted": {"i-1": two},
            },
            "reconcile.json": {
                "unbacked": {"gpu-001": one}, "doubted_since": two, "woken": three,
                "ledger": {"i-1": entry, "i-2": one},
            },
            "waits.json": {"7": one, "x": two},
            "pass.json": {"at": one, "note": two, "remarks": three},
            "ledger_pass.json": {"at": one, "boot": two},
            "brake.json": {
                "jobs": {
                    "7": tries, "x": tries, "8": one, "9": {**tries, "doubts": [doubt, two]},
                    "10": {**tries, "nodes": "gpu-001", "slug": "", "message": "", "doubts": []},
                },
                "ends": {"count": one, "code": two, "since": three, "at": one},
            },
        }.items():  # fmt: skip
            (folder / file).write_text(json.dumps(value))
        steady = PersistentClock(folder, clock)
        assert abs(steady.now()) < 1e12
        UnavailableOfferings(folder / "offerings.json", clock).entries()
        circuit_breaker.admit_launches(folder, [JobLaunch(7, (), G)], steady, 180.0)
        record = circuit_breaker.load(folder)
        for pool in record.pools.values():
            assert pool.shut_until(steady.now(), 180.0) <= steady.now() + 3600.0
        memory = PassState.load(folder)
        instance_ledger.update(memory.ledger, (), {}, START)
        instance_ledger.without_forgotten(memory.ledger, START)
        memory.save(folder)
        LastPass.load(folder)
        LedgerPass.load(folder).stale_reason(START, "1")
        waited = QueueTimes(folder / "waits.json", clock).seconds_of([7], {})
        assert waited[7] >= 0
        budget = LaunchBudget(folder, clock)
        budget.update_from_listing((), {}, clock.monotonic())
        budget.forget_begun(lambda: {9})
        screened = budget.screen([JobLaunch(job, (), G) for job in (7, 9, 10)], RATE, ())
        assert len(screened.permitted) + len(screened.refusals) == 3
        budget.record_terminations((), error_codes.error("InternalError", "x"))
        assert LaunchBudget(folder, clock).load().ends.code == "InternalError"


STEPS = st.lists(
    st.tuples(st.sampled_from(["pass", "set", "boot", "keep"]), st.floats(-1e6, 1e6)), max_size=12
)


@given(STEPS)
def test_time_never_goes_back_and_never_runs_ahead_within_a_boot(steps: list[tuple[str, float]]):
    with tempfile.TemporaryDirectory() as name:
        clock: FakeClock = FakeClock()
        before = PersistentClock(Path(name), clock).now()
        for number, (what, seconds) in enumerate(steps):
            passed = 0.0
            if what == "pass":
                passed = abs(seconds)
                clock.advance(passed)
            elif what == "set":
                clock.jump(seconds)
            elif what == "boot":
                PersistentClock(Path(name), clock).save_if_due()
                wall = clock.now() + seconds
                clock = FakeClock(100.0, boot=f"boot-{number}")
                clock.jump(wall - 100.0)
            now = PersistentClock(Path(name), clock).now()
            if what != "boot":
                assert abs(now - before - passed) < 1e-3
            else:  # the saved time may be a minute old, and not older
                assert now >= before - 60.0 - 1e-3
            before = now


def test_json_is_read_in_one_place():
    """Allow json.loads in one module alone.

    Elsewhere a file that is nested too deeply would end a program.
    """
    root = Path(json_input.__file__).parents[1]
    for path in root.rglob("*.py"):
        if path.name == "json_input.py":
            continue
        for item in ast.walk(ast.parse(path.read_text())):
            if isinstance(item, ast.Attribute) and item.attr in {"loads", "load"}:
                assert not (isinstance(item.value, ast.Name) and item.value.id == "json"), path
