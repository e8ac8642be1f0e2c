"""`toolkit join check` over captured sites, and connect times over real sockets."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from toolkit.cli import run
from toolkit.join.preflight.connections import Target, connect
from toolkit.join.runner import ControllerRunner

ROOT = Path(__file__).parents[3]
REPLAY = Path(__file__).parent / "replay.py"
HERE = ControllerRunner("localhost", ())


@pytest.fixture
def config(tmp_path):
    """A function that writes a cluster.yaml whose controller is a captured site."""

    def write(site: str) -> str:
        settings = YAML(typ="rt").load((ROOT / "examples/join.yaml").read_text())
        answers = ROOT / "tests/golden/join/24.11" / f"{site}.json"
        settings["site"]["ssh"] = [sys.executable, str(REPLAY), str(answers)]
        path = tmp_path / f"{site}.yaml"
        YAML(typ="rt").dump(settings, path)
        return str(path)

    return write


def test_a_wrong_site_is_refused_with_each_mend(config, capsys):
    assert run(["join", "check", "--config", config("wrong")]) == 1
    output = capsys.readouterr().out
    assert "error: /etc/slurm/slurm.conf:29: " in output
    assert "    Include nodes.conf" not in output, "slurmctld sends this one along"
    assert "\n  fix: List the racks by name.\n    PartitionName=batch Nodes=rack[01-02]" in output
    assert output.splitlines()[-1].startswith("rack is not ready: ")


def test_json_has_the_slug_the_place_and_the_exact_setting(config, capsys):
    assert run(["join", "check", "--json", "--config", config("wrong")]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ready"] is False
    [finding] = [item for item in answer["findings"] if item["slug"] == "partition-of-all-nodes"]
    assert (finding["origin"], finding["line"]) == ("/etc/slurm/nodes.conf:4", 4)
    assert finding["setting"] == "PartitionName=batch Nodes=rack[01-02],cpu-[001-004]"
    assert {"question", "reason"} == set(answer["unanswered"][0])


def test_a_fitting_site_is_ready(config, capsys):
    assert run(["join", "check", "--config", config("fit")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("rack is ready: 0 errors")


def test_a_controller_that_does_not_answer_is_an_error(config, tmp_path, capsys):
    path = Path(config("fit"))
    path.write_text(path.read_text().replace(str(REPLAY), str(tmp_path / "nothing.py")))
    assert run(["join", "check", "--config", str(path)]) == 1
    assert "error: slurm1: /usr/bin/cat" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--probe", "host"], ["--probe", "-o:22"], ["--from", "-oX=y"], ["--rack", "-oX=y"]]
)
def test_a_word_that_is_no_host_is_wrong_usage(config, words, capsys):
    assert run(["join", "check", "--config", config("fit"), *words]) == 2
    assert "expected" in capsys.readouterr().err


def test_an_open_port_is_measured_some_times():
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = connect(HERE, "site", Target("127.0.0.1", server.getsockname()[1]))
    assert found.outcome == "open"
    assert len(found.seconds) == 5


def test_a_closed_port_of_a_host_that_answers_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert connect(HERE, "cloud", Target("127.0.0.1", port)).outcome == "refused"


def test_a_name_without_an_address_is_told_apart():
    found = connect(HERE, "site", Target("no-such-host.invalid", 22))
    assert found.outcome == "no-address"
    assert found.median_seconds is None


def test_the_program_runs_without_the_toolkit():
    program = ROOT / "toolkit/join/preflight/connect_times.py"
    words = ["127.0.0.1", "1", "2", "1"]
    done = subprocess.run(
        ["/usr/bin/python3", "-I", str(program), *words], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["outcome"] == "refused"
