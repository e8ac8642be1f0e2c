"""The cause of an attempt's end.

Stated causes go before causes seen in a log. Roots go before their consequences.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.corpus import accuracy
from toolkit.training.attempt.job_log import log_line
from toolkit.training.requeue import end_of_attempt
from toolkit.training.requeue.failure_cause import Evidence, tail
from toolkit.training.requeue.failure_rules import RULES, classify
from toolkit.training.run_folder.attempts import Cause

CORPUS = Path(__file__).resolve().parents[3] / "corpus"
LOGS = sorted(CORPUS.glob("*/*/*.log"))
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."
WATCHDOG = "[rank0]:[E1121 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation"


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.parent.name}-{log.stem}")
def test_every_labelled_log_gets_its_label(log):
    assert classify(Evidence(code=1, log=tail(log.read_text()))).cause == log.parent.name


def test_the_labelled_set_is_large_and_has_every_cause_a_log_can_tell():
    labels = {log.parent.name for log in LOGS}
    assert len(LOGS) >= 100
    assert labels == {
        "transient", "out-of-memory", "error", "preemption", "node-failure", "time-limit",
        "requeued",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        (Evidence(verdict="done finished"), Cause.FINISHED),
        (Evidence(code=0), Cause.FINISHED),
        (Evidence(verdict="resume spot-interruption", log=OOM), Cause.SPOT),
        (Evidence(verdict="resume time-limit"), Cause.TIME_LIMIT),
        (Evidence(verdict="resume preemption"), Cause.PREEMPTED),
        (Evidence(code=0, verdict="resume maintenance", log=WATCHDOG), Cause.PREEMPTED),
        (Evidence(code=0, verdict="resume unreadable-request"), Cause.PREEMPTED),
        (Evidence(verdict="resume maintenance", stop="spot-interruption"), Cause.SPOT),
        # The notice came, and the save was too late.
        (Evidence(code=1, stop="spot-interruption", log=WATCHDOG), Cause.SPOT),
        # The node was lost without a notice; its peers saw only their connections end.
        (Evidence(code=1, nodes="gpu-002 DOWN,CLOUD toolkit: interrupted (Server.Spot)"),
         Cause.SPOT),
        (Evidence(code=1, nodes="gpu-002 ALLOCATED,NOT_RESPONDING", log=WATCHDOG), Cause.NODE),
        (Evidence(code=1, nodes="gpu-002 DOWN toolkit: machine-ended"), Cause.NODE),
        # A healthy node is no evidence.
        (Evidence(code=1, nodes="gpu-002 ALLOCATED,CLOUD", log=WATCHDOG + " timeout"),
         Cause.TRANSIENT),
        (Evidence(state="OUT_OF_MEMORY", code=1), Cause.MEMORY),
        (Evidence(state="PREEMPTED", code=1), Cause.PREEMPTED),
        (Evidence(state="NODE_FAIL", code=1), Cause.NODE),
        (Evidence(state="REQUEUED", verdict="resume terminated", log=WATCHDOG), Cause.REQUEUED),
        (Evidence(state="REQUEUED", verdict="resume peer-lost", log=OOM), Cause.REQUEUED),
        (Evidence(state="REQUEUED", verdict="resume spot-interruption"), Cause.SPOT),
        (Evidence(state="REQUEUED", stop="spot-interruption"), Cause.SPOT),
        (Evidence(verdict="resume superseded", log=WATCHDOG), Cause.NODE),
        (Evidence(state="REQUEUED", verdict="resume superseded"), Cause.REQUEUED),
        (Evidence(stop="spot-interruption", verdict="resume superseded"), Cause.SPOT),
        (Evidence(state="CANCELLED,COMPLETING", verdict="resume terminated"), Cause.CANCELLED),
        (Evidence(code=1, verdict="resume peer-lost x"), Cause.TRANSIENT),
        (Evidence(code=137), Cause.MEMORY),
        (Evidence(code=1), Cause.ERROR),
        (Evidence(), Cause.ERROR),
    ],
)  # fmt: skip
def test_what_is_stated_goes_before_what_a_log_suggests(evidence, cause):
    assert classify(evidence).cause is cause


def test_the_rank_that_ran_out_of_memory_is_heard_above_those_that_waited_for_it():
    waited = f"{WATCHDOG} timeout: WorkNCCL\n" * 50
    for log in (f"{OOM}\n{waited}", f"{waited}{OOM}\n"):
        assert classify(Evidence(code=1, log=log)).rule == "gpu-memory"


def test_what_python_says_while_it_ends_is_no_evidence():
    log = (
        "Exception ignored in: <function Loader.__del__ at 0x7f>\n"
        "Traceback (most recent call last):\n"
        '  File "loader.py", line 3, in __del__\n'
        "AttributeError: 'NoneType' object has no attribute 'close'\n"
        "torch.distributed.DistNetworkError: Connection reset by peer\n"
    )
    assert classify(Evidence(code=1, log=tail(log))).cause is Cause.TRANSIENT


def test_trouble_that_the_toolkit_overcame_is_no_evidence(capsys):
    """Ignore warnings of the toolkit itself.

    They quote errors of a restarting head node and of a full disk.
    """
    log_line(
        "not reported at step 3: _InactiveRpcError: <_InactiveRpcError of RPC that ended with:\n"
        '\tstatus = StatusCode.UNAVAILABLE\n\tdetails = "connect: Connection refused (111)"\n>'
    )
    log_line("not recorded what saving step 9 took: [Errno 28] No space left on device")
    overcome = "".join(f"[default0]: {line}\n" for line in capsys.readouterr().out.splitlines())
    for log, cause in (("ValueError: bad shape\n", Cause.ERROR), (f"{OOM}\n", Cause.MEMORY)):
        assert classify(Evidence(code=1, log=tail(overcome + log))).cause is cause
    assert classify(Evidence(code=1, log=tail(overcome))).rule == "unexplained"


def test_no_line_takes_long_to_look_at():
    """Match long lines of numbers in linear time.

    Numbers between colons are prefixes of ranks, and each can match in one way only.
    """
    log = ":".join(["10"] * 2000) + "\n" + ":".join(["gpu-10"] * 2000) + "\nKeyError: 'x'\n"
    assert classify(Evidence(code=1, log=tail(log))).rule == "exception"


def test_why_the_toolkit_could_not_start_is_evidence():
    log = "gpu-1: [toolkit] cannot start: [Errno 5] Input/output error: '/shared/images/x'\n"
    assert classify(Evidence(code=1, log=tail(log))).rule == "filesystem"


def test_an_answer_names_its_rule_its_edition_and_the_line_it_saw():
    found = classify(Evidence(code=1, log=f"step 1\n  {OOM}  \nstep 2\n"))
    assert (found.rule, found.matched_line) == ("gpu-memory", OOM)
    assert found.version >= 2


def test_rules_have_names_of_their_own():
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_large_log_is_looked_at_from_its_end():
    log = OOM + "\n" + "step\n" * 200_000 + "KeyError: 'x'\n"
    assert classify(Evidence(code=1, log=tail(log))).rule == "exception"


def test_a_log_alone_can_be_explained_from_the_command_line(capsys):
    log = CORPUS / "attempts" / "out-of-memory" / "cuda-oom.log"
    assert end_of_attempt.main(["--explain", str(log)]) == 1
    assert capsys.readouterr().out.startswith("out-of-memory gpu-memory@")


def test_the_rules_accuracy_is_printed_with_what_is_taken_for_what(capsys):
    assert accuracy.main() == 0
    out = capsys.readouterr().out
    assert all(f"{name}: " in out for name in accuracy.SETS)
    assert "label \\ answer" in out
    confused = Counter({("error", "error"): 3, ("error", "transient"): 1})
    assert accuracy.grid(confused).splitlines()[1].split() == ["error", "3", "1", "3/4"]
