"""An account that runs dry on real Slurm: running and waiting jobs, step by step, and an override.

The dollars are written into the head's own record of spending: real ones would take hours.
"""

from __future__ import annotations

import json

import pytest
from ruamel.yaml import YAML

from tests.slurm.conftest import toolkit
from tests.slurm.settings import add_zoe
from tests.slurm.waiting import until
from toolkit.errors import HeadCommandFailed

pytestmark = [pytest.mark.machines, pytest.mark.timeout(1200, func_only=True)]
BUDGET = ("runuser", "-u", "slurm", "--", "/opt/slurm-toolkit/bin/slurm-budget")
FOLDER = "/srv/head/budgets"
GATE = "/shared/home/grace/budget-gate"
WAIT = f"until [ -e {GATE} ]; do sleep 1; done"
SPEND = f"""
import datetime, json, sys
path = "{FOLDER}/budgets.json"
memory = json.load(open(path))
day = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
days = {{day: sys.argv[2]}}
if sys.argv[1] == "grants":
    memory["days"]["grants"] = days
else:
    memory["projects"][sys.argv[1]] = {{"vision": days}}
json.dump(memory, open(path, "w"))
"""
BUDGET_REASONS = ("AssocGrpBillingMinutes", "AssocGrpBillingRunMinutes")


def submit(cluster, *options: str) -> str:
    """Submit a job of the budget's account, and return its number."""
    home = "--chdir=/shared/home/grace"
    words = ("sbatch", "--parsable", "--account=grants", "--requeue", home, f"--wrap={WAIT}")
    return cluster.run("runuser", "-u", "grace", "--", *words, *options).strip()


def spend(cluster, usd: str, whose: str = "grants") -> None:
    """Let somebody have spent so much today, and make a pass."""
    cluster.run("flock", f"{FOLDER}/budgets.lock", "python3", "-c", SPEND, whose, usd)
    cluster.run(*BUDGET)


def figures(cluster) -> dict:
    budgets = json.loads(cluster.toolkit("budget", "status", "--json").stdout)["budgets"]
    return next(item for item in budgets if item["name"] == "grants-month")


def waits_for(cluster, job: str, *reasons: str) -> bool:
    record = cluster.job(job)
    return record["job_state"] == ["PENDING"] and record["state_reason"] in reasons


def why(cluster, job: str, words: str) -> str:
    """Return the answer of `toolkit why` once it has these words."""

    def answer() -> str:
        text: str = cluster.toolkit("why", job).stdout
        return text if words in text else ""

    return until(f"the words {words!r}", answer, seconds=300)


def limits(cluster) -> str:
    """Return the account's limits, as slurmdbd has them."""
    where = ("show", "assoc", "cluster=judge", "account=grants")
    words = "format=GrpTRESMins%60,GrpTRESRunMins%60,GrpSubmit"
    return cluster.run("sacctmgr", "-n", "-P", *where, words).splitlines()[0]


TRAIN = {
    "priority": 50,
    "preempts": ["sweep"],
    "max_time": "2-00:00:00",
    "per_user": {"jobs": 4, "submit": 40, "tres": {"gres/gpu": 8, "mem": 2048}},
    "per_account": {"jobs": 3, "submit": 9, "tres": {"gres/gpu:a10g": 4}},
    "per_job": {"node": 2},
    "total": {"jobs": 20, "submit": 100, "tres": {"cpu": 64}},
}


@pytest.fixture
def settings(cluster, state):
    """The settings of cluster.yaml. The other lane waits with its changes.

    The other lane removes zoe while her job runs, so slurmdbd may not give her up yet.
    """
    with cluster.undisturbed("accounts"):
        settings = YAML(typ="rt").load(cluster.config.read_text())
        add_zoe(settings, state)
        for partition in settings["partitions"].values():
            partition.pop("priority", None)  # Slurm preempts by partition or by class
        yield settings


def test_slurmdbd_holds_classes_as_they_are_declared_and_no_other_qos_is_touched(
    cluster, settings, tmp_path
):
    """Add, change and remove a class, each with a second apply."""
    classes = settings["classes"]
    path = tmp_path / "cluster.yaml"

    def apply(additions: dict, *options: str) -> str:
        with path.open("w") as file:
            YAML(typ="rt").dump(settings | {"classes": {**classes, **additions}}, file)
        return toolkit("accounts", "apply", "--config", str(path), *options).stdout

    before = cluster.run("sacctmgr", "-n", "-P", "show", "qos", "normal")
    assert "+ class train" in apply({"train": TRAIN})
    assert apply({"train": TRAIN}) == "accounts: 0 changed\n"
    assert "MaxWall 172800 → none" in apply({"train": {"priority": 60}})
    assert apply({"train": {"priority": 60}}) == "accounts: 0 changed\n"
    assert "- class train" in apply({}, "--prune", "--yes")
    assert cluster.run("sacctmgr", "-n", "-P", "show", "qos", "normal") == before


# High enough for every job of the other tests.
HIGH = {
    "total": {"jobs": 9_000, "submit": 90_000, "tres": {"cpu": 90_000, "mem": 1_048_576}},
    "per_user": {"jobs": 8_000, "submit": 80_000},
    "per_job": {"node": 900},
    "max_time": "100-00:00:30",
}
HIGH_OF_GRACE = {"submit": 70_000, "tres": {"gres/gpu": 900}, "max_time": "90-00:00:00"}
MANAGER = ("sacctmgr", "-n", "-P", "-i")
GRACE = ("where", "name=grace", "account=language", "cluster=judge", "set")


def test_slurmdbd_holds_limits_and_shares_as_they_are_declared(cluster, settings, tmp_path):
    """Set and take back limits, beside one of an admin."""
    path = tmp_path / "cluster.yaml"

    def apply(of_account: dict, **of_grace: object) -> str:
        accounts = [
            {**item, "limits": of_account} if item["name"] == "language" else item
            for item in settings["accounts"]
        ]
        users = [
            {**item, **of_grace} if item["name"] == "grace" else item for item in settings["users"]
        ]
        with path.open("w") as file:
            YAML(typ="rt").dump(settings | {"accounts": accounts, "users": users}, file)
        return toolkit("accounts", "apply", "--config", str(path)).stdout

    def shown() -> str:
        where = ("woplimits", "cluster=judge", "account=language", "user=grace")
        columns = "format=Share,GrpTRES,MaxJobs,MaxSubmit,MaxWall,Comment"
        return cluster.run(*MANAGER, "show", "assoc", *where, columns).strip()

    cluster.run(*MANAGER, "modify", "user", *GRACE, "maxjobs=7000")
    try:
        output = apply(HIGH, fairshare=5, limits=HIGH_OF_GRACE)
        assert "~ account language: GrpTRES=cpu none → 90000" in output
        assert "~ user grace in account language: fairshare 1 → 5" in output
        assert shown().startswith("5|gres/gpu=900|7000|70000|90-00:00:00|toolkit:made toolkit:set=")
        assert apply(HIGH, fairshare=5, limits=HIGH_OF_GRACE) == "accounts: 0 changed\n"
        assert "MaxWall 100-00:01:00 → none" in apply({})
        assert shown() == "1||7000|||toolkit:made"
        assert apply({}) == "accounts: 0 changed\n"
    finally:
        cluster.run(*MANAGER, "modify", "user", *GRACE, "maxjobs=-1")


def test_what_an_admin_made_is_not_touched_unless_it_is_adopted(cluster, settings, tmp_path):
    path = tmp_path / "cluster.yaml"
    visitors = {"name": "visitors", "users": ["grace"]}

    def apply(accounts: list, *options: str) -> str:
        with path.open("w") as file:
            YAML(typ="rt").dump(settings | {"accounts": accounts}, file)
        done = toolkit("accounts", "apply", "--config", str(path), *options, may_fail=True)
        return done.stdout + done.stderr

    declared = [*settings["accounts"], visitors]
    account = ("account", "visitors", "cluster=judge")
    cluster.run(*MANAGER, "add", *account, "organization=physics")
    try:
        assert "account visitors was not made by the toolkit" in apply(declared)
        assert "~ account visitors: adopted" in apply(declared, "--adopt")
        assert apply(declared) == "accounts: 0 changed\n"
        cluster.run(*MANAGER, "add", "user", "ada", "account=visitors", "cluster=judge")
        output = apply(settings["accounts"], "--prune", "--yes")
        assert "- user grace in account visitors" in output
        assert "user ada in account visitors, not made by the toolkit" in output
        assert "- account visitors" not in output
    finally:
        cluster.run(*MANAGER, "delete", "account", "name=visitors", "cluster=judge")


@pytest.fixture(scope="module")
def running(cluster):
    """A running job of the account, which fits its budget."""
    cluster.run(*BUDGET)
    job = submit(cluster, "--partition=batch", "--time=120")
    until("the job", lambda: cluster.job(job)["job_state"] == ["RUNNING"])
    yield job
    cluster.run("runuser", "-u", "grace", "--", "scancel", "--user=grace", "--account=grants")
    spend(cluster, "0")


def test_a_job_waits_whose_time_limit_costs_more_than_is_left(cluster, running):
    record = cluster.job(running)
    billing = int(record["tres_alloc_str"].rpartition("billing=")[2].partition(",")[0])
    # A little more than the dollar of the budget.
    minutes = 1100 * 60 // billing + 1
    job = submit(cluster, "--partition=batch", "--qos=sweep", f"--time={minutes}")
    until("the budget's limit", lambda: waits_for(cluster, job, "AssocGrpBillingMinutes"))
    cluster.run(*BUDGET)  # slurmctld forgets the reason as the limit moves, until its next look
    answer = why(cluster, job, "too little is left of its account's budget")
    assert "toolkit:budget grants-month: account grants may cost 1.00 USD" in answer
    assert "`toolkit budget status`" in answer
    assert cluster.job(running)["job_state"] == ["RUNNING"]
    assert float(figures(cluster)["usd_committed"]) > 0

    spend(cluster, "0.60")  # spot-only
    why(cluster, job, "budget allows partitions that buy spot alone")
    cheap = submit(cluster, "--partition=cheap", "--time=1", "--hold")

    with cluster.undisturbed("services"):
        cluster.run("systemctl", "stop", "slurm-budget.timer")
        cluster.run("systemctl", "restart", "slurmctld")  # it forgets DenyAccounts
        partition = ("scontrol", "show", "partition", "batch")
        until("a pass", lambda: "DenyAccounts=grants" in cluster.run(*partition))
        cluster.run("systemctl", "start", "slurm-budget.timer")

    spend(cluster, "1.00")  # hold
    assert figures(cluster)["actions"] == ["hold", "spot-only", "warn"]
    cluster.run("scontrol", "release", cheap)
    until("the hold", lambda: waits_for(cluster, cheap, *BUDGET_REASONS))
    assert cluster.job(running)["job_state"] == ["RUNNING"], "a running job is left"
    assert "|billing=0|" in limits(cluster)
    cluster.run("scancel", cheap)

    words = ("--usd", "5", "--until", "2h", "--reason", "a deadline")
    cluster.toolkit("budget", "override", "grants-month", *words)
    until("the job after the override", lambda: cluster.job(job)["job_state"] == ["RUNNING"])
    assert figures(cluster)["override"]["reason"] == "a deadline"

    spend(cluster, "6.60")  # 110 % of six dollars: requeue
    for number in (running, job):
        until("the requeue", lambda number=number: cluster.job(number)["job_state"] == ["PENDING"])
        assert cluster.job(number)["restart_cnt"] == 1
    spend(cluster, "7.20")  # refuse
    with pytest.raises(HeadCommandFailed, match="limit"):
        submit(cluster, "--partition=cheap", "--time=1")
    cluster.toolkit("budget", "override", "grants-month", "--end")
    lines = [json.loads(line) for line in cluster.run("cat", f"{FOLDER}/audit.jsonl").splitlines()]
    reached = [item["action"] for item in lines if item["event"] == "budget_step_reached"]
    assert {"warn", "spot-only", "hold", "requeue", "refuse"} <= set(reached)
    assert {int(running), int(job)} <= {item.get("job") for item in lines}

    spend(cluster, "0")
    assert limits(cluster).endswith("||"), "the account's own limits are back"
    until(
        "the requeued job",
        lambda: cluster.job(running)["job_state"] in (["RUNNING"], ["RUNNING", "CONFIGURING"]),
    )


@pytest.fixture
def project_job(cluster):
    """A function that submits a job of the project nerf."""

    def sbatch(*options: str) -> str:
        words = ("sbatch", "--parsable", "--account=vision", "--wckey=Nerf", "--job-name=nerf")
        script = ("--partition=cheap", "--time=1", "--wrap=sleep 1")
        return cluster.run("runuser", "-u", "ada", "--", *words, *options, *script).strip()

    yield sbatch
    cluster.run("sh", "-c", "scancel --name=nerf || true")
    spend(cluster, "0", "nerf")
    with cluster.undisturbed("prices"):
        cluster.renew_prices()


def test_a_projects_jobs_are_held_released_and_refused(cluster, project_job):
    """Hold each job: Slurm has no limit for wckeys."""
    spend(cluster, "1.00", "nerf")
    # In the future, so that no instance is launched for it.
    job = project_job("--begin=now+1hour")
    cluster.run(*BUDGET)
    assert waits_for(cluster, job, "JobHeldAdmin")
    answer = why(cluster, job, "the budget of its project holds it")
    assert "toolkit:budget nerf-month: project nerf may cost 1.00 USD" in answer
    spend(cluster, "0.10", "nerf")
    assert not waits_for(cluster, job, "JobHeldAdmin")
    own = project_job("--hold")
    spend(cluster, "1.20", "nerf")
    assert waits_for(cluster, job, "JobHeldAdmin")
    with cluster.undisturbed("prices"):
        cluster.renew_prices()
        with pytest.raises(HeadCommandFailed, match="refused by a budget: nerf-month"):
            project_job()
    spend(cluster, "0", "nerf")
    assert waits_for(cluster, own, "JobHeldUser"), "a user's own hold stays"
    assert not waits_for(cluster, job, "JobHeldAdmin")
