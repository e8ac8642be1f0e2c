"""Limits of accounts: the calls of sshare, sacctmgr and scontrol, and their answers."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from slurmplugins.errors import SlurmRefused, SlurmUnreachable
from slurmplugins.model.account_limits import AccountLimits, PartitionMoney
from slurmplugins.slurm.account_limits import SlurmLimits, billed_job, usd_per_hour
from tests.fakes.runner import FakeRunner

BIN = "/usr/bin"
CAPTURED = Path(__file__).parents[3] / "golden/slurm"
ASSOCIATIONS = (
    "vision|||billing=6000000,cpu=5|billing=0|30\n"
    "vision|ada|||billing=1|2\n"
    "vision||batch|billing=1||\n"
    "language|||||\n"
)
SHARES = (
    "  vision||cpu=44,mem=12000,energy=0,node=9,billing=120034,fs/disk=0|cpu=1,billing=660\n"
    "   vision|ada|cpu=1,billing=1|cpu=0\n"
    "  language||cpu=0,billing=0|\n"
)


def slurm(**answers: str) -> tuple[SlurmLimits, FakeRunner]:
    runner = FakeRunner()
    runner.answer(f"{BIN}/sacctmgr", stdout=answers.get("sacctmgr", ASSOCIATIONS))
    runner.answer(f"{BIN}/sshare", stdout=answers.get("sshare", SHARES))
    return SlurmLimits(runner, BIN, "demo"), runner


def test_an_account_has_its_own_row_and_not_those_of_users_and_partitions():
    limits, runner = slurm()
    assert limits.read(["language", "vision"]) == {
        "vision": AccountLimits("vision", 120_034, 660, 6_000_000, 0, 30),
        "language": AccountLimits("language", 0, 0),
    }
    assert runner.commands == [
        [
            *(f"{BIN}/sacctmgr", "-n", "-P", "show", "assoc", "cluster=demo"),
            "account=language,vision",
            "format=Account,User,Partition,GrpTRESMins,GrpTRESRunMins,GrpSubmit",
        ],
        [
            *(f"{BIN}/sshare", "-n", "-P", "-A", "language,vision"),
            "--format=Account,User,GrpTRESRaw,TRESRunMins",
        ],
    ]


def test_an_account_that_either_program_lacks_is_left_out():
    limits, runner = slurm(sshare="  language||billing=0|\n")
    assert list(limits.read(["vision", "language"])) == ["language"]
    assert limits.read([]) == {}
    assert len(runner.commands) == 2


def test_text_that_is_no_table_is_refused():
    limits, _ = slurm(sshare="vision|x\n")
    with pytest.raises(SlurmRefused, match="without 4 columns"):
        limits.read(["vision"])


def test_a_program_without_answer_is_unreachable():
    limits, runner = slurm()
    runner.answer(f"{BIN}/sshare", stderr="Unable to contact slurm controller", returncode=1)
    with pytest.raises(SlurmUnreachable):
        limits.read(["vision"])


def test_a_limit_is_set_and_removed_by_minus_one():
    limits, runner = slurm()
    limits.set_limit("vision", "GrpTRESMins=billing", 6_000_000)
    limits.set_limit("vision", "GrpSubmitJobs", None)
    words = [f"{BIN}/sacctmgr", "-i", "modify", "account", "where", "name=vision", "cluster=demo"]
    assert runner.commands == [
        [*words, "set", "GrpTRESMins=billing=6000000"],
        [*words, "set", "GrpSubmitJobs=-1"],
    ]


@pytest.mark.parametrize("name", ["", "a,b", "a b", "-i", "a=b"])
def test_a_hostile_account_reaches_no_program(name):
    limits, runner = slurm()
    for call in (
        lambda: limits.set_limit(name, "GrpSubmitJobs", 0),
        lambda: limits.read([name]),
        lambda: limits.deny_accounts("batch", [name]),
    ):
        with pytest.raises(SlurmRefused, match="not an account"):
            call()
    assert runner.commands == []


def test_the_accounts_that_a_partition_denies_are_read_and_replaced():
    limits, runner = slurm()
    partitions = {"partitions": [{"name": "batch", "accounts": {"allowed": "", "deny": "a,b"}}]}
    runner.answer(f"{BIN}/scontrol", stdout=json.dumps(partitions))
    assert limits.partitions() == {"batch": PartitionMoney(frozenset({"a", "b"}))}
    limits.deny_accounts("batch", [])
    assert runner.commands[-1] == [
        *(f"{BIN}/scontrol", "update", "partitionname=batch", "denyaccounts="),
    ]


def test_weights_are_replaced_for_jobs_that_start_later():
    limits, runner = slurm()
    captured = (CAPTURED / "24.11/scontrol-partitions.json").read_text()
    runner.answer(f"{BIN}/scontrol", stdout=captured)
    weights = limits.partitions()["spot"].weights
    assert weights == "CPU=100.60,Mem=26.48G,GRES/gpu=402.40"
    limits.set_weights("spot", weights)
    assert runner.commands[-1] == [
        *(f"{BIN}/scontrol", "update", "partitionname=spot", f"tresbillingweights={weights}"),
    ]


@pytest.mark.parametrize("version", ["24.11", "25.11", "26.05"])
def test_the_jobs_of_each_version_are_read_with_their_billing(version):
    text = (CAPTURED / version / "scontrol-jobs.json").read_text()
    jobs = [job for item in json.loads(text)["jobs"] if (job := billed_job(item))]
    running = next(job for job in jobs if job.running and job.usd_per_hour)
    assert running.account == "vision"
    assert running.nodes
    assert running.partitions == ("spot",)
    assert 0 < running.submitted <= running.begin < (running.end or 0)
    assert Decimal("0.01") < running.usd_per_hour < 10
    assert running.may_requeue


@pytest.mark.parametrize("version", ["24.11", "25.11", "26.05"])
def test_a_waiting_job_has_its_cost_until_its_time_limit(version):
    """Read captured jobs of 0.10 USD an hour.

    Their limit is a day. Job 7 is an array of one task at once.
    """
    text = (CAPTURED / version / "scontrol-jobs.json").read_text()
    records = {item["job_id"]: item for item in json.loads(text)["jobs"]}

    def usd(number: int, **changes: object) -> Decimal | None:
        job = billed_job(records[number] | changes)
        assert job is not None
        return job.usd_until_limit

    assert usd(9) == usd(7) == Decimal("2.4")
    assert usd(7, array_task_string="1-3", array_max_tasks=0) == Decimal("7.2")
    assert usd(9, time_limit={"set": True, "infinite": True, "number": 0}) is None
    assert billed_job(records[9] | {"wckey": "*ImageNet"}).wckey == "*ImageNet"


def test_jobs_are_held_and_released_many_in_a_call():
    limits, runner = slurm()
    runner.answer(f"{BIN}/scontrol", stdout="")
    limits.hold(list(range(1, 502)))
    limits.release([7])
    limits.release([])
    numbers = [command[1:] for command in runner.commands]
    assert [(words[0], words[1].count(",")) for words in numbers] == [
        ("hold", 499), ("hold", 0), ("release", 0)
    ]  # fmt: skip


def test_an_unreadable_job_is_left_out():
    assert billed_job({"job_id": "x"}) is None
    assert billed_job({"job_id": 4, "nodes": "gpu-[001", "job_state": ["RUNNING"]}) is None


@pytest.mark.parametrize(
    ("tres", "usd"),
    [
        ("cpu=4,mem=1G,billing=1006", "1.006"),
        ("billing=12", "0.012"),
        ("gres/gpu=1", "0"),
        ("", "0"),
        ("xbilling=5", "0"),
    ],
)
def test_billing_is_milli_dollars_an_hour(tres, usd):
    assert usd_per_hour(tres) == Decimal(usd)
