"""The real cluster of the whole tier, on the checkout's local cloud.

Two workers share the cluster, and each has a lane. The files of FARM_LANE use nodes of the pool
`farm`, all others those of the pool `gpu`. A test that concerns the whole cluster is in the second
lane.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shlex
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from ruamel.yaml import YAML
from xdist.scheduler import LoadScopeScheduling

from tests.slurm.instances import machine_driver
from tests.slurm.restarts import HAS_OTHER_LANE, READS, REPEATABLE, call_until_answered
from tests.slurm.settings import add_zoe
from tests.slurm.traces import host_traces
from tests.slurm.waiting import PATIENCE, until
from toolkit.config import load
from toolkit.demo.commands import ToolkitCommand
from toolkit.demo.demo import Demo
from toolkit.demo.phases import PhaseDisplay
from toolkit.deploy.head import Head
from toolkit.deploy.image_lock import ImageLock
from toolkit.deploy.session import Clients
from toolkit.errors import HeadCommandFailed
from toolkit.local.daemon_files import StateFiles
from toolkit.local.machines.layout import Layout
from toolkit.local.machines.shared_images import Library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

REPOSITORY = Path(__file__).parents[2]
TOOLKIT = Path(sys.executable).parent / "toolkit"
PORTS = range(20_000, 30_000)  # below the ports that the kernel gives to clients
GROUPS = ("budget", "burst", "runs", "secrets", "sweep")
FARM_LANE = frozenset(
    f"test_{subject}"
    for subject in (
        "burst",
        "burst_governor",
        "containers",
        "dollar_budgets",
        "elastic_jobs",
        "imds_access",
        "interrupted_sweep",
        "isolation",
        "job_credentials",
        "other_jobscripts",
        "owners",
        "real_machines",
        "staging",
        "warm_up",
    )
)
DEPLOY_SECONDS = 1500  # a deploy without stored images builds two
# Another Slurm than Debian's: its series, and a folder of its packages (docs/testing.md).
SLURM_SERIES = os.environ.get("TOOLKIT_TEST_SLURM", "")
SLURM_PACKAGES = os.environ.get("TOOLKIT_TEST_SLURM_PACKAGES", "")
OTHER_JOBSCRIPTS = ["deepspeed==0.19.8", "jupyter-server"]  # their requirements besides PyTorch
FARM = {  # for test_burst.py: many small nodes
    "count": 20,
    "shape": {"cpus": 2, "memory_gib": 4},
    "offerings": [
        {"type": "c7i.large", "capacity": "spot"},
        {"type": "m7i.large", "capacity": "spot"},
        {"type": "m7i.large", "capacity": "on-demand"},
    ],
}

RACK = {  # for test_burst_governor.py: one node, as of a rack
    "count": 1,
    "shape": {"cpus": 2, "memory_gib": 4},
    "offerings": [{"type": "m7i.large", "capacity": "on-demand"}],
}
BUDGET = {  # for test_dollar_budgets.py: a dollar for an account that no other test uses
    "account": "grants",
    "usd": 1,
    "steps": [
        {"at": 50, "do": "warn"},
        {"at": 60, "do": "spot-only"},
        {"at": 100, "do": "hold"},
        {"at": 110, "do": "requeue"},
        {"at": 120, "do": "refuse"},
    ],
}
PROJECT_BUDGET = {  # a dollar for the jobs of `sbatch --wckey=nerf`, in whichever account
    "project": "nerf",
    "usd": 1,
    "steps": [{"at": 100, "do": "hold"}, {"at": 120, "do": "refuse"}],
}
BURST = {"partition": "batch", "after": "15s", "accounts": {"vision": {"usd_per_month": 5}}}


def toolkit(
    *argv: str, timeout: float = PATIENCE, may_fail: bool = False, is_repeated: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the CLI as a person does.

    A failure shows the command's output, unless `may_fail` is set. With `is_repeated` the command
    is called until slurmctld answers.
    """

    def call() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(TOOLKIT), *argv], capture_output=True, text=True, timeout=timeout, check=False
        )

    done = call_until_answered(call) if is_repeated else call()
    assert may_fail or done.returncode == 0, (
        f"toolkit {' '.join(argv)}:\n{done.stdout}\n{done.stderr}"
    )
    return done


@dataclass(frozen=True)
class Cluster:
    """A deployed cluster, with the ways to run commands on it."""

    config: Path
    head: Head

    def run(self, *argv: str, timeout: float = 120) -> str:
        """Run argv on the head node as root.

        Slurm's commands are repeated while slurmctld restarts, because tests of the other lane
        restart slurmctld.
        """

        def call() -> subprocess.CompletedProcess[str]:
            return self._enter(argv, timeout)

        done = call() if REPEATABLE.isdisjoint(argv) else call_until_answered(call)
        if done.returncode:
            raise HeadCommandFailed(
                f"{shlex.join(argv)[:200]}: exit code {done.returncode}: "
                f"{(done.stderr or done.stdout)[-2000:]}",  # Ansible writes its errors to stdout
                returncode=done.returncode,
                stdout=done.stdout,
                stderr=done.stderr,
            )
        return done.stdout

    def _enter(self, argv: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        """Run argv in the head's machine, from the host.

        Tests ask the head thousands of times. By SSM each time would take more CPU than the answer;
        the toolkit's own commands go that way.
        """
        done = machine_driver().execute(self.head.instance_id, argv, timeout=timeout)
        streams = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(argv, done.returncode, *streams)

    def as_user(self, *argv: str) -> str:
        """Run argv on the head node as a researcher."""
        return self.run("runuser", "-u", "ada", "--", *argv)

    def write(self, path: str, text: str) -> str:
        """Write a researcher's file, and return its path."""
        self.as_user("sh", "-c", 'printf %s "$2" > "$1"', "sh", path, text)
        return path

    def toolkit(
        self, command: str, *argv: str, may_fail: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, or a group's command, of the CLI.

        A read is repeated while a test of the other lane restarts slurmctld.
        """
        words = (command,) if command not in GROUPS else (command, argv[0])
        more = argv[len(words) - 1 :]
        options = ("--config", str(self.config), *more)
        is_repeated = HAS_OTHER_LANE and not may_fail and words in READS
        return toolkit(*words, *options, may_fail=may_fail, is_repeated=is_repeated)

    @contextlib.contextmanager
    def undisturbed(self, what: str) -> Iterator[None]:
        """Keep the other lane from a part of the cluster.

        It waits for the end of the block. `what` is a word that the tests of both lanes give.
        """
        with self.config.with_name(f"{what}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def renew_prices(self) -> None:
        """Have prices, and the budgets that refuse jobs, written anew.

        It is not only started: a run of its timer that began before would count.
        """
        self.run("systemctl", "restart", "slurm-prices.service", timeout=600)

    def job(self, number: str) -> dict:
        """Return slurmctld's record of a job that it has not forgotten."""
        (job,) = self.jobs(number)
        return job

    def jobs(self, number: str) -> list[dict]:
        """Return slurmctld's records of a job.

        slurmctld forgets a job five minutes after its end; then the list is empty. With --json the
        same is said by a scontrol that slurmctld does not answer. Without it, the words differ.
        """
        show = ("scontrol", "show", "job", number)
        try:
            while not (records := json.loads(self.run(*show, "--json"))["jobs"]):
                self.run(*show)
        except HeadCommandFailed as failed:
            if "Invalid job id" in failed.stdout + failed.stderr:
                return []
            raise
        return records

    def demo(self) -> Demo:
        display = PhaseDisplay(Console(file=io.StringIO(), width=200))
        return Demo(ToolkitCommand(self.config), display)


def cluster_of(path: Path) -> Cluster:
    """Return the cluster of a cluster.yaml, with its present head node."""
    config = load(path)
    return Cluster(path, Head(Clients(config), config))


class Lanes(LoadScopeScheduling):
    """A scheduler that gives each lane's tests to one worker, in order."""

    def _split_scope(self, nodeid: str) -> str:
        return "farm" if Path(nodeid.partition("::")[0]).stem in FARM_LANE else "gpu"


def pytest_xdist_make_scheduler(config, log):
    return Lanes(config, log)


def pytest_collection_modifyitems(items):
    """Put tests without a cluster first, and the login node last.

    The worker of the other lane deploys the cluster meanwhile. Once there is a login node, users
    have no login on the head, where other tests look for it. Some files are one history, so the
    tests of a file keep its order; pytest-randomly has shuffled them.
    """
    places = {"test_real_machines.py": -1, "test_login_nodes.py": 1}
    files = list(dict.fromkeys(item.path for item in items))
    items.sort(
        key=lambda item: (
            places.get(item.path.name, 0),
            files.index(item.path),
            item.function.__code__.co_firstlineno,
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the head's word on its jobs to a failed test's report.

    The cluster is gone when somebody reads it.
    """
    report = yield
    deployed = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(deployed, Cluster):
        try:
            text = head_at_failure(cluster_of(deployed.config))
        except Exception as error:  # noqa: BLE001 - it must not hide the test's own failure
            text = f"it did not answer: {error}"
        report.sections.append(("the head at the failure", text))
    return report


def head_at_failure(cluster: Cluster) -> str:
    """Return attempts that did not complete, and slurmctld's last lines."""
    fields = "--format=JobID%8,State%12,ExitCode,Start,End,NodeList%30"
    since = ("--starttime=now-40minutes", "--allusers", "--allocations", "--duplicates")
    attempts = cluster.run("sacct", *since, fields).splitlines()
    journal = cluster.run(
        *("journalctl", "--unit=slurmctld", "--no-pager", "--output=cat", "--lines=25")
    )
    rare = [line.rstrip() for line in attempts if "COMPLETED" not in line]
    return "\n".join([*rare[:2], *rare[2:][-25:], journal])


@pytest.fixture(scope="session")
def state():
    """The tier's own state directory, whatever the environment says.

    The directory's images are kept for later sessions.
    """
    done = subprocess.run([REPOSITORY / "scripts/test-state"], stdout=subprocess.PIPE, check=True)
    path = Path(done.stdout.decode().strip())
    os.environ["TOOLKIT_LOCAL_DIR"] = str(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def free_port(state: Path) -> int:
    """Return the first free port from a number given by `state`.

    Clouds of other checkouts hardly begin with the same number.
    """
    first = int(Layout(state).name.removeprefix("tkl-"), 16) % len(PORTS)
    for port in (*PORTS[first:], *PORTS[:first]):
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no free port in {PORTS}")


@pytest.fixture(scope="session")
def traces(state):
    """A function that returns the host's traces of the tier's cloud."""
    return lambda: host_traces(state)


@pytest.fixture(scope="session")
def cluster(state):
    """The tier's cluster, as `toolkit deploy` leaves it.

    The first worker that asks for it deploys it. The session's end removes it, unless
    scripts/slurm-tier says that later sessions need it.
    """
    path, failed = state / "cluster.yaml", state / "cluster.failed"
    with (state / "tier.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if StateFiles(state).running() is None or not path.exists():
            # A deploy takes minutes: a worker that waited does not repeat one that failed.
            assert not failed.exists() or not is_kept(), (
                "another worker could not deploy the cluster"
            )
            failed.touch()
            deploy(state, path, configure)
            deployed = cluster_of(path)
            kill_slurmctld(deployed)
            wait_for_mlflow(deployed)
            failed.unlink()
    yield cluster_of(path)
    shared = "PYTEST_XDIST_WORKER" in os.environ
    if not shared and not is_kept():
        toolkit("local", "down")


def kill_slurmctld(cluster: Cluster) -> None:
    """Kill slurmctld before its first regular save, and await its restart.

    It is done before the lanes begin. A kill makes slurmctld forget the nodes that just came up,
    so jobs of the other lane would lose theirs. test_burst.py says what it shows.
    """
    cluster.run("pkill", "-9", "-x", "slurmctld")
    ping = ("sh", "-c", "scontrol ping || true")
    until("slurmctld's end", lambda: "is DOWN" in cluster.run(*ping))
    until("slurmctld", lambda: "is UP" in cluster.run(*ping), seconds=120)


def wait_for_mlflow(cluster: Cluster) -> None:
    """Wait until MLflow answers.

    A job that begins before keeps its records to itself.
    """
    health = ("sh", "-c", "curl --silent --fail http://127.0.0.1:5000/health || true")
    until("MLflow", lambda: cluster.run(*health))


@pytest.fixture(scope="module")
def cloud(request, state):
    """The configuration of a cluster whose local cloud is up.

    A test of it alone needs no deployed cluster. In the lanes there is one, and the other worker
    may just be deploying it.
    """
    is_up = StateFiles(state).running() is not None
    own = state / "cloud.yaml"
    if "PYTEST_XDIST_WORKER" in os.environ or (is_up and (state / "cluster.yaml").exists()):
        yield load(request.getfixturevalue("cluster").config)
        return
    if not is_up or not own.exists():
        (state / "cluster.yaml").unlink(missing_ok=True)
        port = free_port(state)
        configure(state, own, port)
        toolkit("local", "up", "--port", str(port), timeout=600)
    yield load(own)
    if not is_kept():
        toolkit("local", "down")


def is_kept() -> bool:
    """Return whether what a session made stays for later ones."""
    return os.environ.get("TOOLKIT_TEST_CLUSTER") == "keep"


def deploy(state: Path, path: Path, write: Callable[[Path, Path, int], None]) -> None:
    """Deploy a cluster, and write cluster.yaml at its path at the end.

    `write` writes the file, given the state directory, the path and the cloud's port. Another
    worker may wait for the file, so it appears only with a finished cluster.
    """
    path.unlink(missing_ok=True)
    toolkit("local", "down")
    port = free_port(state)
    new = path.with_suffix(".new.yaml")
    write(state, new, port)
    # Another checkout may build the same images. A cloud that starts afterwards finds them.
    with Library(Layout(state).library).locked("images-of-tests"):
        toolkit("local", "up", "--port", str(port), timeout=600)
        if SLURM_PACKAGES:
            toolkit("image", "packages", "add", "--config", str(new), SLURM_PACKAGES)
        toolkit("image", "build", "--config", str(new), timeout=DEPLOY_SECONDS)
    toolkit("deploy", "--config", str(new), timeout=DEPLOY_SECONDS)
    if SLURM_PACKAGES:
        ImageLock.beside(new).path.replace(ImageLock.beside(path).path)
    new.rename(path)


def new_key(path: Path) -> str:
    """Make an SSH key at the path, and return its public line."""
    public = path.with_name(f"{path.name}.pub")
    for old in (path, public):
        old.unlink(missing_ok=True)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "a test", "-f", str(path)]
    subprocess.run(words, check=True)
    return public.read_text().strip()


def configure(state: Path, path: Path, port: int) -> None:
    """Write the example's cluster.yaml with the changes that the tests need."""
    settings = YAML(typ="rt").load((REPOSITORY / "examples/local.yaml").read_text())
    settings["cluster"] = "judge"
    if SLURM_PACKAGES:
        settings["slurm"] |= {"version": SLURM_SERIES, "packages": "locked"}
    settings["pools"]["gpu"]["count"] = 8
    settings["pools"]["farm"] = FARM
    settings["partitions"]["urgent"] = {"pools": ["gpu"], "priority": 10}
    settings["partitions"]["batch"] = {"pools": ["farm"], "policy": "spot-first"}
    settings["partitions"]["cheap"] = {"pools": ["farm"], "policy": "spot-only"}
    settings["accounts"].append({"name": "grants", "users": ["grace"]})
    settings["classes"] = {
        "sweep": {"priority": 10, "per_user": {"jobs": 50}},
        "thrifty": {"partitions": ["cheap"]},
    }
    settings["budgets"] = {"grants-month": BUDGET, "nerf-month": PROJECT_BUDGET}
    settings["pools"]["rack"] = RACK
    settings["partitions"]["rack"] = {"pools": ["rack"]}
    settings["partitions"]["silo"] = {"pools": ["rack"], "max_time": "00:30:00"}
    settings["burst"] = {"rack": BURST, "silo": BURST | {"data": {"at": "site"}}}
    settings["training"]["requirements"] += OTHER_JOBSCRIPTS
    settings["training"]["checkpoints"] = "bucket"
    settings["users"][0]["ssh_keys"] = [new_key(state / "ada")]
    new_key(state / "zoe")
    add_zoe(settings, state)  # test_settings.py lets her leave
    settings["aws"]["endpoint_url"] = f"http://127.0.0.1:{port}"
    settings["aws"]["credentials_file"] = str(state / "aws/credentials")
    with path.open("w") as file:
        YAML(typ="rt").dump(settings, file)
