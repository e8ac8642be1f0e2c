"""The head's databases: dumped as they are at one moment, replaced, counted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BackupError
from slurmplugins.model.backup import ACCOUNTING, MLFLOW, OPTUNA

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from slurmplugins.system.command import CommandResult, Runner
    from slurmplugins.system.streams import Streams

MARIADB: Final = "/usr/bin/mariadb"
DUMP: Final = "/usr/bin/mariadb-dump"
RUNUSER: Final = "/usr/sbin/runuser"
OWNERS: Final[Mapping[str, str]] = {ACCOUNTING: "slurm", MLFLOW: "mlflow", OPTUNA: "optuna"}
"""The system user of each database. A dump is loaded as this user, so it can't do more."""
RECORDS: Final[Mapping[str, tuple[str, str]]] = {
    ACCOUNTING: ("%\\_job\\_table", "jobs"),
    MLFLOW: ("runs", "MLflow runs"),
    OPTUNA: ("trials", "trials of sweeps"),
}
"""For each database: a pattern for the tables that people know, and their records' name."""
QUERY_SECONDS: Final = 600.0
_TABLE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Databases:
    """The databases behind MariaDB's socket."""

    runner: Runner
    streams: Streams

    def version(self) -> str:
        """Return MariaDB's version, such as 11.8.3. Raises BackupError."""
        return self._query("SELECT VERSION()").partition("-")[0].strip()

    def dump(self, database: str, path: Path) -> None:
        """Write a database to a gzip file, as of one moment.

        InnoDB keeps that view while others write. Raises BackupError or OSError.
        """
        argv = [
            DUMP, "--single-transaction", "--quick", "--routines", "--hex-blob",
            "--default-character-set=utf8mb4", database,
        ]  # fmt: skip
        _check(self.streams.save(argv, path), f"the dump of {database}")

    def replace(self, database: str, path: Path) -> None:
        """Replace a database by a dump's content. Raises BackupError, OSError or EOFError."""
        self._query(
            f"DROP DATABASE IF EXISTS `{database}`;"
            f" CREATE DATABASE `{database}` CHARACTER SET utf8mb4"
        )
        argv = [
            RUNUSER, "-u", OWNERS[database], "--",
            MARIADB, "--batch", "--default-character-set=utf8mb4", database,
        ]  # fmt: skip
        _check(self.streams.feed(argv, path), f"the load of {database}")

    def count(self, database: str) -> str:
        """Return how much a database holds, such as `12 jobs`. Raises BackupError."""
        pattern, noun = RECORDS[database]
        tables = self._query(
            "SELECT TABLE_NAME FROM information_schema.TABLES"  # noqa: S608 - no input of others
            f" WHERE TABLE_SCHEMA = '{database}' AND TABLE_NAME LIKE '{pattern}'"
        ).split()
        counts = (
            int(self._query(f"SELECT COUNT(*) FROM `{database}`.`{table}`"))  # noqa: S608 - the same
            for table in tables
            if _TABLE.fullmatch(table)
        )
        return f"{sum(counts)} {noun}"

    def _query(self, statement: str) -> str:
        argv = [MARIADB, "--batch", "--skip-column-names", "--execute", statement]
        result = self.runner.run(argv, timeout=QUERY_SECONDS)
        _check(result, "a query of MariaDB")
        return result.stdout


def _check(result: CommandResult, what: str) -> None:
    if result.returncode:
        raise BackupError(f"{what} failed: {result.stderr.strip()[-500:]}")
