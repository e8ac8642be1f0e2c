"""Users who left: they submit nothing more, and their jobs are named."""

import json

import pytest

from tests.fakes.sacctmgr import FakeSacctmgr
from tests.unit.deploy.samples import example
from toolkit.deploy import left_users
from toolkit.errors import HeadCommandFailed
from toolkit.head_runner import SlurmAnswerError


class Runner:
    """A head node that answers by program, and keeps the commands."""

    def __init__(self, **answers) -> None:
        self.answers, self.calls = answers, []

    def run(self, argv, *, timeout=60):
        self.calls.append(list(argv))
        answer = self.answers.get(argv[0], "")
        if isinstance(answer, Exception):
            raise answer
        return answer(list(argv)) if callable(answer) else answer


class Cluster:
    """A cluster whose slurmdbd keeps what it is told; ada and grace are in two accounts."""

    def __init__(self) -> None:
        self.slurmdbd = FakeSacctmgr()
        self.config = example()
        self.names = [user.name for user in self.config.users]
        for account in ("vision", "speech"):
            add = ["sacctmgr", "-i", "add", "account", account, "cluster=demo", "parent=root"]
            self.slurmdbd.run([*add, "fairshare=1", "organization=toolkit"])
            for name in (*self.names, "zoe"):
                words = [name, f"account={account}", "cluster=demo"]
                self.slurmdbd.run(["sacctmgr", "-i", "add", "user", *words])
        self.slurmdbd.changes.clear()

    def limit(self, *left, **answers):
        rows = [{"name": name} for name in self.names] + [{"name": n, "left": True} for n in left]
        runner = Runner(**{"cat": json.dumps(rows), "sacctmgr": self.slurmdbd.run} | answers)
        return left_users.limit_left_users(self.config, runner), runner

    def come_back(self, name):
        (first, *_) = self.config.users
        back = first.model_copy(update={"name": name, "uid": 2077})
        self.config = self.config.model_copy(update={"users": (*self.config.users, back)})

    def limits(self, name):
        return {
            limit.account: limit.max_submit_jobs
            for limit in left_users.read_limits(self.config, Runner(sacctmgr=self.slurmdbd.run))
            if limit.user == name
        }


@pytest.fixture
def cluster():
    return Cluster()


def test_who_left_may_submit_nothing_in_any_account(cluster):
    cluster.limit("zoe", "unknown")
    assert cluster.limits("zoe") == {"speech": "0", "vision": "0"}
    assert set(cluster.limits("ada").values()) == {""}
    cluster.slurmdbd.changes.clear()
    cluster.limit("zoe")
    assert not cluster.slurmdbd.changes


def test_an_account_that_an_admin_adds_later_is_limited_too(cluster):
    del cluster.slurmdbd.members["speech", "zoe"]
    cluster.limit("zoe")
    cluster.slurmdbd.members["speech", "zoe"] = {}
    cluster.limit("zoe")
    assert cluster.limits("zoe") == {"speech": "0", "vision": "0"}


def test_who_came_back_has_the_limits_of_before(cluster):
    cluster.slurmdbd.members["speech", "zoe"] = {"maxsubmitjobs": "50"}
    cluster.limit("zoe")
    cluster.come_back("zoe")
    cluster.limit()
    assert cluster.limits("zoe") == {"speech": "50", "vision": ""}
    cluster.slurmdbd.changes.clear()
    cluster.limit()
    assert not cluster.slurmdbd.changes


def test_who_came_back_is_freed_by_the_next_run_if_this_one_fails(cluster):
    """The playbook has cleared `left` by then: only slurmdbd still knows."""
    cluster.limit("zoe")
    cluster.come_back("zoe")

    def refuses(argv):
        if "modify" in argv:
            raise HeadCommandFailed("sacctmgr on the head node: exit code 1")
        return cluster.slurmdbd.run(argv)

    with pytest.raises(HeadCommandFailed):
        cluster.limit(sacctmgr=refuses)
    cluster.limit()
    assert cluster.limits("zoe") == {"speech": "", "vision": ""}


def test_a_limit_that_an_admin_set_stays(cluster):
    cluster.slurmdbd.members["vision", "ada"] = {"maxsubmitjobs": "0", "comment": "paused"}
    cluster.limit()
    assert cluster.limits("ada")["vision"] == "0"
    cluster.slurmdbd.members["vision", "zoe"] = {"maxsubmitjobs": "0"}
    cluster.limit("zoe")
    cluster.come_back("zoe")
    cluster.limit()
    assert cluster.limits("zoe") == {"speech": "", "vision": "0"}


def test_who_left_stays_limited_if_the_list_is_lost(cluster):
    cluster.limit("zoe")
    cluster.limit()
    assert cluster.limits("zoe") == {"speech": "0", "vision": "0"}


def test_an_association_of_one_partition_is_limited_by_itself():
    rows = "zoe|vision|gpu|5|\nzoe|vision||0|toolkit:left\n|vision|||\n"
    runner = Runner(cat='[{"name": "zoe", "left": true}]', sacctmgr=rows)
    left_users.limit_left_users(example(), runner)
    (changed,) = [argv for argv in runner.calls if "modify" in argv]
    assert {"name=zoe", "account=vision", "partition=gpu"} <= set(changed)
    assert changed[-2:] == ["maxsubmitjobs=0", "comment=toolkit:left=5"]


def test_a_line_that_is_no_association_is_an_error():
    with pytest.raises(SlurmAnswerError):
        left_users.read_limits(example(), Runner(sacctmgr="zoe|vision\n"))


def test_only_who_is_marked_has_left():
    rows = [{"name": "ada"}, {"name": "zoe", "left": True}]
    assert left_users.read_left(Runner(cat=json.dumps(rows))) == {"zoe"}
    with pytest.raises(SlurmAnswerError):
        left_users.read_left(Runner(cat="{"))


def test_before_the_first_apply_nobody_has_left():
    stderr = "cat: /shared/.toolkit/users.json: No such file or directory"
    absent = HeadCommandFailed("cat on the head node: exit code 1", returncode=1, stderr=stderr)
    assert left_users.read_left(Runner(cat=absent)) == frozenset()


def test_a_list_that_can_not_be_read_frees_nobody():
    for error in (
        HeadCommandFailed("cat on the head node ran longer than 60 s"),
        HeadCommandFailed("cat on the head node: exit code 1", returncode=1, stderr="Stale file"),
    ):
        with pytest.raises(HeadCommandFailed):
            left_users.read_left(Runner(cat=error))


def test_jobs_are_counted_by_user_and_cancelled_by_user(cluster):
    jobs, _ = cluster.limit("zoe", "bob", squeue="zoe\nzoe\n")
    (of_zoe,) = jobs
    assert "2 jobs of zoe go on" in str(of_zoe)
    assert not cluster.limit()[0]
    runner = Runner(cat='[{"name": "zoe", "left": true}]', sacctmgr="")
    assert not left_users.limit_left_users(cluster.config, runner, cancel=True)
    assert runner.calls[-1] == ["scancel", "--user=zoe"]
