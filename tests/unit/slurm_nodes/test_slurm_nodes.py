"""The forms of scontrol's JSON in different versions."""

import pytest

from toolkit.slurm_nodes import gpus, number, parse_node, words


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
