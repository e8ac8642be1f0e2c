"""A local cloud, with an actor in place of its machines."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import shlex
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from slurmplugins.cloud import tags
from slurmplugins.head import read_commands
from slurmplugins.slurm import sacct as call
from tests.fakes.sacctmgr import FakeSacctmgr
from toolkit import cli, polling
from toolkit.config import parse
from toolkit.deploy import bundle, head_setup, names
from toolkit.deploy.session import Clients
from toolkit.local.cloud import Cloud
from toolkit.local.image_registry import MemoryImageRegistry
from toolkit.local.machines.driver import CommandResult
from toolkit.local.machines.none_driver import NoneDriver
from toolkit.local.options import ACCOUNT, ADMIN_KEY, Options
from toolkit.local.sockets import Listeners, bind

EXAMPLE = Path(__file__).parents[3] / "examples" / "local.yaml"
SACCT_FIELDS = (*call.REQUIRED, *call.OPTIONAL, *call.FREE_TEXT)
NODE = {"name": "gpu-001", "state": ["IDLE", "CLOUD", "POWERED_DOWN"], "cpus": 4}
# moto warns about objects that are left at its end.
LEAVES_A_CLOUD = [
    pytest.mark.filterwarnings("ignore:S3 key was not disposed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""The marks of tests that leave a whole cloud."""
ANSWERS = {
    "slurmplugins.head_nodes": json.dumps({"nodes": [NODE]}).encode(),
    "show nodes": json.dumps({"nodes": [NODE]}).encode(),
    "slurm-reconcile --plan": b"{}",
    "slurm-budget --plan": json.dumps(
        {"at": 1, "measured_from": 0, "measured_until": 0, "budgets": [], "changes": []}
        | {"problems": [], "closed_until": "", "config": {"limits": {}}}
    ).encode(),
    "--helpformat": " ".join(SACCT_FIELDS).encode(),
    "/shared/.toolkit/users.json": b"[]",
    "bin/slurm-runs": b"[]",
}
"""The answers of the head node, by a part of the command."""


# Each command packs the checkout's files for itself, and no test changes them.
files_of_folder = functools.cache(bundle._tree)


@pytest.fixture(scope="module", autouse=True)
def _no_waiting():
    """Short waits between polls, and files that are read once.

    In the waits the actor has the CPU.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (polling, head_setup):
            patch.setattr(module, "POLL_SECONDS", 0.15)
        patch.setattr(bundle, "_tree", files_of_folder)
        yield


def said(script):
    """Return a script as people read it: a reader's command decoded."""
    name = "exec /opt/slurm-toolkit/bin/slurm-read "
    if not script.startswith(name):
        return script
    return shlex.join(read_commands.decode(script.removeprefix(name).strip())) + "\n"


class HeadDriver(NoneDriver):
    """A driver that answers the commands of `toolkit status`, `apply` and `accounts`."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []
        self.reached: set[str] = set()
        self.login_nodes: dict[str, dict[str, object]] = {}  # reports by instance
        self.data_volume = {"space": 0.6, "inodes": 0.9, "bytes": 9 * 2**30}
        self.slurmdbd = FakeSacctmgr()

    def execute(self, instance_id, argv, *, timeout, stdin=b""):
        text = said(stdin.decode()) + " ".join(argv)
        self.ran.append(text)
        self.reached.add(instance_id)
        if "is-active" in text:
            units = said(stdin.decode()).partition("is-active")[2].split()
            return CommandResult(0, b"active\n" * len(units), b"")
        if text.startswith("sacctmgr"):
            words = shlex.split(said(stdin.decode()))
            return CommandResult(0, self.slurmdbd.run(words).encode(), b"")
        if "slurmplugins.head_report" in text:
            report = {"at": 1, "login_nodes": list(self.login_nodes.values())}
            report["data_volume"] = self.data_volume
            return CommandResult(0, json.dumps(report).encode(), b"")
        answer = next((answer for part, answer in ANSWERS.items() if part in text), b"")
        return CommandResult(0, answer, b"")


class Actor:
    """A thread that does the work of the cloud's instances.

    A builder finishes its image and stops. The head node applies the bundle that its tag names.
    Login nodes report that they are up.
    """

    def __init__(self, cloud: Cloud, clients: Clients, driver: HeadDriver) -> None:
        self.cloud, self.clients, self.driver = cloud, clients, driver
        self.stopping = threading.Event()
        self.failing_task = ""
        self.login_nodes_report = True
        self.thread = threading.Thread(target=self.play, daemon=True)

    def play(self):
        while not self.stopping.wait(0.05):
            self.cloud.machine_controller.tick()
            for instance, label, launched_at in self.running():
                if label.get("toolkit:role") == "builder":
                    self.finish_build(instance, label["toolkit:image"])
                elif label.get("toolkit:role") == "head":
                    self.finish_boot(launched_at, label)
                elif label.get("toolkit:role") == "login" and self.login_nodes_report:
                    name = label["Name"].removeprefix(f"{label[tags.CLUSTER]}-")
                    report = {"name": name, "instance_id": instance, "at": 1}
                    self.driver.login_nodes[instance] = report

    def running(self):
        """Return id, tags and time of launch of each running instance.

        They are in the cloud's own tables. Calls of EC2 and S3 twenty times a second would take
        as much CPU as the deploy.
        """
        tables = self.cloud.tables
        with tables.lock:
            return [
                (one.id, one.tags, one.row.launch_time.replace(tzinfo=UTC).timestamp())
                for one in tables.instances.values()
                if one.state == "running"
            ]

    def finish_build(self, instance, image):
        bucket = names.images_bucket(self.clients.config, self.clients.account)
        state = "failed" if self.failing_task else "ok"
        self.write_status(bucket, names.image_status(image), state, "")
        if state == "ok":
            with contextlib.suppress(ClientError):  # a clean-up may have terminated it
                self.clients.client("ec2").stop_instances(InstanceIds=[instance])

    def finish_boot(self, launched_at, label):
        bucket = names.bucket(self.clients.config, self.clients.account)
        written_at = self.written_at(bucket)
        # A status of an earlier instance is not this one's.
        booted = written_at.get(names.HEAD_STATUS, 0.0) >= launched_at
        sha = label.get(tags.BUNDLE, "")
        if names.bundle(sha) in written_at and not booted:
            self.write_status(bucket, names.HEAD_STATUS, "ok", sha)

    def written_at(self, bucket):
        """Return when each object of a bucket was written."""
        from moto.s3.models import FakeDeleteMarker, s3_backends  # after toolkit.local.cloud

        with self.cloud.tables.lock:
            found = s3_backends[ACCOUNT]["aws"].buckets.get(bucket)
            keys = list(found.keys.items()) if found else []
        return {
            name: key.last_modified.replace(tzinfo=UTC).timestamp()
            for name, key in keys
            if not isinstance(key, FakeDeleteMarker)
        }

    def write_status(self, bucket, key, state, bundle):
        body = {"state": state, "task": self.failing_task, "bundle": bundle, "at": time.time()}
        self.clients.client("s3").put_object(Bucket=bucket, Key=key, Body=json.dumps(body))


@contextlib.contextmanager
def a_cluster(folder):
    """Yield a cluster.yaml like examples/local.yaml, with an endpoint of its own."""
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    credentials = folder / "credentials"
    credentials.write_text(
        f"[local]\naws_access_key_id = {ADMIN_KEY}\naws_secret_access_key = SK\n"
    )
    text = EXAMPLE.read_text().replace("127.0.0.1:4566", f"127.0.0.1:{port}")
    text = text.replace("/var/lib/toolkit-local/aws/credentials", str(credentials))
    path = folder / "cluster.yaml"
    path.write_text(text)
    config = parse(text)
    with serving(folder / "state", bound, port, config) as actor:
        yield Deployment(path, config, actor)


@pytest.fixture
def config(tmp_path):
    """A cluster.yaml with a cloud of its own."""
    with a_cluster(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cluster.yaml with a cloud for all tests of a file.

    A deploy takes 1.2 s of CPU. A process has one cloud at a time, so no test of the file may use
    `config`.
    """
    with a_cluster(tmp_path_factory.mktemp("shared")) as made:
        yield made


@pytest.fixture(scope="module")
def shared_cluster(shared):
    """A deployed cluster for all tests of a file."""
    assert cli.run(["deploy", "--config", str(shared.path)]) == 0
    return shared


class Deployment:
    """A cluster.yaml, with the actor of its cloud."""

    def __init__(self, path, config, actor) -> None:
        self.path, self.config, self.actor = path, config, actor

    def edit(self, old, new):
        text = self.path.read_text()
        assert old in text
        self.path.write_text(text.replace(old, new))


class serving:  # noqa: N801  # reads as a word in a with statement
    """A context with the local cloud on a bound socket."""

    def __init__(self, state, bound, port, config) -> None:
        self.options = Options(
            state=state, port=port, driver="none", shutdown_grace=0.0, throttle=False
        )
        self.bound, self.config = bound, config

    def __enter__(self) -> Actor:
        gc.freeze()  # __exit__ looks through this cloud's objects alone
        self.driver, self.listeners = HeadDriver(), Listeners()
        self.workers = ThreadPoolExecutor(2)
        self.cloud = Cloud(self.options, self.driver, MemoryImageRegistry(), workers=self.workers)
        self.cloud.__enter__()
        self.listeners.add("host", self.bound, self.cloud.router)
        self.thread = threading.Thread(target=self.listeners.run, daemon=True)
        self.thread.start()
        self.actor = Actor(self.cloud, Clients(self.config), self.driver)
        self.actor.thread.start()
        return self.actor

    def __exit__(self, *error) -> None:
        self.actor.stopping.set()
        self.actor.thread.join()
        self.listeners.stop()
        self.thread.join()
        self.cloud.__exit__(*error)
        self.workers.shutdown()
        gc.collect()  # moto's warnings at its end belong to this test, not to the next
