"""Commands to scontrol, squeue and scancel, and the reading of their answers."""

from __future__ import annotations

import json

import pytest

from slurmplugins.errors import SlurmRefused, SlurmUnreachable
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Assignment
from slurmplugins.slurm.scontrol import COMMENT_LENGTH, ScontrolSlurm
from tests.fakes.runner import FakeRunner
from tests.fakes.scontrol import EMPTY_QUEUE, NO_JOBS, UNKNOWN_JOB, UNREACHED, FakeScontrol

G = hostlist.expand("gpu-[001-003]")


def scontrol() -> tuple[ScontrolSlurm, FakeRunner]:
    runner = FakeRunner()
    return ScontrolSlurm(runner, "/usr/bin"), runner


def test_nodes_and_jobs_are_read_as_flags():
    slurm, runner = scontrol()
    node = {"name": "gpu-001", "state": ["IDLE", "CLOUD", "POWERED_DOWN"], "reason": ""}
    runner.answer("/usr/bin/scontrol", "show", "nodes", stdout=json.dumps({"nodes": [node]}))
    job = {"job_id": 4, "job_state": ["RUNNING", "CONFIGURING"], "nodes": "gpu-001"}
    newer = {"job_id": 5, "job_state": "PENDING", "restart_cnt": {"set": True, "number": 3}}
    runner.answer(
        "/usr/bin/squeue", stdout=json.dumps({"jobs": [{**job, "restart_cnt": 2}, newer]})
    )
    assert slurm.nodes()[0].powering_off
    assert [(item.id, item.restarts, item.running) for item in slurm.jobs()] == [
        (4, 2, True),
        (5, 3, False),
    ]
    assert runner.commands[-1] == ["/usr/bin/squeue", "--json"]


def test_components_of_het_jobs_are_read_as_text_in_one_call():
    slurm, runner = scontrol()
    runner.answer("/usr/bin/squeue", stdout="100 100+0\n101 100+1\n7 7\n  9 8_3\n8 8_[4-9]\nodd\n")
    assert slurm.het_jobs() == {100: 100, 101: 100}
    assert len(runner.commands) == 1


def test_a_job_has_begun_when_all_its_components_run_and_no_node_boots():
    slurm, runner = scontrol()
    lines = [
        "100 100+0 RUNNING", "101 100+1 RUNNING", "200 200+0 RUNNING", "201 200+1 CONFIGURING",
        "7 7 RUNNING", "9 8_3 RUNNING", "8 8_[4-9] PENDING", "10 10 COMPLETING", "odd",
        "11 RUNNING",
    ]  # fmt: skip
    runner.answer("/usr/bin/squeue", stdout="\n".join(lines) + "\n")
    assert slurm.begun_jobs() == {100, 7, 9}
    assert runner.commands == [["/usr/bin/squeue", "--noheader", "--format=%A %i %T"]]


def test_a_squeue_that_fails_tells_of_no_begun_job():
    slurm, runner = scontrol()
    runner.answer("/usr/bin/squeue", stderr="Unable to contact slurm controller", returncode=1)
    with pytest.raises(SlurmUnreachable):
        slurm.begun_jobs()


def test_a_squeue_that_fails_tells_of_no_components():
    slurm, runner = scontrol()
    runner.answer("/usr/bin/squeue", stderr="Unable to contact slurm controller", returncode=1)
    with pytest.raises(SlurmUnreachable):
        slurm.het_jobs()


@pytest.mark.parametrize(("job", "named"), [(100, "jobid=100+0"), (101, "jobid=101")])
def test_a_component_is_told_alone(job: int, named: str):
    """Comment on one component of a het job.

    By the plain id of the first component, scontrol would update all components.
    """
    slurm, runner = scontrol()
    records = [
        {"job_id": n, "het_job_id": {"set": True, "number": 100}, "admin_comment": ""}
        for n in (100, 101)
    ]
    runner.answer("/usr/bin/scontrol", "show", "job", stdout=json.dumps({"jobs": records}))
    slurm.comment(job, "ours")
    assert runner.commands[-1][1:] == ["update", named, "admincomment=ours"]


def test_jobs_on_nodes_are_no_others_also_where_squeue_tells_of_all():
    """Query jobs by node while squeue answers with all jobs.

    Before 24.05.1, squeue's JSON leaves no job out. With `--nodelist`, later versions need not
    write the other jobs.
    """
    slurm, runner = scontrol()
    placed = {4: "gpu-001", 5: "gpu-[002-004]", 6: "gpu-004", 7: "", 8: "rack1,gpu-[001-002]"}
    found = [{"job_id": job, "nodes": nodes} for job, nodes in placed.items()]
    runner.answer("/usr/bin/squeue", stdout=json.dumps({"jobs": found}))
    assert [item.id for item in slurm.jobs(G[:1])] == [4, 8]
    assert [item.id for item in slurm.jobs(G[:2])] == [4, 5, 8]
    assert runner.commands[-1] == ["/usr/bin/squeue", "--json", "--nodelist=gpu-001,gpu-002"]


@pytest.mark.parametrize(
    ("written", "flags"),
    [
        (["IDLE", "CLOUD", "POWERED_DOWN"], {"IDLE", "CLOUD", "POWERED_DOWN"}),
        (["idle", "cloud", "powering_up"], {"IDLE", "CLOUD", "POWERING_UP"}),
        ("IDLE+CLOUD+POWERED_DOWN", {"IDLE", "CLOUD", "POWERED_DOWN"}),
        ("ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP",
         {"ALLOCATED", "CLOUD", "NOT_RESPONDING", "POWERING_UP"}),
        ("DOWN*+CLOUD", {"DOWN", "NOT_RESPONDING", "CLOUD"}),
        (["IDLE", "A_FLAG_OF_2031"], {"IDLE", "A_FLAG_OF_2031"}),
        ("", {"UNREADABLE"}),
        (None, {"UNREADABLE"}),
        ([["IDLE"]], {"UNREADABLE"}),
    ],
)  # fmt: skip
def test_a_nodes_state_is_a_set_of_flags_however_slurm_writes_it(written: object, flags: set[str]):
    """Read node states from lists and from texts.

    The state is a list since 23.02's JSON. `scontrol show node` joins the flags with +. A star
    means that the node is not responding.
    """
    slurm, runner = scontrol()
    node = {"name": "gpu-001", "state": written, "reason": None, "instance_id": None}
    runner.answer("/usr/bin/scontrol", "show", "nodes", stdout=json.dumps({"nodes": [node]}))
    (found,) = slurm.nodes()
    assert found.flags == flags


def test_assignments_of_any_number_take_two_processes():
    slurm, runner = scontrol()
    slurm.assign([Assignment(node, f"i-{node}", f"10.0.0.{n}", "g5") for n, node in enumerate(G)])
    assert runner.commands == [
        [
            "/usr/bin/scontrol",
            "update",
            "nodename=gpu-001,gpu-002,gpu-003",
            "nodeaddr=10.0.0.0,10.0.0.1,10.0.0.2",
        ],
        ["/usr/bin/scontrol"],
    ]
    fed = runner.calls[1][1].splitlines()
    assert fed[1] == "update nodename=gpu-002 instanceid=i-gpu-002 instancetype=g5"


@pytest.mark.parametrize("text", ["i-1\nshutdown", "i-1 state=down", "", "--x", "a" * 99])
def test_nothing_invalid_reaches_scontrols_input(text: str):
    slurm, _ = scontrol()
    with pytest.raises(SlurmRefused):
        slurm.assign([Assignment(G[0], text, "10.0.0.1", "g5")])


def shown(**states: tuple[str, str]) -> str:
    """Return scontrol's answer for nodes with these states and reasons."""
    listed = [
        {"name": name.replace("_", "-"), "state": state.split("+"), "reason": reason}
        for name, (state, reason) in states.items()
    ]
    return json.dumps({"nodes": listed})


def updates(runner: FakeRunner) -> list[list[str]]:
    return [argv[2:] for argv in runner.commands if argv[1] == "update"]


def test_what_a_person_has_drained_keeps_their_reason():
    """Drain nodes that a person, the toolkit or slurmctld drained before.

    With our reason, reconcile would reopen a node that a person has drained. A node that slurmctld
    drains for an invalid registration is ours to reopen.
    """
    slurm, runner = scontrol()
    nodes = shown(
        gpu_001=("ALLOCATED+DRAIN", "bad NIC, ticket 12"),
        gpu_002=("ALLOCATED+DRAIN", "toolkit: impaired"),
        gpu_003=("IDLE+DRAIN+INVALID_REG", "gres/gpu count reported lower than configured"),
    )
    runner.answer("/usr/bin/scontrol", "show", "nodes", stdout=nodes)
    slurm.drain(G, "toolkit: x")
    assert updates(runner) == [["nodename=gpu-002,gpu-003", "state=drain", "reason=toolkit: x"]]
    runner.calls.clear()
    slurm.down(G, "toolkit: x")
    assert updates(runner) == [
        ["nodename=gpu-001", "state=down", "reason=bad NIC, ticket 12"],
        ["nodename=gpu-002,gpu-003", "state=down", "reason=toolkit: x"],
    ]


def test_a_reason_is_plain_text_in_one_argument():
    slurm, runner = scontrol()
    runner.answer("/usr/bin/scontrol", "show", "nodes", stdout=shown(gpu_001=("IDLE", "")))
    slurm.down(["gpu-001"], 'toolkit: x "y"\nstate=idle `id` é')
    assert updates(runner) == [
        ["nodename=gpu-001", "state=down", "reason=toolkit: x y state=idle id"]
    ]


def comments(before: str, text: str) -> list[str]:
    slurm, runner = scontrol()
    shown = {"jobs": [{"job_id": 7, "admin_comment": before}]}
    runner.answer("/usr/bin/scontrol", "show", "job", stdout=json.dumps(shown))
    slurm.comment(7, text)
    return [argv[-1] for argv in runner.commands if argv[1] == "update"]


def test_a_comment_is_appended_to_what_others_wrote():
    assert comments("theirs", "ours") == ["admincomment=theirs | ours"]


def test_the_same_comment_is_not_repeated():
    assert comments("theirs | ours", "ours") == []


def test_a_comment_is_bounded_by_dropping_our_oldest_lines_and_nothing_of_others():
    ours = [f"toolkit: no-capacity {n} {'x' * 300}" for n in range(4)]
    before = " | ".join([ours[0], "theirs", *ours[1:3]])
    (found,) = comments(before, ours[3])
    assert found == "admincomment=" + " | ".join(["theirs", *ours[1:]])
    assert comments("x" * 5000, "ours") == [f"admincomment={'x' * 5000} | ours"]
    assert sum(map(len, ours[1:])) <= COMMENT_LENGTH


NO_TASK = {"array_job_id": {"set": True, "number": 0}, "array_task_id": {"set": False, "number": 0}}


@pytest.mark.parametrize("record", [{}, NO_TASK, {"array_job_id": 0, "array_task_id": None}])
def test_a_job_is_held_by_its_number(record: dict[str, object]):
    slurm, runner = scontrol()
    shown = json.dumps({"jobs": [{"job_id": 7, **record}]})
    runner.answer("/usr/bin/scontrol", "show", "job", stdout=shown)
    slurm.hold(7)
    assert runner.commands[-1] == ["/usr/bin/scontrol", "hold", "7"]


@pytest.mark.parametrize("job", [40, 41])
def test_what_is_done_to_an_arrays_task_is_done_to_no_other(job: int):
    """Hold, requeue and comment on one task of an array.

    The last task has the job id of the array, by which scontrol takes every task.
    """
    slurmctld = FakeScontrol(array=40, tasks=3)
    slurmctld.tasks[41].admin_comment = "theirs"
    slurm = ScontrolSlurm(slurmctld, "/usr/bin")
    slurm.hold(job)
    slurm.requeue(job)
    slurm.comment(job, "ours")
    assert slurmctld.tasks[job].done == ["hold", "requeue", "update"]
    assert [number for number, task in slurmctld.tasks.items() if task.done] == [job]
    assert slurmctld.tasks[40].admin_comment == ("ours" if job == 40 else "")
    assert slurmctld.tasks[41].admin_comment == ("theirs" if job == 40 else "theirs | ours")


def test_a_task_that_slurm_has_forgotten_is_not_mistaken_for_its_array():
    slurmctld = FakeScontrol(array=40, tasks=3)
    del slurmctld.tasks[40]
    slurm = ScontrolSlurm(slurmctld, "/usr/bin")
    with pytest.raises(SlurmRefused):
        slurm.requeue(40)
    assert not any(task.done for task in slurmctld.tasks.values())


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("slurm_load_node error: Unable to contact slurm controller", SlurmUnreachable),
        ("slurm_update error: Connection reset by peer", SlurmUnreachable),
        ("slurm_update error: Broken pipe", SlurmUnreachable),
        ("slurm_update error: Transport endpoint is not connected", SlurmUnreachable),
        ("slurm_update error: No route to host", SlurmUnreachable),
        ("slurm_update error: Network is unreachable", SlurmUnreachable),
        ("slurm_update error: Unexpected missing socket error", SlurmUnreachable),
        ("slurm_update error: Communication connection failure", SlurmUnreachable),
        ("slurm_update error: Message send failure", SlurmUnreachable),
        ("slurm_update error: Message receive failure", SlurmUnreachable),
        ("slurm_update error: Communication shutdown failure", SlurmUnreachable),
        ("slurm_update error: Protocol authentication error", SlurmUnreachable),
        ("slurm_update error: Slurm backup controller in standby mode", SlurmUnreachable),
        ("slurm_update error: Rate limit exceeded, please retry momentarily", SlurmUnreachable),
        ("slurm_update error: Invalid node name specified", SlurmRefused),
        ("slurm_update error: Access/permission denied", SlurmRefused),
    ],
)
def test_silence_and_refusal_are_told_apart(said: str, kind: type[Exception]):
    slurm, runner = scontrol()
    runner.answer("/usr/bin/scontrol", stderr=said, returncode=1)
    with pytest.raises(kind):
        slurm.power_down(["gpu-001"])


@pytest.mark.parametrize("stdout", ["", "{", "[]", "{}", '{"nodes": 3}', '{"errors": ["x"]}'])
def test_an_answer_that_can_not_be_read_is_no_answer(stdout: str):
    slurm, runner = scontrol()
    runner.answer("/usr/bin/scontrol", stdout=stdout)
    with pytest.raises(SlurmUnreachable):
        slurm.nodes()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (UNREACHED, SlurmUnreachable),
        ("slurm_load_jobs error: Connection reset by peer", SlurmUnreachable),
        ("slurm_load_jobs error: Zero Bytes were transmitted or received", SlurmUnreachable),
        (UNKNOWN_JOB, SlurmRefused),
    ],
)
@pytest.mark.parametrize("is_on_json", [False, True])
@pytest.mark.parametrize("method", ["hold", "requeue", "comment"])
def test_a_slurmctld_that_does_not_answer_makes_no_job_unknown(
    method: str, message: str, kind: type[Exception], *, is_on_json: bool
):
    slurm, runner = scontrol()
    json_argv = ("/usr/bin/scontrol", "show", "job", "7", "--json")
    runner.answer(*json_argv, stdout=NO_JOBS, stderr=message if is_on_json else "")
    runner.answer(*json_argv[:-1], "--oneliner", stderr=message, returncode=1)
    with pytest.raises(kind):
        getattr(slurm, method)(7, *(["text"] if method == "comment" else []))
    assert not any("update" in argv for argv in runner.commands)


def test_a_job_that_only_the_second_call_sees_is_not_unknown():
    slurm, runner = scontrol()
    runner.answer("/usr/bin/scontrol", "show", "job", "7", "--json", stdout=NO_JOBS)
    runner.answer("/usr/bin/scontrol", "show", "job", "7", "--oneliner", stdout="JobId=7 ...")
    with pytest.raises(SlurmUnreachable):
        slurm.requeue(7)


@pytest.mark.parametrize("stderr", ["", UNREACHED])
def test_a_slurmctld_that_does_not_answer_has_no_empty_list_of_jobs(stderr: str):
    slurm, runner = scontrol()
    runner.answer("/usr/bin/scontrol", "show", "jobs", "--json", stdout=EMPTY_QUEUE)
    assert slurm.ended_jobs() == ()
    runner.answer("/usr/bin/scontrol", "show", "jobs", "--json", stdout=NO_JOBS, stderr=stderr)
    runner.answer("/usr/bin/scontrol", "show", "jobs", "--oneliner", stderr=UNREACHED, returncode=1)
    with pytest.raises(SlurmUnreachable):
        slurm.ended_jobs()


def test_a_word_on_standard_error_takes_nothing_from_an_answer():
    slurm, runner = scontrol()
    jobs = json.dumps({"jobs": [{"job_id": 7, "batch_flag": True, "job_state": ["FAILED"]}]})
    runner.answer("/usr/bin/scontrol", "show", "jobs", stdout=jobs, stderr=UNREACHED)
    assert [job.id for job in slurm.ended_jobs()] == [7]
