"""Tests of the readers on answers that were captured from Slurm 24.11.5."""

from pathlib import Path

import pytest

from tests.golden.captured_fields import asked
from toolkit.accounting import sacct
from toolkit.accounts import Association
from toolkit.accounts.current import parse
from toolkit.head_runner import SlurmAnswerError
from toolkit.slurm_nodes import read_nodes, read_slurm

CAPTURED = Path(__file__).parent / "slurm-24.11"
TOKEN = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


def captured(name):
    # newline="": a job's name in the file has line breaks of its own.
    with (CAPTURED / name).open(encoding="utf-8", newline="") as file:
        return file.read()


class Head:
    """A head node that answers `scontrol show WHAT --json` with captured text."""

    def run(self, argv, *, timeout=60):
        return captured(f"scontrol-{argv[2]}.json")


def test_sacct_rows_of_requeued_failed_and_array_jobs_become_attempts():
    names = asked(captured("sacct-helpformat.txt"))
    attempts = sacct.parse(captured("sacct.txt"), names, TOKEN).attempts
    assert "Restarts" in names
    attempt_facts = [
        (attempt.job, attempt.state, attempt.restarts, attempt.exit_codes[0])
        for attempt in attempts
    ]
    assert sorted(attempt_facts) == [
        ("1", "COMPLETED", 1, 0),
        ("1", "REQUEUED", 0, 85),
        ("2", "FAILED", 0, 7),
        ("3", "CANCELLED", 1, 0),
        ("3", "REQUEUED", 0, 0),
        ("4_0", "COMPLETED", 0, 0),
        ("4_1", "COMPLETED", 0, 0),
        ("4_2", "COMPLETED", 0, 0),
    ]
    hostile = [attempt for attempt in attempts if attempt.job == "1"]
    assert {attempt.name for attempt in hostile} == {"evil|a\nb\x1f1\x1fx"}
    assert all(attempt.nodes == ("gpu-001", "gpu-002") for attempt in hostile)
    assert len({attempt.key for attempt in attempts}) == len(attempts)


def test_lost_work_begins_at_the_checkpoint_mark_in_the_jobs_comment():
    names = asked(captured("sacct-helpformat.txt"))
    attempts = sacct.parse(captured("sacct.txt"), names, TOKEN).attempts
    lost_from = {(attempt.job, attempt.restarts): attempt.lost_from() for attempt in attempts}
    failed = next(attempt for attempt in attempts if attempt.job == "2")
    assert failed.started is not None
    assert lost_from["2", 0] == failed.started + 3
    assert lost_from["1", 0] is None
    assert lost_from["3", 0] is not None


def test_the_nodes_of_scontrol_are_parsed():
    node_infos = read_nodes(Head())
    assert [(node.name, node.cpus, node.memory_mib) for node in node_infos] == [
        ("gpu-001", 4, 15000),
        ("gpu-002", 4, 15000),
    ]
    assert node_infos[0].base_state == "idle"


def test_the_release_of_the_head_and_of_each_slurmd_are_parsed():
    slurm = read_slurm(Head())
    assert slurm.release == "24.11.5"
    assert {node.version for node in slurm.nodes} == {"24.11.5"}


def test_the_accounts_of_sacctmgr_are_parsed():
    names = ("account", "assoc", "user")
    book = parse(*(captured(f"sacctmgr-{name}.txt") for name in names))
    assert book.accounts["vision"].owned
    assert not book.accounts["handmade"].owned
    assert book.accounts["speech"].parent == "vision"
    assert Association("speech", "ada") in book.associations
    assert book.default_accounts["carl"] == "handmade"


@pytest.mark.parametrize("answer", ["", "[]", "{}", '{"nodes": 3}', "slurm_load_node error"])
def test_an_answer_without_a_list_of_nodes_is_an_error(answer):
    class Odd:
        def run(self, argv, *, timeout=60):
            return answer

    with pytest.raises(SlurmAnswerError):
        read_nodes(Odd())
