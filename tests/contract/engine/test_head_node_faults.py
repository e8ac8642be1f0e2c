"""The real programs on faulty head nodes, with real files and boto3.

For each fault, resume launches nothing. The nodes' reason has a code, and the job's comment has the
fault. reconcile terminates nothing.
"""

from __future__ import annotations

import ctypes
import http.server
import json
import resource
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest

from tests.fakes.engine import burst
from tests.patience import PROGRAM_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[3]
NODES = "gpu-[001-002]"
UP = ["ALLOCATED", "CLOUD", "NOT_RESPONDING", "POWERING_UP"]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
SCONTROL = """#!/bin/sh
printf '%s\\n' "$*" >> {folder}/said
case "$*" in
  "show nodes"*) cat {folder}/nodes.json ;;
  "show job"*) cat {folder}/jobs.json ;;
esac
"""
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from slurmplugins.config import paths
from slurmplugins.system import daemonize
folder = Path({folder!r})
paths.BURST, paths.STATE, paths.LOGS = folder / "burst.json", folder / "state", folder / "logs"
paths.DECISIONS, paths.SLURM_CONF = paths.STATE / "decisions.jsonl", folder / "slurm.conf"
paths.SLURM_BIN = str(folder / "bin")
daemonize.fork_to_background = lambda: True  # it stays with the caller, who waits for its end
from slurmplugins import {program}
{program}.main()
"""
NO_CAPACITY = (
    b"<Response><Errors><Error><Code>InsufficientInstanceCapacity</Code>"
    b"<Message>none</Message></Error></Errors><RequestID>r</RequestID></Response>"
)


ORPHAN = b"""<DescribeInstancesResponse><reservationSet><item><instancesSet><item>
<instanceId>i-0123456789abcdef0</instanceId><instanceState><name>running</name></instanceState>
<launchTime>2026-11-20T10:00:00Z</launchTime><instanceType>g5.xlarge</instanceType><tagSet>
<item><key>toolkit:cluster</key><value>demo</value></item>
<item><key>toolkit:role</key><value>compute</value></item>
<item><key>toolkit:pool</key><value>gpu</value></item>
<item><key>toolkit:nodes</key><value>gpu-005</value></item>
</tagSet></item></instancesSet></item></reservationSet></DescribeInstancesResponse>"""
ENDED = b"""<TerminateInstancesResponse><instancesSet><item>
<instanceId>i-0123456789abcdef0</instanceId><currentState><name>shutting-down</name></currentState>
</item></instancesSet></TerminateInstancesResponse>"""


NOTHING = b"<Response><instanceStatusSet/><spotInstanceRequestSet/></Response>"


class Ec2(http.server.BaseHTTPRequestHandler):
    """An EC2 that records its calls, lists one orphan, and launches nothing."""

    asked: list[str]

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        action = parse_qs(text)["Action"][0]
        self.asked.append(action)
        launch = action == "RunInstances"
        said = {"DescribeInstances": ORPHAN, "TerminateInstances": ENDED}
        self.answer(500 if launch else 200, said.get(action, NO_CAPACITY if launch else NOTHING))

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, b"")

    def do_GET(self) -> None:
        self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the server's log out of the test's output."""


@dataclass
class Head:
    """A head node's files, with its scontrol and its EC2."""

    folder: Path
    ec2: list[str]
    environment: dict[str, str] = field(default_factory=lambda: dict(CREDENTIALS))
    largest_file: int | None = None

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def resume(self, nodes: str = NODES) -> int:
        """Run slurm-resume as slurmctld does, and return its exit status."""
        return self._run("resume", nodes)

    def suspend(self, nodes: str) -> int:
        """Run slurm-suspend as slurmctld does, and return its exit status."""
        return self._run("suspend", nodes)

    def reconcile(self) -> int:
        """Run a pass as systemd does, and return its exit status."""
        return self._run("reconcile")

    def _run(self, program: str, *argv: str) -> int:
        file = self.folder / "resume.json"
        jobs = [{"job_id": 7, "nodes_resume": NODES, "partition": "spot"}]
        file.write_text(json.dumps({"jobs": jobs}))
        code = PROGRAM.format(root=str(ROOT), folder=str(self.folder), program=program)
        return subprocess.run(
            [sys.executable, "-I", "-c", code, *argv],
            env={
                **self.environment,
                "SLURM_RESUME_FILE": str(file),
                "AWS_EC2_METADATA_DISABLED": "true",
            },
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=PROGRAM_SECONDS,
            preexec_fn=self._limit,
        ).returncode

    def _limit(self) -> None:
        """Give up root's write access to read-only files, and limit file sizes."""
        for right in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH; only root has them
            ctypes.CDLL(None).prctl(24, right, 0, 0, 0)
        if self.largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.largest_file, self.largest_file))

    def said(self) -> list[str]:
        """Return the commands that scontrol got, without queries."""
        lines = (self.folder / "said").read_text().splitlines()
        return [line for line in lines if not line.startswith("show ")]


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    handler = type("Handler", (Ec2,), {"asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("state", "logs", "bin"):
        (tmp_path / name).mkdir()
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.write_text(SCONTROL.format(folder=tmp_path))
    scontrol.chmod(0o755)
    off = ["IDLE", "CLOUD", "POWERED_DOWN"]
    nodes = [{"name": f"gpu-00{n}", "state": UP if n < 3 else off} for n in range(1, 9)]
    nodes += [{"name": f"cpu-{n}", "state": off} for n in range(1, 5)]
    (tmp_path / "nodes.json").write_text(json.dumps({"nodes": nodes}))
    job = {"job_id": 7, "job_state": ["PENDING"], "admin_comment": "theirs"}
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": [job]}))
    settings = burst(endpoint_url=f"http://127.0.0.1:{server.server_port}")
    settings["slurm"] = {"bin": str(tmp_path / "bin"), "resume_timeout": 180}
    (tmp_path / "burst.json").write_text(json.dumps(settings))
    (tmp_path / "slurm.conf").write_text("ClusterName=demo\n")
    yield Head(tmp_path, handler.asked)
    server.shutdown()
    server.server_close()
    for item in (tmp_path, *tmp_path.rglob("*")):  # pytest can remove them then
        item.chmod(0o755)


def full_disk(head: Head) -> None:
    """Limit the file size to that of the journal."""
    (head.state / "journal.jsonl").write_bytes(b"x" * 65_536)
    head.largest_file = 65_536


def read_only_journal(head: Head) -> None:
    (head.state / "journal.jsonl").touch(0o440)


def read_only_state(head: Head) -> None:
    head.state.chmod(0o550)


def no_state(head: Head) -> None:
    head.state.rmdir()


def no_credential(head: Head) -> None:
    head.environment.clear()


def no_configuration(head: Head) -> None:
    (head.folder / "burst.json").unlink()


def half_a_configuration(head: Head) -> None:
    path = head.folder / "burst.json"
    path.write_bytes(path.read_bytes()[:200])


def secret_configuration(head: Head) -> None:
    (head.folder / "burst.json").chmod(0)


def another_clusters_configuration(head: Head) -> None:
    (head.folder / "slurm.conf").write_text("ClusterName=prod\n")


WRONG: dict[Callable[[Head], None], tuple[str, str, bool]] = {
    full_disk: ("state", "File too large", False),
    read_only_journal: ("state", "Permission denied", False),
    read_only_state: ("state", "Permission denied", False),
    no_state: ("state", "No such file", False),
    no_credential: ("unauthenticated (MissingCredentials)", "Unable to locate credentials", False),
    no_configuration: ("config", "can t be read", True),
    half_a_configuration: ("config", "not JSON", True),
    secret_configuration: ("config", "Permission denied", True),
    another_clusters_configuration: ("config", "slurm.conf is for prod", True),
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda item: item.__name__)
def test_resume_reports_a_fault_of_the_head_node_and_launches_nothing(
    head: Head, wrong: Callable[[Head], None]
):
    wrong(head)
    reason, words, held = WRONG[wrong]
    head.resume()
    assert "RunInstances" not in head.ec2
    told = head.said()
    assert f"update nodename=gpu-001,gpu-002 state=down reason=toolkit: {reason}" in told
    assert "update nodename=gpu-001,gpu-002 state=power_down" in told
    assert ("hold 7" in told) == held
    (comment,) = [line for line in told if "admincomment=" in line]
    assert comment.startswith(f"update jobid=7 admincomment=theirs | toolkit: {reason} ")
    assert words in comment


@pytest.mark.parametrize("wrong", WRONG, ids=lambda item: item.__name__)
def test_a_pass_on_a_faulty_head_node_terminates_no_instance(
    head: Head, wrong: Callable[[Head], None]
):
    wrong(head)
    status = head.reconcile()
    assert "TerminateInstances" not in head.ec2
    log = (head.folder / "logs" / "reconcile.log").read_text()
    told = [json.loads(line) for line in log.splitlines()]
    last = next(line for line in reversed(told) if line["level"] == "error")
    assert (last["event"], status) in {("program_failed", 1), ("terminations_blocked", 0)}
    assert last.get("slug", "state") == WRONG[wrong][0].split()[0]


def test_on_a_sound_head_node_a_pass_terminates_an_orphan(head: Head):
    assert head.reconcile() == 0
    assert "TerminateInstances" in head.ec2


def test_on_a_sound_head_node_resume_launches(head: Head):
    """Launch without a fault.

    Otherwise the other tests could pass for another reason.
    """
    assert head.resume() == 0
    assert head.ec2.count("RunInstances") == 3
    (line,) = [line for line in head.said() if "state=down" in line]
    assert line.endswith("reason=toolkit: no-capacity (InsufficientInstanceCapacity)")
    journal = (head.state / "journal.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in journal]
    assert kinds == ["claim", *["intent", "failed"] * 3, "release"]


def test_a_node_that_an_admin_added_keeps_no_other_from_its_instance(head: Head):
    assert head.resume(f"{NODES},node01") == 0
    assert head.ec2.count("RunInstances") == 3
    log = (head.folder / "logs" / "resume.log").read_text().splitlines()
    assert [line["parts"] for line in map(json.loads, log) if "parts" in line] == [["node01"]]


def test_a_node_that_an_admin_added_keeps_no_other_from_its_termination(head: Head):
    assert head.suspend("node01,gpu-005") == 0
    assert "TerminateInstances" in head.ec2


def test_logs_that_can_not_be_written_stop_nothing(head: Head):
    (head.folder / "logs").chmod(0o550)
    assert head.resume() == 0
    assert head.ec2.count("RunInstances") == 3
    assert list((head.folder / "logs").iterdir()) == []
