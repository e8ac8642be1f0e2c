"""A slurmdbd that a program reads by sacct, and a bucket that records are added to."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurmplugins.head.sacct_windows import AHEAD, SHORTEST_SPAN
from slurmplugins.slurm import sacct
from slurmplugins.slurm.accounting import Answer

NAMES = sacct.fields(" ".join([*sacct.REQUIRED, *sacct.OPTIONAL, *sacct.FREE_TEXT]))


@dataclass
class Row:
    """An attempt in the database."""

    key: int
    job: int
    eligible: int
    end: int = 0
    submit: int = 0
    state: str = "RUNNING"
    name: str = "digits"
    partition: str = ""

    def text(self, token: str) -> str:
        values = dict.fromkeys(NAMES, "") | {
            "DBIndex": str(self.key),
            "JobIDRaw": str(self.job),
            "JobID": str(self.job),
            "Cluster": "demo",
            "Partition": self.partition,
            "Account": "vision",
            "User": "ada",
            "Submit": str(self.submit or self.eligible),
            "Start": str(self.eligible),
            "End": str(self.end) if self.end else "Unknown",
            "State": self.state,
            "ExitCode": "0:0",
            "DerivedExitCode": "0:0",
            "NNodes": "1",
            "NodeList": "gpu-001",
            "Restarts": "0",
            "JobName": self.name,
        }
        return sacct.delimiter(token).join(values.values()) + "\n"


@dataclass
class FakeAccounting:
    """sacct on rows, by slurmdbd's own conditions."""

    rows: dict[int, Row] = field(default_factory=dict)
    settled: bool = True
    most_rows: int = 10**9
    """sacct takes too long for more."""
    calls: list[tuple[int, int]] = field(default_factory=list)
    instance_lines: dict[int, str] = field(default_factory=dict)
    """A line of sacctmgr by the start of its instance."""

    def version(self) -> str:
        return "24.11.5"

    def is_settled(self) -> bool:
        return self.settled

    def window(self, since: int, until: int) -> Answer | None:
        self.calls.append((since, until))
        rows = [
            row
            for row in self.rows.values()
            if row.eligible and row.eligible < until and (row.end >= since or not row.end)
        ]
        length = until - since - (AHEAD if until - since > AHEAD else 0)
        is_short = length <= SHORTEST_SPAN
        return self._answer(rows) if is_short or len(rows) <= self.most_rows else None

    def jobs(self, jobs, until: int) -> list[Answer]:
        assert until
        return [self._answer([row for row in self.rows.values() if str(row.job) in jobs])]

    def instances(self, cluster: str, since: int) -> str:
        assert cluster == "demo"
        return "".join(line for start, line in self.instance_lines.items() if start >= since)

    def _answer(self, rows) -> Answer:
        token = sacct.new_token()
        return Answer("".join(row.text(token) for row in rows), NAMES, token)


@dataclass
class FakeRecordStore:
    """A bucket in memory. Nothing in it is replaced."""

    objects: dict[str, bytes] = field(default_factory=dict)

    def add(self, key: str, body: bytes) -> bool:
        if key in self.objects:
            return False
        self.objects[key] = body
        return True
