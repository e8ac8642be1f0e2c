"""The parts of a head that backups and restores use: programs, databases as text, a store."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from slurmplugins.errors import NotFound
from slurmplugins.head.databases import Databases
from slurmplugins.head.take_backup import Head, HeadFolders
from slurmplugins.system.command import CommandResult
from tests.fakes.runner import FakeRunner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

JOB_TABLES = "demo_job_table"


class FakeStreams:
    """Dumps that are texts, and loads that are remembered by their database."""

    def __init__(self) -> None:
        self.dumps: dict[str, str] = {}
        self.loads: list[tuple[list[str], str]] = []
        self.failing = ""

    def save(self, argv: Sequence[str], path: Path) -> CommandResult:
        database = argv[-1]
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(gzip.compress(self.dumps.get(database, f"-- {database}").encode()))
        return self._result(database)

    def feed(self, argv: Sequence[str], path: Path) -> CommandResult:
        self.loads.append((list(argv), gzip.decompress(path.read_bytes()).decode()))
        return self._result(argv[-1])

    def _result(self, database: str) -> CommandResult:
        if database == self.failing:
            return CommandResult(2, "", "Lost connection to server during query")
        return CommandResult(0, "", "")


class FakeFiles:
    """A bucket of files; `uploads` has the keys in order."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: list[str] = []

    def upload(self, path: Path, key: str) -> None:
        self.objects[key] = path.read_bytes()
        self.uploads.append(key)

    def download(self, key: str, path: Path) -> None:
        if key not in self.objects:
            raise NotFound(f"no object {key}", code="NoSuchKey")
        path.write_bytes(self.objects[key])


class HeadStage:
    """A head below a folder, with a Slurm that answers by texts."""

    def __init__(self, root: Path, cluster: str = "demo") -> None:
        self.runner, self.streams, self.files = FakeRunner(), FakeStreams(), FakeFiles()
        self.folders = HeadFolders(
            slurm_state=root / "slurmctld",
            toolkit_state=root / "toolkit",
            budgets=root / "budgets",
            governor=root / "governor",
            restore=root / "restore",
            tracking=root / "mlflow/lib",
            work=root / "work",
        )
        for folder in (self.folders.slurm_state, self.folders.toolkit_state, self.folders.work):
            folder.mkdir(parents=True)
        self.install("mlflow", "3.17.2")
        self.install("optuna", "5.0.0")
        self.runner.answer("/usr/bin/scontrol", "--version", stdout="slurm-wlm 24.11.5\n")
        self.set_next_job_id(4712)
        self.runner.answer("/usr/bin/squeue", stdout="")
        self.runner.answer("/usr/bin/mariadb", stdout="0\n")
        self.set_mariadb("11.8.3-MariaDB-0+deb13u1 from Debian")
        self.head = Head(
            cluster, "/usr/bin", self.runner, Databases(self.runner, self.streams), self.folders
        )

    def set_next_job_id(self, number: int) -> None:
        text = f"Configuration data\nMaxJobId = 67043328\nNEXT_JOB_ID             = {number}\n"
        self.runner.answer("/usr/bin/scontrol", "show", "config", stdout=text)

    def set_mariadb(self, version: str) -> None:
        query = ("/usr/bin/mariadb", "--batch", "--skip-column-names", "--execute")
        self.runner.answer(*query, "SELECT VERSION()", stdout=f"{version}\n")

    def install(self, package: str, version: str) -> None:
        """Install a version of a package beside MLflow's server."""
        folder = self.folders.tracking / "python3.13/site-packages" / f"{package}.dist-info"
        folder.mkdir(parents=True, exist_ok=True)
        text = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        (folder / "METADATA").write_text(text)

    def state(self, name: str, content: str) -> Path:
        """Write a file of Slurm's state."""
        path = self.folders.slurm_state / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def units(self) -> list[tuple[str, str]]:
        """Return what systemctl was told, in order."""
        return [
            (argv[1], argv[2].removesuffix(".service"))
            for argv in self.runner.commands
            if argv[0] == "/usr/bin/systemctl"
        ]


class Slurmctld:
    """slurmctld, as far as job ids go.

    It takes FirstJobId at its start, and keeps what it had unless `saves` is False.
    """

    def __init__(self, stage: HeadStage, slurm_conf: Path) -> None:
        self.stage, self.slurm_conf = stage, slurm_conf
        self.next_job_id, self.saves = 3, True
        self.seen: list[str] = []
        """slurm.conf at each start."""
        self.run = stage.runner.run
        stage.runner.run = self.answer  # type: ignore[method-assign]
        self.set(self.next_job_id)

    def set(self, number: int) -> None:
        self.next_job_id = number
        self.stage.set_next_job_id(number)

    def answer(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        if list(argv[:3]) == ["/usr/bin/systemctl", "start", "slurmctld.service"]:
            self.seen.append(self.slurm_conf.read_text())
            lines = self.seen[-1].splitlines()
            first = max(
                int(line.partition("=")[2] or 1) if line.startswith("FirstJobId=") else 1
                for line in lines
            )
            self.set(max(first, self.next_job_id if self.saves else 1))
        return self.run(argv, timeout=timeout, stdin=stdin)
