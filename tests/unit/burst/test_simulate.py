"""The model of racks, a replay of past jobs, and the picture of its result."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.config.governor import DataRule
from slurmplugins.model.queued_job import NodeGroup, QueuePartition, Request
from tests.fakes.governor import CLOUD, CONFIG, NOW, RULE
from toolkit.burst import text
from toolkit.burst.history import FIELDS, PastJob, past_queue
from toolkit.burst.plot import svg
from toolkit.burst.racks import Amount, RackModel, capacity
from toolkit.burst.replay import Scenario
from toolkit.burst.simulate import simulate

HOUR = 3600.0
RACK = QueuePartition("rack", groups=(NodeGroup(1, 8, 32_000, usd_per_hour="0"),))
SCENARIO = Scenario(RULE, RACK, CLOUD, CONFIG, since=NOW, until=NOW + 40 * HOUR)


def past_job(number: int, eligible: float = 0.0, seconds: float = HOUR, **more) -> PastJob:
    """Return a job of a whole rack node."""
    cpus = more.pop("cpus", 8)
    started = NOW + more.pop("started", eligible)
    return PastJob(
        id=number,
        account=more.pop("account", "vision"),
        qos="normal",
        eligible_at=NOW + eligible,
        started_at=started,
        ended_at=started + seconds,
        request=Request(cpus=cpus, memory_mib=1000, gpus=more.pop("gpus", 0)),
        time_limit=more.pop("limit", 2 * seconds),
        **more,
    )


def test_racks_are_the_sum_of_their_nodes():
    groups = (NodeGroup(2, 8, 1000, {"a10g": 4}), NodeGroup(1, 2, 500))
    assert capacity(groups) == Amount(18, 2500, 8)


def test_a_later_job_starts_first_only_if_it_delays_nobody():
    model = RackModel(Amount(8, 32_000, 0))
    model.start(past_job(1, cpus=4), NOW, NOW + HOUR)  # its limit is two hours
    big = past_job(2)
    short, long = past_job(3, seconds=HOUR, cpus=4), past_job(4, seconds=2 * HOUR, cpus=4)
    assert list(model.startable([big, short], NOW)) == [short]
    assert list(model.startable([big, long], NOW)) == []


def test_expected_starts_are_by_time_limits_and_in_order():
    model = RackModel(Amount(8, 32_000, 0))
    model.start(past_job(1), NOW, NOW + HOUR)
    queue = [past_job(2), past_job(3), past_job(4, cpus=99)]
    assert model.expected_starts(queue, NOW) == [NOW + 2 * HOUR, NOW + 4 * HOUR, None]


def test_without_bursts_jobs_wait_for_each_other():
    jobs = [past_job(number, started=number * HOUR) for number in range(4)]
    never = simulate(jobs, SCENARIO, []).outcomes[0]
    assert (never.after, never.jobs, never.bursts, never.usd) == (None, 4, 0, 0)
    assert never.mean_wait == 1.5 * HOUR


def test_a_shorter_threshold_lets_more_jobs_burst_for_more_dollars():
    jobs = [past_job(number, started=number * HOUR) for number in range(6)]
    result = simulate(jobs, SCENARIO, [600.0, 2 * HOUR])
    never, long, short = result.outcomes
    assert [item.after for item in result.outcomes] == [None, 2 * HOUR, 600.0]
    assert never.bursts < long.bursts < short.bursts
    assert never.usd < long.usd < short.usd
    assert never.mean_wait > long.mean_wait > short.mean_wait
    # Each is one hour, with 600 s of boot and 300 s of the instance's end, at 1.20 USD an hour.
    assert short.usd == short.bursts * Decimal("1.50")


def test_a_budget_keeps_jobs_at_home():
    jobs = [past_job(number, started=number * HOUR) for number in range(6)]
    rule = replace(RULE, budgets={"vision": Decimal("2.80")})
    result = simulate(jobs, replace(SCENARIO, rule=rule), [600.0])
    # A job counts at worst, with its time limit of two hours, until it has ended.
    assert 1 <= result.outcomes[1].bursts < 5
    assert result.outcomes[1].over_budget > 0
    assert result.outcomes[1].usd <= Decimal("2.80")


def test_a_job_of_an_account_without_budget_never_bursts():
    jobs = [past_job(number, started=number * HOUR, account="guests") for number in range(4)]
    assert simulate(jobs, SCENARIO, [60.0]).outcomes[1].bursts == 0


def test_a_job_too_big_for_racks_bursts_or_is_counted():
    jobs = [past_job(1, cpus=16)]
    result = simulate(jobs, SCENARIO, [600.0])
    assert result.outcomes[0].never_started == 1
    assert result.outcomes[1].bursts == 1


def test_data_that_must_be_moved_costs_hours_and_dollars():
    rule = replace(RULE, data=DataRule(True, 800.0, Decimal("0.02")))
    jobs = [past_job(1), past_job(2, started=HOUR, comment="site-data=100G")]
    outcome = simulate(jobs, replace(SCENARIO, rule=rule), [60.0]).outcomes[1]
    assert outcome.bursts == 1
    assert outcome.usd == Decimal("3.50")
    assert outcome.mean_wait == (60 + 1000 + 600) / 2


def test_jobs_that_began_before_the_window_only_fill_the_racks():
    early = past_job(1, eligible=-HOUR, seconds=3 * HOUR)
    result = simulate([early, past_job(2, started=2 * HOUR)], SCENARIO, [])
    assert result.outcomes[0].jobs == 1
    assert result.outcomes[0].mean_wait == 2 * HOUR


def test_the_models_error_is_that_of_jobs_that_really_ran_on_racks():
    jobs = [past_job(1), past_job(2, started=1.5 * HOUR), past_job(3, in_cloud=True)]
    error = simulate(jobs, SCENARIO, []).error
    assert (error.jobs, error.real_mean_wait, error.model_mean_wait) == (2, 2700.0, 1800.0)
    assert error.median_error == 900.0
    assert "mean wait 30 m instead of 45 m" in text.error_text(simulate(jobs, SCENARIO, []))
    assert "nothing tells" in text.error_text(simulate([], SCENARIO, []))


def row(**changes: str) -> dict[str, str]:
    """Return a row of sacct."""
    given = {
        "JobIDRaw": "7",
        "JobID": "7",
        "Account": "vision",
        "QOS": "normal",
        "Partition": "rack",
        "Submit": "1000",
        "Eligible": "1100",
        "Start": "2000",
        "End": "3000",
        "TimelimitRaw": "60",
        "NNodes": "2",
        "ReqTRES": "cpu=4,mem=8G,node=2",
        "AllocTRES": "cpu=16,mem=64G,node=2,gres/gpu=2,gres/gpu:a10g=2",
        "AdminComment": "",
        "Comment": "site-data=4G",
        "State": "COMPLETED",
        **changes,
    }
    assert given.keys() == set(FIELDS)
    return given


def test_rows_of_sacct_are_jobs_of_the_racks():
    (job,) = past_queue([row(), row(Partition="other")], "rack", "cloud", 9000).jobs
    assert (job.eligible_at, job.started_at, job.ended_at, job.waited) == (1100, 2000, 3000, 900)
    assert job.request == Request(16, 65_536, 2, gpus=2, gpu="a10g")
    assert (job.time_limit, job.comment) == (3600, "site-data=4G")


def test_jobs_that_burst_are_known_by_the_governors_note():
    noted = row(Partition="cloud", AdminComment="toolkit:burst age: may start in cloud")
    queue = past_queue([row(Partition="cloud"), noted], "rack", "cloud", 9000)
    assert [job.in_cloud for job in queue.jobs] == [True]


def test_running_jobs_end_with_the_window_and_cancelled_ones_are_counted():
    rows = [row(End="Unknown", TimelimitRaw="UNLIMITED"), row(Start="Unknown", State="CANCELLED")]
    queue = past_queue(rows, "rack", "cloud", 2500)
    assert (queue.jobs[0].ended_at, queue.jobs[0].time_limit) == (2500, None)
    assert queue.never_started == 1


@pytest.mark.parametrize("name", ["rack", 'r"<script>&'])
def test_the_picture_is_one_file_with_every_name_escaped(name: str):
    jobs = [past_job(number, started=number * HOUR) for number in range(6)]
    result = replace(simulate(jobs, SCENARIO, [600.0, 2 * HOUR]), rack=name)
    picture = svg(result)
    root = ET.fromstring(picture)  # noqa: S314 - our own text
    words = " ".join(root.itertext())
    assert name in words
    assert "never" in words
    assert "2 h 0 m" in words
    assert picture.count("http") == 1  # the name space
    assert "href" not in picture
    heights = [float(item.attrib["height"]) for item in root.iter() if item.tag.endswith("rect")]
    assert len(heights) == 1 + 3
    assert min(heights) == 0
