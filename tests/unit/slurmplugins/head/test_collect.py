"""Facts that the head node reports, and those it leaves out.

The facts are unchanged after their way through JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins import head_report
from slurmplugins.errors import BadName, StateError
from slurmplugins.head import collect, report
from slurmplugins.head.job_history import JobReader
from slurmplugins.model import hostlist
from slurmplugins.model.data_volume import FreeShares
from slurmplugins.model.instance import BootFailure, BootResults
from slurmplugins.model.login_node import LoginNodeReport
from slurmplugins.power_save import circuit_breaker
from slurmplugins.power_save.resume import resume
from slurmplugins.slurm import login_reports
from tests.fakes.engine import SPOT_A, Bench
from tests.fakes.runner import FakeRunner
from tests.fakes.scontrol import NO_JOBS, UNKNOWN_JOB, UNREACHED
from tests.fakes.slurm import FakeNodeReader

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.slurm.node_reader import NodeReader

G = hostlist.expand("gpu-[001-002]")
SQUEUE = {
    "jobs": [
        {
            "job_id": 7,
            "name": "train",
            "user_name": "ada",
            "account": "vision",
            "partition": "spot",
            "job_state": ["RUNNING"],
            "state_reason": "None",
            "nodes": "gpu-[001-002]",
            "node_count": {"set": True, "infinite": False, "number": 2},
            "restart_cnt": 1,
            "submit_time": {"set": True, "infinite": False, "number": 1_794_999_000},
            "eligible_time": 1_794_999_000,
            "start_time": {"set": False, "infinite": False, "number": 0},
            "admin_comment": "",
        }
    ]
}
SACCT = """\
7_4|7|NODE_FAIL|0:0|gpu-001|1794990000|1794990600
7_3|8|FAILED|1:0|gpu-002|1794990000|1794990600
7_4|7|PENDING|0:0|None assigned|Unknown|Unknown
"""
"""sacct lists the other tasks of the array too, because job 7 was its last task."""


def of_array(number: int, task: int | None, tasks: str = "") -> dict[str, object]:
    """Make a record of array 7 in the format of Slurm 24.11.

    Both squeue and scontrol print it.
    """
    return {
        "job_id": number,
        "job_state": ["PENDING"],
        "array_job_id": {"set": True, "infinite": False, "number": 7},
        "array_task_id": {"set": task is not None, "infinite": False, "number": task or 0},
        "array_task_string": tasks,
    }


ARRAY = {"jobs": [of_array(7, None, "0,5-9%2"), of_array(8, 3), of_array(9, 4)]}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def runner() -> FakeRunner:
    runner = FakeRunner()
    runner.answer("/usr/bin/squeue", stdout=json.dumps(SQUEUE))
    runner.answer("/usr/bin/scontrol", "show", "job", stdout=json.dumps(SQUEUE))
    runner.answer("/usr/bin/env", stdout=SACCT)
    return runner


def gathered(bench: Bench, runner: FakeRunner, *words: str, **more: Any) -> report.HeadReport:
    log = bench.engine.state / "decisions.jsonl"
    log.write_text("".join(bench.lines))
    jobs = JobReader(runner, "/usr/bin")
    nodes: NodeReader = FakeNodeReader(bench.slurm)  # type: ignore[assignment]
    return collect.gather(bench.engine, nodes, jobs, head_report.parse(list(words)), log, **more)


def test_the_report_says_what_read_the_nodes(bench: Bench, runner: FakeRunner):
    assert gathered(bench, runner).node_source == "pyslurm 25.11.2"
    assert gathered(bench, runner, "pass").node_source == ""


def test_facts_survive_the_journey_as_json(bench: Bench, runner: FakeRunner):
    bench.cloud.capacity[SPOT_A] = 0
    resume(bench.engine, [bench.slurm.start(7, G)])
    bench.cloud.impair(bench.cloud.live()[0].id)
    sheet = gathered(bench, runner, "job", "7")
    assert sheet.decisions
    assert sheet.setbacks
    assert sheet.machines[0].trouble == ("fails its status checks",)
    travelled = json.loads(json.dumps(report.to_json(sheet)))
    assert report.to_json(report.from_json(travelled)) == report.to_json(sheet)


@pytest.mark.parametrize("words", [(), ("pass",)])
@pytest.mark.parametrize("free", [FreeShares(0.25, 0.5), None])
def test_the_report_has_what_is_free_of_the_data_volume(
    bench: Bench, runner: FakeRunner, words: tuple[str, ...], free: FreeShares | None
):
    sheet = gathered(bench, runner, *words, data_volume=lambda: free)
    assert sheet.data_volume == free
    assert report.from_json(json.loads(json.dumps(report.to_json(sheet)))) == sheet


def test_jobs_are_read_in_every_shape_of_number(bench: Bench, runner: FakeRunner):
    (job,) = gathered(bench, runner).jobs
    assert (job.nodes, job.node_count, job.restarts) == (G, 2, 1)
    assert (job.submitted_at, job.started_at) == (1_794_999_000, None)


def test_attempts_come_from_slurmdbd(bench: Bench, runner: FakeRunner):
    first, second = gathered(bench, runner, "job", "7").attempts
    assert (first.state, first.ended_at) == ("NODE_FAIL", 1_794_990_600)
    assert (second.nodes, second.started_at) == ("", None)


def test_a_task_has_the_attempts_and_decisions_of_its_own_number(bench: Bench, runner: FakeRunner):
    runner.answer("/usr/bin/scontrol", "show", "job", stdout=json.dumps(ARRAY))
    bench.lines += [
        json.dumps({"event": "instances_launched", "job": n, "at": n}) + "\n" for n in (7, 8, 9)
    ]
    sheet = gathered(bench, runner, "job", "7_3")
    assert [run.state for run in sheet.attempts] == ["FAILED"]
    assert [item["job"] for item in sheet.decisions] == [8]
    assert gathered(bench, runner, "job", "7_5").decisions == (), "it waits, so it has none yet"
    runner.answer("/usr/bin/scontrol", "show", "job", stdout='{"jobs": []}')
    over = gathered(bench, runner, "job", "7_3")
    assert [item["job"] for item in over.decisions] == [8], "accounting knows its number too"


def test_jobs_are_called_what_squeue_calls_them(bench: Bench, runner: FakeRunner):
    runner.answer("/usr/bin/squeue", stdout=json.dumps({"jobs": [*ARRAY["jobs"], *SQUEUE["jobs"]]}))
    labels = [job.label for job in gathered(bench, runner).jobs]
    assert labels == ["7_[0,5-9%2]", "7_3", "7_4", "7"]


@pytest.mark.parametrize("odd", ["$(id)", "1\x1b[31m", 7, None, "1" * 300])
def test_invalid_lists_of_tasks_are_left_out(bench: Bench, runner: FakeRunner, odd: str):
    runner.answer("/usr/bin/squeue", stdout=json.dumps({"jobs": [of_array(7, None, odd)]}))
    assert [job.label for job in gathered(bench, runner).jobs] == ["7"]


def test_only_decisions_about_the_subject_are_collected(bench: Bench, runner: FakeRunner):
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    resume(bench.engine, [bench.slurm.start(8, G[1:])])
    found = gathered(bench, runner, "node", "gpu-002").decisions
    assert found
    assert all("gpu-002" in str(item) for item in found)
    assert gathered(bench, runner, "job", "9").decisions == ()


MARKED_DOWN = '{"event": "action_applied", "action": "MarkDown", "node": "gpu-001", "at": %s}'


@pytest.mark.parametrize(
    "line", ["[" * 200_000, "[]", "no json", MARKED_DOWN % "NaN", MARKED_DOWN % f"1{'0' * 400}"]
)
def test_an_invalid_line_of_the_decision_log_hides_no_other(
    bench: Bench, runner: FakeRunner, line: str
):
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    decisions = gathered(bench, runner, "job", "7").decisions
    bench.lines[:] = [f"{line}\n", *bench.lines, f"{line}\n"]
    assert gathered(bench, runner, "job", "7").decisions == decisions != ()


@pytest.mark.parametrize(
    "decision",
    [{"job": 7}, {"jobs": [6, 7]}, {"jobs": "[6, 7, 8"}, {"jobs": "(7,)"}],
)
def test_a_decision_names_its_jobs_in_many_ways(decision: dict[str, object]):
    assert collect.concerns(decision, collect.Subject(job=7))
    assert not collect.concerns(decision, collect.Subject(job=77))


@pytest.mark.parametrize(
    "decision",
    [{"node": "gpu-001"}, {"nodes": ["gpu-001"]}, {"nodes": "gpu-[001-003]"}],
)
def test_a_decision_names_its_nodes_in_many_ways(decision: dict[str, object]):
    assert collect.concerns(decision, collect.Subject(node="gpu-001"))
    assert not collect.concerns(decision, collect.Subject(node="gpu-01"))


def test_events_of_a_jobs_nodes_during_the_job_are_collected(bench: Bench, runner: FakeRunner):
    down = {
        "event": "action_applied",
        "action": "MarkDown",
        "node": "gpu-001",
        "why": "toolkit: interrupted",
    }
    times = (1_794_990_000.0 - 31, 1_794_990_300.0, 1_794_990_631.0)
    bench.lines += [json.dumps({**down, "at": at}) + "\n" for at in times]
    bench.lines.append(json.dumps({**down, "node": "gpu-002", "at": times[1]}) + "\n")
    bench.lines.append(json.dumps({**down, "action": "Reopen", "at": times[1]}) + "\n")
    assert [item["at"] for item in gathered(bench, runner, "job", "7").decisions] == [times[1]]


def test_of_many_nodes_set_down_at_once_only_the_jobs_own_are_collected(
    bench: Bench, runner: FakeRunner
):
    down = {
        "event": "action_applied",
        "action": "MarkDown",
        "nodes": "gpu-[001-064]",
        "why": "toolkit: x",
    }
    bench.lines.append(json.dumps({**down, "at": 1_794_990_300.0}) + "\n")
    (found,) = gathered(bench, runner, "job", "7").decisions
    assert found["node"] == "gpu-001"


def test_what_can_not_be_read_is_named_and_the_rest_told(bench: Bench, runner: FakeRunner):
    bench.cloud.unreadable = True
    sheet = gathered(bench, runner)
    assert sheet.machines == ()
    assert len(sheet.nodes) == 12
    assert all(line.startswith("cloud-unreachable") for line in sheet.unread)


def test_reconciles_last_pass_is_told_without_asking_anyone(bench: Bench, runner: FakeRunner):
    sheet = gathered(bench, runner, "pass")
    assert (bench.cloud.calls, runner.calls, sheet.unread) == ([], [], ())


def test_a_pools_failures_are_told(bench: Bench, runner: FakeRunner):
    failed = tuple(BootFailure(f"i-{n}", "gpu-001", "gpu", "x", 1.0) for n in range(5))
    circuit_breaker.update(bench.engine.state, BootResults(failed), bench.clock.now())
    (standing,) = gathered(bench, runner, "pass").standings
    assert standing.protected_since == bench.clock.now()
    assert standing.last[0] == "i-0 (gpu-001): x"


def test_the_login_nodes_reports_are_told_without_asking_anyone(bench: Bench, runner: FakeRunner):
    report = LoginNodeReport("login-1", "i-9", 100.0, "ssh-ed25519 AAAA", "sackd is failed")
    login_reports.write(bench.engine.login_reports, report)
    assert gathered(bench, runner, "pass").login_nodes == (report,)


@pytest.mark.parametrize(("stdout", "code"), [("", 1), (NO_JOBS, 0), (NO_JOBS, 1)])
def test_a_job_that_nobody_knows_is_no_error(
    bench: Bench, runner: FakeRunner, stdout: str, code: int
):
    runner.answer(
        "/usr/bin/scontrol", "show", "job", stdout=stdout, stderr=UNKNOWN_JOB, returncode=code
    )
    runner.answer(
        "/usr/bin/scontrol", "show", "job", "99", "--oneliner", stderr=UNKNOWN_JOB, returncode=1
    )
    runner.answer("/usr/bin/env", stdout="")
    sheet = gathered(bench, runner, "job", "99")
    assert (sheet.jobs, sheet.attempts, sheet.unread) == ((), (), ())


@pytest.mark.parametrize(
    ("stdout", "stderr", "code"), [("", UNREACHED, 1), (NO_JOBS, UNREACHED, 0), (NO_JOBS, "", 0)]
)
def test_a_job_that_slurmctld_could_not_tell_of_is_named_as_unread(
    bench: Bench, runner: FakeRunner, stdout: str, stderr: str, code: int
):
    runner.answer("/usr/bin/scontrol", "show", "job", stdout=stdout, stderr=stderr, returncode=code)
    runner.answer(
        "/usr/bin/scontrol", "show", "job", "7", "--oneliner", stderr=UNREACHED, returncode=1
    )
    runner.answer("/usr/bin/env", stdout="")
    (unread,) = gathered(bench, runner, "job", "7").unread
    assert unread.startswith("slurm-unreachable: ")


def test_a_slurmctld_that_did_not_answer_is_asked_for_no_other_part(
    bench: Bench, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
):
    """Ask once: a person waits half a minute for each part."""
    runner.answer("/usr/bin/scontrol", "show", "job", stderr=UNREACHED, returncode=1)
    asked: list[str] = []
    monkeypatch.setattr(FakeNodeReader, "nodes", lambda *_: asked.append("nodes") or ())
    sheet = gathered(bench, runner, "job", "7", bursts=lambda _: asked.append("bursts") or ())
    assert (asked, len(sheet.unread)) == ([], 1)
    assert sheet.attempts, "slurmdbd is another daemon"
    runner.answer("/usr/bin/scontrol", "show", "job", stdout=json.dumps(SQUEUE))
    gathered(bench, runner, "job", "7", bursts=lambda _: asked.append("bursts") or ())
    assert asked == ["nodes", "bursts"]


@pytest.mark.parametrize(
    "words",
    [
        ["job"],
        ["job", "x"],
        ["job", "9" * 40],
        ["job", "7_"],
        ["job", "7_x"],
        ["node", "$(id)"],
        ["x"],
        ["node"],
    ],
)
def test_invalid_questions_are_refused(words: list[str]):
    with pytest.raises(BadName):
        head_report.parse(words)


def test_a_newer_head_may_say_more_and_an_older_one_less():
    sheet = report.from_json({"at": 1, "nodes": [{"name": "a", "new": 1}], "future": {}})
    assert sheet.nodes[0].name == "a"
    assert sheet.data_volume is None
    for odd in (
        {}, {"at": 1, "nodes": [{}]}, {"at": 1, "nodes": 3}, {"at": 1, "data_volume": {}},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="head report"):
            report.from_json(odd)


def test_budgets_that_could_not_be_read_are_named_as_unread(bench: Bench, runner: FakeRunner):
    def damaged() -> tuple[int, ...]:
        raise StateError("the budgets' memory can't be read")

    sheet = gathered(bench, runner, "job", "7", budget_holds=damaged)
    assert (sheet.budget_holds, len(sheet.unread)) == ((), 1)
    assert "the budgets' memory" in sheet.unread[0]
