"""The journal: claims, unresolved launches, terminations and damaged files."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.errors import StateError
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Assignment, EndCause, Lifecycle, Offering
from slurmplugins.model.launch import LaunchRequest
from slurmplugins.state.journal import COMPACT_BYTES, LISTING_DELAY_SECONDS, Journal
from slurmplugins.state.journal_view import JournalReplay
from slurmplugins.system import files
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

G = hostlist.expand("gpu-[001-004]")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def journal(tmp_path: Path, clock: FakeClock) -> Journal:
    return Journal(tmp_path, clock)


def request(attempt: str = "a1") -> LaunchRequest:
    offering = Offering("g5.xlarge", Lifecycle.SPOT, "us-east-1a", "0.4")
    return LaunchRequest(attempt, "demo", "gpu", "spot", "demo-gpu", "subnet-a", offering, G[:2])


def assignment(node: hostlist.NodeName, instance_id: str) -> Assignment:
    return Assignment(node, instance_id, "10.0.0.1", "g5.xlarge")


def test_a_claim_holds_while_its_program_lives(journal: Journal):
    with journal.resume_process() as run:
        journal.claim(run, lambda _: G[:2])
        assert journal.view().claimed_nodes == set(G[:2])
    assert journal.view().claimed_nodes == frozenset()


def test_the_next_claimant_sees_the_claims_before_it(journal: Journal):
    seen: list[frozenset[hostlist.NodeName]] = []
    with journal.resume_process() as one, journal.resume_process() as two:
        journal.claim(one, lambda _: G[:1])
        journal.claim(two, lambda claims: seen.append(claims.claimed_nodes) or ())
    assert seen == [frozenset(G[:1])]


def test_a_claim_ends_with_its_process_however_it_ends(journal: Journal, tmp_path: Path):
    child = os.fork()
    if child == 0:
        manager = journal.resume_process()
        journal.claim(manager.__enter__(), lambda _: G[:1])
        os._exit(9)
    os.waitpid(child, 0)
    assert journal.view().claimed_nodes == frozenset()


def test_the_lock_of_a_killed_program_is_deleted_and_that_of_a_live_one_is_not(
    journal: Journal, tmp_path: Path
):
    child = os.fork()
    if child == 0:
        journal.resume_process().__enter__()
        os._exit(9)
    os.waitpid(child, 0)
    with journal.resume_process() as run:
        journal.claim(run, lambda _: G[:1])
        journal.remove_dead_locks()
        assert [path.stem for path in (tmp_path / "runs").iterdir()] == [run]
        assert journal.view().claimed_nodes == {G[0]}


def test_a_launch_without_an_outcome_is_unresolved_until_ec2_would_list_it(
    journal: Journal, clock: FakeClock
):
    with journal.resume_process() as run:
        journal.claim(run, lambda _: G[:2])
        journal.record_call(request(), run, [7])
        assert journal.view().unresolved_nodes == frozenset()
    assert journal.view().unresolved_nodes == set(G[:2])
    clock.advance(121)
    assert journal.view().unresolved_nodes == frozenset()


def test_what_a_live_run_has_asked_for_is_known_until_it_has_an_outcome(journal: Journal):
    with journal.resume_process() as run:
        journal.claim(run, lambda _: G[:2])
        for attempt in ("a1", "a2", "a3"):
            journal.record_call(request(attempt), run, [7])
        journal.record_failed("a1", error_codes.error("InsufficientInstanceCapacity", "none"))
        journal.record_launched("a2", [assignment(G[0], "i-1")])
        assert journal.view().awaiting_reply == {"a3"}
    assert journal.view().awaiting_reply == frozenset()


def test_an_outcome_resolves_the_launch(journal: Journal):
    journal.record_call(request("a1"), "run", [7])
    journal.record_failed("a1", error_codes.error("InsufficientInstanceCapacity", "none"))
    journal.record_call(request("a2"), "run", [7])
    journal.record_launched("a2", [assignment(G[0], "i-1"), assignment(G[1], "i-2")])
    claims = journal.view()
    assert claims.unresolved_nodes == frozenset()
    assert set(claims.recent_launches) == {"i-1", "i-2"}


def test_launches_are_remembered_until_the_cloud_lists_them(journal: Journal, clock: FakeClock):
    journal.record_launched("a1", [assignment(G[0], "i-1")])
    clock.advance(121)
    assert journal.view().recent_launches == {}


def test_a_power_down_covers_the_nodes_instances_until_then_and_no_reassigned_one(
    journal: Journal, clock: FakeClock
):
    journal.record_launched("a1", [assignment(G[0], "i-1"), assignment(G[1], "i-2")])
    journal.record_launched("a1", [assignment(G[2], "i-2")])
    journal.record_powered_down(G[:2], clock.monotonic())
    journal.record_launched("a2", [assignment(G[0], "i-3")])
    assert journal.view().powered_down_ids == {"i-1"}


def test_a_power_down_covers_no_instance_launched_after_it_was_seen(
    journal: Journal, clock: FakeClock
):
    journal.record_launched("a1", [assignment(G[0], "i-1")])
    seen = clock.monotonic()
    clock.advance(5)
    journal.record_launched("a2", [assignment(G[0], "i-2")])
    journal.record_powered_down(G[:1], seen)
    assert journal.view().powered_down_ids == {"i-1"}


def test_an_instance_marked_for_termination_is_no_longer_a_launched_one(journal: Journal):
    journal.record_launched("a1", [assignment(G[0], "i-1")])
    journal.mark_terminating(["i-1"], EndCause.SUSPEND)
    claims = journal.view()
    assert claims.recent_launches == {}
    assert claims.termination_causes == {"i-1": EndCause.SUSPEND}


def test_the_first_cause_given_for_an_end_stays(journal: Journal):
    journal.mark_terminating(["i-1"], EndCause.SUSPEND)
    journal.mark_terminating(["i-1"], EndCause.ORPHAN)
    assert journal.view().termination_causes == {"i-1": EndCause.SUSPEND}


def test_an_instance_whose_node_is_claimed_is_not_marked_for_termination_as_idle(journal: Journal):
    with journal.resume_process() as run:
        journal.claim(run, lambda _: G[:1])
        agreed = journal.mark_terminating_if_idle(
            [("i-1", G[0]), ("i-2", G[1]), ("i-3", None)], EndCause.ORPHAN
        )
    assert agreed == {"i-2", "i-3"}


def test_an_instance_of_unknown_purpose_is_terminated_only_with_a_powered_down_node(
    journal: Journal, clock: FakeClock, tmp_path: Path
):
    """Mark an instance for termination that only an unreadable line names.

    While that line is new, the mark is refused even for a powered-down node. The line may have
    reassigned the instance to another node.
    """
    journal.view()
    stamp = {"at": clock.now(), "up": clock.monotonic(), "boot": clock.boot()}
    line = {**stamp, "kind": "later", "of": ["i-00000001"]}
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")

    def condemned(off: Sequence[hostlist.NodeName]) -> bool:
        wanted = [("i-00000001", G[0])]
        return bool(
            journal.mark_terminating_if_idle(wanted, EndCause.SUSPEND, clock.monotonic(), off)
        )

    assert not condemned(off=G[:1])
    clock.advance(LISTING_DELAY_SECONDS + 1)
    assert not condemned(off=[])
    assert not condemned(off=G[1:])
    assert "i-00000001" in journal.view().unreadable_ids
    assert condemned(off=G[:1])
    assert journal.view().termination_causes == {"i-00000001": EndCause.SUSPEND}


def test_damaged_lines_are_skipped_and_swallow_nothing(journal: Journal, tmp_path: Path):
    path = tmp_path / "journal.jsonl"
    journal.mark_terminating(["i-1"], EndCause.SUSPEND)
    with path.open("a") as file:
        file.write(
            '{"kind": "ended"}\n[1]\n\xff\n{"kind": "claim", "run": "../../x", "nodes": ["a"]}\n'
        )
        file.write('{"kind": "ended", "ids": ["i-9"], "cau')
    journal.mark_terminating(["i-2"], EndCause.ORPHAN)
    assert set(journal.view().termination_causes) == {"i-1", "i-2"}


def test_old_records_go_once_the_file_is_large(journal: Journal, clock: FakeClock, tmp_path: Path):
    path = tmp_path / "journal.jsonl"
    journal.mark_terminating(["i-old"], EndCause.SUSPEND)
    with path.open("a") as file:
        file.write(f'{{"at": 0, "kind": "ended", "ids": [], "pad": "{"x" * COMPACT_BYTES}"}}\n')
    clock.advance(25 * 3600)
    journal.mark_terminating(["i-new"], EndCause.SUSPEND)
    journal.compact()
    assert set(journal.view().termination_causes) == {"i-new"}
    assert path.stat().st_size < 1000


def refused(journal: Journal, clock: FakeClock, calls: int) -> None:
    """Record a process with `calls` launches that get no instance."""
    with journal.resume_process() as run:
        journal.claim(run, lambda _: G)
        for number in range(calls):
            journal.record_call(request(f"a{number}"), run, [7])
            journal.record_failed(
                f"a{number}", error_codes.error("InsufficientInstanceCapacity", "none")
            )
        journal.release(run, G)
    clock.advance(121)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that compacts at 1,000 bytes, with a free fsync."""
    monkeypatch.setattr("slurmplugins.state.journal.COMPACT_BYTES", 1000)
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("calls", [10, 1000])
def test_the_size_of_the_file_is_bounded_by_instances_and_not_by_calls(
    journal: Journal, clock: FakeClock, tmp_path: Path, calls: int
):
    journal.record_launched("b", [assignment(G[0], "i-1"), assignment(G[1], "i-2")])
    journal.record_powered_down(G[:2], clock.monotonic())
    journal.record_launched("c", [assignment(G[2], "i-3")])
    journal.mark_terminating(["i-1", "i-2"], EndCause.SUSPEND)
    refused(journal, clock, calls)
    journal.compact()
    assert (tmp_path / "journal.jsonl").stat().st_size < 500
    assert set(journal.view().termination_causes) == {"i-1", "i-2"}


@pytest.mark.usefixtures("large")
def test_a_file_that_was_compacted_is_left_as_it_is_until_it_has_doubled(
    journal: Journal, clock: FakeClock, tmp_path: Path
):
    path = tmp_path / "journal.jsonl"
    refused(journal, clock, 10)
    journal.mark_terminating([f"i-{number}" for number in range(1000)], EndCause.SUSPEND)
    journal.compact()
    before, was = path.read_bytes(), path.stat()
    clock.advance(15)
    Journal(tmp_path, clock).compact()
    assert (path.read_bytes(), path.stat().st_ino) == (before, was.st_ino)
    refused(journal, clock, 10)
    while path.stat().st_size < 2 * was.st_size:
        journal.compact()
        assert path.stat().st_ino == was.st_ino
        refused(journal, clock, 10)
    journal.compact()
    assert path.stat().st_size < 1.2 * was.st_size


def test_a_process_reads_each_line_once(journal: Journal, monkeypatch: pytest.MonkeyPatch):
    inner, read = JournalReplay.add, []
    monkeypatch.setattr(
        JournalReplay, "add", lambda self, record: read.append(1) or inner(self, record)
    )
    for number in range(20):
        journal.mark_terminating([f"i-{number}"], EndCause.SUSPEND)
    assert len(journal.view().termination_causes) == len(read) == 20


def test_a_journal_view_is_not_changed_by_later_lines(journal: Journal):
    journal.record_launched("a1", [assignment(G[0], "i-1")])
    before = journal.view()
    journal.record_launched("a1", [assignment(G[1], "i-1")])
    journal.mark_terminating(["i-1"], EndCause.SUSPEND)
    journal.view()
    assert (before.termination_causes, set(before.recent_launches)) == ({}, {"i-1"})


def test_a_clock_set_forward_by_days_takes_no_claim_from_a_live_run(
    journal: Journal, clock: FakeClock, tmp_path: Path
):
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write(f'{{"at": 0, "kind": "ended", "ids": [], "pad": "{"x" * COMPACT_BYTES}"}}\n')
    with journal.resume_process() as run:
        journal.claim(run, lambda _: G[:2])
        journal.record_call(request(), run, [7])
        clock.jump(3 * 24 * 3600)
        journal.compact()
        assert journal.view().claimed_nodes == set(G[:2])
    assert journal.view().unresolved_nodes == set(G[:2])


@pytest.mark.parametrize("set_by", [-50 * 60.0, 24 * 3600.0])
def test_a_clock_that_is_set_makes_nothing_younger_or_older(
    journal: Journal, clock: FakeClock, set_by: float
):
    journal.record_call(request("a1"), "run", [7])
    journal.record_launched("a2", [assignment(G[2], "i-1")])
    clock.jump(set_by)
    assert journal.view().unresolved_nodes == set(G[:2])
    clock.advance(121)
    assert journal.view().unresolved_nodes == frozenset()
    assert journal.view().recent_launches == {}


@pytest.mark.parametrize("set_by", [-3600.0, 0.0, 24 * 3600.0])
def test_after_a_boot_a_line_is_no_older_for_what_the_wall_clock_says(
    tmp_path: Path, clock: FakeClock, set_by: float
):
    """Read a journal line after a boot with another wall clock.

    By chance the monotonic clock may show the same time as at the write of the line.
    """
    Journal(tmp_path, clock).record_launched("a1", [assignment(G[0], "i-1")])
    again = FakeClock(boot="2")
    again.jump(set_by)
    assert set(Journal(tmp_path, again).view().recent_launches) == {"i-1"}
    again.advance(121)
    assert Journal(tmp_path, again).view().recent_launches == {}


def test_claims_of_before_the_last_boot_do_not_hold(tmp_path: Path):
    """Claim nodes, then read the journal after a boot.

    The claims have times of another monotonic clock.
    """
    old = Journal(tmp_path, FakeClock())
    with old.resume_process() as run:
        old.claim(run, lambda _: G[:2])
    assert old.view().claimed_since(0.0) == set(G[:2])
    assert Journal(tmp_path, FakeClock(boot="2")).view().claimed_since(0.0) == frozenset()


def test_a_journal_that_can_not_be_used_says_so(tmp_path: Path, clock: FakeClock):
    journal = Journal(tmp_path / "absent", clock)
    with pytest.raises(StateError):
        journal.view()
    with pytest.raises(StateError), journal.resume_process():
        pass


def test_a_replaced_file_is_never_seen_half_written_or_too_open(tmp_path: Path):
    path = tmp_path / "x.json"
    path.write_text("old")
    files.write_atomically(path, b"new", mode=0o600)
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in tmp_path.iterdir()] == ["x.json"]
