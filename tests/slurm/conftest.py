"""One real cluster for the whole tier, on a local cloud of its own beside a demo's."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from ruamel.yaml import YAML

from toolkit.config import load
from toolkit.demo.commands import ToolkitCommand
from toolkit.demo.phases import Stage
from toolkit.demo.story import Story
from toolkit.deploy.head import Head
from toolkit.deploy.session import Clients

REPOSITORY = Path(__file__).parents[2]
TOOLKIT = Path(sys.executable).parent / "toolkit"
PORT = 4577  # beside a demo's 4566
GROUPS = ("runs", "sweep")
DEPLOY_SECONDS = 1500  # a cold one builds two images
OTHER_JOBSCRIPTS = ["deepspeed==0.19.8", "jupyter-server"]  # what they need besides PyTorch
FARM = {  # for test_burst.py: small machines, many of them
    "count": 20,
    "shape": {"cpus": 2, "memory_gib": 4},
    "offerings": [
        {"type": "c7i.large", "capacity": "spot"},
        {"type": "m7i.large", "capacity": "spot"},
        {"type": "m7i.large", "capacity": "on-demand"},
    ],
}


def toolkit(*argv: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run the CLI as a person does; a failure shows what it printed."""
    done = subprocess.run(
        [str(TOOLKIT), *argv], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, f"toolkit {' '.join(argv)}:\n{done.stdout}\n{done.stderr}"
    return done


@dataclass(frozen=True)
class Cluster:
    """A deployed cluster and the ways to it."""

    config: Path
    head: Head

    def run(self, *argv: str, timeout: float = 120) -> str:
        """Run argv on the head node as root."""
        return self.head.run(argv, timeout=timeout)

    def as_user(self, *argv: str) -> str:
        """Run argv on the head node as a researcher."""
        return self.run("runuser", "-u", "ada", "--", *argv)

    def write(self, path: str, text: str) -> str:
        """Write a researcher's file; its path."""
        self.as_user("sh", "-c", 'printf %s "$2" > "$1"', "sh", path, text)
        return path

    def toolkit(self, command: str, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the CLI, or one of a group, on this cluster."""
        words = (command,) if command not in GROUPS else (command, argv[0])
        return toolkit(*words, "--config", str(self.config), *argv[len(words) - 1 :])

    def job(self, number: str) -> dict:
        return json.loads(self.run("scontrol", "show", "job", number, "--json"))["jobs"][0]

    def story(self) -> Story:
        stage = Stage(Console(file=io.StringIO(), width=200))
        return Story(ToolkitCommand(self.config), stage)


@pytest.fixture(scope="session")
def state():
    """The tier's own state directory; its images stay for the next run."""
    path = Path(os.environ.get("TOOLKIT_LOCAL_DIR", "/var/lib/toolkit-test"))
    os.environ["TOOLKIT_LOCAL_DIR"] = str(path)
    return path


def registered_machines() -> list[str]:
    """What machinectl lists; nothing on a host without it, or without the systemd that it asks."""
    if shutil.which("machinectl") is None:
        return []
    argv = ["machinectl", "list", "--no-legend"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def host_traces() -> dict[str, list[str]]:
    """What a person would look at for leftovers: mounts, namespaces, links, machines, processes."""
    shown = {
        name: subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
        for name, argv in {
            "mount": ["mount"],
            "netns": ["ip", "netns"],
            "link": ["ip", "-br", "link"],
            "ps": ["ps", "-eo", "stat,args"],
        }.items()
    }
    shown["machinectl"] = registered_machines()
    ours = ("systemd-nspawn", "slurm", "mariadbd", "toolkit.local.daemon")
    # A zombie is not ours any more: the host's PID 1 collects it when it pleases. The state varies.
    rows = [line.split(maxsplit=1) for line in shown["ps"]]
    shown["ps"] = sorted(
        args for state, args in rows if "Z" not in state and any(name in args for name in ours)
    )
    return shown


@pytest.fixture(scope="session")
def traces():
    """Look again at what the host shows."""
    return host_traces


@pytest.fixture(scope="session")
def before():
    """What the host shows before there is a cloud."""
    return host_traces()


@pytest.fixture(scope="session")
def cloud(state, before):
    """A running local cloud, gone afterwards."""
    toolkit("local", "up", "--port", str(PORT), timeout=600)
    yield state
    toolkit("local", "down")


@pytest.fixture(scope="session")
def cluster(cloud, tmp_path_factory):
    """The example's cluster on that cloud, as `toolkit deploy` leaves it."""
    yaml = YAML(typ="rt")
    wanted = yaml.load((REPOSITORY / "examples/local.yaml").read_text())
    wanted["cluster"] = "judge"
    wanted["pools"]["gpu"]["count"] = 8
    wanted["pools"]["farm"] = FARM
    wanted["partitions"]["urgent"] = {"pools": ["gpu"], "priority": 10}
    wanted["partitions"]["batch"] = {"pools": ["farm"], "policy": "spot-first"}
    wanted["training"]["requirements"] += OTHER_JOBSCRIPTS
    wanted["training"]["checkpoints"] = "bucket"
    wanted["aws"]["endpoint_url"] = f"http://127.0.0.1:{PORT}"
    wanted["aws"]["credentials_file"] = str(cloud / "aws/credentials")
    path = tmp_path_factory.mktemp("cluster") / "cluster.yaml"
    with path.open("w") as file:
        yaml.dump(wanted, file)
    toolkit("deploy", "--config", str(path), timeout=DEPLOY_SECONDS)
    config = load(path)
    return Cluster(path, Head(Clients(config), config))
