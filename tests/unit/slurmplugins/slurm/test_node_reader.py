"""Choice between pyslurm and scontrol for people's commands."""

import json
import sys

import pytest

from slurmplugins.errors import SlurmUnreachable
from slurmplugins.slurm import pyslurm_nodes
from slurmplugins.slurm.node_reader import PROGRAM, NodeReader, PyslurmUnused, ask_pyslurm
from slurmplugins.system.command import TIMED_OUT
from tests.fakes import pyslurm
from tests.fakes.runner import FakeRunner

RECORD = {"name": "gpu-001", "state": ["IDLE"], "reason": "", "address": "10.0.0.1", "version": ""}
ANSWER = {"nodes": [RECORD], "meta": {"slurm": {"release": "25.11.7"}}, "pyslurm": "25.11.2"}


class Stage:
    """A head node with slurm.conf and pyslurm."""

    def __init__(self, folder) -> None:
        self.slurm_conf = folder / "slurm.conf"
        self.slurm_conf.write_text("ClusterName=demo\n")
        self.runner = FakeRunner(strict=True)
        self.runner.answer(
            "/usr/bin/scontrol", stdout=json.dumps({"nodes": [{**RECORD, "name": "of-scontrol"}]})
        )
        self.reader = NodeReader(self.runner, "/usr/bin", slurm_conf=self.slurm_conf)

    def pyslurm(self, *, stdout="", stderr="", returncode=0):
        self.runner.answer(*PROGRAM, stdout=stdout, stderr=stderr, returncode=returncode)

    @property
    def programs(self):
        return [argv[0].rpartition("/")[2] for argv in self.runner.commands]


@pytest.fixture
def stage(tmp_path, monkeypatch):
    pyslurm.install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return Stage(tmp_path)


def test_pyslurm_alone_is_asked_where_it_answers(stage):
    stage.pyslurm(stdout=json.dumps(ANSWER))
    (node,) = stage.reader.nodes()
    assert (node.name, node.flags, node.address) == ("gpu-001", {"IDLE"}, "10.0.0.1")
    assert stage.reader.source == "pyslurm 25.11.2"
    assert len(stage.runner.calls) == 1


def test_it_is_never_imported_by_the_reader_itself(stage):
    stage.pyslurm(stdout=json.dumps(ANSWER))
    stage.reader.nodes()
    assert "pyslurm" not in sys.modules


def test_without_slurm_conf_no_pyslurm_is_started(stage):
    stage.slurm_conf.unlink()
    assert [node.name for node in stage.reader.nodes()] == ["of-scontrol"]
    assert stage.programs == ["scontrol"]
    assert stage.reader.source == f"scontrol: {stage.slurm_conf} can't be read"


def test_slurm_conf_is_where_its_variable_says(stage, monkeypatch):
    stage.pyslurm(stdout=json.dumps(ANSWER))
    monkeypatch.setenv("SLURM_CONF", str(stage.slurm_conf))
    assert ask_pyslurm(stage.runner) == json.dumps(ANSWER)
    monkeypatch.setenv("SLURM_CONF", str(stage.slurm_conf.with_name("none")))
    with pytest.raises(PyslurmUnused, match="none can't be read"):
        ask_pyslurm(stage.runner)


def test_where_pyslurm_is_not_installed_nothing_is_started_for_it(tmp_path):
    stage = Stage(tmp_path)
    assert [node.name for node in stage.reader.nodes()] == ["of-scontrol"]
    assert stage.programs == ["scontrol"]
    assert stage.reader.source == "scontrol: pyslurm is not installed"


FAILURES = {
    "a mismatch": ({"returncode": 1, "stderr": "Mismatch: node gpu-001: state ?\n"}, "Mismatch"),
    "another libslurm": ({"returncode": 1, "stderr": "ImportError: libslurm.so.44"}, "ImportError"),
    "libslurm ends the process": ({"returncode": 1}, "pyslurm's process ended with 1"),
    "a crash": ({"returncode": -11}, "pyslurm's process ended with -11"),
    "no JSON": ({"stdout": "slurm: warning\n" + json.dumps(ANSWER)}, "can't be read"),
    "no nodes": ({"stdout": '{"pyslurm": "25.11.2"}'}, "can't be read"),
    "a list": ({"stdout": "[]"}, "can't be read"),
    "nothing": ({}, "can't be read"),
}


@pytest.mark.parametrize(("failure", "reason"), FAILURES.values(), ids=FAILURES)
def test_after_any_failure_of_pyslurm_scontrol_is_asked(stage, failure, reason):
    stage.pyslurm(**failure)
    assert [node.name for node in stage.reader.nodes()] == ["of-scontrol"]
    assert stage.reader.source.startswith("scontrol: ")
    assert reason in stage.reader.source


@pytest.mark.parametrize("returncode", [pyslurm_nodes.UNREACHABLE, TIMED_OUT])
def test_nobody_waits_twice_for_a_slurmctld_that_does_not_answer(stage, returncode):
    stage.pyslurm(returncode=returncode, stderr="Unable to contact slurm controller\n")
    message = "slurmctld did not answer: Unable to contact slurm controller"
    with pytest.raises(SlurmUnreachable, match=message):
        stage.reader.nodes()
    assert "scontrol" not in stage.programs


def test_a_long_reason_is_cut(stage):
    stage.pyslurm(returncode=1, stderr="x" * 5000)
    stage.reader.nodes()
    assert len(stage.reader.source) < 250
