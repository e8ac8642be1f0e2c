"""A pass with its reads, its changes, its files and its programs."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.budget import has_work
from slurmplugins.budgets import files
from slurmplugins.budgets.overrides import parse_override, set_override
from slurmplugins.budgets.plan import plan
from slurmplugins.budgets.printing import printable
from slurmplugins.budgets.run import Parts, read_snapshot, run_pass
from slurmplugins.budgets.spending import HeadSpending
from slurmplugins.config import budgets as budgets_config, burst as burst_config
from slurmplugins.config.budgets import Action, BudgetsConfig, ListedWeights
from slurmplugins.errors import BadName, ConfigError, SlurmRefused, SlurmUnreachable, StateError
from slurmplugins.model.account_limits import PartitionMoney
from slurmplugins.reconciler.instance_ledger import LedgerEntry
from slurmplugins.reconciler.pass_state import LedgerPass
from slurmplugins.system.command import SystemRunner
from slurmplugins.system.logger import Log
from tests.fakes.budgets import (
    NOVEMBER,
    NOW,
    TODAY,
    a_budget,
    a_config,
    a_job,
    a_job_of_a_project,
    a_memory,
    a_waiting_job,
    limits,
)
from tests.fakes.clock import FakeClock
from tests.fakes.engine import burst

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.budgets.memory import Memory
    from slurmplugins.model.account_limits import AccountLimits, BilledJob


class FakeSlurm:
    """A Slurm that has what it was told, and records the rest."""

    def __init__(self, *jobs: BilledJob, **accounts: AccountLimits) -> None:
        self.accounts = accounts or {"vision": limits()}
        self.waiting = jobs
        self.denied: dict[str, frozenset[str]] = {"batch": frozenset()}
        self.comments: list[tuple[int, str]] = []
        self.requeued: list[int] = []
        self.held: list[tuple[str, list[int]]] = []
        self.calls: list[tuple[str, str, int | None]] = []
        self.weights: list[tuple[str, str]] = []
        self.error: Exception | None = None
        self.refused: set[int] = set()
        self.refused_accounts: set[str] = set()

    def jobs(self) -> tuple[BilledJob, ...]:
        return self.waiting

    def read(self, accounts: list[str]) -> dict[str, AccountLimits]:
        return {name: item for name, item in self.accounts.items() if name in accounts}

    def partitions(self) -> dict[str, PartitionMoney]:
        return {name: PartitionMoney(items, WEIGHTS) for name, items in self.denied.items()}

    def set_weights(self, partition: str, weights: str) -> None:
        self.weights.append((partition, weights))

    def set_limit(self, account: str, setting: str, value: int | None) -> None:
        self.calls.append((account, setting, value))
        if account in self.refused_accounts:
            raise SlurmRefused("not permitted")
        if self.error:
            raise self.error

    def deny_accounts(self, partition: str, accounts: list[str]) -> None:
        self.denied[partition] = frozenset(accounts)

    def comment(self, job: int, text: str) -> None:
        if job in self.refused:
            raise SlurmRefused("Invalid job id specified")
        self.comments.append((job, text))

    def hold(self, jobs: list[int]) -> None:
        self.held.append(("hold", list(jobs)))

    def release(self, jobs: list[int]) -> None:
        self.held.append(("release", list(jobs)))

    def requeue(self, job: int) -> None:
        self.requeued.append(job)


class FakeAccounting:
    """A slurmdbd without attempts, or one that does not answer."""

    def __init__(self, *rows: dict[str, str], error: Exception | None = None) -> None:
        self.windows: list[tuple[int, int]] = []
        self._rows, self._error = rows, error

    def is_settled(self) -> bool:
        return True

    def window(self, since: int, until: int) -> Any:
        self.windows.append((since, until))
        if self._error:
            raise self._error
        return self

    def rows(self) -> list[dict[str, str]]:
        since, until = self.windows[-1]
        return [row for row in self._rows if int(row["Start"]) < until and int(row["End"]) >= since]


WEIGHTS = "CPU=100.00,Mem=26.40G,GRES/gpu=400.00"
ENTRY = LedgerEntry(
    instance_id="i-1",
    node="gpu-007",
    pool="gpu",
    partition="spot",
    attempt="a",
    type="g5.xlarge",
    zone="us-east-1a",
    lifecycle="spot",
    launched_at=NOW - 3600,
    price="0.5",
)
HEAD = replace(ENTRY, instance_id="i-0", node="head", pool="head")


def parts(
    folder: Path,
    slurm: FakeSlurm,
    config: BudgetsConfig | None = None,
    *,
    accounting: Any = None,
    ledger_pass: LedgerPass = LedgerPass(NOW - 15, "now"),  # noqa: B008 - frozen
) -> tuple[Parts, list[str]]:
    lines: list[str] = []
    config = replace(config or a_config(), folder=str(folder))
    spending = HeadSpending(
        burst_config.parse(burst()), config, lambda: [ENTRY, HEAD], accounting or FakeAccounting()
    )
    edges: Any = slurm
    log = Log(lines.append, FakeClock())

    def stale_ledger(now: float) -> str:
        return ledger_pass.stale_reason(now, "now")

    return Parts(config, edges, edges, spending, SystemRunner(), log, stale_ledger), lines


def a_pass(folder: Path, slurm: FakeSlurm, config: BudgetsConfig | None = None, **more: Any):
    edges, lines = parts(folder, slurm, config, **more)
    made = run_pass(read_snapshot(edges, NOW, save=True), edges)
    return made, [json.loads(line) for line in lines]


def audit(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / files.AUDIT).read_text().splitlines()]


def remember(folder: Path, memory: Memory) -> None:
    files.save(folder, memory)


def test_a_pass_measures_decides_changes_and_remembers(tmp_path: Path):
    remember(tmp_path, a_memory("99.99", measured_until=NOW - 60))
    slurm = FakeSlurm(a_job(), a_waiting_job())
    made, events = a_pass(tmp_path, slurm)
    # One minute of the instance, at the half dollar for which it was bought.
    assert made.figures[0].spent == Decimal("99.998333")
    assert slurm.calls == [("vision", "GrpTRESMins=billing", 0)]
    assert slurm.comments[0][0] == 8
    assert [item["step"] for item in events if item["event"] == "budget_step_reached"] == [
        50,
        80,
        90,
    ]
    assert [item["event"] for item in audit(tmp_path)][-1] == "budget_limit_changed"
    memory = files.load(tmp_path)
    assert memory.measured_until == NOW
    assert memory.limited == {"vision"}
    assert memory.notes.keys() == {8}
    assert memory.unclaimed == {}, "the head is no pool's"


def test_running_jobs_are_requeued_where_the_budget_says_so(tmp_path: Path):
    remember(tmp_path, a_memory("100"))
    slurm = FakeSlurm(a_job())
    a_pass(tmp_path, slurm, a_config(a_budget((100, Action.REQUEUE))))
    assert slurm.requeued == [7]
    assert audit(tmp_path)[-1]["job"] == 7


def test_a_projects_jobs_are_held_and_released_with_an_audit_line(tmp_path: Path):
    config = a_config(a_budget(accounts=(), projects=("imagenet",)))
    spent_days = {"imagenet": {"language": {TODAY: Decimal("99.50")}}}
    remember(tmp_path, a_memory(projects=spent_days))
    slurm = FakeSlurm(a_job_of_a_project(8))
    made, _ = a_pass(tmp_path, slurm, config)
    assert slurm.held == [("hold", [8])]
    assert "project imagenet may cost 100.00 USD" in slurm.comments[0][1]
    assert audit(tmp_path)[-1]["jobs"] == [8]
    assert files.load(tmp_path).held_jobs == {8}
    assert has_work(BudgetsConfig(folder=str(tmp_path))), "the hold of a removed budget ends"
    slurm.waiting = (a_job_of_a_project(8, reason="JobHeldAdmin"),)
    a_pass(tmp_path, slurm, BudgetsConfig())
    assert slurm.held[-1] == ("release", [8])
    assert audit(tmp_path)[-1]["event"] == "budget_jobs_released"
    assert made.figures[0].spent == Decimal("99.50")


def test_the_memory_is_saved_before_the_first_change(tmp_path: Path):
    remember(tmp_path, a_memory("100"))
    slurm = FakeSlurm(vision=limits(run_minutes=70))
    slurm.error = SlurmUnreachable("timed out")
    _, events = a_pass(tmp_path, slurm)
    assert len(slurm.calls) == 1, "the first call without an answer is the last one"
    assert events[-1]["event"] == "budget_change_failed"
    assert files.load(tmp_path).held["vision"].run_minutes == 70


@pytest.mark.parametrize("error", [SlurmUnreachable("timed out"), SlurmRefused("not now")])
def test_limits_that_could_not_be_lifted_are_lifted_by_the_next_pass(tmp_path: Path, error):
    steps = (50, Action.SPOT_ONLY), (100, Action.HOLD), (110, Action.REFUSE)
    remember(tmp_path, a_memory("120"))
    slurm = FakeSlurm(vision=limits(run_minutes=70, submissions=5))
    a_pass(tmp_path, slurm, a_config(a_budget(*steps)))
    assert slurm.denied == {"batch": {"vision", "vision-lab"}}
    slurm.accounts = {"vision": limits(group_minutes=0, run_minutes=0, submissions=0)}
    slurm.error = error
    a_pass(tmp_path, slurm, BudgetsConfig())
    assert has_work(BudgetsConfig(folder=str(tmp_path)))
    slurm.error = None
    slurm.calls.clear()
    a_pass(tmp_path, slurm, BudgetsConfig())
    assert slurm.calls == [
        ("vision", "GrpTRESMins=billing", None),
        ("vision", "GrpTRESRunMins=billing", 70),
        ("vision", "GrpSubmitJobs", 5),
    ]
    assert slurm.denied == {"batch": frozenset()}
    assert not has_work(BudgetsConfig(folder=str(tmp_path)))


def test_a_comment_that_slurm_was_not_asked_for_is_written_by_the_next_pass(tmp_path: Path):
    remember(tmp_path, a_memory("99.99"))
    slurm = FakeSlurm(a_waiting_job())
    slurm.error = SlurmUnreachable("timed out")
    a_pass(tmp_path, slurm)
    assert slurm.comments == []
    assert files.load(tmp_path).notes == {}
    slurm.error = None
    a_pass(tmp_path, slurm)
    assert [job for job, _ in slurm.comments] == [8]
    slurm.accounts = {"vision": limits(group_minutes=600)}
    a_pass(tmp_path, slurm)
    assert [job for job, _ in slurm.comments] == [8], "once"


def test_a_comment_that_slurm_refuses_stops_nothing(tmp_path: Path):
    remember(tmp_path, a_memory("99.99"))
    slurm = FakeSlurm(a_waiting_job(), a_waiting_job(9))
    slurm.refused = {8}
    a_pass(tmp_path, slurm)
    a_pass(tmp_path, slurm)
    assert [job for job, _ in slurm.comments] == [9]


def test_a_refused_change_leaves_the_others(tmp_path: Path):
    remember(tmp_path, a_memory("100"))
    slurm = FakeSlurm()
    slurm.error = SlurmRefused("not permitted")
    a_pass(tmp_path, slurm)
    assert [setting for _, setting, _ in slurm.calls] == [
        "GrpTRESMins=billing", "GrpTRESRunMins=billing"
    ]  # fmt: skip


def test_while_a_lower_limit_is_refused_none_of_its_budget_is_raised(tmp_path: Path):
    remember(tmp_path, a_memory("0"))
    accounts = {
        "audio": limits(group_minutes=10**9),
        "vision": limits(group_minutes=1),
        "zoo": limits(group_minutes=1),
    }
    slurm = FakeSlurm(**accounts)
    shared = a_budget(accounts=("audio", "vision"))
    alone = replace(a_budget(), name="zoo", accounts=("zoo",))
    config = a_config(shared, alone)
    slurm.refused_accounts = {"audio"}
    a_pass(tmp_path, slurm, config)
    changed = [account for account, setting, _ in slurm.calls if setting == "GrpTRESMins=billing"]
    assert changed == ["audio", "zoo"]
    slurm.refused_accounts = set()
    slurm.calls.clear()
    a_pass(tmp_path, slurm, config)
    assert [account for account, _, _ in slurm.calls] == ["audio", "vision", "zoo"]


def test_a_first_pass_measures_the_period_by_what_slurm_billed(tmp_path: Path):
    row = {
        "Account": "vision", "Start": str(int(NOVEMBER) + 3600), "End": str(int(NOVEMBER) + 7200),
        "NodeList": "gpu-[001-002]", "AllocTRES": "cpu=8,billing=3000,node=2",
    }  # fmt: skip
    never = row | {"Start": "0", "NodeList": "None assigned"}
    accounting = FakeAccounting(row, never)
    made, _ = a_pass(tmp_path, FakeSlurm(), accounting=accounting)
    assert made.figures[0].spent == 3
    assert accounting.windows[0] == (int(NOVEMBER), int(NOVEMBER) + 86_401)
    assert len(accounting.windows) == 26
    assert files.load(tmp_path).measured_from == NOVEMBER


def test_a_gap_is_read_from_sacct_and_a_minute_is_not(tmp_path: Path):
    accounting = FakeAccounting()
    remember(tmp_path, a_memory("1", measured_until=NOW - 200))
    a_pass(tmp_path, FakeSlurm(), accounting=accounting)
    assert accounting.windows == []
    remember(tmp_path, a_memory("1", measured_until=NOW - 300))
    a_pass(tmp_path, FakeSlurm(), accounting=accounting)
    assert accounting.windows == [(int(NOW) - 300, int(NOW) + 1)]


@pytest.mark.parametrize(
    ("ledger_pass", "reason"),
    [
        (LedgerPass(), "since the head's start"),
        (LedgerPass(NOW - 15, "earlier"), "since the head's start"),
        (LedgerPass(NOW - 301, "now"), "for 301 s"),
    ],
)
def test_nothing_is_measured_before_reconcile_has_looked_at_ec2(
    tmp_path: Path, ledger_pass: LedgerPass, reason: str
):
    remember(tmp_path, a_memory("1", measured_until=NOW - 200))
    made, events = a_pass(tmp_path, FakeSlurm(a_job()), ledger_pass=ledger_pass)
    assert made.figures[0].spent == 1
    assert files.load(tmp_path).measured_until == NOW - 200
    (stale,) = [item for item in events if item["event"] == "budget_figures_stale"]
    assert stale["message"] == f"reconcile has not looked at EC2 {reason}"
    made, _ = a_pass(tmp_path, FakeSlurm(a_job()))
    assert made.figures[0].spent > 1, "the next pass measures that time too"
    assert files.load(tmp_path).measured_until == NOW


def test_a_reconcile_that_stands_still_makes_the_figures_stale(tmp_path: Path):
    remember(tmp_path, a_memory("100", measured_until=NOW - 901))
    slurm = FakeSlurm(vision=limits(group_minutes=6_000_000))
    made, events = a_pass(tmp_path, slurm, ledger_pass=LedgerPass(NOW - 901, "now"))
    assert made.figures[0].stale
    assert slurm.calls == []
    assert "no new step is taken" in events[-1]["message"]


def test_attempts_that_cannot_be_read_leave_the_figures_and_say_so(tmp_path: Path):
    remember(tmp_path, a_memory("100", measured_until=NOW - 2000))
    accounting = FakeAccounting(error=SlurmUnreachable("slurmdbd does not answer"))
    slurm = FakeSlurm(vision=limits(group_minutes=6_000_000))
    made, events = a_pass(tmp_path, slurm, accounting=accounting)
    assert made.figures[0].stale
    assert slurm.calls == []
    assert {item["event"] for item in events} == {"budget_figures_stale"}
    assert files.load(tmp_path).measured_until == NOW - 2000


def test_the_program_of_a_step_gets_it_as_json(tmp_path: Path):
    target = tmp_path / "mail"
    code = f"import sys; open({str(target)!r}, 'a').write(sys.stdin.read())"
    budget = a_budget((50, Action.WARN), notify=(sys.executable, "-c", code))
    remember(tmp_path, a_memory("60"))
    for _ in range(2):
        a_pass(tmp_path, FakeSlurm(), a_config(budget))
    (value,) = [json.loads(line) for line in target.read_text().splitlines()]
    assert (value["name"], value["step"], value["usd_spent"]) == ("vision-month", 50, "60.00")


def test_a_program_that_fails_is_logged_and_stops_nothing(tmp_path: Path):
    budget = a_budget((50, Action.HOLD), notify=("/nowhere/mail",))
    remember(tmp_path, a_memory("60"))
    slurm = FakeSlurm()
    _, events = a_pass(tmp_path, slurm, a_config(budget))
    assert "budget_program_failed" in [item["event"] for item in events]
    assert ("vision", "GrpTRESRunMins=billing", 0) in slurm.calls


def test_an_override_lets_jobs_go_on_and_ends(tmp_path: Path):
    config = replace(a_config(), folder=str(tmp_path))
    remember(tmp_path, a_memory("100"))
    slurm = FakeSlurm()
    a_pass(tmp_path, slurm)
    slurm.accounts = {"vision": limits(group_minutes=0, run_minutes=0)}
    override = parse_override("50", str(NOW + 3600), "root", "a deadline", NOW)
    set_override(config, "vision-month", override, NOW)
    slurm.calls.clear()
    a_pass(tmp_path, slurm)
    assert slurm.calls == [
        ("vision", "GrpTRESMins=billing", 50 * 60_000),
        ("vision", "GrpTRESRunMins=billing", None),
    ]
    set_override(config, "vision-month", None, NOW)
    changes = [item for item in audit(tmp_path) if item["event"] == "budget_override_changed"]
    assert [item["override"] and item["override"]["reason"] for item in changes] == [
        "a deadline", None
    ]  # fmt: skip
    assert files.load(tmp_path).overrides == {}


@pytest.mark.parametrize(
    ("usd", "until"),
    [("0", 60), ("-5", 60), ("much", 60), ("nan", 60), ("5", -1), ("5", 10**9), ("lift", 0)],
)
def test_a_bad_override_is_refused(usd, until):
    with pytest.raises(BadName):
        parse_override(usd, str(NOW + until), "root", "why", NOW)


def test_an_override_of_no_budget_is_refused(tmp_path: Path):
    with pytest.raises(BadName, match="it has vision-month"):
        set_override(replace(a_config(), folder=str(tmp_path)), "visio", None, NOW)


def test_a_plan_changes_nothing_and_is_json(tmp_path: Path):
    remember(tmp_path, a_memory("100", measured_until=NOW - 60))
    slurm = FakeSlurm(a_job(), a_waiting_job())
    edges, _ = parts(
        tmp_path, slurm, a_config(a_budget((90, Action.SPOT_ONLY), (100, Action.REQUEUE)))
    )
    snapshot = read_snapshot(edges, NOW, save=False)
    value = json.loads(json.dumps(printable(plan(snapshot), snapshot)))
    assert [item["setting"] for item in value["changes"]] == [
        "GrpTRESMins=billing", "GrpTRESRunMins=billing", "DenyAccounts", "requeue"
    ]  # fmt: skip
    assert value["budgets"][0]["actions"] == ["requeue", "spot-only"]
    assert value["config"] == budgets_config.to_json(edges.config)
    assert (slurm.calls, slurm.comments) == ([], [])
    assert files.load(tmp_path).measured_until == NOW - 60


def test_weights_follow_what_was_bought(tmp_path: Path):
    """The instance cost half a dollar, and the first offering four tenths."""
    weights = {"batch": ListedWeights(WEIGHTS, {"gpu": Decimal("0.4")})}
    slurm = FakeSlurm()
    _, events = a_pass(tmp_path, slurm, BudgetsConfig(weights=weights))
    assert slurm.weights == [("batch", "CPU=125.00,Mem=33.00G,GRES/gpu=500.00")]
    assert events[-1]["setting"] == "TRESBillingWeights"


def test_a_damaged_memory_moves_no_limit(tmp_path: Path):
    (tmp_path / files.FILE).write_text('{"days": {"vision": {"2026-11-26": "NaN"}}}')
    slurm = FakeSlurm()
    with pytest.raises(StateError, match="no limit is moved"):
        a_pass(tmp_path, slurm)
    assert slurm.calls == []


def test_without_budgets_slurm_is_asked_only_while_limits_are_ours(tmp_path: Path):
    config = BudgetsConfig(folder=str(tmp_path))
    assert not has_work(config)
    remember(tmp_path, a_memory(limited=frozenset({"vision"})))
    assert has_work(config)
    assert has_work(a_config())


def test_the_part_of_burst_json_is_read_as_it_was_written():
    config = a_config(a_budget((50, Action.WARN), (100, Action.REFUSE), notify=("/bin/mail", "x")))
    assert budgets_config.parse({"budgets": budgets_config.to_json(config)}) == config
    assert budgets_config.parse({}) == BudgetsConfig()
    listed = replace(config, weights={"batch": ListedWeights(WEIGHTS, {"gpu": Decimal("0.4")})})
    assert budgets_config.parse({"budgets": budgets_config.to_json(listed)}) == listed
    for bad in ({"limits": {}}, {**budgets_config.to_json(config), "tail": "x"}):
        with pytest.raises(ConfigError):
            budgets_config.parse({"budgets": bad})
