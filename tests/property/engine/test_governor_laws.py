"""Laws of the burst governor, for any queue, rule and memory."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import given, strategies as st

from slurmplugins.config.governor import DataRule, GovernorConfig, RackRule
from slurmplugins.governor.decide import Facts, decide
from slurmplugins.governor.plan import QueueSnapshot, plan
from slurmplugins.governor.spending import Burst, Spending, observe, spent
from slurmplugins.model.queued_job import NodeGroup, QueuedJob, QueuePartition, Request
from tests.fakes import governor

NOW = 1_795_650_000.0
ACCOUNTS = ("vision", "language", "guests")
BOTH = ("rack", "cloud")

times = st.one_of(st.none(), st.integers(-20_000, 20_000).map(lambda seconds: NOW + seconds))
requests = st.builds(
    Request,
    cpus=st.sampled_from([1, 4, 8, 16]),
    memory_mib=st.sampled_from([0, 4000, 8000, 100_000]),
    nodes=st.sampled_from([1, 1, 2, 6]),
    most_nodes=st.sampled_from([0, 0, 0, 2, 6]),
    gpus=st.sampled_from([0, 0, 0, 1, 4]),
    gpu=st.sampled_from(["", "", "a10g", "h100"]),
    cpus_of_node=st.sampled_from([1, 1, 4, 16]),
)
groups = st.builds(
    NodeGroup,
    count=st.integers(4, 8),
    cpus=st.integers(8, 32),
    memory_mib=st.integers(8000, 64_000),
    gpus=st.sampled_from([{}, {"a10g": 1}, {"h100": 4}]),
    usd_per_hour=st.sampled_from(["0.40", "1.20", "12.00"] * 5 + [""]),
)


def partitions(name: str) -> st.SearchStrategy[QueuePartition]:
    return st.builds(
        QueuePartition,
        name=st.just(name),
        up=st.sampled_from([True] * 7 + [False]),
        max_time=st.sampled_from([None, None, 3600.0]),
        tier=st.sampled_from([1] * 7 + [2]),
        groups=st.lists(groups, min_size=1, max_size=3).map(tuple),
        denied_accounts=st.sampled_from([()] * 7 + [("vision",)]),
    )


rules = st.builds(
    RackRule,
    rack=st.just("rack"),
    cloud=st.just("cloud"),
    after=st.sampled_from([0.0, 600.0, 3600.0, 20_000.0]),
    budgets=st.fixed_dictionaries(
        {"vision": st.sampled_from([Decimal(usd) for usd in (20, 2, 500, 0)])},
        optional={"language": st.just(Decimal(30))},
    ),
    soon=st.integers(0, 3600).map(float),
    qos=st.sampled_from([{}, {}, {"urgent": 60.0}]),
    deadline=st.booleans(),
    data=st.builds(
        DataRule, on_site=st.booleans(), usd_per_gb=st.sampled_from([Decimal(0), Decimal("0.05")])
    ),
)


OBSTACLES = (
    {"priority": 0},
    {"reason": "AssocGrpGRES"},
    {"eligible_at": None},
    {"eligible_at": NOW + 60},
    {"time_limit": None},
    {"batch": False},
    {"may_requeue": False},
    {"licenses": "matlab:1"},
    {"account": "guests"},
    {"states": frozenset({"RUNNING"})},
    {"deadline": NOW + 900},
    {"deadline": NOW + 9000},
)


@st.composite
def jobs(draw: st.DrawFn) -> QueuedJob:
    """Return a job that could burst, or one with something against it."""
    job = QueuedJob(
        id=draw(st.integers(1, 30)),
        label="",
        states=frozenset({"PENDING"}),
        partitions=draw(st.sampled_from([("rack",), ("rack",), BOTH])),
        account=draw(st.sampled_from(ACCOUNTS[:2])),
        qos=draw(st.sampled_from(["urgent", "normal"])),
        request=draw(requests),
        priority=draw(st.integers(1, 4)),
        reason="Resources",
        submitted_at=NOW - draw(st.integers(0, 20_000)),
        eligible_at=NOW - draw(st.sampled_from([9000, 900, 60])),
        start_at=draw(times),
        time_limit=draw(st.sampled_from([600.0, 3600.0, 86_400.0])),
        tasks=draw(st.sampled_from([1, 1, 5])),
        restarts=draw(st.integers(0, 2)),
        comment=draw(st.sampled_from(["s3-data", "site-data=40G", "", "site-data=9T"])),
    )
    if draw(st.integers(0, 4)):
        return job
    job = replace(job, **draw(st.sampled_from(OBSTACLES)))
    return replace(job, partitions=job.partitions[::-1]) if job.running else job


@st.composite
def snapshots(draw: st.DrawFn) -> QueueSnapshot:
    queue = draw(st.lists(jobs(), max_size=8, unique_by=lambda job: job.id))
    bursting = [job for job in queue if "cloud" in job.partitions and draw(st.booleans())]
    rate = Decimal("1.20")
    return QueueSnapshot(
        now=NOW,
        config=GovernorConfig({"rack": draw(rules)}, boot=600.0, tail=300.0),
        jobs=tuple(replace(job, label=str(job.id)) for job in queue),
        partitions={"rack": draw(partitions("rack")), "cloud": draw(partitions("cloud"))},
        spending=Spending(
            bursts={
                job.id: Burst(job.account, "rack", "cloud", rate, restarts=draw(st.integers(0, 2)))
                for job in bursting
            }
        ),
        cloud_problems=draw(st.sampled_from([{}] * 7 + [{"cloud": "EC2 is away"}])),
    )


def carried_out(snapshot: QueueSnapshot) -> QueueSnapshot:
    """Return the queue after a pass whose changes all succeeded."""
    made = plan(snapshot)
    changed = {change.job: change.partitions for change in made.changes}
    queue = [replace(job, partitions=changed.get(job.id, job.partitions)) for job in snapshot.jobs]
    return replace(snapshot, jobs=tuple(queue), spending=made.spending)


@given(snapshots())
def test_no_job_bursts_that_could_not_run_in_the_cloud(snapshot: QueueSnapshot):
    records = {job.id: job for job in snapshot.jobs}
    cloud = snapshot.partitions["cloud"]
    for item in plan(snapshot).decisions:
        if item.bursts:
            job = records[item.job]
            assert any(group.nodes_for(job.request) is not None for group in cloud.groups)
            assert cloud.up
            assert job.account not in cloud.denied_accounts
            assert job.time_limit is not None
            assert cloud.max_time is None or job.time_limit <= cloud.max_time
            assert job.batch
            assert not job.licenses
            assert not snapshot.cloud_problems


@given(snapshots())
def test_what_is_promised_never_exceeds_what_a_budget_has_left(snapshot: QueueSnapshot):
    made = plan(snapshot)
    budgets = snapshot.config.rules["rack"].budgets
    for account in ACCOUNTS:
        promises = [item.cost for item in made.decisions if item.bursts and item.account == account]
        usd = sum((cost.usd for cost in promises if cost), Decimal(0))
        left = budgets.get(account, Decimal(0)) - spent(made.spending, account, NOW)
        assert usd <= max(left, Decimal(0))
        assert usd == made.committed.get(account, Decimal(0))
        assert not promises or account in budgets


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=8), st.integers(0, 3000))
def test_ready_jobs_share_one_budget_and_the_next_one_would_not_fit(
    ready: list[tuple[int, bool]], cents: int
):
    budget = Decimal(cents) / 100
    rule = replace(governor.RULE, budgets={"vision": budget})
    queue = [
        governor.a_job(number, tasks=tasks, partitions=BOTH if bursts else ("rack",))
        for number, (tasks, bursts) in enumerate(ready, start=1)
    ]
    old = {
        j.id: Burst("vision", "rack", "cloud", Decimal("1.20"))
        for j in queue
        if len(j.partitions) > 1
    }
    config = replace(governor.CONFIG, rules={"rack": rule})
    made = plan(governor.snapshot(*queue, config=config, spending=Spending(bursts=old)))
    assert len(made.decisions) == len(queue)
    promised = made.committed.get("vision", Decimal(0))
    assert promised <= budget
    for item in made.decisions:
        assert item.cost is not None
        assert item.bursts or promised + item.cost.usd > budget


@given(snapshots())
def test_a_second_pass_on_the_same_queue_changes_nothing(snapshot: QueueSnapshot):
    once = carried_out(snapshot)
    again = plan(once)
    assert again.changes == ()
    assert again.notices == ()
    seen = {number: replace(item, seen=True) for number, item in once.spending.bursts.items()}
    waiting = {number for number in seen if again.spending.bursts[number].seen}
    assert replace(again.spending, bursts={}) == replace(once.spending, bursts={})
    assert {n: replace(i, seen=True) for n, i in again.spending.bursts.items()} == seen
    assert waiting == {job.family for job in once.jobs if "cloud" in job.partitions} & seen.keys()


@given(snapshots())
def test_a_pass_changes_only_waiting_jobs_and_never_takes_racks_from_them(snapshot: QueueSnapshot):
    records = {job.id: job for job in snapshot.jobs}
    for change in plan(snapshot).changes:
        job = records[change.job]
        assert job.pending
        assert change.partitions[0] == "rack"
        assert ("cloud" in change.partitions) != ("cloud" in job.partitions)
        if not change.bursts:
            assert job.family in snapshot.spending.bursts


@given(jobs(), rules, partitions("rack"), partitions("cloud"), st.integers(0, 20_000))
def test_a_longer_wait_lets_no_other_job_burst(
    job: QueuedJob, rule: RackRule, rack: QueuePartition, cloud: QueuePartition, more: int
):
    facts = Facts(NOW, rack, cloud, remaining_usd=Decimal(1000))
    config = GovernorConfig({"rack": rule})
    later = replace(rule, after=rule.after + more, qos={k: v + more for k, v in rule.qos.items()})
    if decide(job, later, facts, config).bursts:
        assert decide(job, rule, facts, config).bursts


@given(jobs(), rules, partitions("rack"), partitions("cloud"), st.decimals(0, 100, places=2))
def test_more_money_keeps_no_job_on_racks(
    job: QueuedJob, rule: RackRule, rack: QueuePartition, cloud: QueuePartition, more: Decimal
):
    config = GovernorConfig({"rack": rule})
    poor = Facts(NOW, rack, cloud, remaining_usd=Decimal(20))
    rich = replace(poor, remaining_usd=poor.remaining_usd + more)
    if decide(job, rule, poor, config).bursts:
        assert decide(job, rule, rich, config).bursts


@given(st.lists(jobs(), max_size=8, unique_by=lambda job: job.id))
def test_a_look_at_the_queue_may_be_repeated(queue: list[QueuedJob]):
    memory = Spending(
        bursts={job.id: Burst(job.account, "rack", "cloud", Decimal("1.20")) for job in queue}
    )
    config = GovernorConfig(boot=600.0, tail=300.0)
    once = observe(memory, queue, config, NOW)
    again = observe(once, queue, config, NOW)
    assert again.attempts == once.attempts
    assert again.bursts == once.bursts
