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

NOW = 1_795_650_000.0
ACCOUNTS = ("vision", "language", "guests")
BOTH = ("rack", "cloud")

times = st.one_of(st.none(), st.integers(-20_000, 20_000).map(lambda seconds: NOW + seconds))
requests = st.builds(
    Request,
    cpus=st.integers(1, 64),
    memory_mib=st.integers(0, 100_000),
    nodes=st.integers(1, 6),
    most_nodes=st.sampled_from([0, 0, 1, 6]),
    gpus=st.integers(0, 4),
    gpu=st.sampled_from(["", "", "a10g", "h100"]),
    cpus_of_node=st.integers(1, 16),
)
groups = st.builds(
    NodeGroup,
    count=st.integers(1, 8),
    cpus=st.integers(1, 32),
    memory_mib=st.integers(1000, 64_000),
    gpus=st.sampled_from([{}, {"a10g": 1}, {"h100": 4}]),
    usd_per_hour=st.sampled_from(["0.40", "1.20", "12.00", ""]),
)


def partitions(name: str) -> st.SearchStrategy[QueuePartition]:
    return st.builds(
        QueuePartition,
        name=st.just(name),
        up=st.sampled_from([True, True, False]),
        max_time=st.sampled_from([None, 3600.0, 86_400.0]),
        tier=st.sampled_from([1, 1, 2]),
        groups=st.lists(groups, max_size=3).map(tuple),
    )


rules = st.builds(
    RackRule,
    rack=st.just("rack"),
    cloud=st.just("cloud"),
    after=st.integers(0, 20_000).map(float),
    budgets=st.dictionaries(
        st.sampled_from(ACCOUNTS[:2]), st.decimals(0, 500, places=2), max_size=2
    ),
    soon=st.integers(0, 3600).map(float),
    qos=st.sampled_from([{}, {"urgent": 60.0}]),
    deadline=st.booleans(),
    data=st.builds(
        DataRule, on_site=st.booleans(), usd_per_gb=st.sampled_from([Decimal(0), Decimal("0.05")])
    ),
)


@st.composite
def jobs(draw: st.DrawFn) -> QueuedJob:
    pending = draw(st.sampled_from([True, True, True, False]))
    where = draw(st.sampled_from([("rack",), ("rack",), BOTH, ("cloud", "rack")]))
    return QueuedJob(
        id=draw(st.integers(1, 30)),
        label="",
        states=frozenset({"PENDING" if pending else "RUNNING"}),
        partitions=where if not pending or set(where) == {"rack"} else BOTH,
        account=draw(st.sampled_from(ACCOUNTS)),
        qos=draw(st.sampled_from(["normal", "urgent"])),
        request=draw(requests),
        priority=draw(st.integers(0, 5)),
        reason=draw(st.sampled_from(["Resources", "Priority", "AssocGrpGRES"])),
        submitted_at=NOW - draw(st.integers(0, 20_000)),
        eligible_at=draw(times),
        start_at=draw(times),
        time_limit=draw(st.sampled_from([None, 600.0, 3600.0, 86_400.0])),
        deadline=draw(times),
        tasks=draw(st.sampled_from([1, 1, 5])),
        restarts=draw(st.integers(0, 2)),
        batch=draw(st.sampled_from([True, True, True, False])),
        licenses=draw(st.sampled_from(["", "", "", "matlab:1"])),
        comment=draw(st.sampled_from(["", "s3-data", "site-data=40G", "site-data=9T"])),
    )


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
        cloud_problems=draw(st.sampled_from([{}, {}, {"cloud": "EC2 is away"}])),
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
            assert job.time_limit is not None
            assert cloud.max_time is None or job.time_limit <= cloud.max_time
            assert job.batch
            assert not job.licenses
            assert not snapshot.cloud_problems


@given(snapshots())
def test_what_is_promised_never_exceeds_what_a_budget_has_left(snapshot: QueueSnapshot):
    made = plan(snapshot)
    budgets = snapshot.config.rules["rack"].budgets
    for account, usd in made.committed.items():
        left = budgets.get(account, Decimal(0)) - spent(made.spending, account, NOW)
        assert usd <= max(left, Decimal(0))
    for item in made.decisions:
        assert not item.bursts or item.account in budgets


@given(snapshots())
def test_a_second_pass_on_the_same_queue_changes_nothing(snapshot: QueueSnapshot):
    once = carried_out(snapshot)
    again = plan(once)
    assert again.changes == ()
    assert again.notices == ()
    assert again.spending == once.spending


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
