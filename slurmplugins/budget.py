"""Hold the account budgets in Slurm; a systemd timer runs this program as slurm.

slurm-budget                                        One pass.
slurm-budget --plan [JSON]                          Print figures and changes as JSON; change none.
slurm-budget override NAME USD|lift UNTIL BY WHY    Add US dollars, or lift all steps, until then.
slurm-budget end-override NAME                      End that exception now.
slurm-budget close-days JSON                        Take a report's amounts for closed days.

UNTIL is in epoch seconds. A plan of JSON is that of budgets which the head does not have yet.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from slurmplugins.budgets import closed_days, files
from slurmplugins.budgets.not_applied import with_budgets
from slurmplugins.budgets.overrides import parse_override, set_override
from slurmplugins.budgets.plan import plan
from slurmplugins.budgets.printing import printable
from slurmplugins.budgets.run import Parts, read_snapshot, run_pass
from slurmplugins.budgets.spending import HeadSpending
from slurmplugins.config import budgets, burst, paths
from slurmplugins.errors import BadName
from slurmplugins.head.assemble import check_cluster
from slurmplugins.reconciler.pass_state import LedgerPass, PassState
from slurmplugins.slurm.account_limits import SlurmLimits
from slurmplugins.slurm.accounting import SlurmAccounting
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system import program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner
from slurmplugins.system.files import locked
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.config.budgets import BudgetsConfig
    from slurmplugins.reconciler.instance_ledger import LedgerEntry
    from slurmplugins.system.logger import Log


def main() -> None:
    log = program.open_log("budget")

    def work() -> None:
        config, limits = burst.load(paths.BURST), budgets.load(paths.BURST)
        check_cluster(config.cluster, paths.SLURM_CONF)
        if limits.folder:
            run(sys.argv[1:], config, limits, log)

    sys.exit(program.run_to_exit_code(log, work))


def run(
    arguments: Sequence[str], config: burst.BurstConfig, limits: BudgetsConfig, log: Log
) -> None:
    """Carry out the command. Raises EngineError."""
    now = SystemClock().now()
    lock = Path(limits.folder, files.LOCK)
    match arguments:
        case []:
            with locked(lock):
                if has_work(limits):
                    parts = _parts(config, limits, log)
                    made = run_pass(read_snapshot(parts, now, save=True), parts)
                    files.save_remaining(paths.STATE, made.figures, limits)
                else:
                    files.save_remaining(paths.STATE, (), limits)
        case ["--plan"]:
            print_plan(_parts(config, limits, log), now)
        case ["--plan", text]:
            print_plan(_parts(config, with_budgets(limits, text), log), now)
        case ["override", name, usd, until, by, why]:
            with locked(lock):
                set_override(limits, name, parse_override(usd, until, by, why, now), now)
        case ["end-override", name]:
            with locked(lock):
                set_override(limits, name, None, now)
        case ["close-days", text]:
            with locked(lock):
                take_closed_days(limits, closed_days.parse(text), now)
        case _:
            raise BadName(f"unknown arguments: {' '.join(arguments)[:80]!r}")


def print_plan(parts: Parts, now: float) -> None:
    """Print figures and changes, and change nothing. Raises EngineError."""
    snapshot = read_snapshot(parts, now, save=False)
    sys.stdout.write(json.dumps(printable(plan(snapshot), snapshot), indent=2) + "\n")


def take_closed_days(limits: BudgetsConfig, closed: closed_days.ClosedDays, now: float) -> None:
    """Replace the measure of these days. Raises StateError."""
    folder = Path(limits.folder)
    memory = closed_days.with_closed_days(files.load(folder), limits, closed)
    files.save(folder, memory)
    usd = sum((item.usd for item in closed.costs), Decimal(0))
    days = {"first": closed.first, "last": closed.last}
    files.audit(folder, now, LogEvent.BUDGET_DAYS_CLOSED.value, **days, usd=f"{usd:.2f}")


def has_work(limits: BudgetsConfig) -> bool:
    """Return whether a pass may change anything.

    Without a budget, it removes the limits of the budgets that were. Otherwise Slurm is asked
    nothing.
    """
    if limits.budgets or limits.weights:
        return True
    memory = files.load(Path(limits.folder))
    return bool(
        memory.limited or memory.held or memory.refused or memory.denied or memory.held_jobs
    )


def _parts(config: burst.BurstConfig, limits: BudgetsConfig, log: Log) -> Parts:
    runner = SystemRunner()
    return Parts(
        config=limits,
        slurm_limits=SlurmLimits(runner, config.slurm_bin, config.slurm_cluster or config.cluster),
        slurm=ScontrolSlurm(runner, config.slurm_bin, log=log),
        spending=HeadSpending(
            config,
            limits,
            _ledger,
            SlurmAccounting(runner, config.slurm_bin),
        ),
        runner=runner,
        log=log,
        stale_ledger=lambda now: LedgerPass.load(paths.STATE).stale_reason(
            now, SystemClock().boot()
        ),
    )


def _ledger() -> Iterable[LedgerEntry]:
    return PassState.load(paths.STATE).ledger.values()


if __name__ == "__main__":
    main()
