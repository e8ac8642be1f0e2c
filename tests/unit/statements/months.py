"""A cluster with jobs in two months, and a person who closes its days and its months."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from slurmplugins.reconciler.instance_ledger import object_key, to_json
from slurmplugins.slurm import sacct
from tests.fakes.slurmdbd import NAMES, Row
from tests.unit.accounting.test_records import DAY, HOUR, OWN, T0, Cluster, entry
from tests.unit.usage.record_store import Person
from tests.unit.usage.test_read_records import page
from toolkit.accounting import periods
from toolkit.accounting.cost_policy import CostPolicy
from toolkit.bill.history import History
from toolkit.statements.cluster_periods import ClusterPeriods
from toolkit.statements.settings import AccountFacts, StatementSettings

NOVEMBER, DECEMBER = (
    periods.parse(name, datetime(2027, 2, 1, tzinfo=UTC).date()) for name in ("2026-11", "2026-12")
)
LATER = DECEMBER.window.until + 2 * DAY
SETTINGS = StatementSettings(
    "demo",
    accounts={
        "science": AccountFacts("science", owner="dean@example.org"),
        "vision": AccountFacts("vision", "science", owner="pi@example.org", cost_centre="4711"),
        "language": AccountFacts("language", "science"),
    },
)


@dataclass
class OwnedRow(Row):
    """A row of a job with an account, a user and a project."""

    account: str = "vision"
    user: str = "ada"
    project: str = ""

    def text(self, token: str) -> str:
        values = super().text(token).rstrip("\n").split(sacct.delimiter(token))
        fields = {
            "Account": self.account,
            "User": self.user,
            "WCKey": self.project,
            "QOS": "normal",
        }
        for name, value in fields.items():
            values[NAMES.index(name)] = value
        return sacct.delimiter(token).join(values) + "\n"


class Months:
    """The cluster, its records, and the person's store."""

    def __init__(self, folder) -> None:
        self.cluster = Cluster()
        self.person = Person(self.cluster, folder)
        self.now = T0

    def run_job(self, number, start, hours=2, **more):
        """Run a job on its own instance, and write its records."""
        end = start + hours * HOUR
        name = f"i-{number}"
        life = replace(entry(name, start), ended_at=float(end), end_cause="suspend")
        self.cluster.entries[name] = life
        self.cluster.accounting.rows[number] = OwnedRow(
            number, number, start + 600, end - 60, state="COMPLETED", **more
        )
        self.cluster.s3.put(OWN, object_key(name), json.dumps(to_json(life)).encode(), end)
        self.write_records(end + 600)

    def write_records(self, now):
        """Write a page, as if the last one was just written."""
        self.cluster.instances = None
        rows = dict(self.cluster.accounting.rows)
        self.cluster.write_records(now)
        self.cluster.accounting.rows |= rows

    def lose_work(self, number):
        """Let slurmdbd learn late that a job failed: its work was lost."""
        row = self.cluster.accounting.rows[number]
        self.cluster.accounting.rows[number] = replace(row, state="NODE_FAIL")

    def split_job(self, number, other):
        """Let slurmdbd learn late of another account's job.

        It ran in a job's second half.
        """
        row = self.cluster.accounting.rows[number]
        middle = (row.eligible + row.end) // 2
        self.cluster.accounting.rows[number] = replace(row, end=middle)
        later = {"account": "language", "user": "grace", "state": "COMPLETED"}
        self.cluster.accounting.rows[other] = OwnedRow(other, other, middle, row.end, **later)

    def close_days(self, now):
        """Read the records up to a time, and close their days."""
        self.write_records(now)
        self.person.read(now, whole=True)
        return self.person.close(now)

    def read_late(self, now):
        """Read a late page with all rows, and weigh closed days."""
        self.read_page(now)
        return self.person.close(now)

    def read_page(self, now):
        """Read a late page with all rows as they are now."""
        page(self.cluster, list(self.cluster.accounting.rows.values()), now)
        self.person.read(now)

    def periods(self, now=LATER, who="eve@desk", **more):
        values = {"settings": SETTINGS, "policy": CostPolicy(), "bills": History({}, (), {})}
        return ClusterPeriods(store=self.person.store, now=now, who=who, **(values | more))


def lived(folder):
    """Return two months of three accounts, with all days closed."""
    months = Months(folder)
    for number, (day, account, user, project) in enumerate(
        (
            (8, "vision", "ada", "imagenet"),
            (8, "language", "grace", ""),
            (9, "vision", "alan", ""),
            (12, "vision", "ada", "imagenet"),
            (40, "language", "grace", "tokens"),
        ),
        start=1,
    ):
        start = T0 + day * DAY + number * 3 * HOUR
        months.run_job(number, start, account=account, user=user, project=project)
    months.close_days(LATER)
    return months
