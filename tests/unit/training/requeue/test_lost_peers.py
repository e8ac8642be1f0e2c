"""An instance that fails without a notice.

Its peers fail before EC2 and Slurm know the cause.
"""

from dataclasses import replace

import pytest

from tests.fakes.own_job import FakeScontrol
from tests.fakes.scontrol import NO_JOBS
from toolkit.training.attempt import verdict
from toolkit.training.requeue.end_of_attempt import NODE_LOSS_SECONDS, EndOfAttempt
from toolkit.training.requeue.start_check import StartCheck
from toolkit.training.run_folder.attempts import AttemptsFile
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.slurm.job import SlurmJob

NOW = 2_000_000_000.0
UP = {"name": "gpu-001", "state": ["ALLOCATED", "CLOUD"], "reason": ""}
ALSO_UP = {**UP, "name": "gpu-002"}
DOWN = {"name": "gpu-002", "state": ["DOWN", "CLOUD"], "reason": "toolkit: machine-ended"}
NCCL = "[rank0]: ncclRemoteError: A call failed possibly due to a network error\n"
PEER = "[rank0]: RuntimeError: Connection closed by peer [10.0.0.2]:1234\n"


@pytest.fixture
def attempts_file(tmp_path):
    folder = tmp_path / "run"
    RunFolder(folder).create()
    return AttemptsFile(folder / "attempts.jsonl")


@pytest.fixture
def attempt(attempt_of, attempts_file, tmp_path):
    """A function that runs an attempt of two nodes to its end.

    It returns the exit codes of the start check and of the end, and the log lines. `later` are the
    nodes at the second look.
    """

    def run(restart, *, log=NCCL, nodes=(UP, ALSO_UP), later=None, events=""):
        scontrol = FakeScontrol(nodes=nodes)
        scontrol.events = events
        job, path = SlurmJob("12", scontrol), tmp_path / "job.log"
        start = NOW + 7200 * restart
        mine = replace(attempt_of(restart, judged=True), started_at=start)
        said = {"TOOLKIT_LOG": str(path)}
        begun = StartCheck(mine, job, said, clock=lambda: start).check().code
        attempts_file.replace_last(replace(attempts_file.attempts()[-1], step_start=100 * restart))
        with path.open("a") as stream:
            stream.write(f"[toolkit] job 12, restart {restart}, run folder x\n{log}")
        verdict.resume(100 * restart + 100, "peer-lost", "RuntimeError").write(mine.verdict_file)
        paused = []

        def pause(seconds):
            paused.append(seconds)
            scontrol.nodes = list(nodes if later is None else later)

        end = EndOfAttempt(
            mine, job, said, clock=lambda: start + 3600, chance=lambda: 0.5, pause=pause
        ).judge(1)  # fmt: skip
        assert paused in ([], [NODE_LOSS_SECONDS])
        return begun, end.code, (*end.log_lines, *["looked twice"] * len(paused))

    return run


def went(restart, *, after=30.0, state="DOWN", node="gpu-002", reason="toolkit: machine-ended"):
    """Return accounting's line about a node that went down.

    The node went down `after` seconds after that attempt's end.
    """
    return f"{node}|{NOW + 7200 * restart + 3600 + after:.0f}|{state}|{reason}\n"


@pytest.mark.parametrize("log", [NCCL, PEER, ""])
def test_attempts_that_lost_an_instance_count_for_its_budget_once_slurm_knows(
    attempt, attempts_file, log
):
    events = ""
    for restart in range(8):
        begun, code, said = attempt(restart, log=log, events=events)
        assert (begun, code) == (0, 85), said
        assert "job 12 is requeued, and starts in 30 s" in said, "the first of its kind each time"
        events += went(restart)
    causes = [(one.cause, one.rule.split("@")[0]) for one in attempts_file.attempts()]
    assert causes[:-1] == [("node-failure", "node-lost")] * 7
    assert causes[-1][0] == "transient"


def test_what_slurm_knew_only_after_the_next_attempt_began_counts_as_well(attempt, attempts_file):
    attempt(0)
    attempt(1)
    attempt(2, events=went(0))
    assert [one.cause for one in attempts_file.attempts()] == [
        "node-failure",
        "transient",
        "transient",
    ]


@pytest.mark.parametrize(
    "event",
    [
        went(0, after=600.0),  # too long after this attempt's end
        went(0, after=-9000.0),  # before this attempt began
        went(0, node="gpu-009"),
        went(0, state="DRAIN", reason="maintenance"),
        "gpu-002|Unknown|DOWN|x\nsacctmgr: error: slurmdbd\n",
        "",
    ],
)
def test_an_attempt_whose_instances_stayed_has_failed_of_its_network(attempt, attempts_file, event):
    attempt(0)
    attempt(1, events=event)
    assert attempts_file.attempts()[0].rule.startswith("nccl@")


def test_a_held_attempt_keeps_the_word_it_was_held_for(attempt, attempts_file):
    attempt(0)
    attempts_file.replace_last(replace(attempts_file.attempts()[0], cause="no-progress", held=True))
    attempt(1, events=went(0))
    assert attempts_file.attempts()[0].cause == "no-progress"


@pytest.mark.parametrize(
    ("later", "wait", "cause"),
    [
        ((UP, DOWN), False, "node-failure"),
        ((UP, ALSO_UP), True, "transient"),
        ((), True, "transient"),  # no answer
    ],
)
def test_the_nodes_of_a_lost_peer_are_looked_at_again_before_the_job_has_to_wait(
    attempt, attempts_file, later, wait, cause
):
    _, code, said = attempt(0, later=later)
    assert (code, "looked twice" in said) == (85, True)
    assert any("is requeued, and starts in" in line for line in said) == wait
    assert attempts_file.attempts()[0].cause == cause


@pytest.mark.parametrize(
    ("log", "nodes"), [("KeyError: 'x'\n", (UP, ALSO_UP)), (NCCL, (UP,)), (NCCL, (UP, DOWN))]
)
def test_nodes_are_looked_at_once_where_a_second_look_would_say_no_more(attempt, log, nodes):
    assert "looked twice" not in attempt(0, log=log, nodes=nodes)[2]


@pytest.mark.parametrize("silent", ["job", "nodes"])
def test_a_second_look_without_an_answer_takes_back_nothing_of_the_first(
    attempt_of, attempts_file, tmp_path, silent
):
    """Keep the nodes and the user's comment of the first look."""
    attempt, path = attempt_of(0), tmp_path / "job.log"
    path.write_text(f"[toolkit] job 12, restart 0, run folder x\n{NCCL}")
    scontrol = FakeScontrol(comment="mine", nodes=(UP, ALSO_UP))

    def pause(_seconds):
        scontrol.job["nodes"] = ""
        scontrol.garbled = NO_JOBS if silent == "job" else ""

    job, said = SlurmJob("12", scontrol), {"TOOLKIT_LOG": str(path)}
    ending = EndOfAttempt(attempt, job, said, clock=lambda: NOW, chance=lambda: 0.5, pause=pause)
    assert ending.judge(1).code == 85
    assert attempts_file.attempts()[0].nodes == ("gpu-001", "gpu-002")
    assert scontrol.job["comment"].startswith("mine | toolkit: transient (nccl")
