"""Answers captured from a real Slurm 24.11.5, read as they came."""

from pathlib import Path

import pytest

from toolkit.accounting import sacct
from toolkit.accounts import Membership
from toolkit.accounts.current import parse
from toolkit.head_runner import SlurmAnswerError
from toolkit.slurm_nodes import nodes

CAPTURED = Path(__file__).parent / "slurm-24.11"
TOKEN = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


def captured(name):
    # newline="": a job's name in there has line breaks of its own.
    with (CAPTURED / name).open(encoding="utf-8", newline="") as file:
        return file.read()


class Head:
    """Gives the captured answer of `scontrol show WHAT --json`."""

    def run(self, argv, *, timeout=60):
        return captured(f"scontrol-{argv[2]}.json")


def test_every_attempt_of_requeued_failed_and_array_jobs_is_read():
    names = sacct.fields(captured("sacct-helpformat.txt"))
    attempts = sacct.parse(captured("sacct.txt"), names, TOKEN)
    assert "Restarts" in names
    found = [(one.job, one.state, one.restarts, one.exit_codes[0]) for one in attempts]
    assert sorted(found) == [
        ("1", "COMPLETED", 1, 0),
        ("1", "REQUEUED", 0, 85),
        ("2", "FAILED", 0, 7),
        ("3", "CANCELLED", 1, 0),
        ("3", "REQUEUED", 0, 0),
        ("4_0", "COMPLETED", 0, 0),
        ("4_1", "COMPLETED", 0, 0),
        ("4_2", "COMPLETED", 0, 0),
    ]
    hostile = [one for one in attempts if one.job == "1"]
    assert {one.name for one in hostile} == {"evil|a\nb\x1f1\x1fx"}
    assert all(one.nodes == ("gpu-001", "gpu-002") for one in hostile)
    assert len({one.key for one in attempts}) == len(attempts)


def test_lost_work_is_what_came_after_the_mark_in_the_jobs_comment():
    names = sacct.fields(captured("sacct-helpformat.txt"))
    attempts = sacct.parse(captured("sacct.txt"), names, TOKEN)
    lost = {(one.job, one.restarts): one.lost_from() for one in attempts}
    failed = next(one for one in attempts if one.job == "2")
    assert failed.started is not None
    assert lost["2", 0] == failed.started + 3
    assert lost["1", 0] is None
    assert lost["3", 0] is not None


def test_the_nodes_of_scontrol_are_read():
    found = nodes(Head())
    assert [(node.name, node.cpus, node.memory_mib) for node in found] == [
        ("gpu-001", 4, 15000),
        ("gpu-002", 4, 15000),
    ]
    assert found[0].base_state == "idle"


def test_the_accounts_of_sacctmgr_are_read():
    names = ("account", "assoc", "user")
    book = parse(*(captured(f"sacctmgr-{name}.txt") for name in names))
    assert book.accounts["vision"].owned
    assert not book.accounts["handmade"].owned
    assert book.accounts["speech"].parent == "vision"
    assert Membership("speech", "ada") in book.memberships
    assert book.defaults["carl"] == "handmade"


@pytest.mark.parametrize("answer", ["", "[]", "{}", '{"nodes": 3}', "slurm_load_node error"])
def test_an_answer_that_is_no_list_is_an_error(answer):
    class Odd:
        def run(self, argv, *, timeout=60):
            return answer

    with pytest.raises(SlurmAnswerError):
        nodes(Odd())
