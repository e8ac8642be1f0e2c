"""Limits of accounts through sshare, sacctmgr and scontrol: argv only, columns in, values out.

sshare prints billing without decimals, in TRES minutes (`GrpTRESRaw`, `TRESRunMins`), as slurmctld
has it at that moment. sacctmgr prints the limits, as slurmdbd has them.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import BadName, SlurmRefused
from slurmplugins.model.account_limits import AccountLimits, BilledJob, PartitionMoney
from slurmplugins.model.hostlist import expand
from slurmplugins.model.queued_job import tasks_at_once
from slurmplugins.slurm.json_parser import (
    count,
    failure,
    flags,
    number,
    records,
    strict_number,
    text,
    waiting_tasks,
)
from slurmplugins.slurm.scontrol import READ_TIMEOUT, WRITE_TIMEOUT, read_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from slurmplugins.system.command import Runner

_USE: Final = ("Account", "User", "GrpTRESRaw", "TRESRunMins")
_LIMITS: Final = ("Account", "User", "Partition", "GrpTRESMins", "GrpTRESRunMins", "GrpSubmit")
_BILLING: Final = re.compile(r"(?:^|,)billing=(\d{1,20})(?:,|$)", re.ASCII)
JOBS_AT_ONCE: Final = 500
"""Job ids in one call of scontrol."""
_MILLI: Final = Decimal(1000)
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}", re.ASCII)


class SlurmLimits:
    """The limits of accounts on one cluster. Each method raises SlurmError."""

    def __init__(self, runner: Runner, bin_dir: str, cluster: str) -> None:
        self._runner = runner
        self._bin = bin_dir
        self._cluster = cluster

    def read(self, accounts: Sequence[str]) -> dict[str, AccountLimits]:
        """Return limits and use of these accounts, but unknown ones."""
        if not accounts:
            return {}
        names = ",".join(map(_name, accounts))
        limits = self._rows(
            f"{self._bin}/sacctmgr",
            ("-n", "-P", "show", "assoc", f"cluster={self._cluster}", f"account={names}"),
            _LIMITS,
        )
        uses = self._rows(f"{self._bin}/sshare", ("-n", "-P", "-A", names), _USE)
        use = {row["Account"]: row for row in uses if not row["User"]}
        return {
            row["Account"]: AccountLimits(
                account=row["Account"],
                used=_billing(use[row["Account"]]["GrpTRESRaw"]) or 0,
                running=_billing(use[row["Account"]]["TRESRunMins"]) or 0,
                group_minutes=_billing(row["GrpTRESMins"]),
                run_minutes=_billing(row["GrpTRESRunMins"]),
                submissions=int(row["GrpSubmit"]) if row["GrpSubmit"].isdecimal() else None,
            )
            for row in limits
            if not row["User"] and not row["Partition"] and row["Account"] in use
        }

    def set_limit(self, account: str, setting: str, value: int | None) -> None:
        """Set an account's limit, such as GrpTRESMins=billing; None removes it."""
        where = ("where", f"name={_name(account)}", f"cluster={self._cluster}")
        assignment = f"{setting}={-1 if value is None else value}"
        self._write([f"{self._bin}/sacctmgr", "-i", "modify", "account", *where, "set", assignment])

    def partitions(self) -> dict[str, PartitionMoney]:
        """Return each partition's DenyAccounts and billing weights, as slurmctld has them."""
        argv = [f"{self._bin}/scontrol", "show", "partitions", "--json"]
        items = records(argv, self._runner.run(argv, timeout=READ_TIMEOUT), "partitions")
        return dict(_partition(item) for item in items if isinstance(item, dict))

    def set_weights(self, partition: str, weights: str) -> None:
        """Replace a partition's billing weights, for jobs that start later.

        slurmctld forgets them when it reads slurm.conf.
        """
        words = (f"partitionname={partition}", f"tresbillingweights={weights}")
        self._write([f"{self._bin}/scontrol", "update", *words])

    def deny_accounts(self, partition: str, accounts: Sequence[str]) -> None:
        """Replace a partition's DenyAccounts. slurmctld forgets it when it reads slurm.conf."""
        names = ",".join(map(_name, accounts))
        words = (f"partitionname={partition}", f"denyaccounts={names}")
        self._write([f"{self._bin}/scontrol", "update", *words])

    def hold(self, jobs: Sequence[int]) -> None:
        """Hold waiting jobs, until an admin or a later pass releases them."""
        self._control("hold", jobs)

    def release(self, jobs: Sequence[int]) -> None:
        """Let held jobs start."""
        self._control("release", jobs)

    def _control(self, verb: str, jobs: Sequence[int]) -> None:
        for begin in range(0, len(jobs), JOBS_AT_ONCE):
            numbers = ",".join(map(str, jobs[begin : begin + JOBS_AT_ONCE]))
            self._write([f"{self._bin}/scontrol", verb, numbers])

    def jobs(self) -> tuple[BilledJob, ...]:
        """Return all jobs that slurmctld knows, but unreadable ones."""
        items = read_jobs(self._runner, f"{self._bin}/scontrol", timeout=READ_TIMEOUT)
        jobs = (billed_job(item) for item in items)
        return tuple(job for job in jobs if job is not None)

    def _rows(
        self, program: str, words: Sequence[str], fields: Sequence[str]
    ) -> Iterator[Mapping[str, str]]:
        argv = [program, *words, f"format={','.join(fields)}"]
        if program.endswith("/sshare"):
            argv = [program, *words, f"--format={','.join(fields)}"]
        result = self._runner.run(argv, timeout=READ_TIMEOUT)
        if result.returncode:
            raise failure(argv, result)
        return iter([_row(line, fields) for line in result.stdout.splitlines() if line.strip()])

    def _write(self, argv: Sequence[str]) -> None:
        result = self._runner.run(argv, timeout=WRITE_TIMEOUT)
        if result.returncode:
            raise failure(argv, result)


def billed_job(item: object) -> BilledJob | None:
    """Return a job of scontrol's JSON; None if a field is malformed."""
    record: Mapping[str, Any] = item if isinstance(item, dict) else {}
    try:
        states = flags(record.get("job_state"))
        is_pending = "PENDING" in states
        nodes = "" if is_pending else text(record.get("nodes"))
        return BilledJob(
            id=count(record.get("job_id")),
            account=text(record.get("account")),
            states=states,
            partitions=tuple(filter(None, text(record.get("partition")).split(","))),
            reason=text(record.get("state_reason")),
            nodes=tuple(expand(nodes)) if nodes else (),
            begin=strict_number(record.get("start_time")) or 0.0,
            end=strict_number(record.get("end_time")) or None,
            usd_per_hour=usd_per_hour(text(record.get("tres_alloc_str"))),
            submitted=strict_number(record.get("submit_time")) or 0.0,
            wckey=text(record.get("wckey")),
            usd_until_limit=_usd_until_limit(record) if is_pending else None,
            tasks=_at_once(record) if is_pending else 1,
            may_requeue=record.get("batch_flag") is True and record.get("requeue") is True,
        )
    except (ValueError, BadName):
        return None


def _usd_until_limit(record: Mapping[str, Any]) -> Decimal | None:
    """Return the cost of a waiting job until its time limit.

    Of an array, as many tasks count as may run at once.
    """
    minutes = strict_number(record.get("time_limit"))
    if minutes is None:
        return None
    hourly = usd_per_hour(text(record.get("tres_req_str")))
    return hourly * Decimal(minutes) * _at_once(record) / 60


def _at_once(record: Mapping[str, Any]) -> int:
    tasks = tasks_at_once(waiting_tasks(record))
    most = number(record.get("array_max_tasks"))
    return min(tasks, int(most)) if most else tasks


def usd_per_hour(tres: str) -> Decimal:
    """Return US dollars an hour of a text such as `cpu=4,billing=1006`: 1.006."""
    return Decimal(_billing(tres) or 0) / _MILLI


def _row(line: str, fields: Sequence[str]) -> dict[str, str]:
    cells = [cell.strip() for cell in line.split("|")]
    if len(cells) != len(fields):
        raise SlurmRefused(f"Slurm printed a line without {len(fields)} columns: {line[:80]!r}")
    return dict(zip(fields, cells, strict=True))


def _billing(tres: str) -> int | None:
    match = _BILLING.search(tres)
    return int(match[1]) if match else None


def _partition(item: Mapping[str, Any]) -> tuple[str, PartitionMoney]:
    accounts, tres = (
        value if isinstance(value := item.get(key), dict) else {} for key in ("accounts", "tres")
    )
    names = filter(None, text(accounts.get("deny")).split(","))
    return text(item.get("name")), PartitionMoney(
        frozenset(names), text(tres.get("billing_weights"))
    )


def _name(account: str) -> str:
    if not _NAME.fullmatch(account):
        raise SlurmRefused(f"not an account of cluster.yaml: {account[:80]!r}")
    return account
