"""A site's controller below a folder: real files, our real installer, and a slurmctld of few words.

It stands for a host that is reached by ssh. Absolute paths lie below the folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from slurmplugins.head.report import HeadReport, to_json
from slurmplugins.slurm import sacct
from toolkit.join.errors import SiteCommandFailed
from toolkit.join.site import read_files, site_facts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from toolkit.join.site import SiteFacts

SLURM_CONF = """\
ClusterName=Lab
SlurmctldHost=ctl
SlurmUser=slurm
AuthType=auth/munge
SlurmctldParameters=enable_configless,idle_on_node_suspend
ResumeProgram=/site/resume
NodeName=rack[1-2] CPUs=2
PartitionName=main Nodes=rack[1-2] Default=YES"""
MUNGE_KEY = bytes(range(128))
ATTEMPT = {
    "Cluster": "lab",
    "Account": "vision",
    "User": "ada",
    "State": "COMPLETED",
    "ExitCode": "0:0",
    "DerivedExitCode": "0:0",
    "NNodes": "1",
    "AllocTRES": "cpu=2",
    "Restarts": "0",
    "JobName": "digits",
}
"""An attempt as sacct has it; a row of `attempts` says what differs."""


class FakeSite:
    """A controller on which each command is answered as Debian's Slurm 24.11 does."""

    host: str = "ctl"

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commands: list[list[str]] = []
        self.jobs: dict[str, str] = {}  # partitions by job
        self.running: list[str] = []  # jobs of the racks
        self.attempts: list[dict[str, str]] = []  # of sacct, by field
        self.head_report = HeadReport(at=0.0, cluster="burst")
        self.reconcile_plan: dict[str, object] = {}
        self.running_config = ""  # more lines of `scontrol show config`
        self.refuses = False  # slurmctld keeps its configuration
        self.failing = ""  # a word of commands that fail
        for path, content in (
            ("etc/slurm/slurm.conf", SLURM_CONF.encode()),
            ("etc/munge/munge.key", MUNGE_KEY),
        ):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        self.partitions = self._configured()

    def run(self, argv: Sequence[str], *, timeout: float = 60, stdin: bytes = b"") -> str:
        """Answer one command. Raises SiteCommandFailed as a runner does."""
        assert timeout > 0
        self.commands.append(list(argv))
        if self.failing and any(self.failing in word for word in argv):
            raise self._failed(argv, "it fails", 1)
        argv = list(argv)
        while argv[0].rpartition("/")[2] == "env" or "=" in argv[0]:
            argv.pop(0)
        program = argv[0].rpartition("/")[2]
        if program == "python3":
            return self._installer(argv, stdin) if stdin else "1.34.46\n"
        if program in {"cat", "test", "base64"}:
            return self._real([*argv[:-1], self._below(argv[-1])])
        answer = getattr(self, f"_{program}", None)
        return answer(argv) if answer is not None else ""

    def files(self) -> dict[str, bytes]:
        """Return each file by its path on the controller."""
        return {
            f"/{path.relative_to(self.root)}": path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file()
        }

    def read(self, path: str) -> str:
        """Return a file's text."""
        return (self.root / path.removeprefix("/")).read_text()

    def _below(self, path: str) -> str:
        return str(self.root / path.removeprefix("/"))

    def _real(self, argv: Sequence[str], stdin: bytes = b"") -> str:
        done = subprocess.run(argv, input=stdin, capture_output=True, check=False)
        if done.returncode:
            raise self._failed(argv, done.stderr.decode(), done.returncode)
        return done.stdout.decode()

    def _failed(self, argv: Sequence[str], text: str, code: int) -> SiteCommandFailed:
        return SiteCommandFailed(f"{argv[0]}: {text}", returncode=code, stderr=text)

    def _installer(self, argv: Sequence[str], stdin: bytes) -> str:
        """Run put_files itself, on paths below the folder."""
        request = json.loads(stdin)
        for item in (*request["files"], *request["folders"]):
            item["path"] = self._below(item["path"])
            item["owner"] = f"{os.getuid()}:{os.getgid()}"
        for key in ("trees", "absent"):
            request[key] = list(map(self._below, request[key]))
        answer = self._real([sys.executable, *argv[1:]], json.dumps(request).encode())
        return json.dumps([path.removeprefix(str(self.root)) for path in json.loads(answer)])

    def _id(self, argv: Sequence[str]) -> str:
        del argv
        return "64030\n"

    def _getent(self, argv: Sequence[str]) -> str:
        if "ahostsv4" not in argv:
            return ""
        return f"10.77.0.10     STREAM {argv[-1]}\n"

    def _systemctl(self, argv: Sequence[str]) -> str:
        return "active\n" * (len(argv) - 2) if "is-active" in argv else ""

    def _ss(self, argv: Sequence[str]) -> str:
        del argv
        return "LISTEN 0 128 0.0.0.0:6817 0.0.0.0:*\n"

    def _sacct(self, argv: Sequence[str]) -> str:
        names = (*sacct.REQUIRED, *sacct.OPTIONAL, *sacct.FREE_TEXT)
        if "--helpformat" in argv:
            return " ".join(names)
        (token,) = (word.partition("=")[2] for word in argv if word.startswith("--delimiter="))
        rows = [{**dict.fromkeys(names, ""), **ATTEMPT, **row} for row in self.attempts]
        return "".join(token.join(row[name] for name in names) + "\n" for row in rows)

    def _runuser(self, argv: Sequence[str]) -> str:
        """Answer as our programs there do."""
        if "slurmplugins.head_report" in argv:
            return json.dumps(to_json(self.head_report))
        return json.dumps(self.reconcile_plan) if "--plan" in argv else ""

    def _squeue(self, argv: Sequence[str]) -> str:
        if "--format=%U" in argv:
            return ""
        wanted = argv[-1].partition("=")[2]
        if argv[-1].startswith("--states="):
            return "\n".join(self.running)
        if wanted not in self.partitions:
            raise self._failed(argv, "Invalid partition specified", 1)
        rows = [f"{job}|{names}" for job, names in self.jobs.items() if wanted in names.split(",")]
        return "\n".join(rows)

    def _scancel(self, argv: Sequence[str]) -> str:
        del self.jobs[argv[-1]]
        return ""

    def _scontrol(self, argv: Sequence[str]) -> str:
        words = " ".join(argv[1:])
        if words == "--version":
            return "slurm-wlm 24.11.5\n"
        if words == "ping":
            return "Slurmctld(primary) at ctl is UP\n"
        if words == "show config":
            running = "SlurmctldHost[0] = ctl\nSlurmctldPort = 6817\nClusterName = lab\n"
            return running + self.running_config
        if words == "show nodes --json":
            return json.dumps({"nodes": self._nodes()})
        if words == "reconfigure" and not self.refuses:
            self.partitions = self._configured()
        if words.startswith("show partition"):
            if len(argv) == 4 and argv[3] != "--oneliner" and argv[3] not in self.partitions:
                raise self._failed(argv, "Partition not found", 1)
            return "".join(f"PartitionName={name} State=UP\n" for name in self.partitions)
        if words.startswith("update jobid="):
            job, partitions = (word.partition("=")[2] for word in argv[2:])
            self.jobs[job] = partitions
        return ""

    def _configured(self) -> list[str]:
        return [line.name for line in self._facts().partitions]

    def _facts(self) -> SiteFacts:
        return site_facts(read_files(self, "/etc/slurm/slurm.conf"))

    def _nodes(self) -> list[dict[str, object]]:
        return [
            {"name": name, "state": ["IDLE"], "cpus": 2, "real_memory": 4000}
            for line in self._facts().nodes
            for name in line.names
        ]
