"""Answers about jobs and nodes, one for each state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmplugins import errors
from slurmplugins.head.report import (
    AttemptReport,
    BreakerReport,
    BurstReport,
    HeadReport,
    InstanceReport,
    JobReport,
    NodeReport,
    UnavailabilityReport,
)
from slurmplugins.model.launch import NOT_AWAITED, UNRESOLVED_LAUNCH
from slurmplugins.power_save import circuit_breaker, planner
from toolkit.explain import job, node, reasons, tables
from toolkit.explain.answer import format_duration

NOW = 1_795_000_000.0
ICE = "InsufficientInstanceCapacity"
SPOT = "spot:g5.xlarge:us-east-1a"
MACHINE = InstanceReport(
    "i-1", "gpu-001", "gpu", "compute", "running", "g5.xlarge", "us-east-1a", "spot", "0.4024",
    "10.0.0.1", NOW - 3700,
)  # fmt: skip
LAUNCH_FAILED = {
    "at": NOW - 30,
    "event": "launch_failed",
    "job": 7,
    "offering": SPOT,
    "code": ICE,
    "message": "none left",
}
GIVEN_BACK = {
    "at": NOW - 29,
    "event": "nodes_given_back",
    "job": 7,
    "slug": "no-capacity",
    "code": ICE,
    "message": "none left anywhere",
}


def pending(reason: str = "Resources", **more: Any) -> JobReport:
    return JobReport(7, "train", "ada", states=("PENDING",), reason=reason,
                   submitted_at=NOW - 300, **more)  # fmt: skip


def report(*jobs: JobReport, **more: Any) -> HeadReport:
    return HeadReport(at=NOW, jobs=jobs, **more)


def up(flags: str, reason: str = "", **more: Any) -> NodeReport:
    return NodeReport("gpu-001", tuple(flags.split("+")), reason, "gpu", **more)


def test_a_job_without_capacity_shows_offerings_ec2s_message_and_the_next_attempt():
    answer = job.explain(
        report(
            pending("BeginTime"),
            decisions=(LAUNCH_FAILED, GIVEN_BACK),
            setbacks=(UnavailabilityReport(SPOT, ICE, NOW + 90),),
        ),
        7,
    )
    assert answer.verdict == "pending for 5 m: EC2 had no capacity in any offering"
    (tried,) = answer.tried
    assert (tried.offering, tried.outcome, tried.said) == (SPOT, ICE, "none left")
    assert any("no-capacity (Insufficient" in line for line in answer.because)
    assert "message: none left anywhere" in answer.because
    assert answer.next.startswith("within seconds")
    assert f"{SPOT} ({ICE}) is requested first" in answer.next


def test_a_waiting_job_of_racks_shows_the_burst_governors_decision():
    words = "stays: racks expected in 12 m; cloud would cost up to 41.20 USD"
    stays = BurstReport(7, "7", bursts=False, reason="racks-soon", text=words)
    answer = job.explain(report(pending(), bursts=(stays,)), 7)
    assert f"burst: {words}" in answer.because
    other = BurstReport(8, "8", text="may burst")
    assert not [line for line in job.explain(report(pending(), bursts=(other,)), 7).because
                if line.startswith("burst")]  # fmt: skip


def test_a_job_shows_why_it_got_no_nodes_even_if_they_could_not_be_given_back():
    not_given_back = {**GIVEN_BACK, "event": "nodes_not_given_back"}
    answer = job.explain(report(pending("BeginTime"), decisions=(LAUNCH_FAILED, not_given_back)), 7)
    assert answer.verdict == "pending for 5 m: EC2 had no capacity in any offering"


def test_a_job_with_an_available_offering_is_not_shown_an_unavailable_one():
    answer = job.explain(report(pending("Resources"), decisions=(LAUNCH_FAILED, GIVEN_BACK)), 7)
    assert answer.next == "within seconds, when the scheduler reaches the job"


def test_a_job_that_needs_fewer_nodes_than_requested_shows_the_scontrol_command():
    ranged = pending("BeginTime", node_count=2, most_nodes=4)
    answer = job.explain(report(ranged, decisions=(LAUNCH_FAILED, GIVEN_BACK)), 7)
    assert "To request 2: `scontrol update jobid=7 numnodes=2`" in answer.next
    assert "numnodes" not in job.explain(report(ranged), 7).next
    fixed = pending("BeginTime", node_count=4, most_nodes=4)
    assert (
        "numnodes" not in job.explain(report(fixed, decisions=(LAUNCH_FAILED, GIVEN_BACK)), 7).next
    )


def test_a_requeued_job_shows_the_lost_node_and_the_cause():
    launched = {"at": NOW - 500, "event": "instances_launched", "jobs": [7], "offering": SPOT}
    reason = "toolkit: interrupted (Server.SpotInstanceTermination)"
    applied = {"event": "action_applied", "action": "MarkDown", "node": "gpu-001"}
    node_lost = {"at": NOW - 20, **applied, "why": reason}
    answer = job.explain(report(pending("BeginTime"), decisions=(launched, node_lost)), 7)
    assert answer.verdict == "pending for 5 m: the job lost gpu-001: EC2 took the instance back"
    assert any(f"gpu-001 was set DOWN: {reason}" in line for line in answer.because)
    again = {**launched, "at": NOW - 5}
    answer = job.explain(report(pending("BeginTime"), decisions=(launched, node_lost, again)), 7)
    assert "lost" not in answer.verdict, "it has new instances since"


def test_a_job_that_waits_for_priority_does_not_show_an_older_refusal_first():
    answer = job.explain(report(pending("Priority"), decisions=(LAUNCH_FAILED, GIVEN_BACK)), 7)
    assert answer.verdict == "pending for 5 m: jobs of higher priority start first"


def test_a_refusal_before_the_last_launch_is_not_shown():
    launch = {"event": "instances_launched", "instances": ["i-1"]}
    launched = {"at": NOW - 5, **launch, "job": 7, "offering": SPOT}
    answer = job.explain(report(pending(), decisions=(LAUNCH_FAILED, GIVEN_BACK, launched)), 7)
    assert not any("got no nodes" in line for line in answer.because)
    assert answer.tried[-1].outcome == "launched"


def test_a_held_job_shows_its_own_comment():
    """Show the job's comment.

    `requeue.end_of_attempt` writes the reason of a hold into it.
    """
    comment = "mine | toolkit: held: 3 attempts began at step 40; to go on: scontrol release 7"
    answer = job.explain(report(pending("JobHeldUser", comment=comment)), 7)
    assert f"comment: {comment}" in answer.because
    failed_job = JobReport(7, states=("FAILED",), comment="toolkit: error (exception: KeyError)")
    answer = job.explain(report(failed_job), 7)
    assert "comment: toolkit: error (exception: KeyError)" in answer.because


def test_a_held_job_shows_the_release_command():
    held = job.explain(report(pending("JobHeldAdmin"), decisions=(GIVEN_BACK,)), 7)
    assert held.verdict.startswith("held for 5 m: an admin or the toolkit"), "given back, not held"
    quota = {**GIVEN_BACK, "slug": "quota", "hold": True}
    answer = job.explain(report(pending("JobHeldAdmin"), decisions=(quota,)), 7)
    assert answer.verdict.startswith("held for 5 m: the AWS account's quota is used up")
    assert answer.next == "nothing happens until somebody runs `scontrol release 7`"


def test_a_job_is_shown_as_held_while_slurm_completes_its_last_attempt():
    quota = {**GIVEN_BACK, "slug": "quota", "hold": True}
    answer = job.explain(report(pending("Cleaning", held=True), decisions=(quota,)), 7)
    assert answer.verdict.startswith("held for 5 m: the AWS account's quota is used up")
    assert answer.next == "nothing happens until somebody runs `scontrol release 7`"


def task(number: int, at: int | None, state: str = "PENDING", waiting: str = "") -> JobReport:
    return JobReport(
        number,
        "sweep",
        "ada",
        states=(state,),
        reason="JobHeldUser",
        array=7,
        task=at,
        waiting=waiting,
    )


def test_the_last_task_of_an_array_is_released_by_its_task_id():
    """Name the task, because `scontrol release 7` releases every task."""
    answer = job.explain(report(task(7, 4)), 7)
    assert answer.subject == "job 7_4 (sweep, ada)"
    assert answer.next == "nothing happens until somebody runs `scontrol release 7_4`"


def test_a_pending_array_task_is_found_by_its_task_id():
    jobs = (task(8, 3, "RUNNING"), task(7, None, waiting="4,6-10:2%2"))
    assert job.explain(report(*jobs), 7, 3).verdict.startswith("running")
    assert job.explain(report(*jobs), 8).subject == "job 7_3 (sweep, ada)"
    answer = job.explain(report(*jobs), 7, 8)
    assert answer.next == "nothing happens until somebody runs `scontrol release 7_8`"
    assert job.explain(report(*jobs), 7, 7).verdict == "Slurm knows no job 7_7"


def test_a_task_that_slurm_truncated_from_its_list_is_found():
    jobs = (task(7, None, waiting="1,3,5,..."),)
    assert job.explain(report(*jobs), 7, 70).verdict.startswith("held")
    assert job.explain(report(*jobs), 7, 4).verdict == "Slurm knows no job 7_4"


def test_an_array_that_is_pending_as_a_whole_is_released_as_a_whole():
    answer = job.explain(report(task(7, None, waiting="0-9")), 7)
    assert answer.subject == "job 7_[0-9] (sweep, ada)"
    assert answer.next == "nothing happens until somebody runs `scontrol release 7`"


def test_the_id_of_an_array_shows_a_limited_number_of_its_tasks():
    running = tuple(task(number + 8, number, "RUNNING") for number in range(30))
    answer = job.explain(report(task(7, None, waiting="30-99"), *running), 7)
    assert answer.subject == "job array 7 (sweep, ada)"
    assert answer.verdict == "30 running, waiting: 30-99"
    assert answer.because[0] == "7_0: running"
    assert answer.because[-1] == "and 11 more: `toolkit jobs` lists them"
    assert "release" not in answer.next


def test_the_tasks_of_an_array_are_listed_together_with_their_task_ids():
    jobs = (
        JobReport(9),
        task(8, 3, "RUNNING"),
        task(7, None, waiting="4-6"),
        task(10, 2, "RUNNING"),
    )
    rows = tables.job_rows(HeadReport(at=NOW, jobs=jobs))
    assert [row.label for row in rows] == ["7_2", "7_3", "7_[4-6]", "9"]
    assert tables.job_cells(rows)[0][0] == "7_2"


def test_a_job_of_a_protected_pool_shows_when_the_probe_is_let_through():
    refused = {**GIVEN_BACK, "slug": "pool-protected", "code": ""}
    open_breaker = BreakerReport("gpu", 5, NOW - 60, NOW + 540)
    answer = job.explain(report(pending(), decisions=(refused,), standings=(open_breaker,)), 7)
    assert "in 9 m: pool gpu lets one job through as a probe" in answer.next


def test_a_job_shows_the_probe_of_the_pool_that_refused_it():
    refused = {**GIVEN_BACK, "slug": "pool-protected", "code": "", "nodes": "gpu-[001-002]"}
    standings = (
        BreakerReport("gpu", 5, NOW - 60, NOW + 60),
        BreakerReport("cpu", 5, NOW - 60, NOW + 3000),
    )
    answer = job.explain(report(pending(), decisions=(refused,), standings=standings), 7)
    assert "in 1 m: pool gpu lets one job through as a probe" in answer.next
    damaged = {**refused, "nodes": "gpu-["}
    answer = job.explain(report(pending(), decisions=(damaged,), standings=standings), 7)
    assert "pool cpu lets one job through as a probe" in answer.next, (
        "the latest of all is the safe answer"
    )


def test_a_requeued_job_shows_its_begin_time():
    answer = job.explain(report(pending("BeginTime", eligible_at=NOW + 8, restarts=2)), 7)
    assert "in 8 s: Slurm may start the job" in answer.next
    assert "the job was requeued 2 times" in answer.because


def test_a_job_that_waits_for_a_budget_is_told_which_and_what_to_do():
    note = "toolkit:budget vision-month: account vision may cost 100.00 USD until 2026-12-01 UTC"
    waiting = pending("AssocGrpBillingMinutes", admin_comment=note)
    answer = job.explain(report(waiting), 7)
    assert "too little is left of its account's budget" in answer.verdict
    assert f"comment: {note}" in answer.because
    assert "`toolkit budget status`" in answer.next


def test_a_job_that_a_budget_keeps_from_its_partition_is_told_so():
    """Say it in Slurm's place: its reason is None."""
    denied = {"batch": ("vision",)}
    waiting = pending("None", account="vision", partition="batch")
    answer = job.explain(report(waiting, denied=denied), 7)
    assert "its account's budget allows partitions that buy spot alone" in answer.verdict
    assert "`toolkit budget status`" in answer.next
    for other in ({"partition": "batch,spot"}, {"account": "language"}):
        free = replace(waiting, **other)
        assert "budget" not in job.explain(report(free, denied=denied), 7).verdict


def test_a_job_that_its_projects_budget_holds_is_no_persons_to_release():
    held = pending("JobHeldAdmin", admin_comment="toolkit:budget erc: the grant ended")
    answer = job.explain(report(held, budget_holds=(7,)), 7)
    assert "the budget of its project holds it" in answer.verdict
    assert "`toolkit budget status`" in answer.next
    assert "scontrol release" in job.explain(report(held), 7).next


def test_an_unknown_reason_is_shown_as_it_is():
    assert "Slurm says NewIn2031" in job.explain(report(pending("NewIn2031")), 7).verdict


def test_a_starting_job_shows_how_many_nodes_are_up():
    running = JobReport(7, states=("RUNNING",), nodes=("gpu-001", "gpu-002"))
    nodes = (up("ALLOCATED"), NodeReport("gpu-002", ("ALLOCATED", "POWERING_UP")))
    answer = job.explain(report(running, nodes=nodes, machines=(MACHINE,)), 7)
    assert answer.verdict == "starting: 1 of 2 nodes are up"
    assert answer.because[0] == ("gpu-001: i-1, g5.xlarge spot in us-east-1a, running, 1 h 1 m old")
    assert answer.because[1] == "gpu-002: no instance yet"


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("COMPLETED", "0:0", "completed: its batch script exited with 0"),
        ("FAILED", "1:0", "failed: its batch script failed"),
        ("NODE_FAIL", "0:0", "node_fail: it lost a node"),
        ("CANCELLED by 1000", "0:15", "cancelled: a user or an admin cancelled it"),
    ],
)
def test_a_finished_job_is_explained_from_its_attempts(state: str, code: str, expected: str):
    attempt = AttemptReport(state, code, "gpu-001", NOW - 900, NOW - 300)
    answer = job.explain(report(attempts=(attempt,)), 7)
    assert answer.verdict == expected
    assert "on gpu-001, ran 10 m" in answer.because[0]


def test_exit_code_85_is_explained():
    attempt = AttemptReport("REQUEUED", "85:0", "gpu-001", NOW - 900, NOW - 300)
    answer = job.explain(report(attempts=(attempt,)), 7)
    assert answer.because[0].endswith("REQUEUED, exit code 85 (saved; Slurm requeues the job)")


def test_a_job_that_runs_in_slurmdbd_alone_is_a_runaway_one():
    lost = AttemptReport("RUNNING", "0:0", "gpu-001", NOW - 900, None)
    for state in ("RUNNING", "SUSPENDED"):
        answer = job.explain(report(attempts=(replace(lost, state=state),)), 7)
        assert answer.verdict == (
            "runaway: slurmdbd has it as running, and slurmctld does not know it"
        )
        assert "`sacctmgr show runawayjobs`" in answer.next
    unread = report(attempts=(lost,), unread=("slurm-unreachable: x",))
    answer = job.explain(unread, 7)
    assert answer.verdict == "running: see its attempts", "slurmctld may know it"
    assert answer.next == ""


def test_an_end_that_slurmdbd_does_not_have_yet_is_slurmctlds():
    attempt = AttemptReport("RUNNING", "0:0", "gpu-001", NOW - 900, None)
    ended = JobReport(7, states=("COMPLETED",))
    answer = job.explain(report(ended, attempts=(attempt,)), 7)
    assert answer.verdict == "completed: its batch script exited with 0"
    assert answer.next == ""


def test_an_unknown_job_and_an_unreachable_slurm_are_different_verdicts():
    assert job.explain(report(), 7).verdict == "Slurm knows no job 7"
    silent = report(unread=("slurm-unreachable: x",))
    assert job.explain(silent, 7).verdict == "unknown: Slurm could not be read"


@pytest.mark.parametrize(
    ("node_report", "machines", "verdict"),
    [
        (up("IDLE+POWERED_DOWN"), (), "powered down: it has no instance, and needs none"),
        (up("DOWN+POWERED_DOWN", "ResumeTimeout reached"), (), "powered down, and set DOWN"),
        (up("IDLE+POWERING_DOWN"), (), "powering down"),
        (up("ALLOCATED+POWERING_UP"), (MACHINE,), "powering up: its instance is running"),
        (up("ALLOCATED+POWERING_UP"), (), "powering up: its instance is not launched yet"),
        (up("ALLOCATED"), (MACHINE,), "up, with jobs"),
        (up("IDLE"), (MACHINE,), "up and idle"),
        (up("IDLE"), (), "up, but it has no instance"),
        (up("DOWN", "toolkit: interrupted (x)"), (), "down"),
        (up("DOWN", "Not responding"), (MACHINE,), "down"),
        (up("MIXED+DRAIN", "toolkit: rebalance recommended"), (MACHINE,),
         "draining: Slurm starts no new job on it"),
        (up("IDLE+DRAIN", "bad disk"), (MACHINE,),
         "drained or down, and not by the toolkit: it leaves the node alone"),
        (up("DOWN+POWERED_DOWN", "flood"), (),
         "drained or down, and not by the toolkit: it leaves the node alone"),
    ],
)  # fmt: skip
def test_each_state_of_a_node_has_its_verdict(
    node_report: NodeReport, machines: tuple[InstanceReport, ...], verdict: str
):
    answer = node.explain(HeadReport(at=NOW, nodes=(node_report,), machines=machines), "gpu-001")
    assert answer.verdict == verdict


def test_a_node_outside_the_toolkits_pools_is_named_as_such():
    other = NodeReport("onprem-1", ("DOWN",), "flood")
    answer = node.explain(HeadReport(at=NOW, nodes=(other,)), "onprem-1")
    assert answer.verdict.startswith("not the toolkit's")


def test_a_node_of_a_protected_pool_shows_the_console_of_the_failed_instance():
    open_breaker = BreakerReport(
        "gpu", 5, NOW - 60, NOW + 540, ("i-9 (gpu-001): it never registered",)
    )
    answer = node.explain(
        HeadReport(
            at=NOW,
            nodes=(up("IDLE+POWERED_DOWN", "toolkit: pool-protected"),),
            standings=(open_breaker,),
            consoles={"i-9": ("Kernel panic",)},
        ),
        "gpu-001",
    )
    assert answer.console == ("Kernel panic",)
    assert "pool gpu lets one job through as a probe" in answer.next
    assert any("5 instances in a row" in line for line in answer.because)


def test_a_reason_code_is_explained():
    answer = node.explain(
        HeadReport(at=NOW, nodes=(up("DOWN", f"toolkit: no-capacity ({ICE})"),)), "gpu-001"
    )
    assert any("EC2 had no capacity in any offering" in line for line in answer.because)


def test_every_reason_code_of_resume_has_an_explanation():
    """Explain every reason code of the error tree."""
    kinds = [
        errors.ConfigError, errors.StateError, errors.SlurmError, errors.CloudError, errors.TooLate
    ]  # fmt: skip
    codes = {planner.UNKNOWN_NODE, UNRESOLVED_LAUNCH, planner.NO_OFFERING, NOT_AWAITED}
    codes |= {circuit_breaker.POOL_PROTECTED, planner.UNCLEAR_INSTANCE}
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        codes |= {kind.reason_code} if not kind.__subclasses__() else set()
    assert codes <= reasons.MEANINGS.keys()


def test_resting_nodes_are_listed_on_request_only():
    nodes = (
        up("IDLE"),
        NodeReport("gpu-002", ("IDLE", "POWERED_DOWN"), pool="gpu"),
        NodeReport("gpu-003", ("DOWN", "POWERED_DOWN"), "flood", "gpu"),
    )
    head_report = HeadReport(at=NOW, nodes=nodes, machines=(MACHINE,))
    rows = tables.node_rows(head_report)
    assert [row.node for row in rows] == ["gpu-001", "gpu-003"]
    assert len(tables.node_rows(head_report, include_resting=True)) == 3
    assert tables.node_cells(rows)[0] == (
        "gpu-001", "idle", "i-1", "g5.xlarge", "us-east-1a", "spot", "0.4024", "1 h 1 m", "",
    )  # fmt: skip


def test_the_price_of_a_job_is_the_sum_of_its_instances():
    second = InstanceReport("i-2", "gpu-002", state="running", type="g5.xlarge", price="1.006",
                         lifecycle="on-demand", zone="us-east-1b", launched_at=NOW)  # fmt: skip
    running = JobReport(7, "t", "ada", "vision", "spot", ("RUNNING",), "None",
                      ("gpu-001", "gpu-002"), 2, started_at=NOW - 45)  # fmt: skip
    (row,) = tables.job_rows(HeadReport(at=NOW, jobs=(running,), machines=(MACHINE, second)))
    assert (row.usd_per_hour, row.lifecycle) == ("1.4084", "spot,on-demand")
    assert (row.types, row.zones) == (("g5.xlarge",), ("us-east-1a", "us-east-1b"))
    assert row.age_seconds == 45


def test_an_unknown_price_is_empty_and_not_zero():
    unknown = InstanceReport("i-1", "gpu-001", state="running", price="")
    (row,) = tables.node_rows(HeadReport(at=NOW, nodes=(up("IDLE"),), machines=(unknown,)))
    assert row.usd_per_hour == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (59, "59 s"), (60, "1 m"), (3661, "1 h 1 m"), (90_000, "1 d 1 h")],
)
def test_a_duration_has_two_units_at_most(seconds: float, text: str):
    assert format_duration(seconds) == text
