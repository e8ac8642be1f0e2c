"""A site's controller below a folder: real files, our real installer, and a slurmctld of few words.

It stands for a host that is reached by ssh. Absolute paths lie below the folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from toolkit.join.errors import SiteCommandFailed
from toolkit.join.site import read_files, site_facts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SLURM_CONF = """\
ClusterName=Lab
SlurmctldHost=ctl
SlurmUser=slurm
AuthType=auth/munge
SlurmctldParameters=enable_configless
ResumeProgram=/site/resume
NodeName=rack[1-2] CPUs=2
PartitionName=main Nodes=rack[1-2] Default=YES"""
MUNGE_KEY = bytes(range(128))


class FakeSite:
    """A controller on which each command is answered as Debian's Slurm 24.11 does."""

    host = "ctl"

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commands: list[list[str]] = []
        self.jobs: dict[str, str] = {}  # partitions by job
        self.running: list[str] = []  # jobs of the racks
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
        return f"10.77.0.10     STREAM {argv[-1]}\n"

    def _systemctl(self, argv: Sequence[str]) -> str:
        return "active\n" if "is-active" in argv else ""

    def _squeue(self, argv: Sequence[str]) -> str:
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
            return "SlurmctldHost[0]        = ctl\nSlurmctldPort           = 6817\n"
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
        facts = site_facts(read_files(self, "/etc/slurm/slurm.conf"))
        return [line.name for line in facts.partitions]
