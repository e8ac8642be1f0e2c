"""Contract that scontrol and the reader of people's commands both keep.

It is held to the captured answers of Slurm 25.11 and pyslurm 25.11. Where TOOLKIT_TEST_PYSLURM
names a tree with both, it is held to a live slurmctld with 5,021 nodes too.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurmplugins.slurm.node_reader import NodeReader, ask_pyslurm
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system.command import CommandResult
from tests.contract.pyslurm import tree
from tests.contract.pyslurm.live_cluster import SCONTROL, engine_rows, status_rows
from tests.fakes import pyslurm
from tests.golden.slurm.recorded import Recorded

SOURCES = {
    "captured": "pyslurm 25.11.2",
    "many states": "pyslurm 25.11.2",
    "no slurm.conf": "scontrol: /nowhere can't be read",
    "a suspended job": "scontrol: Mismatch: node real-001: scontrol counts it as MIXED",
    "Latin-1": "scontrol: UnicodeDecodeError: ",
    "the text None": "pyslurm 25.11.2",
    "plain again": "pyslurm 25.11.2",
}
"""The beginning of the reader's source in each situation."""


class Runner:
    """A runner of the pyslurm in a folder, with the captured answers of other programs."""

    def __init__(self, folder: Path) -> None:
        self.recorded = Recorded("pyslurm-25.11")
        self.environment = {**os.environ, "PYTHONPATH": str(folder)}

    def run(self, argv, *, timeout, stdin=""):
        if argv[0] != sys.executable:
            return self.recorded.run(argv, timeout=timeout, stdin=stdin)
        done = subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, check=False, timeout=timeout
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A head node with the captured answers: its runner, and its slurm.conf."""
    monkeypatch.syspath_prepend(tmp_path)
    pyslurm.install(tmp_path)
    (tmp_path / "slurm.conf").write_text("ClusterName=demo\n")
    return Runner(tmp_path), tmp_path / "slurm.conf"


def captured(stage):
    """Return what both readers make of the captured answers, as live_cluster does."""
    runner, slurm_conf = stage
    reader = NodeReader(runner, "/usr/bin", slurm_conf=slurm_conf)
    return {
        "name": "captured",
        "scontrol": engine_rows(ScontrolSlurm(runner, "/usr/bin").nodes()),
        "reader": engine_rows(reader.nodes()),
        "source": reader.source,
        "scontrol for status": status_rows(runner.run(SCONTROL, timeout=60).stdout),
        "reader for status": status_rows(ask_pyslurm(runner, slurm_conf)),
    }


@pytest.mark.parametrize("answers", ["captured", *(["live"] if tree.FOLDER else [])])
def test_both_readers_say_the_same_of_every_node(answers, stage):
    situations = [captured(stage)]
    if answers == "live":
        situations = json.loads(tree.live_cluster("compare"))
        assert {*SOURCES} == {"captured", *(item["name"] for item in situations)}
    for item in situations:
        assert item["reader"] == item["scontrol"], item["name"]
        assert item["reader for status"] == item["scontrol for status"], item["name"]
        assert item["source"].startswith(SOURCES[item["name"]])


def read_with(stage, code):
    """Return node names and the source, with this code as pyslurm."""
    runner, slurm_conf = stage
    pyslurm.install(slurm_conf.parent, code)
    reader = NodeReader(runner, "/usr/bin", slurm_conf=slurm_conf)
    return [node.name for node in reader.nodes()], reader.source


ENDINGS = {
    "libslurm's fatal": ("import os; os._exit(1)", "pyslurm's process ended with 1"),
    "a crash": ("import os; os.abort()", "pyslurm's process ended with -6"),
    "another libslurm": ("raise ImportError('libslurm.so.44: no such file')", "ImportError"),
    "an old interface": ("__version__ = '25.11.2'", "AttributeError"),
    "words on standard output": ("print('hello')\n", "AttributeError"),
    # The alarm of the program is still to come here; a shorter one takes its place.
    "an import that waits": (
        "import signal, time\nassert signal.alarm(1) > 0\ntime.sleep(100)",
        "pyslurm's process ended with -14",
    ),
}


@pytest.mark.parametrize(("code", "reason"), ENDINGS.values(), ids=ENDINGS)
def test_whatever_becomes_of_pyslurms_process_the_nodes_are_there(stage, code, reason):
    names, source = read_with(stage, code)
    assert "gpu-001" in names
    assert source.startswith(f"scontrol: {reason}")


UNREACHABLE = """
__version__ = "25.11.2"
class slurmctld:
    class Config:
        def load():
            raise OSError({text!r})
"""


@pytest.mark.parametrize(
    "text",
    ["Unable to contact slurm controller (connect failure)",
     "Socket timed out on send/recv operation"],
)  # fmt: skip
def test_a_slurmctld_that_does_not_answer_is_told_from_a_pyslurm_that_fails(stage, text):
    runner, slurm_conf = stage
    pyslurm.install(slurm_conf.parent, UNREACHABLE.format(text=text))
    with pytest.raises(Exception, match=f"slurmctld did not answer: .*{text[:20]}"):
        ask_pyslurm(runner, slurm_conf)
    assert read_with(stage, UNREACHABLE.format(text="Invalid protocol"))[1].startswith("scontrol: ")


@pytest.fixture
def head_nodes(stage):
    """The program of `toolkit status`, beside a scontrol that answers `of scontrol`."""
    slurm_conf = stage[1]
    scontrol = slurm_conf.with_name("scontrol")
    scontrol.write_text('#!/bin/sh\necho "of scontrol: $*"\n')
    scontrol.chmod(0o755)
    environment = {
        "PATH": f"{slurm_conf.parent}:/usr/bin:/bin",
        "PYTHONPATH": f"{tree.CHECKOUT}:{slurm_conf.parent}",
        "SLURM_CONF": str(slurm_conf),
    }
    code = (
        "import slurmplugins.system.command as command;"
        f"command.BASE_ENVIRONMENT['PYTHONPATH'] = {str(slurm_conf.parent)!r};"
        "from slurmplugins import head_nodes; head_nodes.main()"
    )

    def call(*arguments, pyslurm_code=None):
        if pyslurm_code is not None:
            pyslurm.install(slurm_conf.parent, pyslurm_code)
        return subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return call


def test_the_program_of_status_prints_pyslurms_nodes(head_nodes):
    done = head_nodes()
    assert status_rows(done.stdout)[-1] == "25.11.7"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("code", ["raise ImportError('libslurm.so.44')", None])
def test_it_becomes_scontrol_where_pyslurm_is_of_no_use(head_nodes, stage, code):
    if code is None:
        (stage[1].parent / "pyslurm.py").unlink()
    done = head_nodes(pyslurm_code=code)
    assert (done.stdout, done.stderr) == ("of scontrol: show nodes --json\n", "")


def test_it_fails_as_scontrol_does_without_slurmctld(head_nodes):
    done = head_nodes(pyslurm_code=UNREACHABLE.format(text="connect failure"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "slurmctld did not answer: connect failure\n"


def test_it_takes_no_arguments(head_nodes):
    assert head_nodes("gpu-001").stderr == "usage: head_nodes\n"
