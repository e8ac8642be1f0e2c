"""The forms of scontrol's JSON in different versions, and who is asked for it."""

import json

import pytest

from slurmplugins.head import read_commands
from toolkit.errors import HeadCommandFailed
from toolkit.head_runner import SlurmAnswerError
from toolkit.slurm_nodes import gpus, number, parse_node, read_states, words

SCONTROL = ("scontrol", "show", "nodes", "--json")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        ({"set": True, "infinite": False, "number": 7}, 7),
        ({"set": False, "infinite": False, "number": 0}, None),
        ({"set": True, "infinite": True, "number": 0}, None),
        ("7", 7),
        (None, None),
        ("", None),
    ],
)
def test_a_number_is_plain_or_an_object(value, expected):
    assert number(value) == expected


def test_a_state_is_one_word_or_several():
    assert words("IDLE+CLOUD") == ("IDLE", "CLOUD")
    assert words(["IDLE", "CLOUD"]) == ("IDLE", "CLOUD")
    assert words(None) == ()


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("", 0),
        ("gpu:4", 4),
        ("gpu:a10g:1", 1),
        ("gpu:a10g:1(S:0-1),gpu:4", 5),
        ("shard:8,gpu:h100:8(S:0,1),nvme:2", 8),
        ("gpumem:40", 0),
    ],
)
def test_gpus_are_summed_over_their_types(gres, count):
    assert gpus(gres) == count


def test_missing_keys_are_empty_values():
    empty = parse_node({"name": "gpu-001"})
    assert (empty.cpus, empty.gpus, empty.reason, empty.base_state) == (0, 0, "", "unknown")


class Head:
    """A head node that answers some commands, and refuses the others."""

    def __init__(self, answers) -> None:
        self.answers, self.commands = answers, []

    def run(self, argv, *, timeout=60):
        self.commands.append(tuple(argv))
        if tuple(argv) not in self.answers:
            raise HeadCommandFailed(f"{argv[-1]} is not a reader's command")
        return self.answers[tuple(argv)]


def an_answer(name):
    node = {"name": name, "state": ["IDLE", "CLOUD"], "reason": "", "version": "25.11.7"}
    return json.dumps({"nodes": [node], "meta": {"slurm": {"release": "25.11.7"}}})


def test_states_come_from_the_heads_own_program():
    head = Head({read_commands.NODES: an_answer("gpu-001"), SCONTROL: an_answer("gpu-002")})
    slurm = read_states(head)
    assert [(node.name, node.version) for node in slurm.nodes] == [("gpu-001", "25.11.7")]
    assert slurm.release == "25.11.7"
    assert head.commands == [read_commands.NODES]


@pytest.mark.parametrize("answers", [{}, {read_commands.NODES: "no module"}])
def test_a_head_without_that_program_is_asked_for_scontrols_answer(answers):
    head = Head({**answers, SCONTROL: an_answer("gpu-002")})
    assert [node.name for node in read_states(head).nodes] == ["gpu-002"]


def test_states_that_nobody_answers_are_an_error():
    with pytest.raises(HeadCommandFailed):
        read_states(Head({}))
    with pytest.raises(SlurmAnswerError):
        read_states(Head({SCONTROL: "{}"}))
