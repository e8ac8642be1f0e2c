"""Laws of account budgets, for any spending, steps and queue.

`admits` is slurmctld's own rule under `safe`: `_validate_tres_usage_limits` in acct_policy.c.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import given, strategies as st

from slurmplugins.budgets.memory import Memory
from slurmplugins.budgets.meter import Allocation, InstanceTime, measure
from slurmplugins.budgets.plan import BudgetSnapshot, plan
from slurmplugins.config.budgets import HOLDING, Action
from slurmplugins.model.account_limits import UNITS_PER_USD, AccountLimits
from tests.fakes import budgets as fakes

NOW = fakes.NOW
cents = st.integers(0, 20_000).map(lambda number: Decimal(number) / 100)
step_lists = st.lists(
    st.tuples(st.integers(1, 120), st.sampled_from(list(Action))),
    min_size=1,
    max_size=4,
    unique_by=lambda step: step[0],
).map(sorted)
limits = st.builds(
    AccountLimits,
    account=st.just("vision"),
    used=st.integers(0, 10**8),
    running=st.integers(0, 10**7),
    group_minutes=st.one_of(st.none(), st.integers(0, 10**8)),
    run_minutes=st.sampled_from([None, None, 0, 5000]),
    submissions=st.sampled_from([None, None, 0, 10]),
)
jobs = st.lists(
    st.builds(
        fakes.a_job,
        number=st.integers(1, 9),
        end=st.integers(0, 9).map(lambda hours: NOW + 3600 * hours),
        usd_per_hour=cents,
    ),
    max_size=3,
    unique_by=lambda job: job.id,
).map(tuple)


def admits(account: AccountLimits, job: int) -> bool:
    """Return whether slurmctld starts a job of so many billing minutes."""
    group, run = account.group_minutes, account.run_minutes
    if group is not None and job:
        if account.used >= group or job > group:
            return False
        if job + account.running > group - account.used:
            return False
    return run is None or not job or job + account.running <= run


def after(snapshot: BudgetSnapshot) -> tuple[AccountLimits, BudgetSnapshot]:
    """Return the account's limits after a pass, and the next pass's snapshot."""
    made = plan(snapshot)
    account = snapshot.limits["vision"]
    names = {
        "GrpTRESMins=billing": "group_minutes",
        "GrpTRESRunMins=billing": "run_minutes",
        "GrpSubmitJobs": "submissions",
    }
    for change in made.limits:
        account = replace(account, **{names[change.setting]: change.value})
    denied = {**snapshot.denied, **{item.partition: item.accounts for item in made.denials}}
    later = replace(snapshot, memory=made.memory, limits={"vision": account}, denied=denied)
    return account, later


@given(cents, step_lists, limits, jobs, st.integers(1, 200))
def test_slurm_starts_no_job_that_the_budget_cannot_pay(usd, steps, account, running, job_usd):
    snapshot = fakes.snapshot(
        *running,
        memory=fakes.a_memory(str(usd)),
        config=fakes.a_config(fakes.a_budget(*steps)),
        limits={"vision": account},
    )
    (item,) = plan(snapshot).figures
    changed, _ = after(snapshot)
    job = job_usd * UNITS_PER_USD
    tolerance = Decimal("0.11")  # a limit is not moved for a thousandth
    if item.free is not None and job_usd > item.free + tolerance:
        assert not admits(changed, job)
    if item.holds:
        assert not admits(changed, 1)
    elif item.free is not None and job_usd <= item.free - tolerance and changed.run_minutes is None:
        assert admits(changed, job)


waiting_jobs = st.lists(
    st.builds(
        fakes.a_waiting_job,
        number=st.integers(1, 99),
        account=st.sampled_from(["vision", "language", "robots"]),
        usd_until_limit=st.integers(1, 60).map(Decimal),
        reason=st.sampled_from(["AssocGrpBillingMinutes", "Resources"]),
    ),
    max_size=6,
    unique_by=lambda job: job.id,
).map(tuple)


@given(cents, waiting_jobs)
def test_accounts_of_a_budget_commit_together_no_more_than_is_free_while_no_pass_is_made(
    usd, queue
):
    """Let Slurm alone start all that it admits, after the last pass."""
    names = ("language", "robots", "vision")
    first = fakes.snapshot(
        *queue,
        memory=fakes.a_memory(str(usd)),
        config=fakes.a_config(fakes.a_budget(accounts=names)),
        limits={name: AccountLimits(name, 0, 0) for name in names},
    )
    made = plan(first)
    accounts = dict(first.limits)
    for item in made.limits:
        if item.setting == "GrpTRESMins=billing":
            accounts[item.account] = replace(accounts[item.account], group_minutes=item.value)
    new = [fakes.a_waiting_job(n, account=name) for name in names for n in range(100, 110)]
    started = Decimal(0)
    for job in (*queue, *new):
        cost, account = job.usd_until_limit or Decimal(3), accounts[job.account]
        if admits(account, int(cost * UNITS_PER_USD)):
            started += cost
            running = account.running + int(cost * UNITS_PER_USD)
            accounts[job.account] = replace(account, running=running)
    (figures,) = made.figures
    free = max(figures.free or Decimal(0), Decimal(0))
    assert started <= free
    if any((job.usd_until_limit or 0) <= free for job in queue):
        assert started, "money is left, and a job that fits waits"


lives = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 100), st.booleans()), max_size=12)


@given(lives, st.integers(1, 100))
def test_an_account_ends_at_its_amount_or_below_it(jobs, usd):
    """Start what Slurm admits, and end it early or late."""
    config = fakes.a_config(fakes.a_budget(usd=Decimal(usd)))
    account, spent = AccountLimits("vision", 0, 0), Decimal(0)
    for hours, percent, is_pass in ((0, 0, True), *jobs):
        if is_pass:
            memory = fakes.a_memory(str(spent))
            snapshot = fakes.snapshot(memory=memory, config=config, limits={"vision": account})
            account, _ = after(snapshot)
        units = hours * UNITS_PER_USD  # of a job at one dollar an hour
        if hours and admits(account, units):
            spent += Decimal(hours * percent) / 100
            account = replace(account, used=account.used + units * percent // 100)
    cent = Decimal("0.01")
    tolerance = max(cent, Decimal(usd) / 1000)
    assert spent <= usd + tolerance + cent, "a limit is not moved for a thousandth"


@given(cents, step_lists, limits, jobs)
def test_a_second_pass_changes_nothing(usd, steps, account, running):
    config = fakes.a_config(fakes.a_budget(*steps))
    memory = fakes.a_memory(str(usd))
    first = fakes.snapshot(*running, memory=memory, config=config, limits={"vision": account})
    _, later = after(first)
    again = plan(later)
    assert (again.limits, again.denials, again.reached) == ((), (), ())


@given(cents, step_lists, limits)
def test_a_budget_that_is_removed_gives_back_what_the_account_had(usd, steps, account):
    config = fakes.a_config(fakes.a_budget(*steps))
    memory = fakes.a_memory(str(usd))
    own = replace(account, group_minutes=None)
    first = fakes.snapshot(memory=memory, config=config, limits={"vision": own})
    _, later = after(first)
    freed, last = after(replace(later, config=replace(config, budgets={})))
    assert freed == own
    assert last.denied == first.denied
    assert not last.memory.limited
    assert not last.memory.held


@given(cents, cents, step_lists)
def test_more_spending_never_takes_a_step_back(usd, more, steps):
    budget = fakes.a_budget(*steps)
    config = fakes.a_config(budget)
    before, later = (
        plan(fakes.snapshot(memory=fakes.a_memory(str(amount)), config=config)).figures[0]
        for amount in (usd, usd + more)
    )
    assert before.standing.percent <= later.standing.percent
    assert before.actions <= later.actions
    assert bool(later.actions & HOLDING) == later.holds


@given(cents, step_lists, limits)
def test_stale_figures_close_nothing(usd, steps, account):
    memory = fakes.a_memory(str(usd), measured_until=NOW - 10_000)
    config = fakes.a_config(fakes.a_budget(*steps))
    snapshot = fakes.snapshot(memory=memory, config=config, limits={"vision": account})
    made, (changed, _) = plan(snapshot), after(snapshot)
    assert not made.reached
    assert not made.denials
    assert not any(change.value == 0 for change in made.limits)
    for job in (1, 10**6, 10**8):
        assert admits(changed, job) or not admits(account, job) or account.group_minutes is None


waiting = st.lists(
    st.builds(
        fakes.a_job_of_a_project,
        number=st.integers(1, 9),
        usd=st.one_of(st.none(), st.integers(0, 200).map(str)),
        reason=st.sampled_from(["Resources", "Dependency", "JobHeldUser", "JobHeldAdmin"]),
    ),
    max_size=6,
    unique_by=lambda job: job.id,
).map(tuple)


@given(cents, step_lists, waiting, st.frozensets(st.integers(1, 9)))
def test_a_projects_jobs_that_may_start_fit_into_its_budget_together(usd, steps, queue, held):
    budget = fakes.a_budget(*steps, accounts=(), projects=("imagenet",))
    memory = fakes.a_memory(projects={"imagenet": {"language": {fakes.TODAY: usd}}}, held_jobs=held)
    config = fakes.a_config(budget)
    snapshot = fakes.snapshot(*queue, memory=memory, config=config, limits={})
    made = plan(snapshot)
    (item,) = made.figures
    later = tuple(_after_holds(job, made) for job in queue)
    free = [job for job in later if job.reason == "Resources"]
    if item.holds:
        assert not free
    elif item.free is not None:
        costs = [job.usd_until_limit for job in free]
        assert not costs or sum(costs) <= max(item.free, 0)
    persons = {job.id for job in queue if job.reason.startswith("JobHeld")} - held
    assert not persons & {*made.holds, *made.releases}
    again = plan(replace(snapshot, jobs=later, memory=made.memory))
    assert again.holds == again.notices == ()


def _after_holds(job, made):
    if job.id in made.holds:
        return replace(job, reason="JobHeldAdmin")
    return replace(job, reason="Resources") if job.id in made.releases else job


hours = st.integers(0, 96).map(lambda number: number / 2)
spans = st.tuples(hours, hours).map(sorted)
attempts = st.builds(
    lambda account, span, usd, nodes: Allocation(
        account, nodes, NOW + span[0] * 3600, NOW + span[1] * 3600, usd
    ),
    st.sampled_from(["vision", "language"]),
    spans,
    cents,
    st.sampled_from([("gpu-001",), ("gpu-002",), ("gpu-001", "gpu-002")]),
)
instances = st.builds(
    lambda name, span, usd, static: InstanceTime(
        f"i-{name}", name, NOW + span[0] * 3600, NOW + span[1] * 3600, usd, static
    ),
    st.sampled_from(["gpu-001", "gpu-002"]),
    spans,
    cents,
    st.booleans(),
)


@given(st.lists(instances, max_size=2, unique_by=lambda i: i.node), st.lists(attempts, max_size=5))
def test_each_second_of_each_instance_is_somebodys_once(machines, work):
    end = NOW + 96 * 1800 + 1
    covered = [item for item in work if not set(item.nodes) - {i.node for i in machines}]
    free = [replace(item, usd_per_hour=Decimal(0)) for item in covered]
    memory = measure(Memory(), machines, free, NOW, end)
    total = sum(usd for days in memory.days.values() for usd in days.values())
    total += sum(memory.nobody.values()) + sum(memory.unclaimed.values())
    bought = sum(
        (item.usd_per_hour * Decimal(item.end - item.begin) / 3600 for item in machines), Decimal(0)
    )
    assert abs(total - bought) < Decimal("0.0005")
