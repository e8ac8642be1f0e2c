"""Nodes as pyslurm has them, and answers that are left to scontrol."""

import pytest

from slurmplugins.slurm import json_parser, pyslurm_nodes
from slurmplugins.slurm.pyslurm_nodes import Mismatch, answer
from tests.fakes import pyslurm


def a_node(kind=pyslurm.SimpleNamespace, **changes):
    (row,) = (row for row in pyslurm.captured_rows() if row["name"] == "gpu-003")
    return kind(**{**row, **changes})


def test_a_node_has_scontrols_keys():
    (record,) = answer(pyslurm.module([a_node()]))["nodes"]
    assert record == {
        "name": "gpu-003",
        "state": ["IDLE", "CLOUD", "DRAIN", "POWERED_DOWN"],
        "reason": "fan is loud",
        "address": "gpu-003",
        "version": "",
    }


def test_the_answer_names_slurms_release_and_pyslurms():
    found = answer(pyslurm.module([a_node()]))
    assert (found["meta"], found["pyslurm"]) == ({"slurm": {"release": "25.11.7"}}, "25.11.2")


def test_five_thousand_nodes_keep_their_order():
    names = [f"n-{number:04}" for number in range(5000)]
    found = answer(pyslurm.module([a_node(name=name) for name in names]))["nodes"]
    assert [json_parser.node(item).name for item in found] == names


LEFT_TO_SCONTROL = {
    "no nodes": [],
    "a flag without a word": [a_node(state="IDLE+CLOUD+?")],
    "a state that only pyslurm has": [a_node(state="IDLE*")],
    "a suspended job": [a_node(state="IDLE", allocated_tres={"cpu": "1"}, allocated_cpus=0)],
    "a time of a reason, and no reason": [a_node(reason=None, reason_time=1_795_000_000)],
}


@pytest.mark.parametrize("nodes", LEFT_TO_SCONTROL.values(), ids=LEFT_TO_SCONTROL)
def test_a_node_of_which_scontrol_may_say_something_else_is_a_mismatch(nodes):
    with pytest.raises(Mismatch):
        answer(pyslurm.module([a_node(), *nodes] if nodes else []))


def test_a_node_with_a_running_job_is_none():
    busy = a_node(state="MIXED", allocated_tres={"cpu": "1"}, allocated_cpus=1)
    full = a_node(state="ALLOCATED", allocated_tres={"cpu": "4"}, allocated_cpus=4)
    assert len(answer(pyslurm.module([busy, full]))["nodes"]) == 2


@pytest.mark.parametrize(
    ("version", "release"),
    [("25.05.1", "25.11.7"), ("25.11.2", "24.11.5"), ("26.05.0", "26.05.3"), ("25.11.2", None),
     ("", "25.11.7"), ("25.1", "25.1")],
)  # fmt: skip
def test_another_series_is_a_mismatch_before_any_node_is_read(version, release):
    module = pyslurm.module([a_node()], version, release)
    module.Nodes.load = lambda: pytest.fail("nodes were read")
    with pytest.raises(Mismatch, match=r"only 25\.11 was compared"):
        answer(module)


def test_a_name_in_latin_1_is_an_error_and_no_wrong_text():
    with pytest.raises(UnicodeDecodeError):
        answer(pyslurm.module([a_node(), a_node(pyslurm.NodeInLatin1)]))


def test_every_state_that_the_engine_knows_is_one_of_both():
    captured = {word for row in pyslurm.captured_rows() for word in row["state"].split("+")}
    assert captured <= pyslurm_nodes.STATES
